"""Columns in different places as one: batches may cross from one to the next."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.columns.mapped import mapped_file
from potluck.data.columns.several import Several, joined_columns


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    folder, arrays = tmp_path_factory.mktemp("several"), []
    for number, count in enumerate((3, 1, 6)):
        array = np.memmap(folder / str(number), np.float32, "w+", shape=(count, 2))
        array[:] = np.arange(count * 2).reshape(count, 2) + 100 * number
        arrays.append(array)
    return arrays


@given(st.data())
def test_rows_are_those_of_the_arrays_put_together(maps, data):
    chosen = [
        torch.tensor(data.draw(st.lists(st.integers(0, len(each) - 1), max_size=4)), dtype=torch.long) for each in maps
    ]
    columns = [mapped_file(maps[0]), torch.from_numpy(np.array(maps[1])), mapped_file(maps[2])]
    whole = joined_columns(columns, chosen)
    wanted = np.concatenate([np.array(each)[index.numpy()] for each, index in zip(maps, chosen, strict=True)])
    assert isinstance(whole, Several)
    assert len(whole) == len(wanted)
    index = data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=6)) if len(wanted) else []
    found = whole.take(torch.tensor(index, dtype=torch.long))
    assert torch.equal(found, torch.from_numpy(wanted[index].reshape(-1, 2)))
    assert whole.even


def test_columns_in_memory_stay_one_tensor():
    found = joined_columns([torch.arange(4), torch.arange(10, 14)], [torch.tensor([1]), torch.tensor([3, 0])])
    assert found.tolist() == [1, 13, 10]

"""Arrays that stay in their files: views are found again by their addresses, and nothing but a batch is read."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import DataError
from potluck.data.columns.mapped import Mapped, mapped_file
from potluck.data.columns.tensors import usable
from potluck.data.own import examples_from

ROWS, COLUMNS = 12, 5


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "a.npy"
    np.save(path, np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS))
    return path


SLICES = st.builds(
    slice, st.none() | st.integers(-14, 14), st.none() | st.integers(-14, 14), st.integers(-3, 3).filter(bool)
)


@given(st.lists(SLICES, min_size=1, max_size=3), SLICES, st.booleans())
def test_slices_of_slices_are_read_as_numpy_reads_them(file, slices, across, plain):
    array = np.load(file, mmap_mode="r")
    for each in slices:
        array = array[each]
    array = array[:, across]
    array = np.asarray(array) if plain else array
    found = mapped_file(array)
    if not array.size:
        assert found is None
        return
    index = torch.arange(len(array)).flip(0)
    assert torch.equal(found.take(index), torch.from_numpy(array[::-1].astype(np.float32)))


@pytest.mark.parametrize("kind", ["f2", "f4", ">f4", "f8", "i2", "u2", ">i4", "i8", "u1", "?"])
def test_types_are_those_of_arrays_in_memory(tmp_path, kind):
    array = np.memmap(tmp_path / "a", kind, "w+", offset=24, shape=(4, 3))
    array[:] = np.arange(12).reshape(4, 3) % 2
    lazy, held = (examples_from((inputs, [0, 1, 0, 1])) for inputs in (array, np.array(array)))
    assert isinstance(lazy.inputs, Mapped)
    index = torch.tensor([3, 1])
    if kind == "?":
        assert lazy.inputs.take(index).dtype is torch.bool
        return
    assert torch.equal(lazy.take(index)[0], held.take(index)[0])
    assert lazy.take(index)[0].dtype is held.take(index)[0].dtype
    assert lazy.prepare == held.prepare
    assert lazy.inputs.example().dtype is held.inputs.dtype


def test_a_million_rows_pickle_as_a_path(tmp_path):
    array = np.memmap(tmp_path / "a", np.float32, "w+", shape=(1 << 20, 4))
    content = pickle.dumps(examples_from((array, np.zeros(1 << 20, np.int64))).inputs)
    assert len(content) < 1000
    assert len(pickle.loads(content)) == 1 << 20


def test_what_is_in_memory_is_no_map(tmp_path):
    array = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 2))
    assert mapped_file(np.zeros(3)) is None
    assert mapped_file(array[[0, 2]]) is None
    assert mapped_file(array + 1) is None
    changed = np.memmap(tmp_path / "a", np.float32, "c", shape=(4, 2))
    changed[:] = 5
    assert usable(torch.from_numpy(np.array(changed))).sum() == 40
    assert examples_from((changed, [0] * 4)).inputs.sum() == 40


def test_labels_do_not_read_inputs(tmp_path):
    array = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 2))
    examples = examples_from((array, [0, 1, 0, 1]))
    (tmp_path / "a").unlink()
    assert examples.labels(torch.tensor([3, 2])).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"cannot read .*a as it was: No such file"):
        examples.take(torch.tensor([0]))


def test_a_file_that_became_shorter_is_refused(tmp_path):
    examples = examples_from((np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 2)), [0, 1, 0, 1]))
    (tmp_path / "a").write_bytes(b"12345678")
    with pytest.raises(DataError, match=r"cannot read .*a as it was"):
        examples.take(torch.tensor([0]))


def test_values_that_are_not_finite_are_found_in_their_batch(tmp_path):
    array = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 2))
    array[2, 1] = np.inf
    examples = examples_from((array, [0, 1, 0, 1]))
    examples.take(torch.tensor([0, 3]))
    with pytest.raises(DataError, match="input 2 has values that are not finite"):
        examples.take(torch.tensor([0, 2]))

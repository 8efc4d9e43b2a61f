"""Sequences of unequal length: batches are filled up to their longest, whatever else is in memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.data import Arrays, is_even
from potluck.core.errors import DataError
from potluck.core.goals.classes import IGNORED
from potluck.data.columns.ragged import Ragged, joined_ragged

SEQUENCES = st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=8)


def column(sequences, fill=7):
    return Ragged.of([torch.tensor(each, dtype=torch.long) for each in sequences], fill)


def filled(sequences, fill=7):
    longest = max(map(len, sequences), default=0)
    return [[*each, *[fill] * (longest - len(each))] for each in sequences]


@given(SEQUENCES, st.data())
def test_a_batch_has_its_sequences_filled_up_to_the_longest(sequences, data):
    index = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=6))
    found = column(sequences).take(torch.tensor(index))
    assert found.tolist() == filled([sequences[at] for at in index])


@given(st.lists(SEQUENCES, min_size=1, max_size=4), st.data())
def test_joining_columns_is_joining_their_sequences(parts, data):
    chosen = [
        data.draw(st.lists(st.integers(0, len(part) - 1), max_size=5, unique=True), label="chosen") for part in parts
    ]
    columns, index = [column(part) for part in parts], [torch.tensor(each, dtype=torch.long) for each in chosen]
    whole = joined_ragged(columns, index)
    wanted = [part[at] for part, each in zip(parts, chosen, strict=True) for at in each]
    assert len(whole) == len(wanted)
    assert [whole.take(torch.tensor([at]))[0].tolist() for at in range(len(whole))] == wanted


def test_sequences_that_happen_to_be_of_one_length_join_others():
    whole = joined_ragged([torch.tensor([[1, 2], [3, 4]]), column([[5]])], [torch.tensor([1]), torch.tensor([0])])
    assert whole.take(torch.tensor([0, 1])).tolist() == [[3, 4], [5, 7]]


def test_positions_may_have_more_dimensions():
    waves = Ragged.of([torch.ones(2, 3), torch.zeros(1, 3)], fill=-1.0)
    assert waves.take(torch.tensor([1, 0])).tolist() == [[[0] * 3, [-1] * 3], [[1] * 3, [1] * 3]]


def test_an_example_is_made_up_and_no_longer_than_the_longest():
    assert column([[1], [1, 2, 3]]).example().tolist() == [[0, 0, 0]]
    assert column([[1] * 100]).example().shape == (1, 32)
    assert not is_even(Arrays(column([[1], [2]]), torch.tensor([0, 1])))


@pytest.mark.parametrize("kind", [torch.uint8, torch.bool])
def test_targets_of_bytes_and_truth_values_have_what_does_not_count_too(kind):
    found = Ragged.of([torch.tensor([1, 0]).to(kind), torch.tensor([1]).to(kind)], IGNORED)
    assert found.take(torch.tensor([0, 1])).tolist() == [[1, 0], [1, IGNORED]]


@pytest.mark.parametrize(
    ("kind", "fill"),
    [
        (torch.bool, 2),
        (torch.uint8, -1),
        (torch.uint8, 256),
        (torch.long, 0.5),
        (torch.long, 1e30),
        (torch.float16, 1e5),
        (torch.float, 1e39),
        (torch.float, math.nan),
    ],
)
def test_a_number_that_sequences_cannot_have_is_refused(kind, fill):
    with pytest.raises(DataError, match=r"pad is .*, but sequences of .* cannot be filled up with that"):
        Ragged.of([torch.zeros(2, dtype=kind), torch.zeros(1, dtype=kind)], fill)


@pytest.mark.parametrize(
    ("kind", "fill"), [(torch.uint8, 255), (torch.long, 2.0), (torch.bool, 0), (torch.float, 0.1), (torch.float, -1)]
)
def test_a_number_that_they_can_have_is_taken(kind, fill):
    found = Ragged.of([torch.zeros(2, dtype=kind), torch.zeros(1, dtype=kind)], fill)
    assert float(found.take(torch.tensor([0, 1]))[1, 1]) == pytest.approx(fill)

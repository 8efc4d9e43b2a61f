"""Who each example came from: columns of names and numbers, and what is no owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.owners import clients_of, listed, owner_numbers, says_more


@pytest.mark.parametrize(
    "column",
    [
        ["b", "a", "b"],
        ("b", "a", "b"),
        np.array(["b", "a", "b"]),
        [7, 2, 7],
        np.array([7, 2, 7]),
        [7.0, 2.0, 7.0],  # what a table makes of whole numbers, where one is missing elsewhere
    ],
)
def test_owners_are_numbered_in_the_order_in_which_they_appear(column):
    assert owner_numbers(column, 3, "owners", "examples").tolist() == [0, 1, 0]


def test_a_tensor_of_numbers_is_taken_as_it_is():
    column = torch.tensor([5, 0, 5])
    assert owner_numbers(column, 3, "owners", "examples") is column


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (["a", None, "b"], "owners has None for example 1, but each example needs an owner, by name or by whole"),
        (["a", "b", float("nan")], "owners has nan for example 2"),
        (np.array([1.0, np.nan, 2.0]), r"owners has .*nan.* for example 1"),
        (["a", "", "b"], "owners has '' for example 1"),
        ([1, 2.5, 3], "owners has 2.5 for example 1"),
        ([["a"], ["b"], ["c"]], r"owners has \['a'\] for example 0"),
        ([1, "1", 2], "which are the same name"),
        (["a\nb", "c", "d"], "characters that can be printed"),
        (["a" * 201, "c", "d"], "1 to 200 characters"),
        (["a", "b"], "owners has 2 entries for 3 examples: name one for each"),
        (torch.tensor([0.0, 1.0, 2.0]), "a whole number for each example"),
        (torch.zeros(3, 2).long(), r"tensor of shape \(3, 2\)"),
    ],
)
def test_gaps_and_what_is_no_owner_are_refused(column, says):
    with pytest.raises(DataError, match=says):
        owner_numbers(column, 3, "owners", "examples")


def test_numbers_without_gaps_need_no_names():
    assert not says_more(torch.tensor([1, 0, 2]), ["0", "1", "2"])
    assert not says_more(torch.tensor([1, 0, 2]), ["0", "2"])  # two of them, drawn
    assert says_more(torch.tensor([1, 0, 3]), ["0", "1", "3"])
    assert not says_more([0, 1, 1], ["0", "1"])
    assert says_more([1, 0], ["1", "0"])


def test_test_examples_find_their_clients_by_name_or_number():
    assert clients_of(["bob", "dave", "alice"], ["alice", "bob"]).tolist() == [1, -1, 0]
    assert clients_of(torch.tensor([4, 7, 5]), ["7", "4"]).tolist() == [1, 0, -1]
    assert listed(np.array([3, 4])) == ["3", "4"]
    assert listed([2**62 + 1, 2**70 + 1]) == [str(2**62 + 1), str(2**70 + 1)]  # as they are, not as floats


def test_fewer_test_examples_keep_their_owners():
    examples = Arrays(torch.arange(6).view(6, 1).float(), torch.zeros(6).long())
    data = Dataset(examples, examples, 1, test_owners=["a", "b", "c", "d", "e", "f"])
    assert data.scored_on(3).test_owners == ["a", "c", "e"]
    assert data.scored_on(6).test_owners == data.test_owners
    numbers = Dataset(examples, examples, 1, test_owners=torch.arange(6))
    assert numbers.scored_on(2).test_owners == [0, 3]
    with pytest.raises(DataError, match="test_owners has 2 entries for 6 test examples"):
        Dataset(examples, examples, 1, test_owners=["a", "b"]).owner_numbers()

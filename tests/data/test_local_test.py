"""Test examples as the clients' own."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.data import Holdings
from potluck.data.local_test import local_test
from potluck.data.partitions import Dirichlet


def test_each_class_goes_to_its_holders_in_proportion():
    train = torch.tensor([0, 0, 0, 0, 1, 1])
    holdings = Holdings.of_lists([torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])])
    test = torch.tensor([0, 0, 0, 0, 1])
    found = local_test(train, holdings, test, classes=3)
    # three of four zeros are client 0's, which has no ones; the rest are client 1's, which has both
    assert found.classes.tolist() == [[True, False, False]] * 3 + [[True, True, False]] * 2
    assert found.owned.all()


def test_a_class_that_nobody_trains_on_is_nobodys():
    holdings = Holdings.of_lists([torch.tensor([0, 1])])
    found = local_test(torch.tensor([0, 1]), holdings, torch.tensor([2, 0, 2]), classes=3)
    assert found.owned.tolist() == [False, True, False]


@given(st.integers(0, 1000), st.integers(1, 12))
def test_everyone_is_tested_only_on_classes_it_has(seed, clients):
    rng = torch.Generator().manual_seed(seed)
    train = torch.randint(0, 4, (60,), generator=rng)
    test = torch.randint(0, 4, (30,), generator=rng)
    holdings = Dirichlet(0.2)(train, clients, rng)
    found = local_test(train, holdings, test, classes=4)
    has = [set(train[holdings.of(client)].tolist()) for client in range(clients)]
    for row, target, owned in zip(found.classes, test, found.owned, strict=True):
        assert bool(owned) == bool((train == target).any())
        if owned:
            assert row[target]
            assert {int(label) for label in row.nonzero().flatten()} in has

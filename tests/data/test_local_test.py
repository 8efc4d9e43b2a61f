"""Test examples as the clients' own."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.data import Holdings
from potluck.data.local_test import local_share, local_test, owners_of
from potluck.data.partitions import Dirichlet


def test_each_class_goes_to_its_holders_in_proportion() -> None:
    train = torch.tensor([0, 0, 0, 0, 1, 1])
    holdings = Holdings.of_lists([torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])])
    test = torch.tensor([0, 0, 0, 0, 1])
    assert owners_of(train, holdings, test).tolist() == [0, 0, 0, 1, 1]
    found = local_share(train, holdings, test, classes=3)
    # three of four zeros are client 0's, which has no ones; the rest are client 1's, which has both
    assert found.test.classes.tolist() == [[True, False, False]] * 3 + [[True, True, False]] * 2
    assert found.test.owned.all()
    assert [found.holdings.of(client).tolist() for client in range(2)] == [[0, 1, 2], [3, 4]]


def test_a_class_that_nobody_trains_on_is_nobodys() -> None:
    holdings = Holdings.of_lists([torch.tensor([0, 1])])
    found = local_share(torch.tensor([0, 1]), holdings, torch.tensor([2, 0, 2]), classes=3)
    assert found.test.owned.tolist() == [False, True, False]
    assert found.holdings.of(0).tolist() == [1]


def test_test_examples_that_came_with_their_clients_stay_theirs() -> None:
    train, holdings = torch.tensor([0, 1, 2]), Holdings.of_lists([torch.tensor([0, 1]), torch.tensor([2])])
    found = local_test(train, holdings, torch.tensor([1, -1, 0]), classes=3)
    assert found.owned.tolist() == [True, False, True]
    assert found.classes[0].tolist() == [False, False, True]
    assert found.classes[2].tolist() == [True, True, False]


@given(st.integers(0, 1000), st.integers(1, 12))
def test_everyone_is_tested_only_on_classes_it_has(seed: int, clients: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    train = torch.randint(0, 4, (60,), generator=rng)
    test = torch.randint(0, 4, (30,), generator=rng)
    holdings = Dirichlet(0.2)(train, clients, rng)
    found = local_share(train, holdings, test, classes=4)
    has = [set(train[holdings.of(client)].tolist()) for client in range(clients)]
    for row, target, owned in zip(found.test.classes, test, found.test.owned, strict=True):
        assert bool(owned) == bool((train == target).any())
        if owned:
            assert row[target]
            assert {int(label) for label in row.nonzero().flatten()} in has
    assert len(found.holdings) == clients
    shares = [found.holdings.of(client) for client in range(clients)]
    assert sorted(torch.cat(shares).tolist()) == found.test.owned.nonzero().flatten().tolist()
    for share, known in zip(shares, has, strict=True):
        assert set(test[share].tolist()) <= known
        for row in found.test.classes[share]:
            assert {int(label) for label in row.nonzero().flatten()} == known

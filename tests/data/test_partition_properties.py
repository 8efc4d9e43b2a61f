"""What holds of every partition, whatever the data."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import DataError
from potluck.core.random import stream
from potluck.data.partitions import (
    IID,
    PARTITIONS,
    BalancedDirichlet,
    Classes,
    Dirichlet,
    Natural,
    Partition,
    Shards,
    dropped,
)

EXACT = [IID(), Dirichlet(0.3), Dirichlet(1e-3, min_size=1), BalancedDirichlet(0.3), Shards(2), Classes(2)]
ALL = [*EXACT, Shards(2, keep_duplicates=False), Natural()]


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    """(targets in random order with at least two uneven classes, clients, seed)."""
    sizes = draw(st.lists(st.integers(30, 60), min_size=2, max_size=6))
    targets = torch.repeat_interleave(torch.tensor(sizes))
    seed = draw(st.integers(0, 1000))
    shuffled = targets[torch.randperm(len(targets), generator=stream(seed, "test"))]
    return shuffled, draw(st.integers(3, 15)), seed


def divide(partition: Partition, targets: Tensor, clients: int, seed: int) -> Holdings:
    return partition(targets, clients, stream(seed, "partition"), owners=torch.arange(len(targets)) % 20)


def sizes_of(holdings: Holdings) -> Tensor:
    return holdings.offsets.diff()


@pytest.mark.parametrize("partition", ALL, ids=str)
@given(labelled())
@settings(max_examples=25, deadline=None)
def test_no_example_has_two_clients_and_no_client_is_empty(partition: Partition, case: tuple[Tensor, int, int]) -> None:
    targets, clients, seed = case
    holdings = divide(partition, targets, clients, seed)
    assert len(holdings) == clients
    assert len(torch.unique(holdings.order)) == len(holdings.order) == len(targets) - dropped(holdings, len(targets))
    assert int(holdings.order.min()) >= 0
    assert int(holdings.order.max()) < len(targets)
    assert int(sizes_of(holdings).min()) >= 1
    assert int(holdings.offsets[0]) == 0
    assert int(holdings.offsets[-1]) == len(holdings.order)


@pytest.mark.parametrize("partition", EXACT, ids=str)
@given(labelled())
@settings(max_examples=25, deadline=None)
def test_every_example_has_a_client(partition: Partition, case: tuple[Tensor, int, int]) -> None:
    targets, clients, seed = case
    assert dropped(divide(partition, targets, clients, seed), len(targets)) == 0


@pytest.mark.parametrize("partition", ALL, ids=str)
@given(labelled())
@settings(max_examples=10, deadline=None)
def test_the_seed_decides_everything(partition: Partition, case: tuple[Tensor, int, int]) -> None:
    targets, clients, seed = case
    one, same, *others = (divide(partition, targets, clients, seed + more) for more in (0, 0, *range(1, 12)))
    assert torch.equal(one.order, same.order)
    assert torch.equal(one.offsets, same.offsets)
    # with few clients and classes there are few extreme partitions, of which two seeds may draw the same
    assert not all(torch.equal(one.order, other.order) for other in others)


@pytest.mark.parametrize("partition", [IID(), BalancedDirichlet(0.1), BalancedDirichlet(1e-6)], ids=str)
@given(labelled())
@settings(max_examples=10, deadline=None)
def test_equal_sizes_differ_by_one_at_most(partition: Partition, case: tuple[Tensor, int, int]) -> None:
    sizes = sizes_of(divide(partition, *case))
    assert int(sizes.max() - sizes.min()) <= 1


@given(labelled(), st.floats(1e-6, 1e6), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_dirichlet_keeps_its_minimum(case: tuple[Tensor, int, int], alpha: float, least: int) -> None:
    holdings = divide(Dirichlet(alpha, min_size=least), *case)
    assert int(sizes_of(holdings).min()) >= least
    assert len(torch.unique(holdings.order)) == len(case[0])


@given(labelled(), st.integers(1, 6), st.booleans())
@settings(max_examples=50, deadline=None)
def test_shards_and_classes_limit_the_classes(case: tuple[Tensor, int, int], k: int, keep: bool) -> None:
    targets, clients, _ = case
    classes = len(torch.unique(targets))
    k = max(min(k, classes), -(-classes // clients))
    for partition, exact in ((Shards(k, keep), False), (Classes(k), True)):
        holdings = divide(partition, *case)
        held = [len(torch.unique(targets[holdings.of(client)])) for client in range(clients)]
        assert max(held) <= k
        assert not exact or min(held) == k


@given(labelled(), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_classes_are_split_evenly_among_equally_many_holders(case: tuple[Tensor, int, int], k: int) -> None:
    targets, clients, _ = case
    classes = len(torch.unique(targets))
    k = max(min(k, classes), -(-classes // clients))
    holdings = divide(Classes(k), *case)
    counts = torch.stack([targets[holdings.of(client)].bincount(minlength=classes) for client in range(clients)])
    holders = (counts > 0).sum(0)
    assert int(holders.sum()) == clients * k
    assert int(holders.max() - holders.min()) <= 1
    for column in counts.T:
        held = column[column > 0]
        assert int(held.max() - held.min()) <= 1


@pytest.mark.parametrize("name", sorted(PARTITIONS.keys() - {"drawn"}))  # whose clients share examples
def test_more_clients_than_examples(name: str) -> None:
    needed: dict[str, dict[str, int]] = {
        "dirichlet": {"alpha": 1},
        "balanced-dirichlet": {"alpha": 1},
        "classes": {"k": 2},
    }
    with pytest.raises(DataError, match=r"11 clients .* of the 10 training examples .* at most \d+ clients"):
        PARTITIONS[name](**needed.get(name, {}))(torch.arange(10) % 2, 11, stream(0), owners=torch.arange(10))


@pytest.mark.parametrize("partition", ALL, ids=str)
def test_no_clients(partition: Partition) -> None:
    with pytest.raises(DataError, match="clients is 0"):
        divide(partition, torch.arange(10) % 2, 0, 0)

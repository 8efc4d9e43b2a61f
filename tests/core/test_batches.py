"""Examples by number, who holds them, and the batches they come in."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.batches import batches, stacked_batches
from potluck.core.data import Arrays, Holdings, Part, Pool
from potluck.core.errors import DataError
from potluck.core.random import stream


def numbered(count: int) -> Arrays:
    """Examples whose input is their own number, and whose target is ten times that."""
    return Arrays(torch.arange(count).float()[:, None], 10 * torch.arange(count))


def drawn(examples: Arrays, held: Tensor, size: int, epochs: int = 1, seed: int = 0) -> list[list[int]]:
    made = batches(Part(examples, held), size, epochs, stream(seed, "test"))
    return [targets.div(10).long().tolist() for _, targets in made]


@given(st.integers(1, 40), st.integers(1, 15), st.integers(1, 3), st.integers(0, 5))
def test_every_epoch_has_every_held_example_once(count: int, size: int, epochs: int, seed: int) -> None:
    held = torch.randperm(60, generator=stream(seed, "held"))[:count]
    parts = drawn(numbered(60), held, size, epochs, seed)
    per_epoch = len(parts) // epochs
    for epoch in range(epochs):
        seen = list(chain(*parts[epoch * per_epoch : (epoch + 1) * per_epoch]))
        assert sorted(seen) == sorted(held.tolist())


@given(st.integers(2, 40), st.integers(2, 15))
def test_no_batch_has_one_example_unless_there_is_but_one(count: int, size: int) -> None:
    sizes = [len(part) for part in drawn(numbered(count), torch.arange(count), size)]
    assert min(sizes) >= 2
    assert all(found == size for found in sizes[:-1])
    assert sizes[-1] <= size + 1


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (10, 5, [5, 5]),
        (12, 5, [5, 5, 2]),
        (11, 5, [5, 6]),
        (6, 5, [6]),
        (5, 5, [5]),
        (3, 5, [3]),
        (1, 5, [1]),
        (3, 1, [1, 1, 1]),
        (3, 2, [3]),
    ],
)
def test_a_single_leftover_joins_the_batch_before_it(count: int, size: int, sizes: list[int]) -> None:
    assert [len(part) for part in drawn(numbered(count), torch.arange(count), size)] == sizes


def test_who_holds_nothing_has_no_batches() -> None:
    assert drawn(numbered(3), torch.empty(0, dtype=torch.long), 2, epochs=2) == []


def test_inputs_and_targets_stay_together() -> None:
    for inputs, targets in batches(numbered(20), 6, 2, stream(0, "test")):
        assert torch.equal(inputs[:, 0] * 10, targets.float())


def test_the_generator_alone_decides_the_order() -> None:
    examples, held = numbered(30), torch.arange(30)
    first = drawn(examples, held, 7, epochs=2, seed=1)
    torch.manual_seed(99)
    assert drawn(examples, held, 7, epochs=2, seed=1) == first
    assert drawn(examples, held, 7, epochs=2, seed=2) != first
    assert first[:5] != first[5:]  # epochs are shuffled anew
    assert list(chain(*first[:5])) != list(range(30))


def test_only_training_batches_are_augmented_and_all_are_prepared_after() -> None:
    examples = Arrays(
        torch.tensor([1, 2], dtype=torch.uint8),
        torch.tensor([0, 1]),
        prepare=lambda inputs: inputs.float() / 2,
        augment=lambda inputs, rng: inputs + 10 * torch.randint(1, 2, inputs.shape, generator=rng, dtype=torch.uint8),
    )
    trained = torch.cat([inputs for inputs, _ in batches(examples, 2, 1, stream(0))])
    assert sorted(trained.tolist()) == [5.5, 6.0]  # (1 + 10) / 2: prepared after it is augmented
    assert examples.take(torch.tensor([0, 1]))[0].tolist() == [0.5, 1.0]
    assert examples.take(torch.tensor([1]))[0].tolist() == [1.0]


def test_augmentation_draws_from_the_generator_it_is_given() -> None:
    examples = Arrays(torch.zeros(4), torch.zeros(4), augment=lambda inputs, rng: torch.rand(4, generator=rng))
    one, other = (next(batches(examples, 4, 1, stream(3, "a")))[0] for _ in range(2))
    assert torch.equal(one, other)


def test_holdings_say_who_has_what() -> None:
    holdings = Holdings.of_lists([torch.tensor([4, 1]), torch.tensor([], dtype=torch.long), torch.tensor([2, 0, 3])])
    assert len(holdings) == 3
    assert [holdings.of(id).tolist() for id in range(3)] == [[4, 1], [], [2, 0, 3]]
    assert [holdings.size(id) for id in range(3)] == [2, 0, 3]


def test_holdings_of_nobody_are_empty() -> None:
    assert len(Holdings.of_lists([])) == 0


def test_a_pool_gives_each_client_its_own_and_nothing_else() -> None:
    holdings = Holdings.of_lists([torch.tensor([4, 1]), torch.tensor([], dtype=torch.long), torch.tensor([2, 0, 3])])
    pool = Pool(Arrays(torch.arange(5), torch.tensor([0, 1, 1, 2, 1])), holdings)
    assert len(pool) == 3
    assert [pool.size(client) for client in range(3)] == [2, 0, 3]
    assert [pool.labels(client) for client in range(3)] == [(1,), (), (0, 1, 2)]
    for client, held in enumerate([[4, 1], [], [2, 0, 3]]):
        examples = pool.examples(client)
        assert len(examples) == len(held)
        assert examples.take(torch.arange(len(held)))[0].tolist() == held


def test_a_client_is_scored_on_its_own_test_examples_or_on_all() -> None:
    holdings = Holdings.of_lists([torch.tensor([0]), torch.tensor([1])])
    shares = Holdings.of_lists([torch.tensor([2, 0]), torch.tensor([1])])
    assert len(Pool(numbered(2), holdings, numbered(3)).test(1)) == 3
    own = Pool(numbered(2), holdings, numbered(3), shares).test(0)
    assert own.labels(torch.arange(len(own))).tolist() == [20, 0]
    with pytest.raises(DataError, match="no test examples to score a client's model on"):
        Pool(numbered(2), holdings).test(0)


@given(
    clients=st.integers(1, 4),
    each=st.integers(0, 11),
    size=st.integers(1, 5),
    epochs=st.integers(1, 3),
    how=st.sampled_from(["plain", "prepared", "augmented", "two pools", "not all in a pool"]),
)
def test_batches_of_several_clients_are_theirs_a_client_per_row(
    clients: int, each: int, size: int, epochs: int, how: str
) -> None:
    def shaken(inputs: Tensor, rng: torch.Generator) -> Tensor:
        return inputs + torch.rand(inputs.shape, generator=rng)

    pools = [
        Arrays(
            torch.arange(3.0 * 60).view(60, 3) + number,
            torch.arange(60),
            prepare=(lambda inputs: inputs / 7) if how != "plain" else None,
            augment=shaken if how == "augmented" else None,
        )
        for number in range(2)
    ]
    held = torch.randperm(60, generator=torch.Generator().manual_seed(each))
    sources: list[Part | Arrays] = [
        Part(pools[client % 2 if how == "two pools" else 0], held[client * each : (client + 1) * each])
        for client in range(clients)
    ]

    if how == "not all in a pool" and clients > 1 and each:
        sources[1:2] = [Arrays(*pools[0].take(sources[1].chosen))]

    def rng(client: int) -> torch.Generator:
        return torch.Generator().manual_seed(client)

    together = list(stacked_batches([(source, rng(client)) for client, source in enumerate(sources)], size, epochs))
    alone = [list(batches(source, size, epochs, rng(client))) for client, source in enumerate(sources)]
    assert [len(stream) for stream in alone] == [len(together)] * clients
    for step, (inputs, targets) in enumerate(together):
        for client in range(clients):
            assert inputs[client].equal(alone[client][step][0])
            assert targets[client].equal(alone[client][step][1])

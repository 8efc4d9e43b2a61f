"""Clients that are drawn when they are asked for."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import potluck
from potluck.core.errors import ConfigError, DataError
from potluck.core.random import stream
from potluck.data.partitions import Drawn, partition_named
from potluck.data.partitions.drawn import DrawnHoldings, distinct, skewed_counts

MILLION = 10**6
TEN = torch.arange(5000) % 10


def labels_held(alpha: float, clients: int = 100) -> list[int]:
    """How many labels each of some clients has."""
    holdings = Drawn(alpha=alpha)(TEN, clients, stream(0))
    return [len(torch.unique(TEN[holdings.of(client)])) for client in range(clients)]


def test_its_name() -> None:
    assert partition_named("drawn") is Drawn


@given(st.integers(1, 60), st.integers(1, 4), st.sampled_from([None, 1e-6, 0.1, 1.0, 1e6]), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_every_client_has_its_size_and_no_example_twice(size: int, labels: int, alpha: float | None, seed: int) -> None:
    targets = 3 * torch.randint(labels, (60,), generator=stream(seed))  # not all labels up to the largest occur
    holdings = Drawn(size, alpha)(targets, MILLION, stream(seed))
    assert len(holdings) == MILLION
    for client in (0, 1, 77, MILLION - 1):
        held = holdings.of(client)
        assert held.dtype == torch.long
        assert len(held) == len(torch.unique(held)) == holdings.size(client) == size
        assert 0 <= int(held.min()) <= int(held.max()) < 60


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_the_order_of_questions_does_not_matter(alpha: float | None) -> None:
    one, other = (Drawn(20, alpha)(TEN, MILLION, stream(5)) for _ in range(2))
    forwards = [one.of(client).tolist() for client in range(30)]
    backwards = [other.of(client).tolist() for client in reversed(range(30))]
    assert forwards == backwards[::-1]
    assert len({tuple(held) for held in forwards}) == 30
    assert forwards != [Drawn(20, alpha)(TEN, MILLION, stream(6)).of(client).tolist() for client in range(30)]


def test_another_process_gives_the_same_answer() -> None:
    kinds = [Drawn(20, alpha)(TEN, MILLION, stream(5)) for alpha in (None, 0.3)]
    ask = "import pickle, sys; print([kind.of(123456).tolist() for kind in pickle.load(sys.stdin.buffer)])"
    found = subprocess.run([sys.executable, "-c", ask], input=pickle.dumps(kinds), capture_output=True, check=True)
    assert found.stdout.decode().strip() == str([kind.of(123456).tolist() for kind in kinds])


def test_it_takes_little_to_tell_another_process() -> None:
    assert len(pickle.dumps(Drawn()(TEN, MILLION, stream(0)))) < 1000
    index = TEN.numel() * TEN.element_size()
    assert len(pickle.dumps(Drawn(alpha=0.1)(TEN, MILLION, stream(0)))) < 1500 + index


def test_every_example_is_drawn_equally_often() -> None:
    """20,000 clients with 5 of 20 examples: each is drawn 5,000 times, give or take 61."""
    for count, total in ((5, 20), (15, 20)):  # by ignoring repeats, and by shuffling
        drawn = torch.cat([distinct(count, total, stream(7, client)) for client in range(20_000)])
        expected = torch.full((total,), 20_000.0 * count / total)
        torch.testing.assert_close(drawn.bincount(minlength=total).float(), expected, atol=300, rtol=0)


def test_clients_share_examples() -> None:
    """Two clients with 50 of 100 examples have 25 in common on average."""
    holdings = Drawn(50)(TEN[:100], MILLION, stream(0))
    common = [
        len(set(holdings.of(client).tolist()) & set(holdings.of(client + 1).tolist())) for client in range(0, 400, 2)
    ]
    assert sum(common) / len(common) == pytest.approx(25, abs=1)


def test_alpha_says_how_many_labels_a_client_has() -> None:
    few, some, many = (labels_held(alpha) for alpha in (1e-3, 0.3, 1e3))
    assert sum(few) / 100 < 1.2
    assert 3 < sum(some) / 100 < 8
    assert min(many) == 10


def test_every_label_is_as_likely_under_a_small_alpha() -> None:
    holdings = Drawn(alpha=1e-3)(TEN, MILLION, stream(0))
    main = torch.tensor([int(TEN[holdings.of(client)].mode().values) for client in range(1000)])
    torch.testing.assert_close(main.bincount(minlength=10).float(), torch.full((10,), 100.0), atol=40, rtol=0)


def test_where_a_label_runs_out_the_others_give_the_rest() -> None:
    there, logits = torch.tensor([3, 100, 100]), torch.tensor([0.97, 0.02, 0.01], dtype=torch.float64).log()
    assert skewed_counts(33, there, logits, stream(0)).tolist() == [3, 20, 10]
    assert skewed_counts(203, there, logits, stream(0)).tolist() == [3, 100, 100]


def test_sequences_have_no_labels_to_skew() -> None:
    texts = torch.zeros(60, 80, dtype=torch.long)
    assert len(Drawn(6)(texts, 3, stream(0)).of(2)) == 6
    with pytest.raises(DataError, match=r"'drawn' needs one label per example.*\(60, 80\)"):
        Drawn(6, alpha=1.0)(texts, 3, stream(0))


def test_errors() -> None:
    with pytest.raises(DataError, match=r"size is 51, but there are 50 training examples.* at most 50"):
        Drawn(51)(TEN[:50], 3, stream(0))
    with pytest.raises(DataError, match="clients is 0"):
        Drawn()(TEN, 0, stream(0))
    with pytest.raises(ConfigError, match="size is 0"):
        Drawn(0)
    with pytest.raises(ConfigError, match="alpha is 0"):
        Drawn(alpha=0.0)


def test_a_million_clients_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the sum of the inputs is positive; no more clients are drawn than take part."""
    asked: set[int] = set()
    draw = DrawnHoldings.of

    def of(self: DrawnHoldings, client: int) -> Tensor:
        asked.add(client)
        return draw(self, client)

    monkeypatch.setattr(DrawnHoldings, "of", of)
    x = torch.randn(2000, 8, generator=stream(0))
    result = potluck.run(
        model=nn.Linear(8, 2),
        data=(x, (x.sum(1) > 0).long()),
        levels={"all": 1.0},
        method="fedavg",
        clients=MILLION,
        rounds=8,
        partition={"name": "drawn", "size": 20},
        train=potluck.Train(lr=0.3, epochs=1),
        cohort=10,
        evaluate_every=8,
        engine="serial",
        watcher=None,
    )
    assert result.accuracy["all"] > 0.9
    assert 75 <= len(asked) <= 80
    assert max(asked) > 10_000
    assert "local_accuracy" not in result.metrics[-1]["levels"]["all"]  # no test example is one client's

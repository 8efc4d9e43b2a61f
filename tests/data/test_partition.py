"""Each partition against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from potluck.core.errors import ConfigError, DataError
from potluck.core.random import stream
from potluck.data.partitions import (
    IID,
    PARTITIONS,
    BalancedDirichlet,
    Classes,
    Dirichlet,
    Natural,
    Shards,
    dropped,
    partition_named,
)
from potluck.data.partitions.balanced_dirichlet import draw_counts, smallest
from potluck.data.partitions.cover import holdings_by_client
from potluck.data.partitions.dirichlet import apportion, draw_logits, excess, level_up
from potluck.data.partitions.shards import cut, twins
from potluck.data.skew import skew, table

TEN = torch.arange(5000) % 10


def test_names() -> None:
    assert partition_named("dirichlet") is Dirichlet
    assert all(partition.__doc__ for partition in PARTITIONS.values())
    with pytest.raises(ConfigError, match="no partition 'dirichlt'; did you mean 'dirichlet'"):
        partition_named("dirichlt")


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (Dirichlet, {"alpha": 0}),
        (Dirichlet, {"alpha": 1, "min_size": 0}),
        (Classes, {"k": 0}),
        (Shards, {"classes_per_client": 0}),
    ],
)
def test_the_schema_has_the_ranges(schema: type, options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(schema).validate_python(options)


def test_holdings_leave_out_what_nobody_has() -> None:
    holdings = holdings_by_client(torch.tensor([2, -1, 0, 2, -1]), clients=3)
    assert [holdings.of(client).tolist() for client in range(3)] == [[2], [], [0, 3]]
    assert dropped(holdings, 5) == 2


def test_iid_spreads_the_remainder() -> None:
    holdings = IID()(torch.zeros(11, dtype=torch.long), 4, stream(0))
    assert holdings.offsets.diff().tolist() == [3, 3, 3, 2]


def test_iid_needs_no_labels() -> None:
    assert len(IID()(torch.zeros(6, 80, dtype=torch.long), 3, stream(0))) == 3
    with pytest.raises(DataError, match="'dirichlet' needs one label per example, but the targets are no whole"):
        Dirichlet(1.0)(torch.zeros(6), 3, stream(0))
    with pytest.raises(DataError, match=r"'dirichlet' needs one label per example.*\(6, 80\)"):
        Dirichlet(1.0)(torch.zeros(6, 80, dtype=torch.long), 3, stream(0))


class TestDirichlet:
    @pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
    def test_bad_alpha(self, alpha: float) -> None:
        for partition in (Dirichlet, BalancedDirichlet):
            with pytest.raises(ConfigError, match=f"alpha is {alpha}.* above 0"):
                partition(alpha)

    def test_bad_minimum(self) -> None:
        with pytest.raises(ConfigError, match="min_size is 0"):
            Dirichlet(1.0, min_size=0)
        with pytest.raises(DataError, match=r"20 clients need at least 3 of the 50 .* at most 16 clients"):
            Dirichlet(1.0, min_size=3)(TEN[:50], 20, stream(0))

    def test_moments_of_a_draw(self) -> None:
        """Dir(α, ..., α) over n parts has the mean 1/n and the variance (n - 1) / (n² (nα + 1))."""
        for alpha in (0.1, 1.0, 20.0):
            drawn = draw_logits(alpha, (20_000, 5), stream(1)).softmax(1)
            variance = 4 / (25 * (5 * alpha + 1))
            torch.testing.assert_close(drawn.mean(0), torch.full((5,), 0.2, dtype=torch.float64), atol=0.01, rtol=0)
            torch.testing.assert_close(drawn.var(0), torch.full_like(drawn[0], variance), atol=0, rtol=0.05)

    @pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-3])
    def test_a_tiny_alpha_gives_all_to_one_part(self, alpha: float) -> None:
        drawn = draw_logits(alpha, (1000, 10), stream(0)).softmax(1)
        assert drawn.isfinite().all()
        torch.testing.assert_close(drawn.sum(1), torch.ones(1000, dtype=torch.float64))
        assert float((drawn.amax(1) > 0.99).double().mean()) > 0.95
        assert len(torch.unique(drawn.argmax(1))) == 10

    def test_a_huge_alpha_gives_all_the_same(self) -> None:
        torch.testing.assert_close(
            draw_logits(1e300, (10,), stream(0)).softmax(0), torch.full((10,), 0.1, dtype=torch.float64)
        )

    def test_apportion(self) -> None:
        totals, proportions = torch.tensor([10, 7]), torch.tensor([[0.2, 0.5, 0.0, 0.3], [0.0, 0.0, 1.0, 0.0]])
        assert apportion(totals, proportions.double(), stream(0)).tolist() == [[2, 5, 0, 3], [0, 0, 7, 0]]

    def test_rounding_favours_nobody(self) -> None:
        halves = torch.full((2000, 4), 0.25, dtype=torch.float64)
        counts = apportion(torch.full((2000,), 2), halves, stream(0))
        assert counts.sum(1).tolist() == [2] * 2000
        torch.testing.assert_close(counts.double().mean(0), torch.full((4,), 0.5).double(), atol=0.05, rtol=0)

    def test_excess_cuts_the_largest_level(self) -> None:
        assert excess(torch.tensor([10, 1, 8, 3]), 0).tolist() == [0, 0, 0, 0]
        assert excess(torch.tensor([10, 1, 8, 3]), 2).tolist() == [2, 0, 0, 0]
        assert excess(torch.tensor([10, 1, 8, 3]), 5).tolist() == [4, 0, 1, 0]
        assert excess(torch.tensor([10, 1, 8, 3]), 22).tolist() == [10, 1, 8, 3]

    def test_level_up_moves_no_more_than_is_missing(self) -> None:
        before = torch.tensor([0] * 9 + [1] + [3] * 6)
        after = level_up(before, torch.zeros(16, dtype=torch.long), clients=4, least=3, rng=stream(0))
        assert after.bincount().tolist() == [
            5,
            3,
            3,
            5,
        ]  # 9 and 6 give 4 and 1: to the client with 1 and the one with 0
        assert int((before != after).sum()) == 5

    def test_a_top_up_adds_few_classes(self) -> None:
        targets = torch.arange(100) % 2
        after = level_up(torch.zeros(100, dtype=torch.long), targets, clients=11, least=4, rng=stream(3))
        classes = [len(torch.unique(targets[after == client])) for client in range(1, 11)]
        assert sum(classes) <= 11  # one straddles the two classes at most

    def test_a_large_alpha_tends_to_iid(self) -> None:
        skews = [skew(TEN, Dirichlet(alpha)(TEN, 20, stream(0)), 10) for alpha in (1e-3, 0.1, 1.0, 10.0, 1e6)]
        assert skews == sorted(skews, reverse=True)
        assert skews[-1] < 0.01

    def test_a_large_alpha_tends_to_iid_when_clients_outnumber_a_class(self) -> None:
        targets = torch.arange(5000) % 100  # half an example per class and client
        sizes = Dirichlet(1e6)(targets, 100, stream(0)).offsets.diff()
        assert int(sizes.min()) > 25

    def test_a_small_alpha_tends_to_one_client_per_class(self) -> None:
        counts = table(TEN, Dirichlet(1e-6, min_size=1)(TEN, 10, stream(0)), 10)
        assert float(counts.amax(0).sum() / counts.sum()) > 0.99
        many = table(TEN, Dirichlet(1e-6)(TEN, 200, stream(0)), 10)  # most of these were only topped up
        assert float((many.amax(1) == many.sum(1)).double().mean()) > 0.9


class TestBalancedDirichlet:
    def test_sizes_of_the_paper(self) -> None:
        holdings = BalancedDirichlet(0.5)(torch.arange(50_000) % 10, 20, stream(0))
        assert holdings.offsets.diff().tolist() == [2500] * 20

    def test_nobody_above_the_mean_gets_more(self) -> None:
        table_, present = torch.full((50, 10), 40), torch.ones(50, 10, dtype=torch.bool)
        counts = draw_counts(table_, present, 0.1, stream(0))
        assert torch.equal(counts.sum(2), table_)
        before_the_last_gift = torch.cat([torch.zeros(50, 1, 10), counts.cumsum(1)[:, :-1]], dim=1)
        assert bool((before_the_last_gift[counts > 0] < 40).all())

    def test_an_absent_client_gets_nothing(self) -> None:
        present = torch.tensor([[True] * 3 + [False] * 7])
        counts = draw_counts(torch.tensor([[9, 9]]), present, 1.0, stream(0))
        assert counts[0, :, 3:].sum() == 0
        assert counts.sum() == 18
        assert smallest(counts, present).tolist() == [int(counts.sum(1)[0, :3].min())]

    def test_clients_of_a_group_share_a_slice_of_the_data(self) -> None:
        """The shuffled examples are cut first: with as many labels as examples, only ten clients can hold one."""
        holdings = BalancedDirichlet(0.5)(torch.arange(400), 20, stream(7))
        shuffled = torch.randperm(400, generator=stream(7))
        assert set(holdings.order[:200].tolist()) == set(shuffled[:200].tolist())

    def test_it_ends_where_half_the_mean_cannot_be_reached(self) -> None:
        targets = torch.arange(1000) % 2  # two classes in one piece each: eight of ten lists are empty
        holdings = BalancedDirichlet(1e-9)(targets, 10, stream(0))
        assert holdings.offsets.diff().tolist() == [100] * 10
        assert skew(targets, holdings, 2) == pytest.approx(0.5)

    def test_alpha_orders_the_skew(self) -> None:
        skews = [skew(TEN, BalancedDirichlet(alpha)(TEN, 20, stream(0)), 10) for alpha in (1e-3, 0.3, 3.0, 1e6)]
        assert skews == sorted(skews, reverse=True)
        assert skews[-1] < 0.03


class TestShards:
    def test_cut(self) -> None:
        targets = torch.tensor([7, 3, 3, 7, 3, 3, 3])
        assert cut(targets, torch.tensor([3, 7]), torch.tensor([2, 1])).tolist() == [2, 0, 0, 2, 0, 1, 1]

    def test_twins(self) -> None:
        client = torch.tensor([0, 1, 0, 1, 0, 1])
        label = torch.tensor([0, 0, 0, 1, 1, 1])
        assert sorted(twins(client, label, labels=2).tolist()) == [2, 5]

    def test_the_share_that_heterofl_drops(self) -> None:
        """A client's two draws coincide with probability 19/199; half of its data is then lost: 4.8 %."""
        targets = torch.arange(10_000) % 10
        lost = [dropped(Shards(2, keep_duplicates=False)(targets, 100, stream(s)), 10_000) for s in range(30)]
        assert all(count % 50 == 0 for count in lost)  # whole shards of 10,000 / 200
        assert sum(lost) / 30 / 10_000 == pytest.approx(19 / 199 / 2, abs=0.01)

    def test_lg_fedavg_keeps_twins(self) -> None:
        targets = torch.arange(10_000) % 10
        counts = table(targets, Shards(2)(targets, 100, stream(0)), 10)
        assert set(counts.flatten().tolist()) == {0, 50, 100}
        assert counts.sum(1).tolist() == [100] * 100

    def test_places_that_do_not_divide(self) -> None:
        """21 places for 10 classes: one class is cut in three, the others in two."""
        counts = table(TEN, Shards(3)(TEN, 7, stream(0)), 10)
        thirds, halves = {0, 166, 167, 333, 334, 500}, {0, 250, 500}
        assert counts.sum(0).tolist() == [500] * 10
        assert sum(set(column) <= halves for column in counts.T.tolist()) == 9
        assert sum(set(column) <= thirds for column in counts.T.tolist()) >= 1

    def test_errors(self) -> None:
        with pytest.raises(DataError, match=r"classes_per_client is 11, but .* only 10 classes"):
            Shards(11)(TEN, 10, stream(0))
        with pytest.raises(DataError, match=r"3 clients with classes_per_client = 2 have 6 places for 10 classes.*5"):
            Shards(2)(TEN, 3, stream(0))
        with pytest.raises(DataError, match="class 1 has 1 training examples for 5 shards"):
            Shards(2)(torch.tensor([0] * 19 + [1]), 5, stream(0))
        with pytest.raises(ConfigError, match="classes_per_client is 0"):
            Shards(0)


class TestClasses:
    def test_flanc(self) -> None:
        """100 agents, 3 of 10 classes: 30 holders per class, so 500 examples in shares of 16 or 17."""
        counts = table(TEN, Classes(3)(TEN, 100, stream(0)), 10)
        assert (counts > 0).sum(1).tolist() == [3] * 100
        assert (counts > 0).sum(0).tolist() == [30] * 10
        assert set(counts.flatten().tolist()) == {0, 16, 17}

    def test_every_pair_of_classes_can_meet(self) -> None:
        held = (table(TEN, Classes(3)(TEN, 500, stream(0)), 10) > 0).long()
        assert bool((held.T @ held > 0).all())

    def test_errors(self) -> None:
        with pytest.raises(DataError, match=r"k is 11, but .* only 10 classes"):
            Classes(11)(TEN, 10, stream(0))
        with pytest.raises(DataError, match="2 clients with k = 3 have 6 places for 10 classes: ask for at least 4"):
            Classes(3)(TEN, 2, stream(0))
        with pytest.raises(DataError, match="class 1 has 3 training examples for 5 clients"):
            Classes(2)(torch.tensor([0] * 19 + [1] * 3), 5, stream(0))
        with pytest.raises(ConfigError, match="k is 0"):
            Classes(0)


class TestNatural:
    targets = torch.zeros(6, dtype=torch.long)
    owners = torch.tensor([40, 7, 40, 9, 7, 40])

    def test_one_client_per_owner(self) -> None:
        holdings = Natural()(self.targets, 3, stream(0), owners=self.owners)
        assert [holdings.of(client).tolist() for client in range(3)] == [[1, 4], [3], [0, 2, 5]]

    def test_fewer_clients_than_owners(self) -> None:
        whole = {(1, 4), (3,), (0, 2, 5)}
        drawn = set()
        for seed in range(20):
            holdings = Natural()(self.targets, 2, stream(seed), owners=self.owners)
            held = [tuple(holdings.of(client).tolist()) for client in range(2)]
            assert dropped(holdings, 6) == 6 - len(held[0]) - len(held[1])
            drawn |= set(held)
            assert set(held) < whole
        assert drawn == whole

    def test_errors(self) -> None:
        with pytest.raises(DataError, match=r"'natural' .* names no owners"):
            Natural()(self.targets, 2, stream(0))
        with pytest.raises(DataError, match="4 clients were asked for, but the data have 3 owners"):
            Natural()(self.targets, 4, stream(0), owners=self.owners)

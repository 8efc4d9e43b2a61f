"""Who takes part in a round, what it costs, and what becomes of those who fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from potluck.core.client import Work
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Holdings
from potluck.core.fleet import Fleet
from potluck.core.method import Method
from potluck.core.server import Ledger, accept, cohort_size, draw_cohort, issue, play_round
from potluck.core.types import Client, Context, Job, Level, Task, Tensors, Train, Update

BIG, SMALL = Level("big", 1.0), Level("small", 0.5)
MACS = {"big": 100, "small": 10}
ALL = 12


@dataclass(frozen=True)
class Alternating:
    """Big, small, big, small, ..."""

    per_cohort: ClassVar[bool] = False

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        return torch.arange(clients) % len(levels)


class AlternatingCohort(Alternating):
    per_cohort: ClassVar[bool] = True


@dataclass(frozen=True)
class Everyone(Method):
    def admits(self, level: Level, ctx: Context) -> bool:
        return True


@dataclass(frozen=True)
class OnlyBig(Method):
    def admits(self, level: Level, ctx: Context) -> bool:
        return level == BIG


class Answering:
    """An engine without training: what each client answers is written down beforehand."""

    def __init__(self, answers: dict[int, Update]) -> None:
        self.answers = answers
        self.personal: dict[int, Tensors] = {}
        self.clock = Clock()

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        for job in jobs:
            yield self.answers[job.client.id]


ALTERNATING = Alternating()


def fleet(assignment: Alternating = ALTERNATING, sizes: Iterable[int] = range(1, ALL + 1)) -> Fleet:
    sizes = list(sizes)
    examples = Arrays(torch.zeros(sum(sizes), 1), torch.arange(sum(sizes)) % 3)
    held = list(torch.split(torch.arange(sum(sizes)), sizes))
    return Fleet((BIG, SMALL), assignment, Holdings.of_lists(held), examples, seed=0)


def context(round: int = 0, seed: int = 0, epochs: int = 1) -> Context:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    task = Task(lambda width: nn.Linear(2, 2), (BIG, SMALL), 2, (), example, Train(epochs=epochs), rounds=2)
    return Context(task, round, seed)


def ids(clients: list[Client]) -> set[int]:
    return {client.id for client in clients}


@pytest.mark.parametrize(
    ("cohort", "able", "size"),
    [
        (3, 10, 3),
        (30, 10, 10),
        (0.1, 100, 10),
        (0.1, 101, 11),
        (0.07, 100, 7),  # 0.07 * 100 is 7.000000000000001 in floating point
        (0.001, 10, 1),
        (1.0, 7, 7),
        (1, 7, 1),
        (0.5, 0, 0),
    ],
)
def test_a_cohort_is_a_number_or_a_share_rounded_up(cohort: int | float, able: int, size: int) -> None:
    assert cohort_size(cohort, able) == size


def test_nobody_is_drawn_twice_and_everyone_can_be() -> None:
    drawn = [ids(draw_cohort(Everyone(), fleet(), 4, MACS, context(round))) for round in range(40)]
    assert all(len(found) == 4 for found in drawn)
    assert set.union(*drawn) == set(range(ALL))


def test_the_seed_and_the_round_decide_who_is_drawn() -> None:
    def draw(round: int, seed: int) -> list[Client]:
        return draw_cohort(Everyone(), fleet(), 4, MACS, context(round, seed))

    assert draw(1, 0) == draw(1, 0)
    assert len({frozenset(ids(draw(round, 0))) for round in range(10)}) > 5
    assert len({frozenset(ids(draw(0, seed))) for seed in range(10)}) > 5


def test_only_admitted_clients_are_drawn_and_the_share_is_of_them() -> None:
    for round in range(10):
        cohort = draw_cohort(OnlyBig(), fleet(), 0.5, MACS, context(round))
        assert len(cohort) == 3
        assert all(client.level == BIG and client.id % 2 == 0 for client in cohort)
    assert ids(draw_cohort(OnlyBig(), fleet(), 100, MACS, context())) == {0, 2, 4, 6, 8, 10}


def test_by_default_those_are_admitted_who_can_carry_the_network() -> None:
    assert ids(draw_cohort(Method(), fleet(), ALL, MACS, context())) == {0, 2, 4, 6, 8, 10}


def test_a_client_knows_its_level_size_and_labels() -> None:
    cohort = {client.id: client for client in draw_cohort(Everyone(), fleet(), ALL, MACS, context())}
    assert cohort[0] == Client(0, BIG, 1, (0,))
    assert cohort[1] == Client(1, SMALL, 2, (1, 2))
    assert cohort[4] == Client(4, BIG, 5, (0, 1, 2))


def test_the_longest_job_comes_first_by_counted_work() -> None:
    cohort = draw_cohort(Everyone(), fleet(sizes=[5, 60, 5, 40, 1, 60]), 6, MACS, context())
    # work: 0: 500, 1: 600, 2: 500, 3: 400, 4: 100, 5: 600; equals by number
    assert [client.id for client in cohort] == [1, 5, 0, 2, 3, 4]


def test_turns_count_on_from_round_to_round_and_do_not_change_who_a_client_is() -> None:
    cohorts = [draw_cohort(Everyone(), fleet(), 4, MACS, context(round)) for round in range(3)]
    assert [[client.turn for client in cohort] for cohort in cohorts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert fleet().client(0, BIG).turn is None  # it is not to train
    assert replace(cohorts[0][0], turn=99) == cohorts[0][0]


def test_levels_can_be_dealt_to_the_cohort_instead_of_the_fleet() -> None:
    for round in range(10):
        cohort = draw_cohort(Everyone(), fleet(AlternatingCohort()), 6, MACS, context(round))
        assert [client.level for client in cohort].count(BIG) == 3
    everyone = [draw_cohort(Everyone(), fleet(AlternatingCohort()), 6, MACS, context(round)) for round in range(20)]
    seen = {(client.id, client.level) for cohort in everyone for client in cohort}
    assert {id for id, level in seen if level == BIG} == set(range(ALL))  # no client's level is its own


def test_of_a_cohort_dealt_levels_only_the_admitted_stay() -> None:
    cohort = draw_cohort(OnlyBig(), fleet(AlternatingCohort()), 6, MACS, context())
    assert len(cohort) == 3
    assert all(client.level == BIG for client in cohort)


def test_jobs_are_made_when_they_are_asked_for() -> None:
    state, ledger = {"w": torch.zeros(2, 2)}, Ledger()
    jobs = issue(Method(), state, [Client(5, BIG, 1, ()), Client(6, BIG, 1, ())], context(round=3), ledger)
    assert ledger.bytes_down == 0
    job = next(jobs)
    assert (job.client.id, job.round, ledger.bytes_down) == (5, 3, 16)
    next(jobs)
    assert ledger.bytes_down == 32


def update(id: int, value: float, level: Level = BIG, failure: str = "") -> Update:
    payload = {} if failure else {"w": torch.full((2, 2), value)}
    return Update(Client(id, level, size=id + 1, labels=(0,)), payload, 0.5, failure)


def test_a_round_is_counted() -> None:
    updates = {0: update(0, 1.0), 1: update(1, 4.0, SMALL), 2: update(2, 7.0)}
    seen: list[int] = []
    state, ledger = play_round(
        Method(),
        {"w": torch.zeros(2, 2)},
        [found.client for found in updates.values()],
        Answering(updates),
        context(epochs=5),
        MACS,
        lambda found: seen.append(found.client.id),
    )
    assert state["w"].tolist() == [[(1 * 1 + 2 * 4 + 3 * 7) / 6] * 2] * 2
    assert seen == [0, 1, 2]
    assert ledger == Ledger(
        clients=3,
        per_level={"big": 2, "small": 1},
        bytes_down=48,
        bytes_up=48,
        macs=5 * (100 * 1 + 10 * 2 + 100 * 3),
        failures=[],
        client_seconds=1.5,
    )


def test_those_who_fail_are_left_out_and_counted_with_the_reason() -> None:
    poisoned = update(1, float("nan"), SMALL)
    updates = {0: update(0, 1.0), 1: poisoned, 2: update(2, 0.0, failure="the client holds no examples")}
    state, ledger = play_round(
        Method(),
        {"w": torch.zeros(2, 2)},
        [found.client for found in updates.values()],
        Answering(updates),
        context(),
        MACS,
    )
    assert state["w"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert ledger.failures == [
        {"client": 1, "level": "small", "reason": "'w' has values that are not finite"},
        {"client": 2, "level": "big", "reason": "the client holds no examples"},
    ]
    assert ledger.clients == 3
    assert ledger.bytes_up == 32  # the poisoned update came over the wire, too
    assert ledger.macs == 100 * 1 + 10 * 2  # and was computed


def test_a_round_in_which_all_fail_changes_nothing() -> None:
    updates = {0: update(0, float("inf")), 1: update(1, 0.0, failure="flat battery")}
    before = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    clients = [found.client for found in updates.values()]
    after, ledger = play_round(Method(), before, clients, Answering(updates), context(), MACS)
    assert torch.equal(after["w"], before["w"])
    assert [failure["client"] for failure in ledger.failures] == [0, 1]


def test_a_round_with_nobody_changes_nothing() -> None:
    after, ledger = play_round(Method(), {"w": torch.ones(1)}, [], Answering({}), context(), MACS)
    assert after["w"].tolist() == [1.0]
    assert ledger == Ledger()


def test_updates_are_accepted_one_by_one() -> None:
    taken: list[int] = []

    def arriving() -> Iterator[Update]:
        for id in range(3):
            taken.append(id)
            yield update(id, 1.0)

    accepted = accept(arriving(), Ledger(), lambda found: None)
    assert next(accepted).client.id == 0
    assert taken == [0]

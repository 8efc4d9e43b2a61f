"""Who takes part in a round, what it costs, and what becomes of those who fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.desk import Chore, Desk, Piece
from potluck.core.errors import UpdateError
from potluck.core.fleet import Fleet
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.server import Failure, Ledger, Server, cohort_size, draw_cohort, first_state
from potluck.core.store import Store
from potluck.core.tensors import plainly_laid
from potluck.core.types import Client, Context, Job, Level, Phase, Task, Tensors, Train, Update

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

    places = 1

    def __init__(self, answers: dict[int, Update]) -> None:
        self.answers = answers
        self.asked: list[list[Job]] = []

    def open(self, site: Site, desk: Desk, store: Store, clock: Clock) -> None: ...

    def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
        for bundle in bundles:
            self.asked.append(list(bundle))
            yield from (self.answers[job.client.id] for job in bundle)

    def share(self, chore: Chore, pieces: Iterable[Piece]) -> Iterator[Tensors]:
        raise AssertionError("nothing is shared here")

    def close(self) -> None: ...


ALTERNATING, AVERAGING = Alternating(), Method()


def fleet(assignment: Alternating = ALTERNATING, sizes: Iterable[int] = range(1, ALL + 1)) -> Fleet:
    sizes = list(sizes)
    examples = Arrays(torch.zeros(sum(sizes), 1), torch.arange(sum(sizes)) % 3)
    held = list(torch.split(torch.arange(sum(sizes)), sizes))
    return Fleet((BIG, SMALL), assignment, Pool(examples, Holdings.of_lists(held)), seed=0)


def context(round: int = 0, seed: int = 0, epochs: int = 1) -> Context:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    net = ByWidth(lambda width: nn.Linear(2, 2, bias=False))
    task = Task(net, (BIG, SMALL), 2, {}, example, Train(epochs=epochs), rounds=2)
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


def server(
    answers: Iterable[Update] = (), ctx: Context | None = None, method: Method = AVERAGING, **others: object
) -> tuple[Server, Answering]:
    """A server of a network with one weight of 2x2, whose clients answer as written."""
    ctx = ctx or context()
    engine = Answering({answer.client.id: answer for answer in answers})
    return Server(Recipe(method, ctx.task, ctx.seed), engine, macs=MACS, **others), engine  # type: ignore[arg-type]


def played(
    state: Tensors, answers: list[Update], ctx: Context | None = None, **others: object
) -> tuple[Tensors, Ledger]:
    """A round with those who answer."""
    ctx = ctx or context()
    return server(answers, ctx, **others)[0].play(state, [answer.client for answer in answers], ctx)


def update(id: int, value: float, level: Level = BIG, failure: str = "", round: int = 0) -> Update:
    payload = {} if failure else {"weight": torch.full((2, 2), value)}
    return Update(Client(id, level, size=id + 1, labels=(0,)), payload, 0.5, failure, round)


def zeros() -> Tensors:
    return {"weight": torch.zeros(2, 2)}


def test_jobs_are_made_when_they_are_asked_for() -> None:
    ctx, ledger, said = context(round=1), Ledger(), list[str]()
    serving, _ = server([update(5, 1.0, round=1), update(6, 1.0, round=1)], ctx)
    clients = [[Client(5, BIG, 6, ())], [Client(6, BIG, 7, ())]]
    jobs = serving.jobs("train", zeros(), clients, ctx, lambda: said.append("meanwhile"))
    answers = serving.exchange(jobs, ctx, ledger)
    assert ledger.bytes_down == 0
    assert next(answers).client.id == 5
    assert (ledger.bytes_down, ledger.clients, said) == (16, 1, [])
    assert next(answers).client.id == 6
    assert (ledger.bytes_down, ledger.clients, said) == (32, 2, [])
    assert list(answers) == []
    assert said == ["meanwhile"]


def test_a_job_says_for_whom_when_and_what_it_is() -> None:
    ctx = context(round=1)
    serving = replace(server()[0], recipe=Recipe(Method(), ctx.task, 0, run="abc"))
    ((job,),) = serving.jobs("calibrate", zeros(), [[Client(5, SMALL, 1, ())]], ctx)
    assert (job.client.id, job.round, job.work, job.run) == (5, 1, "calibrate", "abc")
    assert set(job.payload) == {"weight"}


def test_clients_that_are_trained_at_once_are_asked_together() -> None:
    answers = [replace(update(id, 1.0), client=Client(id, BIG, 3, (0,))) for id in range(5)]
    serving, engine = server(answers, stacks={"big": 2})
    serving.play(zeros(), [answer.client for answer in answers], context())
    assert [[job.client.id for job in bundle] for bundle in engine.asked] == [[0], [1, 2], [3, 4]]


def test_a_round_is_counted() -> None:
    seen: list[int] = []
    state, ledger = played(
        zeros(),
        [update(0, 1.0), update(1, 4.0, SMALL), update(2, 7.0)],
        context(epochs=5),
        client_done=lambda found: seen.append(found.client.id),
    )
    assert state["weight"].tolist() == [[(1 * 1 + 2 * 4 + 3 * 7) / 6] * 2] * 2
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
    assert ledger.used == 3


def test_those_who_fail_are_left_out_and_counted_with_the_reason() -> None:
    poisoned = update(1, float("nan"), SMALL)
    told: list[str] = []
    state, ledger = played(
        zeros(),
        [update(0, 1.0), poisoned, update(2, 0.0, failure="the client holds no examples")],
        client_failed=lambda failure: told.append(str(failure)),
    )
    assert state["weight"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert ledger.failures == [
        Failure(1, "small", 1, "'weight' has values that are not finite"),
        Failure(2, "big", 1, "the client holds no examples"),
    ]
    assert told == [
        "client 1 (small) was left out of round 1: 'weight' has values that are not finite",
        "client 2 (big) was left out of round 1: the client holds no examples",
    ]
    assert (ledger.clients, ledger.used) == (3, 1)
    assert ledger.per_level == {"big": 2, "small": 1}
    assert ledger.client_seconds == 1.5
    assert ledger.macs == 100 * 1 + 10 * 2  # the poisoned update was computed, too


SENT: dict[str, tuple[Callable[[Update], Update], str]] = {
    "run": (lambda sent: replace(sent, run="another"), "it is for run another, but this is run (none)"),
    "round": (lambda sent: replace(sent, round=4), "it is for round 5, but round 1 is being played"),
    "client": (
        lambda sent: replace(sent, client=replace(sent.client, id=7)),
        "it says that it is client 7's, but client 1 was asked",
    ),
    "names": (
        lambda sent: replace(sent, payload={"bias": torch.zeros(2)}),
        "it lacks 'weight' and has the unknown 'bias'",
    ),
    "shape": (
        lambda sent: replace(sent, payload={"weight": torch.zeros(2, 1)}),
        "'weight' has the shape (2, 1), but it should have (2, 2)",
    ),
    "size": (
        lambda sent: replace(sent, payload={"weight": torch.full((2, 2), 1e7)}),
        "its norm is 2e+07, but it may be 2e+06 at most (guard.bound)",
    ),
}


@pytest.mark.parametrize("what", SENT)
def test_what_does_not_pass_the_guard_is_left_out_and_the_round_goes_on(what: str) -> None:
    spoil, reason = SENT[what]
    serving, engine = server([update(0, 1.0), update(1, 1.0), update(2, 1.0)])
    engine.answers[1] = spoil(engine.answers[1])
    clients = [Client(id, BIG, id + 1, (0,)) for id in range(3)]
    state, ledger = serving.play(zeros(), clients, context())
    assert ledger.failures == [Failure(1, "big", 1, reason)]
    assert state["weight"].tolist() == [[1.0, 1.0]] * 2
    assert ledger.bytes_up == 32


def test_the_bound_is_the_servers_to_set() -> None:
    huge = [update(0, 1e7)]
    assert len(played(zeros(), huge)[1].failures) == 1
    state, ledger = played(zeros(), huge, guard=Guard(bound=float("inf")))
    assert ledger.failures == []
    assert state["weight"].tolist() == [[1e7, 1e7]] * 2


@pytest.mark.parametrize("error", [ValueError, UpdateError])
@pytest.mark.parametrize("moment", ["localize", "phases", "collect"])
def test_a_method_that_fails_on_a_client_fails_nowhere_else(moment: str, error: type[Exception]) -> None:
    """The reason came with the update; the server must not run into the same mistake."""
    failed = [update(0, 1.0), update(1, 0.0, failure="flat battery")]
    for answers in (failed, failed[::-1]):
        _, ledger = played(zeros(), answers, method=FailingOn(1, moment, error))
        assert ledger.failures == [Failure(1, "big", 1, "flat battery")]


@dataclass(frozen=True)
class FailingOn(Method):
    """Breaks down for one client."""

    client: int
    moment: str
    error: type[Exception]

    def fail(self, job: Job, moment: str) -> None:
        if job.client.id == self.client and moment == self.moment:
            raise self.error("flat battery")

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        self.fail(job, "localize")
        return super().localize(job, ctx, personal)

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        self.fail(job, "phases")
        return super().phases(job, ctx, personal)

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        self.fail(job, "collect")
        return super().collect(net, job, ctx)


def test_a_round_in_which_all_fail_changes_nothing() -> None:
    answers = [update(0, float("inf")), update(1, 0.0, failure="flat battery")]
    before = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    after, ledger = played(before, answers)
    assert torch.equal(after["weight"], before["weight"])
    assert [failure.client for failure in ledger.failures] == [0, 1]
    assert ledger.used == 0


@dataclass(frozen=True)
class Restless(Method):
    """Changes the state whether or not anybody took part, and looks at no update."""

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        return {name: (tensor + 1).t() for name, tensor in state.items()}


def test_without_a_usable_update_a_method_has_no_say() -> None:
    state = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    after, _ = played(state, [update(0, 0.0, failure="flat battery")], method=Restless())
    assert torch.equal(after["weight"], state["weight"])
    after, ledger = played(state, [update(0, 1.0), update(1, 1.0)], method=Restless())
    assert after["weight"].tolist() == [[2.0, 4.0], [3.0, 5.0]]
    assert ledger.clients == 2  # they trained, though nobody looked at what came of it


def test_the_state_is_laid_out_plainly_from_the_first_round_on() -> None:
    @dataclass(frozen=True)
    class Turning(Restless):
        def init(self, ctx: Context) -> Tensors:
            return {name: tensor.t() for name, tensor in super().init(ctx).items()}

    state = first_state(Turning(), context())
    assert plainly_laid(state["weight"])
    after, _ = played(state, [update(0, 1.0)], method=Turning())
    assert plainly_laid(after["weight"])


def test_a_round_with_nobody_changes_nothing() -> None:
    after, ledger = played({"weight": torch.ones(1)}, [])
    assert after["weight"].tolist() == [1.0]
    assert ledger == Ledger()


def test_updates_are_accepted_one_by_one() -> None:
    taken: list[int] = []

    class Arriving(Answering):
        def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
            for found in super().map(bundles):
                taken.append(found.client.id)
                yield found

    serving = replace(server()[0], engine=Arriving({id: update(id, 1.0) for id in range(3)}))
    jobs = serving.jobs("train", zeros(), ([Client(id, BIG, id + 1, ())] for id in range(3)), context())
    accepted = serving.exchange(jobs, context(), Ledger())
    assert next(accepted).client.id == 0
    assert taken == [0]


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ("train", "was left out of"),
        ("calibrate", "measured no batch norm in"),
        ("score", "was not scored in"),
        ("of a user's own", "was left out of"),
    ],
)
def test_a_failure_says_what_a_client_was_asked_for(work: str, told: str) -> None:
    assert str(Failure(7, "watch", 3, "flat battery", work)) == f"client 7 (watch) {told} round 3: flat battery"

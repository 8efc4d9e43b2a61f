"""The server's own work: the same tensors in the same order, wherever its pieces are done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import chores
import pytest
import torch
from chores import pieces
from crew import crew
from odd import oddities, oddly_laid, plain_place
from processes import alive
from toys import WIDE, Remembering, clients, done, jobs, make_desk, make_site, opened, same

from potluck.core.desk import STATE, Chore, Piece, score_piece
from potluck.core.engine import Engine
from potluck.core.errors import ConfigError
from potluck.core.evaluate import added
from potluck.core.names import under
from potluck.core.server import first_state
from potluck.core.types import Tensors
from potluck.engines.local import Local
from potluck.engines.serial import Serial

PIECES = 11


def shared(engine: Engine, chore: Chore, given: Iterator[Piece] | None = None, folder: str = "") -> list[Tensors]:
    """What comes of a chore's pieces."""
    opened(engine, make_site(Remembering(folder)))
    return list(engine.share(chore, pieces(PIECES) if given is None else given))


def all_same(one: list[Tensors], other: list[Tensors]) -> bool:
    return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))


def expected(count: int = PIECES) -> list[Tensors]:
    """What weighing gives, without an engine."""
    desk = make_desk(make_site(Remembering()))
    return [chores.weigh(desk, piece) for piece in pieces(count)]


def test_one_after_the_other_gives_what_the_chore_gives() -> None:
    assert all_same(shared(Serial(), chores.weigh), expected())


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.whole), 2, pytest.param(3, marks=pytest.mark.whole)]
)
def test_workers_give_the_same_in_the_same_order(local: Local, workers: int) -> None:
    with crew(local, workers) as engine:
        assert all_same(shared(engine, chores.weigh), expected())
        assert len(engine.workers) == workers
        assert all_same(shared(engine, chores.weigh_slowly_first), expected())


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.whole), 2, pytest.param(3, marks=pytest.mark.whole)]
)
def test_a_worker_killed_in_the_middle_changes_nothing(local: Local, workers: int, tmp_path: Path) -> None:
    with crew(local, workers) as engine:
        opened(engine, make_site(Remembering()))
        before = {worker.process.pid for worker in engine.workers}
        assert all_same(shared(engine, chores.weigh_but_die_once, folder=str(tmp_path)), expected())
        after = {worker.process.pid for worker in engine.workers}
        assert len(after) == workers
        assert [path.name for path in tmp_path.iterdir()] == ["piece-2"]
        (dead,) = before - after
        assert not alive(dead)


def test_pieces_that_bring_the_same_along_all_get_it(engine: Engine) -> None:
    """As those of one model do."""
    found = shared(engine, chores.weigh, pieces(PIECES, {"w": torch.ones(50_000)}))
    assert [float(each["sums"][0]) for each in found] == [50_000.0] * PIECES


def test_scoring_in_pieces_gives_the_score_of_the_whole(engine: Engine) -> None:
    site = make_site(Remembering())
    opened(engine, site)
    state = first_state(site.method, site.context(0))
    given = [Piece(WIDE, 0, number, 4, 1, under(STATE, state)) for number in range(4)]
    found = list(engine.share(score_piece, given))
    desk = make_desk(site)
    assert all_same(found, [score_piece(desk, piece) for piece in given])
    totals: Tensors = {}
    for sums in found:
        totals = added(totals, sums, site.task)
    assert totals["accuracy"][1] == len(desk.test)
    inputs, targets = desk.test.take(torch.arange(len(desk.test)))
    logits = site.method.export(state, WIDE, site.context(0))(inputs)
    assert totals["accuracy"][0] == (logits.argmax(-1) == targets).sum()
    loss = torch.nn.functional.cross_entropy(logits, targets).item()
    assert totals["loss"][0] / totals["loss"][1] == pytest.approx(loss, abs=1e-5)


def test_pieces_are_drawn_when_there_is_room_for_them(engine: Engine) -> None:
    drawn: list[int] = []

    def many(count: int) -> Iterator[Piece]:
        for piece in pieces(count):
            drawn.append(piece.number)
            yield piece

    opened(engine, make_site(Remembering()))
    found = engine.share(chores.weigh_slowly_first, many(60))
    assert drawn == []
    next(found)
    assert len(drawn) < 40
    assert len(list(found)) == 59


# ---- layout ----


def test_what_a_piece_brings_along_is_laid_out_plainly(engine: Engine) -> None:
    plain = {name: plain_place(tensor) for name, tensor in oddly_laid().items()}
    found = shared(engine, chores.tell_places, pieces(PIECES, oddly_laid()))
    assert all_same(found, [plain] * PIECES)


def test_what_comes_of_a_piece_is_laid_out_plainly(engine: Engine) -> None:
    found = shared(engine, chores.answer_oddly)
    assert all_same(found, [oddly_laid(number) for number in range(PIECES)])
    assert not any(map(oddities, found))


def test_what_comes_of_a_piece_stays_when_the_next_is_done(engine: Engine) -> None:
    found = shared(engine, chores.answer_live)
    assert [each["live"].tolist() for each in found] == [[float(number)] * 4 for number in range(PIECES)]


def test_a_piece_may_come_to_nothing(engine: Engine) -> None:
    assert all_same(shared(engine, chores.answer_empty), [{"nothing": torch.empty(0, 3)}] * PIECES)


def test_a_first_piece_may_come_to_nothing(lone: Local) -> None:
    """When nothing has passed through its memory yet."""
    assert all_same(shared(lone, chores.answer_empty, pieces(2, {})), [{"nothing": torch.empty(0, 3)}] * 2)


# ---- what goes wrong ----


def breakdown(engine: Engine, chore: Chore) -> tuple[type[Exception], str]:
    """The error without its traceback, which would keep results and their slots for the tests to come."""
    try:
        shared(engine, chore)
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("it did not break down")


def goes_on(engine: Engine) -> bool:
    """Whether an engine is as good as new."""
    site = make_site(Remembering())
    opened(engine, site)
    updates = done(engine, "label", jobs(site, clients()))
    return [int(u.payload["id"]) for u in updates] == list(range(7)) and all_same(
        shared(engine, chores.weigh), expected()
    )


def test_a_chore_that_breaks_down_is_named_as_the_servers_own_work(engine: Engine) -> None:
    kind, message = breakdown(engine, chores.break_down)
    assert kind is RuntimeError
    assert message.startswith("the server's own work for level 'narrow' broke down:")
    assert "ValueError: the scales are upside down" in message
    assert goes_on(engine)


def test_workers_tell_where_a_chore_broke_down(local: Local) -> None:
    _, message = breakdown(local, chores.break_down)
    assert "Traceback" in message
    assert "chores.py" in message
    assert "in break_down" in message


def test_a_mistake_of_the_users_stays_one(engine: Engine) -> None:
    assert breakdown(engine, chores.refuse) == (ConfigError, "the scales are not set up; set them up")
    assert goes_on(engine)


@pytest.mark.whole
def test_a_chore_that_kills_its_worker_twice_is_named(lone: Local) -> None:
    kind, message = breakdown(lone, chores.die)
    assert kind is RuntimeError
    assert "died twice (exit code -9) on the server's own work for level 'narrow';" in message
    assert goes_on(lone)


def test_work_that_is_given_up_early_does_not_poison_what_follows(engine: Engine) -> None:
    opened(engine, make_site(Remembering()))
    abandoned = engine.share(chores.weigh_slowly_first, pieces(PIECES))
    assert same(next(abandoned), expected()[0])
    abandoned.close()  # type: ignore[attr-defined]
    assert goes_on(engine)


def test_results_that_are_kept_are_never_overwritten(local: Local) -> None:
    with crew(local, 1) as engine:
        kept = [shared(engine, chores.weigh) for _ in range(4)]
        assert all(all_same(each, expected()) for each in kept)


# ---- threads ----


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_piece_is_done_on_one_thread_and_the_callers_number_comes_back(engine: Engine) -> None:
    assert [int(each["threads"]) for each in shared(engine, chores.count_threads)] == [1] * PIECES
    assert torch.get_num_threads() == 2
    breakdown(engine, chores.break_down)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_between_pieces_the_caller_has_its_threads() -> None:
    """As between clients."""
    engine = Serial()
    opened(engine, make_site(Remembering()))
    assert [torch.get_num_threads() for _ in engine.share(chores.weigh, pieces(3))] == [2, 2, 2]

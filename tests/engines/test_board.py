"""What many jobs are sent alike is written once, and again when it changes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys import NARROW, WIDE, Remembering, bundles, make_site, opened, same

from potluck.core.client import Site
from potluck.core.types import Client, Job, Level, Tensors
from potluck.engines.board import Board, stretch
from potluck.engines.local import Local
from potluck.engines.slot import Slot


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.slot.close()


def shown(board: Board, payload: Tensors, level: Level = WIDE) -> Tensors | None:
    """What a worker would read of a payload on the board."""
    layout = board.find(level.name, payload)
    return None if layout is None else board.slot.views(layout)


def size_of(slot: Slot) -> int:
    return os.fstat(slot.handle).st_size


def test_what_is_sent_once_is_not_on_the_board(board: Board) -> None:
    assert shown(board, {"w": torch.ones(3)}) is None
    assert shown(board, {"w": torch.ones(3)}) is None  # equal, but another tensor
    assert board.end == 0


def test_what_is_sent_again_is_written_once(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Slot.write
    monkeypatch.setattr(Slot, "write", lambda *given: (written.append(1), write(*given))[1])
    payload = {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(7)}
    assert shown(board, payload) is None
    for _ in range(5):
        found = shown(board, {name: tensor.view(tensor.shape) for name, tensor in payload.items()})
        assert found is not None
        assert same(found, payload)
    assert len(written) == 1


def test_levels_do_not_disturb_each_other(board: Board) -> None:
    wide, narrow = {"w": torch.ones(4)}, {"w": torch.zeros(2)}
    for number in range(4):
        for level, payload in ((WIDE, wide), (NARROW, narrow)):
            found = shown(board, payload, level)
            assert (found is None) == (number == 0)
            assert found is None or same(found, payload)
    end = board.end
    shown(board, wide)
    assert board.end == end


@pytest.mark.parametrize("other", ["values", "fewer", "more", "renamed", "slice", "stride", "type"])
def test_what_is_another_payload_is_not_taken_for_the_last(board: Board, other: str) -> None:
    w = torch.arange(16.0).view(4, 4)
    changed = {
        "values": {"w": w + 1, "b": w},
        "fewer": {"w": w},
        "more": {"w": w, "b": w, "c": w},
        "renamed": {"w": w, "c": w},
        "slice": {"w": w, "b": w[:2]},
        "stride": {"w": w, "b": w.t()},
        "type": {"w": w, "b": w.view(torch.int32)},
    }[other]
    for _ in range(2):
        shown(board, {"w": w, "b": w})
    assert shown(board, changed) is None
    found = shown(board, changed)
    assert found is not None
    assert same(found, changed)


def test_nothing_is_never_on_the_board(board: Board) -> None:
    assert shown(board, {}) is None
    assert shown(board, {}) is None


def test_a_change_in_place_tells_in_the_stretch() -> None:
    w = torch.zeros(3)
    before = stretch(w)
    assert stretch(w) == stretch(w.view(3)) == before
    w[1:].add_(1)
    assert stretch(w) != before


def test_what_was_changed_in_place_is_written_again(board: Board) -> None:
    payload = {"w": torch.zeros(3)}
    for number in range(4):
        payload["w"].fill_(number)
        for _ in range(3):
            found = shown(board, payload)
            assert found is None or same(found, payload)


def test_what_a_worker_still_reads_is_not_written_over(board: Board) -> None:
    first, second = {"w": torch.zeros(100)}, {"w": torch.ones(100)}
    shown(board, first)
    reading = shown(board, first)
    shown(board, second)
    shown(board, second)
    assert reading is not None
    assert bool((reading["w"] == 0).all())


def test_a_cleared_board_has_forgotten(board: Board) -> None:
    payload = {"w": torch.ones(3)}
    for _ in range(2):
        shown(board, payload)
    board.clear()
    assert board.end == 0
    assert shown(board, payload) is None


def test_memory_does_not_grow_with_the_jobs(board: Board) -> None:
    payload = {"w": torch.ones(1000)}
    for _ in range(2):
        shown(board, payload)
    size = size_of(board.slot)
    for number in range(100):
        shown(board, payload)
        shown(board, {"w": torch.full((1000,), float(number))}, NARROW)  # of another level, each another
    assert size_of(board.slot) == size
    assert set(board.last) == {"wide", "narrow"}


def test_memory_does_not_grow_where_payloads_come_back(board: Board) -> None:
    """As with a method that draws which part a client is sent: some neighbours are sent alike."""
    parts = [{"w": torch.full((1000,), float(number))} for number in range(2)]

    def send() -> None:
        for part in parts:
            shown(board, part)
            shown(board, part)

    for _ in range(3):
        send()
    end = board.end
    for _ in range(50):
        send()
    assert board.end == end


CHOICES = st.lists(st.tuples(st.sampled_from([WIDE, NARROW]), st.integers(0, 2)), max_size=30)


@given(CHOICES)
def test_the_board_shows_what_was_sent_or_nothing(choices: list[tuple[Level, int]]) -> None:
    board = Board()
    payloads = [{"w": torch.full((3,), float(number)), "v": torch.arange(2) * number} for number in range(3)]
    before: dict[str, int] = {}
    for level, number in choices:
        found = shown(board, payloads[number], level)
        assert found is not None or before.get(level.name) != number
        assert found is None or same(found, payloads[number])
        before[level.name] = number
    board.slot.close()


# ---- in the engine ----


def summed(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    return {"sum": job.payload["w"].sum(), "first": job.payload["w"][:1].clone()}, {}


def memory_of(engine: Local) -> int:
    assert engine.shared is not None
    return size_of(engine.shared[1].slot) + sum(size_of(slot) for worker in engine.workers for slot in worker.slots)


def sums(engine: Local, sent: Iterator[Tensor]) -> list[float]:
    opened(engine, make_site(Remembering(), works={"sum up": summed}))
    given = (Job(Client(number, WIDE, 1, ()), 0, {"w": w}) for number, w in enumerate(sent))
    return [float(update.payload["sum"]) for update in engine.map(bundles("sum up", given))]


def test_workers_read_the_board_and_its_memory_stays(local: Local) -> None:
    opened(local, make_site(Remembering()))  # its workers are there
    w, before = torch.ones(100_000), memory_of(local)  # the slots have been used by other tests
    assert sums(local, iter([w] * 20)) == [100_000.0] * 20
    assert sums(local, iter([w] * 100)) == [100_000.0] * 100
    assert memory_of(local) - before < 10 * w.nbytes  # not one of 100
    for number in range(5):  # one map after the other, each with a state of its own
        assert sums(local, iter([torch.full((100_000,), float(number))] * 5)) == [number * 100_000.0] * 5
    assert memory_of(local) - before < 20 * w.nbytes


def test_payloads_that_differ_arrive_as_they_are(local: Local) -> None:
    parts = [torch.full((1000,), float(number)) for number in range(3)]
    order = [0, 0, 1, 1, 1, 0, 2, 2, 0, 0, 1, 2, 2, 2, 0, 1, 1]
    assert sums(local, (parts[number] for number in order)) == [1000.0 * number for number in order]


def test_a_state_that_changes_between_jobs_arrives_as_it_was_when_its_job_was_made(local: Local) -> None:
    w = torch.zeros(1000)

    def growing() -> Iterator[Tensor]:
        for _ in range(6):
            w.add_(1)
            yield w

    assert sums(local, growing()) == [1000.0 * number for number in range(1, 7)]

"""Work side by side: the same bits, the same order, and nothing left changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from potluck.core import threads as module
from potluck.core.random import stream
from potluck.core.threads import in_parallel


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def allow(threads: int, patch: pytest.MonkeyPatch) -> None:
    """Have this process use so many threads."""
    torch.set_num_threads(threads)
    patch.setattr(module, "own_threads", lambda: threads)


def matrices() -> list[Tensor]:
    return [torch.randn(400, 400, generator=stream(0, place)) for place in range(5)]


def work(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    square = matrix.T @ matrix
    values, vectors = torch.linalg.eigh(square)
    return square, values, vectors * vectors.sum()


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for threads in (1, 2, 3):
        allow(threads, monkeypatch)
        results.append(in_parallel(work, matrices()))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert all(torch.equal(first, second) for first, second in zip(one, two, strict=True))


def test_one_item_has_the_bits_it_has_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(2, monkeypatch)
    alone, among = in_parallel(work, matrices()[:1])[0], in_parallel(work, matrices())[0]
    assert all(torch.equal(first, second) for first, second in zip(alone, among, strict=True))


def test_every_piece_runs_on_one_thread_and_several_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(2, monkeypatch)
    both = threading.Barrier(2, timeout=60)

    def meet(_: int) -> int:
        both.wait()
        return torch.get_num_threads()

    assert in_parallel(meet, [0, 1]) == [1, 1]


@pytest.mark.parametrize(("threads", "count"), [(1, 3), (2, 1)])
def test_one_thread_or_one_item_is_the_callers_own_work(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(threads, monkeypatch)
    found = in_parallel(lambda _: (threading.get_ident(), torch.get_num_threads()), range(count))
    assert found == [(threading.get_ident(), 1)] * count


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_in_the_order_of_the_items(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(threads, monkeypatch)
    sizes = [500, 1, 300, 2, 3, 100]
    assert in_parallel(lambda size: torch.ones(size, size).sum().sqrt().item(), sizes) == sizes
    assert in_parallel(lambda size: size, []) == []


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("items", [[1.0], [1.0, 2.0, 3.0]])
def test_the_number_of_threads_is_as_before(threads: int, items: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    allow(threads, monkeypatch)
    in_parallel(torch.tensor, items)
    assert torch.get_num_threads() == threads
    assert number_in_a_new_thread() == threads


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [1, 4])
def test_exceptions_come_through_and_leave_nothing_changed(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(threads, monkeypatch)

    def fail(item: int) -> int:
        if item == count - 1:
            raise KeyError(item)
        return item

    with pytest.raises(KeyError):
        in_parallel(fail, range(count))
    assert torch.get_num_threads() == threads
    assert number_in_a_new_thread() == threads


def test_it_may_be_used_within_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(2, monkeypatch)
    assert in_parallel(lambda n: in_parallel(lambda m: n * m, [1, 2]), [3, 4]) == [[3, 6], [4, 8]]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("recorded", [True, False])
def test_gradients_are_recorded_as_the_caller_says(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(2, monkeypatch)
    with torch.set_grad_enabled(recorded):
        assert in_parallel(lambda _: torch.is_grad_enabled(), range(3)) == [recorded] * 3


def number_in_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]

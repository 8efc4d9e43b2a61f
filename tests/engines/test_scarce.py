"""Too little memory, too few file handles, a parent that dies early: one sentence, and nobody is left behind."""

from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from processes import gone
from toys import Remembering, clients, done, jobs, make_site, opened

import potluck
from potluck.core.client import Site
from potluck.core.errors import EngineError
from potluck.core.types import Job, Tensors
from potluck.engines.local import Local
from potluck.engines.process import start_worker
from potluck.engines.slot import Slot

LARGE = 1 << 22  # bytes


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """So much of a resource, for a while."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def large() -> Tensors:
    return {"w": torch.ones(LARGE // 4)}


def swell(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers with more than its process may have in a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE // 2, LARGE // 2))
    return large(), {}


def deny(*given: object, **options: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ---- memory ----


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a system without files in memory that have no name")
def test_slots_do_not_depend_on_the_size_of_a_file_system() -> None:
    slot = Slot.create()
    assert str(Path(f"/proc/self/fd/{slot.handle}").readlink()).startswith("/memfd:")
    slot.close()


def test_where_files_in_memory_are_forbidden_slots_lie_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "memfd_create", deny, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = Slot.create()
    theirs = Slot(os.dup(ours.handle))
    layout, _ = ours.write(large())
    assert torch.equal(theirs.views(layout)["w"], large()["w"])
    assert list(tmp_path.iterdir()) == []  # it has no name


def test_where_nothing_can_be_shared_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", deny, raising=False)
    monkeypatch.setattr(tempfile, "TemporaryFile", deny)
    with pytest.raises(EngineError, match=r"no memory can be shared .*: No space left on device; .*engine\.name = "):
        Slot.create()


def test_where_file_handles_are_wanting_no_other_place_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would say that there is no temporary directory."""

    def too_many(*given: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", too_many, raising=False)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: pytest.fail("it looks for a directory"))
    with pytest.raises(EngineError, match="Too many open files; raise that limit"):
        Slot.create()


def test_what_is_written_is_reserved_first_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda handle, start, size: reserved.append((start, size)))
    slot = Slot.create()
    _, end = slot.write({"w": torch.zeros(1000)})
    _, more = slot.write({"w": torch.zeros(500)}, end)
    slot.write({"w": torch.zeros(1200)})  # no farther than before
    assert reserved == [(0, end), (end, more - end)]


def test_memory_that_cannot_be_reserved_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot.create()
    slot.write({"w": torch.zeros(10)})
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", deny)
        with pytest.raises(EngineError, match=r"no 4,194,304 bytes of memory .*: No space left on device; free some"):
            slot.write(large())
    layout, _ = slot.write(large())  # it can be tried again
    assert torch.equal(slot.views(layout)["w"], large()["w"])


def test_a_parent_without_room_says_so() -> None:
    slot = Slot.create()
    with limited(resource.RLIMIT_FSIZE, LARGE // 2), pytest.raises(EngineError, match="no 4,194,304 bytes of memory"):
        slot.write(large())


def test_a_worker_without_room_says_so(lone: Local) -> None:
    site = make_site(Remembering(), works={"swell": swell})
    opened(lone, site)
    with pytest.raises(EngineError, match=r"no [0-9,]+ bytes of memory can be shared with worker processes: File too"):
        done(lone, "swell", jobs(site, clients()))


# ---- file handles ----


def test_too_few_file_handles_are_told_and_none_is_lost() -> None:
    gc.collect()  # slots of other tests let go of theirs
    luggage, board = Slot.create(), Slot.create()
    before, complaints = open_handles(), []
    for spare in range(60):
        next_handle = os.dup(board.handle)
        os.close(next_handle)
        try:
            with limited(resource.RLIMIT_NOFILE, next_handle + spare):
                worker = start_worker(luggage, board)
        except EngineError as error:
            complaints.append(str(error))
            assert open_handles() == before
        else:
            worker.stop()
            break
    assert open_handles() == before
    assert len(complaints) > 6  # of a pipe, a lifeline, four slots and what starting a process takes
    assert all("Too many open files; raise that limit (ulimit -n)" in complaint for complaint in complaints)


# ---- a parent that dies ----

PARENT = """
import sys, time
from potluck.engines.process import start_worker
from potluck.engines.slot import Slot

sys.path.insert(0, sys.argv[1])
worker = start_worker(Slot.create(), Slot.create())
print(worker.process.pid, flush=True)
time.sleep(120)
"""
SLOW_TORCH = """
import time
from pathlib import Path

Path(__file__).with_name("began").touch()
time.sleep(120)
"""


def test_workers_leave_with_their_parent_even_while_they_start(tmp_path: Path) -> None:
    torch_folder = tmp_path / "torch"
    torch_folder.mkdir()
    (torch_folder / "__init__.py").write_text(SLOW_TORCH)
    source = Path(potluck.__file__).parents[1]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    while not (torch_folder / "began").exists():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone([worker], within=10)

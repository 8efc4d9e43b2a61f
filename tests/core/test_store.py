"""What stays on clients between rounds, also if a run is cut short."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from potluck.core import store as store_module
from potluck.core.checkpoint import read, save
from potluck.core.errors import RunError
from potluck.core.store import Folder, Memory, Reading, Store, survey, waiting
from potluck.core.tensors import plainly_laid, same_tensors
from potluck.core.types import Tensors


def some(value: float) -> Tensors:
    return {"own": torch.full((2, 3), value), "count": torch.tensor(int(value))}


def holds(store: Store, client: int, value: float) -> bool:
    return same_tensors(store.get(client), some(value))


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Memory() if request.param == "memory" else Folder(tmp_path / "personal", 0)


def test_what_is_put_is_what_is_found(store: Store) -> None:
    assert store.get(3) == {}
    store.put(3, some(1.0))
    store.put(1003, some(2.0))
    assert holds(store, 3, 1.0)
    store.commit()
    assert holds(store, 3, 1.0)
    assert holds(store, 1003, 2.0)
    assert store.get(4) == {}
    store.put(3, some(5.0))
    assert holds(store, 3, 5.0)
    store.commit()
    assert holds(store, 3, 5.0)


def test_what_is_put_is_a_copy_plainly_laid_out(store: Store) -> None:
    given = {"own": torch.arange(6.0).view(2, 3).t()}
    store.put(1, given)
    given["own"].zero_()
    assert store.get(1)["own"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert plainly_laid(store.get(1)["own"])


def test_other_names_shapes_and_types_replace_what_was_there(store: Store) -> None:
    kept: list[Tensors] = [
        {"a": torch.zeros(2)},
        {"b": torch.zeros(2)},
        {"b": torch.zeros(1, 2)},
        {"b": torch.zeros(1, 2, dtype=torch.float64)},
        {"b": torch.zeros(1, 2, dtype=torch.float64), "c": torch.tensor(True)},
        {"c": torch.tensor(True)},
    ]
    for tensors in kept:
        store.put(1, tensors)
        assert same_tensors(store.get(1), tensors)
        assert {name: t.shape for name, t in store.get(1).items()} == {name: t.shape for name, t in tensors.items()}


STEPS = st.lists(st.none() | st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20)  # None: a round is done


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(STEPS)
def test_a_folder_holds_what_memory_holds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int] | None]
) -> None:
    path = tmp_path_factory.mktemp("store") / "personal"
    folder, memory = Folder(path, 0), Memory()
    for step in steps:
        for store in (folder, memory):
            if step is None:
                store.commit()
            else:
                store.put(step[0], some(float(step[1])))
        assert all(same_tensors(folder.get(client), memory.get(client)) for client in range(7))


def test_a_client_has_a_file_of_its_own_once_the_round_is_done(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 0)
    folder.put(7, some(1.0))
    folder.put(1007, some(2.0))
    assert files(tmp_path) == {"next/7.safetensors", "next/1007.safetensors"}
    folder.commit()
    assert files(tmp_path) == {"000/7.safetensors", "001/1007.safetensors"}
    tensors, about = read(tmp_path / "001" / "1007.safetensors")
    assert same_tensors(tensors, some(2.0))
    assert about == {"client": 1007, "run": "", "rounds_done": 1}


def test_nothing_is_written_before_anybody_keeps_anything(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "personal", 0)
    folder.put(1, {})
    folder.commit()
    assert folder.get(1) == {}
    assert not (tmp_path / "personal").exists()


def test_what_did_not_change_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Path] = []
    real = store_module.save
    monkeypatch.setattr(store_module, "save", lambda path, *rest: (saved.append(path), real(path, *rest)))
    folder = Folder(tmp_path, 0)
    folder.put(1, some(1.0))
    folder.put(1, some(1.0))
    folder.commit()
    assert len(saved) == 1
    for _ in range(3):
        folder.put(1, some(1.0))
        assert not waiting(tmp_path)
        folder.commit()
    assert len(saved) == 1
    folder.put(1, some(2.0))
    assert len(saved) == 2
    folder.put(1, some(1.0))  # back to what it was before the round
    assert holds(folder, 1, 1.0)
    folder.commit()
    assert holds(Folder(tmp_path, 5), 1, 1.0)


def before_and_after(path: Path) -> Folder:
    """A folder in which clients 1 and 2 kept something in the first round, and 2 and 3 in the second, not yet done."""
    folder = Folder(path, 0)
    folder.put(1, some(1.0))
    folder.put(2, some(1.0))
    folder.commit()
    folder.put(2, some(2.0))
    folder.put(3, some(2.0))
    return folder


def test_what_waits_is_dropped_if_its_round_has_no_checkpoint(tmp_path: Path) -> None:
    before_and_after(tmp_path)
    again = Folder(tmp_path, 1)
    assert holds(again, 1, 1.0)
    assert holds(again, 2, 1.0)
    assert again.get(3) == {}
    assert files(tmp_path) == {"000/1.safetensors", "000/2.safetensors"}


def test_what_waits_is_kept_if_its_round_has_a_checkpoint(tmp_path: Path) -> None:
    """The run ended after the checkpoint, before the files were put into their places."""
    before_and_after(tmp_path)
    again = Folder(tmp_path, 2)
    assert [holds(again, client, value) for client, value in ((1, 1.0), (2, 2.0), (3, 2.0))] == [True] * 3
    assert files(tmp_path) == {"000/1.safetensors", "000/2.safetensors", "000/3.safetensors"}


def test_a_run_that_goes_on_counts_on(tmp_path: Path) -> None:
    before_and_after(tmp_path)
    again = Folder(tmp_path, 1)
    again.put(3, some(3.0))
    assert read(tmp_path / "next" / "3.safetensors")[1]["rounds_done"] == 2
    again.commit()
    again.put(3, some(4.0))
    assert holds(Folder(tmp_path, 2), 3, 3.0)


def test_a_commit_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = before_and_after(tmp_path)
    moved: list[Path] = []
    real = Path.rename

    def rename(file: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(file)
        return real(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            folder.commit()
    assert len(moved) == 1
    again = Folder(tmp_path, 2)
    assert [holds(again, client, value) for client, value in ((1, 1.0), (2, 2.0), (3, 2.0))] == [True] * 3
    assert not waiting(tmp_path)


def test_with_no_round_done_what_was_there_is_forgotten(tmp_path: Path) -> None:
    before_and_after(tmp_path / "personal")
    fresh = Folder(tmp_path / "personal", 0)
    assert [fresh.get(client) for client in (1, 2, 3)] == [{}, {}, {}]
    assert files(tmp_path) == set()


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_a_write_that_fails_leaves_what_was_there(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, 0)
    folder.put(1, some(1.0))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os if moment == "fsync" else Path, moment, full)
        with pytest.raises(RunError, match=r"cannot write .*: No space left on device"):
            folder.put(1, some(2.0))
    assert files(tmp_path) == {"next/1.safetensors"}  # nor is half a file left
    assert holds(folder, 1, 1.0)
    folder.commit()
    assert holds(Folder(tmp_path, 1), 1, 1.0)


@pytest.mark.parametrize("done", [2, 0])
def test_half_a_file_of_a_run_that_was_killed_is_nobodys(tmp_path: Path, done: int) -> None:
    before_and_after(tmp_path)
    (tmp_path / "next" / ".3.safetensors.tmp").write_bytes(b"half a fi")
    assert holds(Folder(tmp_path, done), 3, 2.0) == bool(done)
    assert files(tmp_path / "next") == set()


def test_every_folder_in_which_a_name_changed_is_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[Path] = []
    folder = Folder(tmp_path, 0)
    folder.put(7, some(1.0))
    folder.put(1007, some(1.0))
    monkeypatch.setattr(store_module, "force_directory", forced.append)
    folder.commit()
    assert sorted(forced) == [tmp_path, tmp_path / "000", tmp_path / "001"]
    folder.commit()
    assert len(forced) == 3  # nothing changed


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = before_and_after(tmp_path)
    folder.commit()
    (tmp_path / "000" / "1.safetensors").write_bytes(b"rubbish")
    with pytest.raises(RunError, match=r"000/1\.safetensors is damaged.*restore it, or remove it"):
        Folder(tmp_path, 2).get(1)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "personal", 0)
    folder.put(1, some(1.0))
    (tmp_path / "personal" / "000").write_text("a file where a folder should be")
    with pytest.raises(RunError, match=r"cannot write to .*personal: File exists"):
        folder.commit()


# ---- whose files these are ----


def kept(path: Path, run: str = "mine") -> Folder:
    """A folder in which clients 1 and 2 of a run kept something in the first round."""
    folder = Folder(path, 0, run)
    folder.put(1, some(1.0))
    folder.put(2, some(2.0))
    folder.commit()
    return folder


@pytest.mark.parametrize("kind", [Folder, Reading])
def test_the_file_of_another_client_is_refused(tmp_path: Path, kind: type[Folder] | type[Reading]) -> None:
    kept(tmp_path)
    (tmp_path / "000" / "1.safetensors").write_bytes((tmp_path / "000" / "2.safetensors").read_bytes())
    store = kind(tmp_path, 1, "mine")
    assert holds(store, 2, 2.0)
    with pytest.raises(RunError, match=r"000/1\.safetensors is not what this run keeps for client 1"):
        store.get(1)


@pytest.mark.parametrize("kind", [Folder, Reading])
def test_the_file_of_another_run_is_refused(tmp_path: Path, kind: type[Folder] | type[Reading]) -> None:
    kept(tmp_path, "yours")
    with pytest.raises(RunError, match="of another client or run"):
        kind(tmp_path, 1, "mine").get(1)


@pytest.mark.parametrize("kind", [Folder, Reading])
@pytest.mark.parametrize("rounds", ["1", True, None])
def test_a_file_that_does_not_say_its_round_is_refused(
    tmp_path: Path, kind: type[Folder] | type[Reading], rounds: object
) -> None:
    kept(tmp_path)
    save(tmp_path / "000" / "1.safetensors", some(1.0), {"client": 1, "run": "mine", "rounds_done": rounds})
    with pytest.raises(RunError, match=r"000/1\.safetensors does not say of which round it is"):
        kind(tmp_path, 1, "mine").get(1)


@pytest.mark.parametrize("kind", [Folder, Reading])
def test_a_file_of_a_round_that_is_yet_to_come_is_refused(tmp_path: Path, kind: type[Folder] | type[Reading]) -> None:
    """As when an older checkpoint was restored without the clients' files that belong to it."""
    folder = kept(tmp_path)
    folder.put(1, some(3.0))
    folder.commit()
    store = kind(tmp_path, 1, "mine")
    assert holds(store, 2, 2.0)
    with pytest.raises(RunError, match=r"1\.safetensors is of round 2, but the checkpoint is of round 1"):
        store.get(1)


def test_a_waiting_file_of_another_run_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    kept(tmp_path)
    kept(tmp_path / "other", "yours").put(5, some(5.0))
    (tmp_path / "next" / "5.safetensors").write_bytes((tmp_path / "other" / "next" / "5.safetensors").read_bytes())
    (tmp_path / "next" / ".6.safetensors.tmp").write_bytes(b"half")
    before = files(tmp_path)
    with pytest.raises(RunError, match=r"next/5\.safetensors is not what this run keeps"):
        Folder(tmp_path, 1, "mine")
    assert files(tmp_path) == before


def test_the_roll_says_who_has_a_file_whatever_the_order(tmp_path: Path) -> None:
    one, other = Folder(tmp_path / "one", 0), Folder(tmp_path / "other", 0)
    for folder, clients in ((one, (7, 1, 1007)), (other, (1007, 7, 1))):
        for client in clients:
            folder.put(client, some(float(client)))
            folder.put(client, some(0.0))
        folder.put(3, {})
        folder.commit()
    assert one.roll.clients == 3
    assert one.roll == other.roll == survey(tmp_path / "one", 1, "").roll
    (tmp_path / "one" / "000" / "7.safetensors").rename(tmp_path / "one" / "000" / "8.safetensors")
    changed = survey(tmp_path / "one", 1, "").roll
    assert changed.clients == 3
    assert changed.digest != other.roll.digest


def test_the_roll_counts_what_waits_for_a_checkpoint_that_is_there(tmp_path: Path) -> None:
    before_and_after(tmp_path)
    assert [survey(tmp_path, done, "").roll.clients for done in (1, 2)] == [2, 3]
    assert files(tmp_path / "next") == {"2.safetensors", "3.safetensors"}


def test_a_round_costs_what_its_cohort_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients have a file, only those of the cohort are touched."""
    folder = Folder(tmp_path, 0)
    for client in range(50):
        folder.put(client, some(1.0))
    folder.commit()
    looked: list[Path] = []
    real = store_module.read
    monkeypatch.setattr(store_module, "read", lambda path: (looked.append(path), real(path))[1])
    monkeypatch.setattr(store_module, "settled", lambda path: pytest.fail("a round looks through all files"))
    for client in (3, 60):
        folder.put(client, some(2.0))
    folder.commit()
    assert len(looked) <= 2
    assert folder.roll.clients == 51


def test_only_our_files_are_forgotten(tmp_path: Path) -> None:
    """A folder of that name that somebody had before is left alone."""
    before_and_after(tmp_path)
    others = {"diary.txt", "000/photo.safetensors", "007/1.safetensors", "next/02.safetensors", "next/-3.safetensors"}
    for mine in others:
        (tmp_path / mine).parent.mkdir(exist_ok=True)
        (tmp_path / mine).write_text("mine")
    Folder(tmp_path, 0)
    assert files(tmp_path) == others

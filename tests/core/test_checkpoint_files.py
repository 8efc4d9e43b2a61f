"""Files of tensors: what is read is what was saved, or is refused by the file's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.checkpoint import read, save, write_atomically
from potluck.core.errors import RunError
from potluck.core.form import form_of

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SAMPLE = {"w": torch.arange(40.0), "n": torch.tensor(3)}
KILLED = 9


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = 100 * torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 1000))))
    tensor = values.to(draw(st.sampled_from(TYPES)))
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


def saved(folder: Path) -> Path:
    save(folder / "a.safetensors", SAMPLE, {"round": 4})
    return folder / "a.safetensors"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "__metadata__"), tensors(), max_size=4))
def test_what_is_saved_is_read_bit_for_bit(tmp_path: Path, content: dict[str, Tensor]) -> None:
    about = {"round": 3, "names": ["ä", "b"], "nested": {"rate": 0.1}}
    save(tmp_path / "t", content, about)
    found, words = read(tmp_path / "t")
    assert words == about
    assert set(found) == set(content)
    for name, tensor in content.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0])
def test_odd_floats_survive(tmp_path: Path, value: float) -> None:
    save(tmp_path / "t", {"w": torch.tensor([value])}, {})
    found = read(tmp_path / "t")[0]["w"]
    assert found.view(torch.int32).tolist() == torch.tensor([value]).view(torch.int32).tolist()


def test_views_and_shared_memory_are_saved_as_values(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    save(tmp_path / "t", {"whole": whole, "part": whole[1:3], "grad": whole.clone().requires_grad_()}, {})
    found, _ = read(tmp_path / "t")
    assert found["part"].tolist() == [1.0, 2.0]
    assert not found["grad"].requires_grad


def test_the_order_of_names_and_words_is_no_matter(tmp_path: Path) -> None:
    save(tmp_path / "a", SAMPLE, {"x": 1, "y": 2})
    save(tmp_path / "b", dict(reversed(SAMPLE.items())), {"y": 2, "x": 1})
    assert read(tmp_path / "a")[1] == read(tmp_path / "b")[1]
    one, other = (read(tmp_path / name)[0] for name in "ab")
    assert all(torch.equal(one[name], other[name]) for name in SAMPLE)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 60, 150, -100, -9, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RunError, match=r"a\.safetensors is damaged.*restore it, or remove it"):
        read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_a_single_flipped_bit_anywhere_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"a\.safetensors is damaged"):
        read(path)


def test_a_flipped_bit_in_the_data_fails_the_checksum(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="does not match its checksum"):
        read(path)


@pytest.mark.parametrize("words", [{"round": 5}, {"round": "4"}, {"round": 4, "more": 1}])
def test_altered_words_fail_the_checksum(tmp_path: Path, words: dict[str, object]) -> None:
    path = saved(tmp_path)
    with safetensors.safe_open(path, "pt") as file:
        ours = {**json.loads(file.metadata()["potluck"]), "about": words}
    path.write_bytes(safetensors.torch.save(SAMPLE, {"potluck": json.dumps(ours)}))
    with pytest.raises(RunError, match="does not match its checksum"):
        read(path)


def test_a_renamed_tensor_fails_the_checksum(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    path.write_bytes(safetensors.torch.save({"v": SAMPLE["w"], "n": SAMPLE["n"]}, metadata))
    with pytest.raises(RunError, match="does not match its checksum"):
        read(path)


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\x80\x04}." * 20, b"[fleet]\n" * 50, safetensors.torch.save({"w": torch.zeros(2)})],
    ids=["text", "pickle", "toml", "a stranger's safetensors"],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"other\.bin is damaged or not a file of Potluck's"):
        read(path)


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no file .*nothing\.safetensors"):
        read(tmp_path / "nothing.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="folder"):
        read(tmp_path / "folder")


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "c.txt", b"one")
    write_atomically(tmp_path / "a" / "b" / "c.txt", b"two")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["c.txt"]
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == b"two"


@pytest.mark.parametrize(("where", "what"), [(os, "fsync"), (Path, "rename")])
def test_a_full_disk_leaves_the_old_file_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, what: str
) -> None:
    path = saved(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, what, refuse)
        with pytest.raises(RunError, match=r"cannot write .*a\.safetensors: No space left"):
            save(path, {"w": torch.zeros(1)}, {})
    assert torch.equal(read(path)[0]["w"], SAMPLE["w"])
    save(path, {"w": torch.zeros(1)}, {})  # what was left behind is not in the way
    assert read(path)[0]["w"].tolist() == [0.0]


def refuse(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("moment", ["os.fsync", "pathlib.Path.rename"])
def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file(tmp_path: Path, moment: str) -> None:
    path = saved(tmp_path)
    script = (
        "import os, pathlib, signal\n"
        f"{moment} = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from potluck.core.checkpoint import write_atomically\n"
        f"write_atomically(pathlib.Path({str(path)!r}), b'half')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == -KILLED
    assert torch.equal(read(path)[0]["w"], SAMPLE["w"])


def test_a_file_is_on_disk_before_it_takes_the_old_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (steps.append("rename"), rename(path, to)))
    write_atomically(tmp_path / "a", b"content")
    assert steps == ["fsync", "rename", "fsync"]  # the content, then the name, then the directory


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunError, match=r"cannot write .*file/a"):
        write_atomically(tmp_path / "file" / "a", b"content")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"w": torch.zeros(2, 3)}, ""),
        ({"w": torch.zeros(3, 3)}, "it has 24 bytes of tensors, where 36 are expected"),
        ({"w": torch.zeros(5)}, "it has 24 bytes of tensors, where 20 are expected"),
        ({"w": torch.zeros(3, 2)}, "is of another run: 'w' is (2, 3) of float32, but it should be (3, 2) of float32"),
        ({"v": torch.zeros(2, 3)}, "is of another run: 'v' is missing, but it should be (2, 3) of float32"),
    ],
)
def test_tensors_of_another_form_are_refused(wanted: dict[str, Tensor], told: str, tmp_path: Path) -> None:
    save(tmp_path / "it", {"w": torch.ones(2, 3)}, {})
    if not told:
        assert read(tmp_path / "it", form_of(wanted))[0]["w"].equal(torch.ones(2, 3))
        return
    with pytest.raises(RunError) as caught:
        read(tmp_path / "it", form_of(wanted))
    assert told in str(caught.value)

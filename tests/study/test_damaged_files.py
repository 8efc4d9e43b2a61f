"""Damage to what a run saved: refused by the file's name, with nothing lost and nothing taken for granted."""

import shutil

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experiment import content, interrupted, run_config, write_config

from potluck.core.checkpoint import read, save
from potluck.core.errors import RunError


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """(config, directory) of a run that stopped after a round."""
    folder = tmp_path_factory.mktemp("stopped")
    config = write_config(folder)
    return config, interrupted(config, folder / "run")


@pytest.fixture
def copy(stopped, tmp_path):
    config, directory = stopped
    return config, shutil.copytree(directory, tmp_path / "run")


def checkpoint_of(directory):
    (path,) = [path for path in (directory / "checkpoint").iterdir() if path.is_file()]
    return path


def refused(config, directory, names):
    """Resuming fails, names a file, and leaves everything as it is."""
    before = content(directory)
    with pytest.raises(RunError) as caught:
        run_config(config, directory, resume=True)
    assert str(names) in str(caught.value)
    assert content(directory) == before


def flipped(data, position):
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: flipped(data, len(data) - 1),
        lambda data: flipped(data, len(data) * 3 // 4),
        lambda data: flipped(data, 3),
        lambda data: data.replace(b'rounds_done\\": 1', b'rounds_done\\": 2'),
        lambda data: b"this is not a checkpoint",
        lambda data: safetensors.torch.save({"server/a": torch.zeros(3)}),
        lambda data: safetensors.torch.save({"server/a": torch.zeros(3)}, {"potluck": "[]", "sha256": "x"}),
    ],
    ids=["empty", "header", "half", "tail", "longer", "last", "middle", "length", "word", "text", "foreign", "forged"],
)
def test_a_damaged_checkpoint(copy, damage):
    config, directory = copy
    path = checkpoint_of(directory)
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    refused(config, directory, path)


def test_a_directory_in_place_of_the_checkpoint(copy):
    config, directory = copy
    path = checkpoint_of(directory)
    path.unlink()
    path.mkdir()
    refused(config, directory, path)


@pytest.mark.parametrize("length", [0, 10, -1])
def test_metrics_shorter_than_the_checkpoint_knows(copy, length):
    config, directory = copy
    metrics = directory / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:length])
    refused(config, directory, metrics)


def test_metrics_that_are_gone(copy):
    config, directory = copy
    (directory / "metrics.jsonl").unlink()
    refused(config, directory, directory / "metrics.jsonl")


@pytest.mark.parametrize("bad", [b"{]" * 200, b"\xff\xfe" * 200])
def test_metrics_that_are_not_what_was_written(copy, bad):
    config, directory = copy
    metrics = directory / "metrics.jsonl"
    metrics.write_bytes((bad * 5)[: metrics.stat().st_size])
    refused(config, directory, metrics)


@pytest.mark.parametrize("bad", [b"[task", b"\xff\xfe"])
def test_a_damaged_config(copy, bad):
    config, directory = copy
    (directory / "config.toml").write_bytes(bad)
    refused(config, directory, directory / "config.toml")


def test_what_was_appended_after_the_checkpoint_is_cut_off(copy, stopped):
    config, directory = copy
    with (directory / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 2, "lev')
    result = run_config(config, directory, resume=True)
    assert [record["round"] for record in result.metrics] == [1, 2, 3]


def test_a_half_written_temporary_file_is_no_obstacle(copy):
    config, directory = copy
    path = checkpoint_of(directory)
    path.with_name(f".{path.name}.tmp").write_bytes(path.read_bytes()[:100])
    assert len(run_config(config, directory, resume=True).metrics) == 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "a.safetensors"
    tensors = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7), "empty": torch.zeros(0, 4)}
    about = {"rounds_done": 12, "metrics_bytes": 345}
    save(path, tensors, about)
    return path.read_bytes(), tensors, about, path.with_name("b.safetensors")


def test_the_same_content_is_the_same_bytes(saved):
    whole, tensors, about, path = saved
    for _ in range(20):
        save(path, tensors, about)
        assert path.read_bytes() == whole


def read_or_refuse(path, tensors, about):
    """Reading gives exactly what was saved, or an error that names the file."""
    try:
        found, said = read(path)
    except RunError as error:
        if str(path) in str(error):
            return False
        raise
    assert said == about
    assert set(found) == set(tensors)
    assert all(found[name].dtype == t.dtype and torch.equal(found[name], t) for name, t in tensors.items())
    return True


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_flipped_byte_goes_unnoticed(saved, data):
    whole, tensors, about, path = saved
    position = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    path.write_bytes(whole[:position] + bytes([whole[position] ^ flip]) + whole[position + 1 :])
    read_or_refuse(path, tensors, about)


def test_no_cut_goes_unnoticed(saved):
    whole, tensors, about, path = saved
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert not read_or_refuse(path, tensors, about)
    path.write_bytes(whole)
    assert read_or_refuse(path, tensors, about)

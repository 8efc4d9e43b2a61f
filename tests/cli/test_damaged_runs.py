"""Run directories damaged at random: a sentence or the right result, never a traceback, a hang or something else."""

import os
import shutil
import tracemalloc

import pytest
from damage import HUGE, damage
from federation import differences, outcome_of

ROOM = 1 << 20  # bytes that any command may take, whatever it reads


@pytest.fixture(scope="module")
def runs(server, personal, reference, personal_reference, tmp_path_factory):
    """Runs to damage: (config, directory, the same with another seed, what must come out)."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for running, (expected, moments) in ((server, reference), (personal, personal_reference)):
        last = max(number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl")
        for kind, end in (("finished", {}), ("unfinished", {"end": "kill", "at": last})):
            paths = [folder / f"{len(found)}-{kind}", folder / f"{len(found)}-{kind}-other"]
            for path, extra in zip(paths, ([], ["--set", "seed=5"]), strict=True):
                running.run(path, *extra, **end)
            found.append((running.config, *paths, expected))
    return found


def content(directory):
    """Every plain file that is not huge."""
    return {
        path: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock" and path.stat().st_size < 1 << 30
    }


def told_calmly(told, what):
    """Fine, or a mistake in one sentence."""
    assert told.code in (0, 2), (what, told)
    assert "Traceback" not in told.words, (what, told)
    if told.code == 2:
        assert len(told.err.strip().splitlines()) == 1, (what, told)
    return told.code == 0


def peak_of(call):
    """What a call returns, and how many bytes Python had allocated for it at most."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def try_one(seed, runs, potluck, tmp_path, monkeypatch):
    config, whole, other, expected = runs[seed % len(runs)]
    directory = shutil.copytree(whole, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    honest, needed = peak_of(lambda: potluck("compare", "run"))
    name, kind = what = damage(directory, other, seed)
    before = content(directory)
    told, peak = peak_of(lambda: potluck("compare", "run"))
    assert peak < 2 * needed + ROOM, (what, peak, needed)
    if told_calmly(told, what) and kind not in ("gone", "folder", "pipe"):
        assert told.out == honest.out, what
    told_calmly(potluck("inspect", "run"), what)
    whose = ["--client", "1"] if "personal" in config.name else ["--level", "big"]
    told_calmly(potluck("export", "run", *whose, "--out", "net.safetensors"), what)
    assert content(directory) == before, what
    told = potluck("run", config, "--out", "run", "--resume")
    if told_calmly(told, what):
        if kind == "huge" and (directory / name).stat().st_size == HUGE:  # nobody read it
            os.truncate(directory / name, 0)
        found = outcome_of(directory)
        assert set(differences(expected, found)) <= {name}, (what, told)  # what nobody read stays as it is
    else:
        assert content(directory) == before, (what, told)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_run(seed, runs, potluck, tmp_path, monkeypatch):
    try_one(seed, runs, potluck, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 512))
def test_many_damaged_runs(seed, runs, potluck, tmp_path, monkeypatch):
    try_one(seed, runs, potluck, tmp_path, monkeypatch)

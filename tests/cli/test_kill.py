"""Killed at any moment, a run resumes to the same metrics and the same bytes as one that was not."""

import os
import random
import shutil
import signal

import pytest
from federation import all_gone, differences, outcome_of, rounds_recorded, start, wait_until, workers_of

KILLED = -signal.SIGKILL


def resumed(server, directory):
    """The outcome after a resume, which must succeed."""
    ended = server.run(directory, "--resume")
    assert ended.status == 0, ended.stderr
    return outcome_of(directory)


def test_the_moments_are_those_that_matter(reference):
    """So that a change in how files are written cannot make the sweep below an empty one."""
    _, moments = reference
    checkpoint = [moment for moment in moments if "/checkpoint/" in moment]
    for what in ("open", "force", "forced", "rename"):
        assert sum(moment.startswith(f"{what} ") for moment in checkpoint) == 3, what  # once a round
    assert sum(moment == "open /metrics.jsonl" for moment in moments) == 3
    for name in ("config.toml", "metrics.jsonl", "final.safetensors", "big.safetensors", "small.safetensors"):
        assert any(moment.startswith("rename ") and name in moment for moment in moments), name


def kill_at(numbers, server, reference, tmp_path):
    """Kill a run at each of these moments and resume it; what went wrong, by moment."""
    expected, moments = reference
    wrong = {}
    for number in numbers:
        directory = tmp_path / str(number)
        assert server.run(directory, end="kill", at=number).status == KILLED, moments[number]
        if found := differences(expected, resumed(server, directory)):
            wrong[f"{number}: {moments[number]}"] = found
        shutil.rmtree(directory)
    return wrong


@pytest.mark.whole
def test_killed_at_every_moment_of_a_round_and_some_of_the_rest(server, reference, tmp_path):
    _, moments = reference
    begins, ends = [number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl"][1:]
    of_the_round = [number for number in range(begins, ends) if not moments[number].startswith("forced ")]
    others = [*range(0, begins, 6), *range(ends, len(moments), 6)]
    assert not kill_at([*of_the_round, *others], server, reference, tmp_path)


FILES = ["/.config.toml.tmp", "/metrics.jsonl", "/checkpoint/", "/models/", "/.final.safetensors.tmp"]


def last_opening(moments, file):
    return max(number for number, moment in enumerate(moments) if moment.startswith(f"open {file}"))


@pytest.mark.whole
@pytest.mark.parametrize("file", FILES)
def test_killed_in_the_middle_of_a_write(server, reference, tmp_path, file):
    expected, moments = reference
    ended = server.run(tmp_path / "run", end="tear", at=last_opening(moments, file))
    assert ended.status == -signal.SIGXFSZ
    assert not differences(expected, resumed(server, tmp_path / "run"))


@pytest.mark.whole
@pytest.mark.parametrize("file", FILES)
def test_a_full_disk_is_told_and_nothing_is_lost(server, reference, tmp_path, file):
    expected, moments = reference
    ended = server.run(tmp_path / "run", end="full", at=last_opening(moments, file))
    assert not differences(expected, resumed(server, tmp_path / "run"))
    assert ended.status == 2
    assert f"cannot write {tmp_path / 'run'}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.whole
def test_killed_while_it_resumes(server, reference, tmp_path):
    """The moments of a resume: it cuts the metrics back, and goes on."""
    expected, moments = reference
    second = [number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl"][1]
    server.run(tmp_path / "first", end="kill", at=second + 2)  # the line is written, its checkpoint is not
    shutil.copytree(tmp_path / "first", tmp_path / "whole")
    whole = server.run(tmp_path / "whole", "--resume")
    assert whole.status == 0
    assert any(moment.startswith("truncate /metrics.jsonl") for moment in whole.moments)
    for number in (1, 2):  # before it cuts, and after
        directory = shutil.copytree(tmp_path / "first", tmp_path / str(number))
        assert server.run(directory, "--resume", end="kill", at=number).status == KILLED
        assert not differences(expected, resumed(server, directory)), whole.moments[number]


@pytest.mark.whole
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_again_and_again_at_random_times(server, reference, tmp_path, seed):
    expected, _ = reference
    chance = random.Random(seed)
    directory, longest, kills = tmp_path / "0", 0.6, 0
    for number in range(1, 9):
        ended = server.run(directory, "--resume", end="late", at=chance.uniform(0, longest))
        assert ended.status in (0, KILLED), ended.stderr
        if ended.status == KILLED:
            kills += 1
        else:  # this machine is too fast to be caught so late
            directory, longest = tmp_path / str(number), longest / 2
    assert kills
    assert not differences(expected, resumed(server, directory))


@pytest.mark.whole
def test_workers_end_with_a_killed_run_which_any_engine_can_resume(server, config, reference, tmp_path):
    expected, _ = reference
    directory, local = tmp_path / "run", ["--set", "engine.name=local"]
    first = start("run", config, "--out", directory, *local, "--set", "engine.workers=2")
    wait_until(lambda: rounds_recorded(directory), first)
    workers = workers_of(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert first.returncode == KILLED
    assert len(workers) == 2
    assert all_gone(workers)
    shutil.copytree(directory, tmp_path / "serial")
    assert not differences(expected, resumed(server, tmp_path / "serial"))
    again = start("run", config, "--out", directory, "--resume", *local, "--set", "engine.workers=1")
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert not differences(expected, outcome_of(directory))

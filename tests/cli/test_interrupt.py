"""Ctrl-C and an operator's stop: a clean end, no process left, and a run that resumes to the same result."""

import os
import signal
import time
from pathlib import Path

import pytest
from federation import all_gone, differences, outcome_of, rounds_recorded, start, wait_until, workers_of

MANY = ["--set", "task.rounds=30", "--set", "task.evaluate_every=15"]
LOCAL = ["--set", "engine.name=local"]


def press_ctrl_c(process):
    """What a terminal does: the signal goes to the command and to everything it started."""
    os.killpg(process.pid, signal.SIGINT)


def stop(process):
    """What a service manager does."""
    process.terminate()


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    assert server.run(directory, *MANY).status == 0
    return outcome_of(directory)


@pytest.mark.whole
@pytest.mark.parametrize(("end", "count"), [(press_ctrl_c, 2), (stop, 1)])
def test_a_run_ends_cleanly_and_resumes(server, config, undisturbed, tmp_path, end, count):
    directory = tmp_path / "run"
    process = start("run", config, "--out", directory, *MANY, *LOCAL, "--set", f"engine.workers={count}")
    wait_until(lambda: rounds_recorded(directory) >= 2, process)
    workers = workers_of(process.pid)
    end(process)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert "--resume" in out + err
    assert len(workers) == count
    assert all_gone(workers)
    assert 2 <= rounds_recorded(directory) < 30
    assert server.run(directory, "--resume", *MANY).status == 0
    assert not differences(undisturbed, outcome_of(directory))


def is_starting(pid):
    """Whether this is a Python that would raise KeyboardInterrupt, as a worker is until it says otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)


@pytest.mark.whole
def test_ctrl_c_while_workers_start(config, tmp_path):
    """They are not ready to ignore it yet, and must not fill the terminal with tracebacks."""
    process = start("run", config, "--out", tmp_path / "run", *LOCAL, "--set", "engine.workers=1")
    (worker,) = wait_until(lambda: workers_of(process.pid), process)
    ready = time.monotonic() + 2
    while not is_starting(worker) and time.monotonic() < ready:  # if it never is, so much the better
        time.sleep(0.002)
    time.sleep(0.05)
    press_ctrl_c(process)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert all_gone([worker])

"""A small federation on real digits, the real command in another process, and what two runs must have in common."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CONFIG = """\
name = "small"

[task]
model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }
rounds = 3
evaluate_every = 2
calibration_clients = 2

[data]
source = "digits"

[fleet]
clients = 28
levels = { big = 1.0, small = 0.5 }
cohort = 3

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 1
batch_size = 26

[engine]
name = "serial"
"""

PERSONAL = CONFIG.replace('"heterofl"', '"own_heads:OwnHeads"').replace("small = 0.5", "same = 1.0")
COMMAND = [sys.executable, "-c", "from potluck.cli import main; main()"]
PATIENCE = 60.0  # seconds that nothing here should ever take


def start(*arguments):
    """The command in a process group of its own, as a terminal starts it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def wait_until(condition, process):
    """Poll until something is so; the process must still be running then."""
    ends = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, "it never came to that"
        time.sleep(0.005)
    return found


def rounds_recorded(directory):
    metrics = directory / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def workers_of(parent):
    """The worker processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[1]) == parent and fields[0] != "Z" and "potluck.engines.worker" in command:
                found.append(int(entry.name))
    return found


def is_running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_gone(pids):
    """Whether these processes end within a while."""
    ends = time.monotonic() + PATIENCE
    while any(map(is_running, pids)) and time.monotonic() < ends:
        time.sleep(0.01)
    return not any(map(is_running, pids))


def outcome_of(directory):
    """All of a run that must not depend on interruptions: metrics but for seconds, and every byte of the weights, also
    of those that stay on clients."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    metrics = [{k: v for k, v in json.loads(line).items() if not k.startswith("seconds")} for line in lines]
    weights = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in [directory / "final.safetensors", *directory.glob("models/*"), *directory.glob("personal/**/*")]
        if path.is_file() and not path.name.startswith(".")
    }
    assert len(weights) > 1
    return {"metrics": metrics, **weights}


def differences(one, other):
    """What of two outcomes is not the same."""
    return [key for key in {*one, *other} if one.get(key) != other.get(key)]

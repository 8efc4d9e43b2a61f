"""How long it takes until Potluck does something: CPU seconds of a fresh process, beside a bare import of PyTorch.

The least of several repeats, after one that fills the disk's cache. Figures for people, never asserted.

python benchmarks/startup.py
"""

from __future__ import annotations

import resource
import subprocess
import sys

from figures import Figure, show

REPEATS = 5
COMMAND = "import sys; from potluck.cli import main; sys.argv = ['potluck', {}]; main()"
STARTED = {
    "python": "pass",
    "import torch": "import torch",
    "import potluck, as it is": "import potluck",
    "import potluck, with potluck.run": "import potluck; potluck.run",
    "potluck --version": COMMAND.format("'--version'"),
    "potluck --help": COMMAND.format("'--help'"),
    "potluck run --help": COMMAND.format("'run', '--help'"),
}


def processor_seconds(code: str) -> float:
    """What a fresh process takes of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def figures() -> list[Figure]:
    """The seconds of each way to start."""
    found = []
    for title, code in STARTED.items():
        processor_seconds(code)
        found.append(Figure("startup", title, min(processor_seconds(code) for _ in range(REPEATS)), "CPU seconds"))
    return found


if __name__ == "__main__":
    show(figures())

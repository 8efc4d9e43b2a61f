"""Runs `potluck` commands in forked children and ends them at a chosen moment. Starting PyTorch anew takes longer.

Reads one JSON object per line: the arguments, the run's directory, and how the run is to end:
  kill   SIGKILL at the n-th moment
  tear   the kernel kills it in the middle of the write that begins at the n-th moment
  full   from the n-th moment on no file can grow, as on a full disk
  late   SIGKILL after so many seconds
Answers with the exit status (a signal as a negative number), the moments passed, and what was written to stderr.
A moment is just before a file of the run is opened for writing, forced to disk, renamed or cut, or just after it is
forced to disk. This file is a script: it runs in a process of its own.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR
ROOM = 40  # bytes of a torn write that reach the file


class Moments:
    """Counts what happens to the files of a run, and ends the process when it is time."""

    def __init__(self, directory, end, number, log):
        self.directory, self.end, self.number, self.log, self.count = directory, end, number, log, 0
        sys.addaudithook(self.hear)
        self.fsync, os.fsync = os.fsync, self.force

    def hear(self, event, arguments):
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & WRITING:
            self.reach("open", arguments[0])
        elif event in ("os.rename", "os.truncate"):
            self.reach(event.removeprefix("os."), str(arguments[0]))

    def force(self, handle):
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        self.reach("force", path)
        self.fsync(handle)
        self.reach("forced", path)

    def reach(self, what, path):
        if not path.startswith(f"{self.directory}/") and path != self.directory:
            return
        if self.count == self.number:
            self.act(path)
        self.count += 1
        if self.log is not None:
            os.write(self.log, f"{what} {path.removeprefix(self.directory)}\n".encode())

    def act(self, path):
        self.log = None  # it could not grow either
        if self.end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        appended = os.path.getsize(path) if path.endswith("metrics.jsonl") else 0  # noqa: PTH202 (no audit events)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (appended + ROOM, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if self.end == "tear" else signal.SIG_IGN)


def run_child(order, log, errors):
    """The command itself; does not return."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    Moments(order["directory"], order.get("end"), order.get("at", -1), log)
    sys.argv = ["potluck", *order["arguments"]]
    code = 1
    try:
        code = potluck.cli.outcome()
        sys.stderr.flush()
    finally:
        os._exit(code)


def serve(order):
    read_end, errors = os.pipe()  # a file could not grow on a full disk
    with tempfile.TemporaryFile() as log, os.fdopen(read_end) as stderr:
        child = os.fork()
        if not child:
            run_child(order, log.fileno(), errors)
        os.close(errors)
        if order.get("end") == "late":
            time.sleep(order["at"])
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.seek(0)
        return {"status": status, "moments": log.read().decode().splitlines(), "stderr": stderr.read()}


if __name__ == "__main__":
    import potluck.cli
    from potluck.study.config import read_config
    from potluck.study.experiment import from_config

    from_config(read_config(Path(sys.argv[1]), trust=True)).costs()  # loads what PyTorch loads late, and trains nothing
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)

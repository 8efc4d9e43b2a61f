"""The command line in this process, and in processes that can be killed."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from federation import CONFIG, PERSONAL, outcome_of

from potluck.cli import outcome
from potluck.cli.show import console


@dataclass(frozen=True)
class Told:
    """What a command said; words, because lines are broken where the terminal ends."""

    code: int
    out: str
    err: str

    @property
    def words(self):
        return " ".join(f"{self.out} {self.err}".split())


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    """Tables are folded as in a usual terminal, whatever COLUMNS says where the tests run."""
    monkeypatch.setattr(console, "_width", 80)


@pytest.fixture
def potluck(monkeypatch, capsys):
    """The `potluck` command, in this process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments):
        monkeypatch.setattr(sys.modules["__main__"], "__package__", "")  # it is no `python -m pytest` to itself
        monkeypatch.setattr(sys, "argv", ["potluck", *map(str, arguments)])
        capsys.readouterr()
        code = outcome()
        return Told(code, *capsys.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(CONFIG)
    return path


@dataclass(frozen=True)
class Ended:
    """How a command in a process of its own ended."""

    status: int
    moments: list[str]
    stderr: str


class Server:
    """Commands in processes that can be ended at any moment."""

    def __init__(self, config):
        command = [sys.executable, str(Path(__file__).with_name("forking_server.py")), str(config)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.config, self.process = (
            config,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment),
        )

    def run(self, directory, *extra, end=None, at=-1):
        """`potluck run` on the config into a directory."""
        arguments = ["run", str(self.config), "--trust", "--out", str(directory), *extra]
        order = {"arguments": arguments, "directory": str(directory), "end": end, "at": at}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return Ended(**json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="session")
def server(config):
    running = Server(config)
    yield running
    running.close()


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory):
    """The directory of a run that is done."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    assert server.run(directory).status == 0
    return directory


@pytest.fixture(scope="session")
def reference(server, tmp_path_factory):
    """(outcome, moments) of a run that nothing disturbed."""
    directory = tmp_path_factory.mktemp("reference") / "run"
    ended = server.run(directory)
    assert ended.status == 0, ended.stderr
    return outcome_of(directory), ended.moments


@pytest.fixture(scope="session")
def personal(tmp_path_factory):
    """Commands on a config whose clients keep their heads."""
    path = tmp_path_factory.mktemp("config") / "personal.toml"
    path.write_text(PERSONAL)
    running = Server(path)
    yield running
    running.close()


@pytest.fixture(scope="session")
def personal_reference(personal, tmp_path_factory):
    """(outcome, moments) of a run with heads on clients that nothing disturbed."""
    directory = tmp_path_factory.mktemp("reference") / "run"
    ended = personal.run(directory)
    assert ended.status == 0, ended.stderr
    return outcome_of(directory), ended.moments

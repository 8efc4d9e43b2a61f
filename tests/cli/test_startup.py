"""What needs no network does not wait for PyTorch, and what is misspelt is suggested once."""

import subprocess
import sys

import pytest

from potluck import __version__

LOOK = """
import contextlib, io, sys
from potluck.cli import outcome

for arguments in {asked}:
    sys.argv = ["potluck", *arguments]
    with contextlib.redirect_stdout(io.StringIO()):
        assert outcome() == 0, arguments
    assert "torch" not in sys.modules, arguments
"""
COMMANDS = [
    "demo",
    "run",
    "costs",
    "plan",
    "ranks",
    "inspect",
    "compare",
    "methods",
    "check",
    "export",
    "partition",
    "data",
]


def test_help_and_version_do_not_import_pytorch():
    asked = [
        ["--version"],
        ["--help"],
        *([name, "--help"] for name in COMMANDS),
        ["data", "--help"],
        ["data", "fetch", "--help"],
    ]
    told = subprocess.run([sys.executable, "-c", LOOK.format(asked=asked)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_a_mistake_in_the_command_line_does_not_import_pytorch():
    look = (
        "import sys; from potluck.cli import outcome; sys.argv = ['', 'rnu']; print(outcome(), 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2", "False"]


def test_importing_potluck_imports_nothing_heavy():
    look = "import sys, potluck; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_version(potluck):
    told = potluck("--version")
    assert told.code == 0
    assert told.words == f"potluck {__version__}"


@pytest.mark.parametrize(("typed", "meant"), [("trian", "ranks"), ("exprot", "export"), ("pln", "plan")])
def test_an_unknown_command_suggests_once(potluck, typed, meant):
    told = potluck(typed)
    assert told.code == 2
    assert f"there is no command '{typed}'; did you mean '{meant}'?" in told.words
    assert told.words.lower().count("did you mean") == 1


def test_a_command_like_no_other_gets_the_list(potluck):
    told = potluck("fly")
    assert told.code == 2
    for name in COMMANDS:
        assert name in told.words

"""A machine that gives too little is told of in one sentence."""

import subprocess

from federation import COMMAND

LOCAL = ("--set", "engine.name=local", "--set", "engine.workers=8")


def run_with(limit, *arguments):
    """The command in a shell with a limit."""
    command = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_too_few_file_handles(config, tmp_path):
    told = run_with("-n 24", "run", config, "--out", tmp_path / "run", *LOCAL)
    assert told.returncode == 2, told
    assert "Traceback" not in told.stderr
    assert "potluck: no " in told.stderr
    assert "Too many open files; raise that limit (ulimit -n), use fewer workers (engine.workers)" in told.stderr

"""The queue: order, places, failures and stops, with commands that take no time instead of runs."""

import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from potluck.core.errors import RunError
from potluck.core.threads import cores
from potluck.series.entry import Entry, Stage
from potluck.series.queue import Manner, Queue


class Scripts(Queue):
    """A queue whose runs are shell scripts, by name."""

    def command(self, stage, config):
        return ["sh", "-c", stage.entry.table["script"]]


@pytest.fixture
def queue(tmp_path):
    def made(jobs=1, finished=(), **scripts):
        stages = [
            Stage(Entry(name, {"script": script}), tmp_path / "out" / name, 0, 2, name in finished)
            for name, script in scripts.items()
        ]
        found = Scripts(stages, Manner(jobs), lambda sentence: found.said.append(sentence))
        found.said = []
        return found

    return made


def test_runs_are_played_in_order_and_told(queue, tmp_path):
    found = queue(a=f"echo a >> {tmp_path}/order", b=f"echo b >> {tmp_path}/order")
    found.play()
    assert (tmp_path / "order").read_text() == "a\nb\n"
    assert found.said == ["[1/2] a", "[2/2] b"]
    assert found.failed == {}


def test_what_is_finished_is_left_alone(queue, tmp_path):
    found = queue(finished=["a"], a=f"touch {tmp_path}/a", b=f"touch {tmp_path}/b")
    found.play()
    assert ((tmp_path / "a").exists(), (tmp_path / "b").exists()) == (False, True)
    assert found.said == ["1 of 2 runs are finished already.", "[2/2] b"]


def test_a_run_that_fails_does_not_stop_the_next_one(queue, tmp_path):
    found = queue(
        mistake="echo noise >&2; echo 'potluck: lr is too large' >&2; exit 2",
        fault="echo Traceback >&2; exit 1",
        killed="kill -9 $$",
        silent="exit 2",
        good=f"touch {tmp_path}/good",
    )
    found.play()
    logs = {name: tmp_path / "out" / f"{name}.log" for name in found.failed}
    assert found.failed == {
        "mistake": "lr is too large",
        "fault": f"it ended with exit code 1; see {logs['fault']}",
        "killed": f"it was ended by signal 9; see {logs['killed']}",
        "silent": f"it ended with exit code 2; see {logs['silent']}",
    }
    assert (tmp_path / "good").exists()
    assert "mistake failed: lr is too large" in found.said
    assert logs["fault"].read_text() == "Traceback\n"


def test_a_run_that_had_nothing_to_say_leaves_no_log(queue, tmp_path):
    queue(quiet="true", loud="echo a note >&2").play()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["loud.log", "loud.toml", "quiet.toml"]


def test_the_settings_of_a_run_are_written_beside_its_directory(queue, tmp_path):
    queue(a="true").play()
    assert tomllib.loads((tmp_path / "out" / "a.toml").read_text()) == {"script": "true"}


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_no_more_runs_go_on_than_there_are_places(queue, tmp_path, jobs):
    """Runs wait until as many were going on as there are places, and each writes down how many there are."""
    going, full = tmp_path / "going", tmp_path / "full"
    going.mkdir()
    count = f"n=$(ls {going} | wc -l); [ $n -lt {jobs} ] || touch {full}"
    script = f"touch {going}/$$; for i in $(seq 300); do {count}; [ -e {full} ] && break; sleep 0.1; done; "
    script += f"echo $n >> {tmp_path}/counts; rm {going}/$$"
    queue(jobs, **{f"run{number}": script for number in range(jobs * 2)}).play()
    counts = list(map(int, (tmp_path / "counts").read_text().split()))
    assert len(counts) == jobs * 2
    assert max(counts) == jobs


def test_a_run_that_is_interrupted_stops_the_queue_and_what_goes_on_beside_it(queue, tmp_path):
    waits = f"trap 'touch {tmp_path}/stopped; exit 130' TERM; touch {tmp_path}/waits; while :; do sleep 0.05; done"
    stops = f"while [ ! -e {tmp_path}/waits ]; do sleep 0.05; done; exit 130"
    found = queue(2, waits=waits, stops=stops, never=f"touch {tmp_path}/never")
    with pytest.raises(KeyboardInterrupt):
        found.play()
    assert (tmp_path / "stopped").exists()
    assert not (tmp_path / "never").exists()
    assert all(each.process.poll() is not None for each in found.going)


def test_ctrl_c_reaches_a_run_by_the_queue_alone(queue, tmp_path):
    """A terminal sends it to all of them; a run that is still starting would answer with a traceback."""
    program = (
        "import pathlib, time\n"
        f"pathlib.Path('{tmp_path}/begun').touch()\n"
        "time.sleep(0.3)\n"
        f"pathlib.Path('{tmp_path}/done').touch()"
    )
    found = queue(a=f'exec {sys.executable} -c "{program}"')
    found.start(found.stages[0])
    (going,) = found.going
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    os.kill(going.process.pid, signal.SIGINT)
    assert going.process.wait() == 0
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_while_a_run_is_being_started_is_not_lost_and_stops_that_run(queue, tmp_path, monkeypatch, number):
    """It comes before, and after, there is a process, but before anybody knows of that one."""
    begin, started = subprocess.Popen, []

    def slowly(*arguments, **options):
        os.kill(os.getpid(), number)
        started.append(begin(*arguments, **options))
        os.kill(os.getpid(), number)
        return started[0]

    monkeypatch.setattr("subprocess.Popen", slowly)
    monkeypatch.setattr("potluck.series.queue.MANNERS", 5)
    found = queue(a="exec sleep 60", never=f"touch {tmp_path}/never")
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            found.play()
    finally:
        assert signal.signal(number, before) == signal.default_int_handler
    assert [process.poll() for process in started] == [-signal.SIGTERM]
    assert not (tmp_path / "never").exists()


def test_a_stop_that_comes_in_a_destructor_is_not_lost(queue, tmp_path, monkeypatch):
    """What is raised in a destructor is printed and forgotten."""

    class Left:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    def sleep(seconds, wait=time.sleep):
        Left()
        wait(seconds)

    monkeypatch.setattr("potluck.series.queue.time.sleep", sleep)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            queue(a="exec sleep 60", never=f"touch {tmp_path}/never").play()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "never").exists()


def test_a_hangup_that_is_ignored_stays_ignored(queue, tmp_path, monkeypatch):
    begin = subprocess.Popen

    def hung_up(*arguments, **options):
        os.kill(os.getpid(), signal.SIGHUP)
        return begin(*arguments, **options)

    monkeypatch.setattr("subprocess.Popen", hung_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        queue(a=f"touch {tmp_path}/done").play()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "done").exists()


def test_a_run_that_does_not_stop_is_killed(queue, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.series.queue.MANNERS", 0.2)
    found = queue(a=f"trap '' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done")
    found.start(found.stages[0])
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    found.stop()
    assert found.going[0].process.returncode == -signal.SIGKILL


def test_a_folder_that_cannot_be_written_is_one_sentence(queue, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        queue(a="true").play()


def test_nothing_is_written_through_a_link(queue, tmp_path):
    """Who made the folder may want something else overwritten."""
    (tmp_path / "out").mkdir()
    for name in ("a.log", "a.toml"):
        (tmp_path / name).write_text("mine")
        (tmp_path / "out" / name).symlink_to(tmp_path / name)
    queue(a="echo a note >&2").play()
    assert (tmp_path / "out" / "a.log").read_text() == "a note\n"
    assert [(tmp_path / name).read_text() for name in ("a.log", "a.toml")] == ["mine", "mine"]


def command(tmp_path, manner, *files):
    stage = Stage(Entry("a", {}), tmp_path / "a", 0, 2, False)
    for file in files:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / file).write_text("")
    return Queue([stage], manner, print).command(stage, tmp_path / "a.toml")[1:]


def test_the_command_is_that_of_an_ordinary_run(tmp_path):
    plain = ["-P", "-m", "potluck", "run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "a")]
    assert command(tmp_path, Manner()) == plain
    trusting = command(tmp_path, Manner(trust=True, data_dir=tmp_path))
    assert trusting == [*plain, "--trust", "--data-dir", str(tmp_path)]
    assert command(tmp_path, Manner(), "config.toml") == [*plain, "--resume"]


def test_several_runs_at_a_time_divide_the_cores(tmp_path):
    assert command(tmp_path, Manner(jobs=2))[-2:] == ["--set", f"engine.workers={max(1, cores() // 2)}"]
    assert command(tmp_path, Manner(jobs=1000))[-1] == "engine.workers=1"

"""`potluck sweep`: ordinary runs, recorded, continued after any end, and compared."""

import csv
import io
import json
import os
import shutil
import signal

import pytest
from federation import all_gone, differences, outcome_of, rounds_recorded, start, wait_until

GRID = ["--grid", "seed=0-1"]
SHORT = ["--set", "task.rounds=1"]
ROUNDS = 60  # which take seconds: time enough to end a sweep before it is through, also on a busy machine
MANY = ["--set", f"task.rounds={ROUNDS}", "--set", "task.evaluate_every=30"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the server that makes the runs to compare with


def table_of(told):
    return list(csv.DictReader(io.StringIO(told.out)))


@pytest.mark.whole
def test_two_at_a_time_are_recorded_with_the_bits_of_ordinary_runs(potluck, server, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("raise RuntimeError('a file of the working directory')")
    told = potluck("sweep", config, *GRID, *SHORT, "--jobs", "2", "--target", "0.01", "--format", "csv")
    assert told.code == 0, told
    folder = tmp_path / "runs" / "small-sweep"
    for seed in (0, 1):
        assert server.run(tmp_path / f"alone{seed}", *SHORT, "--set", f"seed={seed}").status == 0
        assert not differences(outcome_of(tmp_path / f"alone{seed}"), outcome_of(folder / f"seed={seed}"))
    (row,) = table_of(told)
    scores = [json.loads((folder / f"seed={seed}" / "metrics.jsonl").read_text()) for seed in (0, 1)]
    big = [score["levels"]["big"]["accuracy"] for score in scores]
    assert (row["group"], row["runs"]) == ("small", "2")
    assert float(row["last big"]) == pytest.approx(sum(big) / 2)
    assert float(row["bytes to target"]) == pytest.approx(
        sum(score["bytes_down"] + score["bytes_up"] for score in scores) / 2
    )
    assert told.err.splitlines() == ["[1/2] seed=0", "[2/2] seed=1"]


def test_a_run_that_fails_is_named_and_what_is_finished_is_left_alone(potluck, server, config, tmp_path):
    folder = tmp_path / "sweep"
    assert server.run(folder / "clients=28", *SHORT).status == 0
    before = {path: path.stat().st_mtime_ns for path in (folder / "clients=28").rglob("*")}
    told = potluck("sweep", config, "--grid", "fleet.clients=2000,28", *SHORT, "--out", folder, "--format", "json")
    assert told.code == 2
    assert [row["runs"] for row in json.loads(told.out)] == [1]
    assert "1 of 2 runs are finished already." in told.err
    *_, last = told.err.splitlines()
    assert last.startswith("potluck: 1 of 2 runs failed, the first of them clients=2000: ")
    assert "at most 1442 clients" in last
    assert {path: path.stat().st_mtime_ns for path in (folder / "clients=28").rglob("*")} == before


def press_ctrl_c(process):
    os.killpg(process.pid, signal.SIGINT)


def kill(process):
    """The queue and its run."""
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.whole
@pytest.mark.parametrize(("end", "code"), [(press_ctrl_c, 130), (kill, -signal.SIGKILL)])
def test_a_sweep_that_ended_goes_on_to_the_same_result(potluck, server, config, tmp_path, end, code):
    folder, arguments = tmp_path / "sweep", [config, "--grid", "seed=5", *MANY, "--out", tmp_path / "sweep"]
    process = start("sweep", *arguments)
    wait_until(lambda: rounds_recorded(folder / "seed=5") >= 2, process)
    runs = children_of(process.pid)
    end(process)
    out, err = process.communicate()
    assert process.returncode == code, err
    assert len(runs) == 1
    assert all_gone(runs)
    assert "Traceback" not in out + err
    assert ("the same command continues" in err) == (code == 130)
    assert 2 <= rounds_recorded(folder / "seed=5") < ROUNDS
    told = potluck("sweep", *arguments)
    assert told.code == 0, told
    assert "seed=5, from round " in told.err
    assert server.run(tmp_path / "whole", *MANY, "--set", "seed=5").status == 0
    assert not differences(outcome_of(tmp_path / "whole"), outcome_of(folder / "seed=5"))


def children_of(parent):
    """The processes that a process has started."""
    with open(f"/proc/{parent}/task/{parent}/children") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]


@pytest.mark.whole
def test_ctrl_c_while_a_run_still_starts_has_no_traceback(config, tmp_path):
    process = start("sweep", config, *GRID, *SHORT, "--out", tmp_path / "sweep")
    runs = wait_until(lambda: children_of(process.pid), process)
    press_ctrl_c(process)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert all_gone(runs)
    assert "Traceback" not in (tmp_path / "sweep" / "seed=0.log").read_text()


# ---- what is there already ----


@pytest.fixture
def done(server, tmp_path):
    """A folder with the one run of a sweep, finished."""
    assert server.run(tmp_path / "sweep" / "seed=0", *SHORT).status == 0
    return tmp_path / "sweep"


@pytest.fixture
def sweep(potluck, config, done, monkeypatch):
    """The command on this folder, in which no run may begin."""

    def refuse(queue, stage):
        raise AssertionError(f"{stage.entry.name} begins")

    monkeypatch.setattr("potluck.series.queue.Queue.start", refuse)
    return lambda *more: potluck("sweep", config, "--grid", "seed=0", *SHORT, "--out", done, *more)


def test_a_finished_sweep_only_shows_its_table(sweep):
    told = sweep()
    assert (told.code, told.err) == (0, "1 of 1 runs are finished already.\n")
    assert "1 runs in" in told.words


def test_the_config_and_metrics_that_were_kept_of_a_run_are_enough(sweep, done):
    for path in (done / "seed=0").iterdir():
        if path.name not in ("config.toml", "metrics.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert sweep().code == 0


def test_a_run_whose_models_are_not_written_yet_is_not_finished(sweep, done):
    (done / "seed=0" / "final.safetensors").unlink()
    told = sweep()
    assert "AssertionError: seed=0 begins" in told.err


def test_another_experiment_in_the_folder_is_refused(sweep):
    told = sweep("--set", "train.lr=0.5")
    assert told.code == 2
    assert (
        "holds another experiment than the one asked for: train.lr (0.05 there, 0.5 here); choose another" in told.err
    )


def test_a_run_elsewhere_is_refused(sweep, done, tmp_path):
    """Nobody typed where the link leads."""
    (done / "seed=0").rename(tmp_path / "elsewhere")
    (done / "seed=0").symlink_to(tmp_path / "elsewhere")
    told = sweep()
    assert told.code == 2
    assert (
        f"seed=0 is a link to {tmp_path}/elsewhere, but the runs of a series are written below its folder" in told.err
    )


def test_results_of_another_version_are_refused(sweep, done):
    config = done / "seed=0" / "config.toml"
    config.write_text(config.read_text().partition("[recipe]")[0])
    told = sweep()
    assert told.code == 2
    assert "is not the config of a run: it is damaged, or of another version of Potluck" in told.err


# ---- mistakes ----


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--grid", "train.lr"], "--grid is 'train.lr', but it should be a setting with values"),
        (["--grid", "train.lr="], "should be a setting with values"),
        (["--grid", "seed=0", "--grid", "seed=1"], "the same setting twice"),
        (["--grid", "seed=1,1"], "a value twice"),
        (["--grid", "train.lrr=1,2"], "did you mean 'lr'?"),
        (["--grid", "train.lr=0.1,fast"], "lr is 'fast'"),
        (["--grid", "seed=0", "--set", "train.lrr=1"], "did you mean 'lr'?"),
        (["--grid", "seed=0", "--format", "cvs"], "there is no format 'cvs'; did you mean 'csv'?"),
        (["--grid", "data.source=mnist,fashion-mnist"], "run `potluck data fetch mnist`"),
        (["--grid", "data.proxy=mnist"], "[data] proxy: mnist was not found"),
        (["--grid", "seed=0", "--set", "data.source={name='table', path='no.csv'}"], "there is no file no.csv"),
        (["--grid", "data.source=digit,digits"], "there is no data set 'digit'; did you mean 'digits'?"),
        (["--grid", "data.source.recip=a,b"], "digits has no 'recip'; did you mean 'recipe'?"),
        (["--grid", "task.model.hiddn=[4],[8]"], "heterofl-cnn has no 'hiddn'; did you mean 'hidden'?"),
        (["--grid", "task.model.name=heterofl-cn"], "did you mean 'heterofl-cnn'?"),
        (["--grid", "seed=0", "--jobs", "0"], "--jobs is 0, but it should be 1 or more"),
        (["--grid", "seed=0", "--out", "{config}"], "cannot write"),
        (["--grid", "seed=0", "--out", "/proc/potluck"], "cannot write"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_runs(potluck, config, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    given = [argument.replace("{config}", str(config)) for argument in arguments]
    told = potluck("sweep", config, *given, "--data-dir", tmp_path / "data")
    *progress, last = told.err.splitlines()
    assert told.code == 2, told
    assert says in last
    assert last.startswith("potluck: ")
    assert progress in ([], ["[1/1] seed=0"])
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_sweep_needs_a_grid(potluck, config):
    told = potluck("sweep", config)
    assert told.code == 2
    assert "--grid" in told.words

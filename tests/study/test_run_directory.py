"""A run on disk: what it holds, and that nothing in it is taken for what it is not."""

import json
import subprocess
import sys
import time
import tomllib
from itertools import count

import pytest
import safetensors.torch
import torch
from small_experiment import StopAfter, content, interrupted, run_config, without_seconds, write_config
from torch import nn

from potluck.core.errors import RunError
from potluck.data import sources
from potluck.models.catalogue import find_model
from potluck.study.config import read_config
from potluck.study.watchers import Nobody


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(config, directory, result) of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    config = write_config(folder)
    return config, folder / "run", run_config(config, folder / "run")


def records_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_it_holds_what_it_should(finished):
    _, directory, _ = finished
    names = set(content(directory))
    assert {"config.toml", "metrics.jsonl", "final.safetensors"} <= names
    assert {"models/big.safetensors", "models/small.safetensors"} <= names
    assert any(name.startswith("checkpoint/") for name in names)
    assert not any(name.startswith("personal/") for name in names)  # of a method that keeps nothing on clients
    assert not [name for name in names if "tmp" in name]


def test_the_config_beside_it_is_the_resolved_one_with_its_recipe(finished):
    config, directory, result = finished
    written = tomllib.loads((directory / "config.toml").read_text())
    recipe = written.pop("recipe")
    resolved = read_config(config).resolved()
    ways = result.experiment.recipe.ways  # as they were chosen
    assert written == {**resolved, "engine": {**resolved["engine"], "step": ways}}
    assert recipe == {
        "run": result.experiment.recipe.run,
        "kind": result.experiment.recipe.kind,
        "classes": 10,
        "goal": "classes",
        "inputs": "float32:1x8x8",
        "targets": "int64:",
    }
    assert len(recipe["run"]) == 64


def test_the_config_is_there_before_the_first_round(tmp_path):
    class Look(Nobody):
        def begins(self, rounds, done):
            assert (rounds, done) == (3, 0)
            assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["seed"] == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_config(write_config(tmp_path), tmp_path / "run", watcher=Look())


def test_metrics_are_one_line_per_round_with_every_field(finished):
    _, directory, result = finished
    records = records_of(directory)
    assert [record["round"] for record in records] == [1, 2, 3]
    assert records == result.metrics
    for record in records:
        assert set(record["levels"]) == {"big", "small"}
        assert record["clients"] == 3 == sum(found["clients"] for found in record["levels"].values())
        assert (record["failures"], record["failed"], record["evaluation_failures"]) == (0, [], 0)
        assert record["seconds"] > 0
    for record in records[1:]:  # evaluated every second round, and after the last
        for found in record["levels"].values():
            assert 0 <= found["accuracy"] <= 1
            assert found["loss"] > 0
    assert records[0]["levels"]["big"]["accuracy"] is None


def test_bytes_and_macs_are_those_of_the_clients_that_took_part(finished):
    _, directory, result = finished
    cost = {cost.level: cost for cost in result.costs}
    for record in records_of(directory):
        took_part = {level: found["clients"] for level, found in record["levels"].items()}
        assert record["bytes_down"] == sum(cost[level].bytes_down * n for level, n in took_part.items())
        assert record["bytes_up"] == sum(cost[level].bytes_up * n for level, n in took_part.items())
        # 103 examples each, 2 epochs
        assert record["macs"] == sum(cost[level].macs * n * 103 * 2 for level, n in took_part.items())


def test_every_wall_clock_figure_is_under_seconds(finished, tmp_path, monkeypatch):
    """With a clock that runs wild, nothing else in the metrics changes."""
    config, directory, _ = finished
    ticks = count()
    for clock in ("perf_counter", "time", "monotonic"):
        monkeypatch.setattr(time, clock, lambda: 1e6 * next(ticks) ** 2)
    run_config(config, tmp_path / "run")
    before, after = records_of(directory), records_of(tmp_path / "run")
    assert without_seconds(before) == without_seconds(after)
    assert before[0]["seconds"] != after[0]["seconds"]
    assert (directory / "final.safetensors").read_bytes() == (tmp_path / "run" / "final.safetensors").read_bytes()


def test_a_level_file_is_a_plain_network_as_good_as_the_metrics_say(finished):
    _, directory, _ = finished
    test = sources.load("digits").test
    inputs, targets = test.take(torch.arange(len(test)))
    for level, ratio in (("big", 1.0), ("small", 0.5)):
        net = find_model("heterofl-cnn")(ratio, shape=(1, 8, 8), classes=10, hidden=(4, 8, 8, 8))
        net.load_state_dict(safetensors.torch.load_file(directory / "models" / f"{level}.safetensors"), strict=True)
        recorded = records_of(directory)[-1]["levels"][level]
        with torch.no_grad():
            logits = net.eval()(inputs)
        assert int((logits.argmax(1) == targets).sum()) / len(targets) == recorded["accuracy"]
        assert float(nn.functional.cross_entropy(logits, targets)) == pytest.approx(recorded["loss"], abs=1e-5)


def test_the_final_file_is_the_servers_state(finished):
    _, directory, result = finished
    found = safetensors.torch.load_file(directory / "final.safetensors")
    assert set(found) == set(result.state)
    assert all(found[name].equal(result.state[name]) for name in found)


def test_another_run_does_not_overwrite_it(finished):
    config, directory, _ = finished
    before = content(directory)
    with pytest.raises(RunError, match="already holds a run; add --resume"):
        run_config(config, directory)
    assert content(directory) == before


def test_resuming_a_finished_run_changes_nothing(finished):
    config, directory, _ = finished
    before = content(directory)
    result = run_config(config, directory, resume=True)
    assert content(directory) == before
    assert len(result.metrics) == 3


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_ends_as_if_it_had_not_been(finished, tmp_path, after):
    config, directory, _ = finished
    interrupted(config, tmp_path / "run", after)
    assert len(records_of(tmp_path / "run")) == after
    run_config(config, tmp_path / "run", resume=True)
    whole, resumed = content(directory), content(tmp_path / "run")
    assert without_seconds(records_of(directory)) == without_seconds(records_of(tmp_path / "run"))
    for name in ("config.toml", "final.safetensors", "models/big.safetensors", "models/small.safetensors"):
        assert whole[name] == resumed[name]


def test_resume_with_nothing_there_starts(finished, tmp_path):
    config, directory, _ = finished
    run_config(config, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "final.safetensors").read_bytes() == (directory / "final.safetensors").read_bytes()


def test_a_run_of_another_config_is_refused_with_what_differs(tmp_path):
    config = write_config(tmp_path)
    directory = interrupted(config, tmp_path / "run")
    before = content(directory)
    with pytest.raises(RunError, match="holds a run of another config") as caught:
        run_config(config, directory, "train.lr=0.25", "task.rounds=7", "fleet.levels.tiny=0.25", resume=True)
    message = str(caught.value)
    assert str(directory) in message
    assert "train.lr (0.05 there, 0.25 here)" in message
    assert "task.rounds (3 there, 7 here)" in message
    assert "fleet.levels.tiny" in message
    assert "train.epochs" not in message
    assert content(directory) == before


def test_where_clients_run_may_change_between_resumes(finished, tmp_path):
    config, directory, _ = finished
    interrupted(config, tmp_path / "run")
    run_config(config, tmp_path / "run", "engine.name=local", "engine.workers=7", resume=True)
    assert (tmp_path / "run" / "final.safetensors").read_bytes() == (directory / "final.safetensors").read_bytes()


def test_a_checkpoint_whose_config_is_gone_is_not_taken_for_a_new_run(tmp_path):
    """Otherwise a run of any other config would start from that checkpoint."""
    config = write_config(tmp_path)
    directory = interrupted(config, tmp_path / "run")
    (directory / "config.toml").unlink()
    before = content(directory)
    with pytest.raises(RunError, match=r"config\.toml|already holds"):
        run_config(config, directory, "train.lr=0.25")
    assert content(directory) == before


HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    input()
"""


def test_a_directory_in_use_by_another_process(tmp_path):
    config = write_config(tmp_path)
    directory = interrupted(config, tmp_path / "run")
    before = content(directory)
    command = [sys.executable, "-c", HOLD, str(directory / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"{directory} is in use by another run"):
            run_config(config, directory, resume=True)
        holder.communicate("\n")
    assert content(directory) == before
    run_config(config, directory, resume=True)


def test_no_two_runs_at_once_in_one_process_either(tmp_path):
    config = write_config(tmp_path)

    class StartAnother(Nobody):
        def round_done(self, record):
            run_config(config, tmp_path / "run", resume=True)

    with pytest.raises(RunError, match="in use by another run"):
        run_config(config, tmp_path / "run", watcher=StartAnother())


@pytest.mark.parametrize("place", ["a.toml", "a.toml/run", "a.toml/deep/run"])
def test_a_directory_that_cannot_be_made_below_a_file(tmp_path, place):
    config = write_config(tmp_path)
    with pytest.raises(RunError, match=f"cannot write to {tmp_path / place}: "):
        run_config(config, tmp_path / place)


def test_a_directory_where_nobody_may_write(tmp_path):
    with pytest.raises(RunError, match="cannot write to /proc/potluck"):
        run_config(write_config(tmp_path), type(tmp_path)("/proc/potluck"))


@pytest.mark.parametrize("name", ["checkpoint", "models"])
def test_a_file_in_the_way_is_named(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("in the way")
    with pytest.raises(RunError, match=f"cannot write {tmp_path / 'run' / name}/"):
        run_config(write_config(tmp_path), tmp_path / "run")
    assert (tmp_path / "run" / name).read_text() == "in the way"


def test_metrics_are_json_for_everybody_even_when_training_diverges(tmp_path):
    """NaN and Infinity are not JSON: a strict reader must be able to take every line."""
    with pytest.raises(RunError, match=r"none of the updates of the last 3 rounds .* not finite; .* lower train.lr"):
        run_config(write_config(tmp_path), tmp_path / "run", "train.lr=1e30", "train.clip=0", watcher=StopAfter(9))

    def refuse(constant):
        raise AssertionError(f"{constant} in metrics.jsonl")

    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line, parse_constant=refuse)["failures"] == 3

"""A run can be made longer, if it then equals one that was planned so long; a finished one has nothing left to do."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_experiment import SMALL, StopAfter, content, interrupted, run_config, without_seconds, write_config
from test_personal_runs import TEXT, lasting

import potluck
from potluck.core.errors import ConfigError, RunError
from potluck.core.goals.classes import Classes
from potluck.core.types import Phase, Train
from potluck.engines.serial import Serial
from potluck.methods.heterofl import HeteroFL
from potluck.study.files import read_toml
from potluck.study.record import RunDirectory
from potluck.study.watchers import Nobody, Rounds

LONG = SMALL.replace("evaluate_every = 2", "evaluate_every = 1").replace("rounds = 3", "rounds = 2")


def one_like(text, old, new):
    assert old in text
    return text.replace(old, new)


@pytest.mark.whole
@pytest.mark.parametrize("text", [LONG, one_like(TEXT, "evaluate_every = 2", "evaluate_every = 1")], ids=["one", "own"])
@pytest.mark.parametrize("after", [1, None], ids=["unfinished", "finished"])
def test_a_longer_run_equals_one_that_was_planned_so_long(tmp_path, text, after):
    config = write_config(tmp_path, text)
    interrupted(config, tmp_path / "run", after) if after else run_config(config, tmp_path / "run")
    longer = run_config(config, tmp_path / "run", "task.rounds=5", resume=True)
    planned = run_config(config, tmp_path / "planned", "task.rounds=5")
    assert without_seconds(longer.metrics) == without_seconds(planned.metrics)
    one, other = lasting(tmp_path / "run"), lasting(tmp_path / "planned")
    assert set(one) == set(other)
    assert not [name for name in one if one[name] != other[name]]


def test_the_round_that_was_the_last_keeps_its_score(tmp_path):
    """The one thing that tells a longer run from a planned one, if rounds are not all evaluated."""
    config = write_config(tmp_path)
    run_config(config, tmp_path / "run")
    longer, planned = (
        run_config(config, tmp_path / name, "task.rounds=4", resume=name == "run").metrics
        for name in ("run", "planned")
    )
    assert longer[2]["levels"]["big"]["accuracy"] is not None
    assert planned[2]["levels"]["big"]["accuracy"] is None
    assert without_seconds(longer[:2] + longer[3:]) == without_seconds(planned[:2] + planned[3:])
    one, other = lasting(tmp_path / "run"), lasting(tmp_path / "planned")
    assert not [name for name in {*one, *other} if one.get(name) != other.get(name)]


class StopAtOnce(Nobody):
    """Loses patience when it hears how many rounds are left."""

    def begins(self, rounds, done):
        raise KeyboardInterrupt


@pytest.mark.whole
@pytest.mark.parametrize("watcher", [StopAtOnce(), StopAfter(3)], ids=["before a round", "after a round"])
def test_a_longer_run_can_be_interrupted_too(tmp_path, watcher):
    """What came out of the shorter run is gone then: nobody takes it for the latest."""
    config = write_config(tmp_path, LONG)
    run_config(config, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run_config(config, tmp_path / "run", "task.rounds=4", resume=True, watcher=watcher)
    assert not RunDirectory(tmp_path / "run").final.exists()
    assert not list((tmp_path / "run" / "models").iterdir())
    run_config(config, tmp_path / "run", "task.rounds=4", resume=True)
    run_config(config, tmp_path / "planned", "task.rounds=4")
    one, other = lasting(tmp_path / "run"), lasting(tmp_path / "planned")
    assert not [name for name in {*one, *other} if one.get(name) != other.get(name)]


def refused(config, directory, *overrides):
    before = content(directory)
    with pytest.raises(RunError) as caught:
        run_config(config, directory, *overrides, resume=True)
    assert content(directory) == before
    return str(caught.value)


def test_a_run_cannot_be_made_shorter(tmp_path):
    config = write_config(tmp_path)
    found = refused(config, interrupted(config, tmp_path / "run"), "task.rounds=2")
    assert "a run of 3 rounds, 1 of them done, but task.rounds is 2: a run can be made longer, not shorter" in found


@dataclass(frozen=True)
class Ahead(HeteroFL):
    """Says that it counts the rounds that are left."""

    looks_ahead: ClassVar[bool] = True


@dataclass(frozen=True)
class FallingPhase(HeteroFL):
    """Trains at a rate of its own, which falls towards the last round."""

    def phases(self, job, ctx, personal):
        return [Phase(Classes(), train=Train(schedule="cosine"))]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (one_like(SMALL, "[train]\n", '[train]\nschedule = "cosine"\n'), "train.schedule is 'cosine'"),
        (one_like(SMALL, "[train]\n", '[train]\nschedule = "linear"\n'), "train.schedule is 'linear'"),
        (one_like(SMALL, '"heterofl"', f'"{__name__}:FallingPhase"'), "train.schedule is 'cosine'"),
        (one_like(SMALL, '"heterofl"', f'"{__name__}:Ahead"'), "Ahead looks at the number of rounds"),
    ],
    ids=["cosine", "linear", "a phase's own", "says so"],
)
def test_a_run_whose_rounds_depend_on_how_many_there_are_is_refused_with_the_reason(tmp_path, text, says):
    config = write_config(tmp_path, text)
    found = refused(config, interrupted(config, tmp_path / "run"), "task.rounds=9")
    assert says in found
    assert "a run of 9 rounds differs from its first round on; start it in another directory" in found


def test_before_its_first_round_is_done_any_number_will_do(tmp_path):
    config = write_config(tmp_path, one_like(SMALL, "[train]\n", '[train]\nschedule = "cosine"\n'))
    with pytest.raises(KeyboardInterrupt):
        run_config(config, tmp_path / "run", watcher=StopAtOnce())
    run_config(config, tmp_path / "run", "task.rounds=2", resume=True)
    run_config(config, tmp_path / "planned", "task.rounds=2")
    assert lasting(tmp_path / "run") == lasting(tmp_path / "planned")


def test_a_longer_run_is_still_compared_with_what_it_was(tmp_path):
    config = write_config(tmp_path)
    found = refused(config, interrupted(config, tmp_path / "run"), "task.rounds=9", "train.lr=0.25")
    assert "task.rounds (3 there, 9 here)" in found
    assert "train.lr (0.05 there, 0.25 here)" in found


def test_the_config_says_how_long_it_is_now(tmp_path):
    config = write_config(tmp_path)
    interrupted(config, tmp_path / "run")
    before = read_toml(tmp_path / "run" / "config.toml")
    result = run_config(config, tmp_path / "run", "task.rounds=4", "engine.workers=3", resume=True)
    after = read_toml(tmp_path / "run" / "config.toml")
    assert after["task"]["rounds"] == 4
    assert after["recipe"]["run"] == result.experiment.recipe.run
    for config in (before, after):
        config["task"]["rounds"] = config["recipe"]["run"] = ""
    assert before == after


# ---- finished runs ----


class Engineless(Serial):
    """An engine that must not be asked for anything."""

    def open(self, *arguments):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("text", [SMALL, TEXT], ids=["one", "own"])
def test_resuming_a_finished_run_trains_and_scores_nothing(tmp_path, text, monkeypatch, capsys):
    config = write_config(tmp_path, text)
    first = run_config(config, tmp_path / "run")
    before = content(tmp_path / "run")
    monkeypatch.setattr("small_experiment.make_engine", lambda name: Engineless())
    monkeypatch.setattr("potluck.study.experiment.level_cost", lambda *arguments: pytest.fail("costs were counted"))
    again = run_config(config, tmp_path / "run", resume=True, watcher=Rounds())
    assert content(tmp_path / "run") == before
    assert capsys.readouterr().err.startswith("3 of 3 rounds are done already; nothing is trained.")
    assert again.metrics == first.metrics
    assert again.costs == first.costs
    assert again.accuracy == first.accuracy
    assert again.directory == first.directory
    assert set(again.models) == set(first.models)
    inputs = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for level in first.models:
        assert not again.export(level).training
        assert torch.equal(again.export(level)(inputs), first.export(level)(inputs))
    if not first.models:
        for client in range(14):
            assert torch.equal(again.export_client(client)(inputs), first.export_client(client)(inputs))


@pytest.mark.parametrize("name", ["final.safetensors", "models/small.safetensors", "costs.json"])
@pytest.mark.parametrize("damage", [None, b"", b"rubbish"])
def test_what_is_amiss_in_a_finished_run_is_made_again(tmp_path, name, damage):
    config = write_config(tmp_path)
    run_config(config, tmp_path / "run")
    before = content(tmp_path / "run")
    path = tmp_path / "run" / name
    path.unlink() if damage is None else path.write_bytes(damage)
    run_config(config, tmp_path / "run", resume=True)
    assert content(tmp_path / "run") == before


# ---- nothing to resume ----


def test_resume_without_a_directory_is_an_error_in_pythons_words():
    with pytest.raises(ConfigError, match="resume is True, but out is not given; say with out= which directory"):
        potluck.run(model=torch.nn.Linear(64, 10), data="digits", levels={"a": 1.0}, clients=5, rounds=1, resume=True)


@pytest.mark.parametrize("watcher", [Rounds(), None])
def test_python_says_that_there_is_nothing_to_resume(tmp_path, capsys, watcher):
    settings = {"data": "digits", "levels": {"a": 1.0}, "clients": 5, "rounds": 1, "method": "fedavg"}
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    potluck.run(model=net, **settings, engine="serial", out=tmp_path / "run", resume=True, watcher=watcher)
    said = f"There is nothing to resume: {tmp_path / 'run'} holds no run. The run begins with its first round."
    assert (said in capsys.readouterr().err) is (watcher is not None)

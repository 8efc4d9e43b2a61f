"""Clients whose updates cannot be used: told as it happens and in the end, counted, and without a part in the model."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_experiment import SMALL, interrupted, run_config, without_seconds, write_config
from torch import nn

import potluck
from potluck import methods
from potluck.cli import outcome
from potluck.core.errors import RunError
from potluck.core.goals.classes import Classes
from potluck.core.server import Failure, first_state
from potluck.core.tensors import state_of
from potluck.models.catalogue import find_model
from potluck.study.record import RunDirectory
from potluck.study.watchers import Nobody, Rounds, left_out

REASON = "no such label"


def clumsy_loss(net, batch, extra):
    if extra["bad"]:
        raise ValueError(REASON)
    return Classes()(net, batch, extra)


@dataclass(frozen=True)
class Clumsy(potluck.Method):
    """FedAvg with a loss that fails for some clients, in some rounds or in all."""

    fails: tuple[int, ...] = ()
    rounds: tuple[int, ...] = (0, 1, 2)

    def is_bad(self, client, round):
        return client.id in self.fails and round in self.rounds

    def phases(self, job, ctx, personal):
        return [potluck.Phase(clumsy_loss, {"bad": torch.tensor(self.is_bad(job.client, ctx.round))})]


@dataclass(frozen=True)
class Choosy(Clumsy):
    """Trains everybody, and leaves those out of the mean of whom the other's loss fails."""

    def phases(self, job, ctx, personal):
        return [potluck.Phase(Classes())]

    def aggregate(self, state, updates, ctx):
        return super().aggregate(state, (each for each in updates if not self.is_bad(each.client, ctx.round)), ctx)


PLACE = f"clumsy_loss in {__file__}:{clumsy_loss.__code__.co_firstlineno + 2}"
SENTENCE = f"{PLACE} raised ValueError: {REASON}"
TEXT = (
    SMALL.replace('name = "heterofl"', f'name = "{__name__}:Clumsy"')
    .replace("small = 0.5", "same = 1.0")
    .replace("cohort = 3", "cohort = 14")
    .replace("evaluate_every = 2", "evaluate_every = 1")
    .replace("epochs = 2", "epochs = 1")
)
TWO = "method.fails=[2, 5]"


def first_of(metrics):
    """(client, level) of the first failure of every round."""
    return [(record["failed"][0]["client"], record["failed"][0]["level"]) for record in metrics if record["failed"]]


# ---- what is told ----


def test_failures_are_told_once_per_round_as_they_happen_and_summed_up(tmp_path, capsys):
    result = run_config(write_config(tmp_path, TEXT), None, TWO, watcher=Rounds())
    lines = capsys.readouterr().err.splitlines()
    shown = [f"client {id} ({level}) was left out of round" for id, level in first_of(result.metrics)]
    assert lines[0] == f"{shown[0]} 1: {SENTENCE}"
    assert lines[1].startswith("round 1/3: ")
    assert lines[2] == f"{shown[1]} 2: {SENTENCE}"
    assert lines[3].startswith("round 2/3: ")
    assert lines[4] == f"{shown[2]} 3: {SENTENCE}"
    assert lines[5].startswith("round 3/3: ")
    client, level = first_of(result.metrics)[0]
    summary = f"(first client {client} of level '{level}' in round 1)"
    assert lines[6:] == [f"6 of 42 updates were left out. 6 times: {SENTENCE} {summary}"]


def test_they_are_told_before_the_round_is_over(tmp_path):
    class Order(Nobody):
        def __init__(self):
            self.events = []

        def client_failed(self, failure):
            self.events.append(failure)

        def round_done(self, record):
            self.events.append(record["round"])

        def ends(self, metrics):
            self.events.append(len(metrics))

    watcher = Order()
    run_config(write_config(tmp_path, TEXT), None, TWO, "method.rounds=[0, 2]", watcher=watcher)
    kinds = [event if isinstance(event, int) else f"{event.round} failed" for event in watcher.events]
    assert kinds == ["1 failed", "1 failed", 1, 2, "3 failed", "3 failed", 3, 3]
    failures = [event for event in watcher.events if isinstance(event, Failure)]
    assert {(each.client, each.reason) for each in failures} == {(2, SENTENCE), (5, SENTENCE)}
    assert {each.level for each in failures} <= {"big", "same"}


def test_from_python_on_stderr(capsys):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    settings = {
        "model": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        "data": (inputs, (inputs[:, 0] > 0).long()),
        "levels": {"phone": 1.0},
        "clients": 6,
        "rounds": 2,
        "engine": "serial",
    }
    result = potluck.run(**settings, method=Clumsy(fails=(3,)))
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert len(lines) == 5
    assert [line for line in lines if "was left out of round" in line] == [
        f"client 3 (phone) was left out of round {round}: {SENTENCE}" for round in (1, 2)
    ]
    assert lines[-1] == (
        f"2 of 12 updates were left out. 2 times: {SENTENCE} (first client 3 of level 'phone' in round 1)"
    )
    assert [record["failures"] for record in result.metrics] == [1, 1]
    potluck.run(**settings, method=Clumsy())
    assert "left out" not in capsys.readouterr().err
    potluck.run(**settings, method=Clumsy(fails=(3,)), watcher=None)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_workers_tell_the_same(tmp_path, capsys):
    told = []
    for engine in ("serial", "local"):
        potluck.run(
            model=find_model("heterofl-cnn"),
            data="digits",
            levels={"phone": 1.0},
            clients=8,
            rounds=2,
            method=Clumsy(fails=(1, 4)),
            train=potluck.Train(epochs=1, batch_size=100),
            engine=engine,
            workers=2,
        )
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    assert SENTENCE in told[0]


RECORDS = [
    {"round": 1, "clients": 4, "failed": [{"client": 3, "level": "a", "reason": "one"}]},
    {"round": 2, "clients": 4, "failed": []},
    {
        "round": 3,
        "clients": 4,
        "failed": [{"client": 7, "level": "b", "reason": "two"}, {"client": 2, "level": "a", "reason": "two"}],
    },
]


def test_the_commonest_reason_is_told_first():
    found = left_out(RECORDS)
    assert found.startswith(
        "3 of 12 updates were left out. 2 times: two (first client 7 of level 'b' in round 3); 1 other reason"
    )
    assert found.endswith("in the metrics")
    assert left_out(RECORDS[1:2]) == ""
    assert left_out([]) == ""


def test_one_other_reason_is_one():
    assert left_out(RECORDS).endswith("; 1 other reason is in the metrics")


@dataclass(frozen=True)
class OwnModels(potluck.Method):
    """Every client is scored by itself."""

    shares_model: ClassVar[bool] = False


def test_a_client_that_cannot_be_scored_was_not_left_out_of_the_round(capsys):
    result = run_small(OwnModels(), data=examples(320), clients=200, cohort=200, scored_clients=200, watcher=Rounds())
    assert result.metrics[0]["failures"] == 0
    assert result.metrics[0]["evaluation_failures"] > 100  # 64 test examples
    assert "left out of round" not in capsys.readouterr().err


# ---- what is recorded, and what becomes of the model ----


def test_every_failure_is_in_the_metrics(tmp_path):
    result = run_config(write_config(tmp_path, TEXT), tmp_path / "run", TWO, "method.rounds=[1]")
    records = RunDirectory(tmp_path / "run").records()
    assert records == result.metrics
    assert [record["failures"] for record in records] == [0, 2, 0]
    assert {each["client"] for each in records[1]["failed"]} == {2, 5}
    assert {each["reason"] for each in records[1]["failed"]} == {SENTENCE}
    assert all(set(each) == {"client", "level", "reason"} for each in records[1]["failed"])
    assert [record["clients"] for record in records] == [14] * 3
    ratio = records[1]["macs"] / records[0]["macs"]
    assert ratio == pytest.approx(12 / 14)  # nothing is known of what the others computed
    assert records[1]["bytes_up"] / records[0]["bytes_up"] == pytest.approx(12 / 14)
    assert records[1]["bytes_down"] == records[0]["bytes_down"]


def test_those_who_failed_have_no_part_in_the_model(tmp_path):
    config = write_config(tmp_path, TEXT)
    plain = "engine.step=plain"  # in a stack, who else is in it shows in the last bits
    clumsy = run_config(config, None, TWO, plain)
    choosy = run_config(config, None, TWO, plain, f"method.name={__name__}:Choosy")
    whole = run_config(config, None, plain)
    assert all(torch.equal(clumsy.state[name], tensor) for name, tensor in choosy.state.items())
    assert not all(torch.equal(clumsy.state[name], tensor) for name, tensor in whole.state.items())


EVERYBODY = f"method.fails={list(range(14))}"


def test_a_round_that_nobody_survives_leaves_the_model_as_it_is(tmp_path):
    config = write_config(tmp_path, TEXT.replace("[method]\n", f"[method]\nfails = {list(range(14))}\nrounds = [1]\n"))
    result = run_config(config, tmp_path / "run")
    assert [record["failures"] for record in result.metrics] == [0, 14, 0]
    first, second, third = (record["levels"] for record in result.metrics)
    assert first == second != third
    one, two = (
        RunDirectory(interrupted(config, tmp_path / f"after {rounds}", rounds)).progress().state for rounds in (1, 2)
    )
    assert set(one) == set(two) == set(result.state)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(two[name], result.state[name]) for name in two)


@pytest.mark.whole
@pytest.mark.parametrize("method", methods.names())
def test_so_it_is_with_every_method(tmp_path, method):
    """Here the guard refuses everything, as it would if all training diverged."""
    text = SMALL.replace('name = "heterofl"', f'name = "{method}"') + "\n[guard]\nbound = 1e-9\n"
    options = ["method.basis_size=0.25"] if method == "flanc" else []
    options += ["train.momentum=0", "train.clip=0"] if methods.find(method).steps_plainly else []
    result = run_config(write_config(tmp_path, text), None, "task.rounds=2", *options)
    assert [record["failures"] for record in result.metrics] == [3, 3]
    assert "(guard.bound)" in result.metrics[0]["failed"][0]["reason"]
    begun = first_state(result.experiment.method, result.experiment.recipe.context(0))
    assert set(begun) == set(result.state)
    assert all(torch.equal(result.state[name], tensor) for name, tensor in begun.items())


def test_a_run_without_hope_is_stopped_and_says_why(tmp_path):
    config = write_config(tmp_path, TEXT.replace("rounds = 3", "rounds = 9"))
    everywhere = "method.rounds=[0, 1, 2, 3, 4, 5, 6, 7, 8]"
    with pytest.raises(RunError, match="none of the updates of the last 3 rounds can be used, since ") as stopped:
        run_config(config, tmp_path / "run", EVERYBODY, everywhere)
    assert SENTENCE in str(stopped.value)
    assert len(RunDirectory(tmp_path / "run").records()) == 3
    with pytest.raises(RunError, match="none of the updates of the last 3 rounds"):
        run_config(config, tmp_path / "run", EVERYBODY, everywhere, resume=True)


def test_two_rounds_that_nobody_survives_are_no_reason_to_stop(tmp_path):
    result = run_config(write_config(tmp_path, TEXT), None, EVERYBODY, "method.rounds=[0, 1]")
    assert [record["failures"] for record in result.metrics] == [14, 14, 0]


def test_a_resumed_run_sums_up_the_rounds_before_it_too(tmp_path, capsys):
    config = write_config(tmp_path, TEXT.replace("[method]\n", "[method]\nfails = [2, 5]\n"))
    whole = run_config(config, None)
    interrupted(config, tmp_path / "run")
    capsys.readouterr()
    resumed = run_config(config, tmp_path / "run", resume=True, watcher=Rounds())
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("6 of 42 updates were left out. 6 times: ")
    assert sum("was left out of round" in line for line in lines) == 2
    assert without_seconds(resumed.metrics) == without_seconds(whole.metrics)


# ---- whose code failed ----


class Fragile(nn.Sequential):
    """A network that can be used but not trained."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, inputs):
        if self.training:
            raise KeyError("a slip of mine")
        return super().forward(inputs)


@dataclass(frozen=True)
class BadCollect(potluck.Method):
    """Fails where a client gives what it learned."""

    fails: tuple[int, ...] = ()

    def collect(self, net, job, ctx):
        if job.client.id in self.fails:
            raise ValueError(REASON)
        return state_of(net), {}


@dataclass(frozen=True)
class BadPhases(BadCollect):
    """Fails before a client trains."""

    def collect(self, net, job, ctx):
        return state_of(net), {}

    def phases(self, job, ctx, personal):
        if job.client.id in self.fails:
            raise ValueError(REASON)
        return [potluck.Phase(Classes())]


@dataclass(frozen=True)
class Sends(potluck.Method):
    """Sends what nobody asked for."""

    what: str = "nothing"

    def collect(self, net, job, ctx):
        tensors = state_of(net)
        if job.client.id != 3:  # also when the server asks itself what to expect
            return tensors, {}
        name = next(iter(tensors))
        return {
            "nothing": ({}, {}),
            "list": ([1], {}),
            "number": ({**tensors, name: 1.0}, {}),
            "more": ({**tensors, "mine": torch.zeros(2)}, {}),
            "nan": ({**tensors, name: tensors[name] * torch.nan}, {}),
            "shape": ({**tensors, name: torch.zeros(1)}, {}),
            "kept": (tensors, {"x": "y"}),
        }[self.what]


def examples(count):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(count) % 10


def run_small(method, **changes):
    settings = {
        "model": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        "data": examples(96),
        "levels": {"phone": 1.0},
        "clients": 6,
        "rounds": 1,
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, "method": method, **changes})


def reasons(result):
    return {each["client"]: each["reason"] for each in result.metrics[0]["failed"]}


def test_a_network_that_fails_is_told_with_file_and_line():
    found = reasons(run_small(potluck.Method(), model=lambda width: Fragile()))
    line = Fragile.forward.__code__.co_firstlineno + 2
    assert found == dict.fromkeys(range(6), f"forward in {__file__}:{line} raised KeyError: 'a slip of mine'")


@pytest.mark.parametrize("kind", [BadCollect, BadPhases])
def test_a_verb_that_fails_for_one_client_leaves_out_that_client(kind):
    found = reasons(run_small(kind(fails=(5,))))
    assert list(found) == [5]
    assert f"in {__file__}:" in found[5]
    assert found[5].endswith(f"raised ValueError: {REASON}")


@pytest.mark.parametrize("kind", [BadCollect, BadPhases])
def test_whoever_comes_first(kind):
    """What the server expects of clients does not depend on whom it asks first."""
    found = reasons(run_small(kind(fails=tuple(range(6)))))
    assert sorted(found) == list(range(6))


@pytest.mark.parametrize("kind", [BadCollect, BadPhases])
def test_clients_that_train_together_fail_alone(kind):
    found = reasons(run_small(kind(fails=(2,)), step="stacked-6", test=12 / 96))  # 14 examples each
    assert list(found) == [2]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("nothing", "it lacks '1.weight', '1.bias'"),
        ("list", "it is a list, but it should be"),
        ("number", "'1.weight' is a float, but it should be a tensor"),
        ("more", "it has the unknown 'mine'"),
        ("nan", "'1.weight' has values that are not finite"),
        ("shape", "'1.weight' has the shape (1,), but it should have (10, 64)"),
        ("kept", "'x' is a str, but it should be a tensor"),
    ],
)
def test_what_nobody_asked_for_is_left_out(what, says):
    found = reasons(run_small(Sends(what)))
    assert list(found) == [3]
    assert found[3].startswith(says)


# ---- on the command line ----

MODULE = '''\
from dataclasses import dataclass
import potluck, torch
from potluck.core.goals.classes import Classes

def my_loss(net, batch, extra):
    if extra["bad"]:
        raise ValueError("[red]no[/red] such label")
    return Classes()(net, batch, extra)

@dataclass(frozen=True)
class Mine(potluck.Method):
    """FedAvg with a slip."""

    fails: tuple[int, ...] = ()

    def phases(self, job, ctx, personal):
        return [potluck.Phase(my_loss, {"bad": torch.tensor(job.client.id in self.fails)})]
'''


@pytest.fixture
def command(tmp_path, monkeypatch, capsys) -> Iterator:
    """`potluck run` beside a method with a slip: the exit code, stdout and stderr."""
    (tmp_path / "method_with_a_slip.py").write_text(MODULE)
    write_config(tmp_path, TEXT.replace(f"{__name__}:Clumsy", "method_with_a_slip:Mine"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["potluck", "run", "a.toml", "--trust", *arguments])
        capsys.readouterr()
        return (outcome(), *capsys.readouterr())

    yield call
    sys.modules.pop("method_with_a_slip", None)


def test_a_run_with_failures_is_told_of_and_ends_well(command, tmp_path):
    code, out, err = command("--set", TWO, "--out", "run")
    assert code == 0
    assert err == ""
    reason = f"my_loss in {tmp_path / 'method_with_a_slip.py'}:7 raised ValueError: [red]no[/red] such label"
    lines = [line.strip() for line in out.splitlines()]
    metrics = RunDirectory(tmp_path / "run").records()
    shown = [f"client {id} ({level}) was left out of round" for id, level in first_of(metrics)]
    assert [line for line in lines if "was left out" in line] == [
        f"{each} {round}: {reason}" for round, each in enumerate(shown, start=1)
    ]
    (summary,) = [line for line in lines if "were left out" in line]
    assert summary.startswith(f"6 of 42 updates were left out. 6 times: {reason} (first client ")
    assert lines.index(summary) > lines.index(f"{shown[2]} 3: {reason}")
    assert Counter(line.split()[0] for line in lines if "left out" in line) == {"client": 3, "6": 1}


def test_a_run_without_failures_says_nothing_of_them(command):
    code, out, _ = command("--out", "run")
    assert code == 0
    assert "left out" not in out


def test_a_run_without_hope_ends_with_a_sentence(command, tmp_path):
    code, out, err = command("--set", EVERYBODY, "--set", "task.rounds=5", "--out", "run")
    assert code == 2
    assert err.startswith("potluck: none of the updates of the last 3 rounds can be used, since my_loss in ")
    assert f"{tmp_path / 'method_with_a_slip.py'}:7" in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert sum("was left out of round" in line for line in out.splitlines()) == 3

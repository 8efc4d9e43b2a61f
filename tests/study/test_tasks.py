"""What is learned and what is measured, as a user says it: a task, a loss, metrics."""

from __future__ import annotations

import math
import sys
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from heads_at_home import OwnHeads
from small_experiment import SMALL, run_config, write_config
from small_tasks import ANSWERS, CLASSES, INPUTS, KINDS, NUMBERS, net, of_kind, run, shown, squared
from torch import Tensor, nn
from torchmetrics import classification

import potluck
from potluck.cli import outcome
from potluck.core.errors import ConfigError, RunError
from potluck.core.tensors import same_tensors
from potluck.study.goals import criterion_name
from potluck.study.headline import headline_of
from potluck.study.record import RunDirectory
from potluck.study.recorded import Recorded

HEADLINES = {
    "classes": "accuracy",
    "binary": "accuracy",
    "multi-label": "accuracy",
    "regression": "mae",
    "own": "loss",
}


class Squared(nn.Module):
    """A loss as a module, which can be set."""

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.strength * squared(outputs, targets)


class Caller:
    """A loss that is an object."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return squared(outputs, targets)


@dataclass(frozen=True)
class Counts(potluck.goals.Regression):
    """A goal of the user's: counts, by their Poisson likelihood."""

    name: ClassVar[str] = "counts"
    metrics: ClassVar[tuple[str, ...]] = ("rmse",)

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.poisson_nll_loss(outputs, targets, reduction="none")


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).float()


def spread(outputs: Tensor, targets: Tensor) -> float:
    return float(outputs.std())


# ---- tasks and their measures ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_learned_and_has_a_headline(kind: str) -> None:
    result = run(**of_kind(kind), rounds=4)
    first, last = result.metrics[0]["levels"]["big"], result.metrics[-1]["levels"]["big"]
    assert last["loss"] < first["loss"]
    assert headline_of(result.metrics[-1]) == HEADLINES[kind]
    if HEADLINES[kind] == "accuracy":
        assert result.accuracy["big"] == last["accuracy"]
    else:
        with pytest.raises(RunError, match=f"^this task has no accuracy, but {', '.join(shown(result))}: see scores$"):
            result.accuracy  # noqa: B018


def test_classes_are_what_is_learned_if_nothing_is_said() -> None:
    said, unsaid = run(task="classes"), run()
    assert shown(unsaid) == ["accuracy", "loss", "local_accuracy"]
    assert same_tensors(said.state, unsaid.state)


def test_accuracy_stays_if_classes_have_a_loss_of_their_own() -> None:
    result = run(task="classes", loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    assert shown(result) == ["accuracy", "loss", "local_accuracy"]
    assert not same_tensors(result.state, run().state)


@pytest.mark.parametrize(
    "loss", [squared, Squared, Squared(), Caller(), lambda o, t: squared(o, t), partial(Squared(2.0).forward)]
)
def test_a_loss_is_anything_that_can_be_called(loss: Any) -> None:
    found = run(**{**of_kind("own"), "loss": loss}, rounds=1)
    expected = run(**of_kind("own"), rounds=1)
    if isinstance(loss, partial):
        assert not same_tensors(found.state, expected.state)
    else:
        assert same_tensors(found.state, expected.state)


def test_pytorchs_loss_is_the_tasks_own() -> None:
    own, given = run(**of_kind("regression")), run(**of_kind("regression"), loss=nn.MSELoss)
    assert same_tensors(own.state, given.state)
    assert shown(given) == ["loss", "mae", "r2"]


@pytest.mark.parametrize("task", [potluck.goals.Regression(), potluck.goals.Regression, "regression"])
def test_a_task_is_a_name_a_goal_or_its_class(task: Any) -> None:
    found = run(**{**of_kind("regression"), "task": task}, rounds=1)
    assert same_tensors(found.state, run(**of_kind("regression"), rounds=1).state)


def test_a_goal_of_ones_own() -> None:
    result = run(model=net(1), data=(INPUTS, NUMBERS.abs().round()), task=Counts())
    assert shown(result) == ["loss", "rmse"]
    test = result.experiment.test
    inputs, targets = test.take(torch.arange(len(test)))
    expected = F.poisson_nll_loss(result.export("big")(inputs).squeeze(1), targets)
    assert result.metrics[-1]["levels"]["big"]["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_metrics_are_measured_beside_what_a_task_has() -> None:
    asked: dict[str, Any] = {
        "macro-f1": "macro-f1",
        "mine": right,
        "spread": spread,
        "theirs": classification.MulticlassAccuracy(3, average="micro"),
    }
    result = run(metrics=asked)
    score = result.metrics[-1]["levels"]["big"]
    assert shown(result) == ["accuracy", "loss", *asked, "local_accuracy"]
    assert score["mine"] == pytest.approx(score["accuracy"])
    assert score["theirs"] == pytest.approx(score["accuracy"])
    test = result.experiment.test
    outputs = result.export("big")(test.take(torch.arange(len(test)))[0])
    assert score["spread"] == pytest.approx(float(outputs.std()), rel=1e-5)
    assert shown(run(metrics=["macro-f1"])) == ["accuracy", "loss", "macro-f1", "local_accuracy"]


def test_metrics_of_torchmetrics_are_shown_what_they_take() -> None:
    """Targets of yes and no are made fractions for the loss, which torchmetrics would refuse."""
    result = run(**of_kind("binary"), metrics={"f1": classification.BinaryAccuracy()})
    score = result.metrics[-1]["levels"]["big"]
    assert score["f1"] == pytest.approx(score["accuracy"])


@pytest.mark.slow
def test_bits_do_not_depend_on_workers() -> None:
    metrics = {"macro-f1": "macro-f1", "auroc": "auroc", "mine": right, "spread": spread}
    here = run(metrics=metrics, test=0.5, rounds=1)
    there = run(metrics=metrics, test=0.5, rounds=1, engine="local", workers=1)
    assert there.metrics[-1]["levels"] == here.metrics[-1]["levels"]


@pytest.mark.slow
def test_bits_of_clients_own_models_do_not_depend_on_workers() -> None:
    own = {"macro-f1": "macro-f1", "mine": right}
    scores = [
        run(metrics=own, method=OwnHeads(), levels={"big": 1.0}, engine=engine, workers=2).metrics[-1]["levels"]
        for engine in ("serial", "local")
    ]
    assert scores[0] == scores[1]
    assert 0 < scores[0]["big"]["mine"] <= 1


@pytest.mark.parametrize("metric", [spread, classification.MulticlassAUROC(3)])
def test_outputs_stay_on_clients_that_score_their_own_models(metric: Any) -> None:
    with pytest.raises(ConfigError, match="'x' needs the outputs for all examples at once, but with OwnHeads"):
        run(method=OwnHeads(), levels={"big": 1.0}, metrics={"x": metric})
    thresholds = {"x": classification.MulticlassAUROC(3, thresholds=100)}
    assert run(method=OwnHeads(), levels={"big": 1.0}, metrics=thresholds).metrics[-1]["levels"]["big"]["x"] > 0


def test_a_test_set_in_which_nothing_counts_has_no_score() -> None:
    score = run(test=(INPUTS[:5], torch.full((5,), -100)), task="next-token").metrics[-1]["levels"]["big"]
    assert (score["accuracy"], score["loss"]) == (None, None)


def test_one_test_example_is_enough_for_numbers() -> None:
    score = run(**of_kind("regression"), test=(INPUTS[:1], NUMBERS[:1])).metrics[-1]["levels"]["big"]
    assert math.isfinite(score["mae"])
    assert math.isnan(score["r2"])


# ---- records and resumes ----


def test_a_record_says_what_was_learned_and_measured(tmp_path: Any) -> None:
    run(**of_kind("regression"), loss=Squared(2.0), metrics={"rmse": "rmse", "spread": spread}, out=tmp_path / "a")
    config = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    assert config["task"]["goal"] == "regression"
    assert config["task"]["loss"] == f"{__name__}:Squared(strength=2.0)"
    assert config["task"]["metrics"] == ["rmse", "spread"]
    assert config["recipe"]["goal"] == "regression"
    assert config["recipe"]["classes"] == 0
    assert list(RunDirectory(tmp_path / "a").records()[-1]["levels"]["big"]) == ["loss", "rmse", "spread", "clients"]


OTHER: dict[str, dict[str, Any]] = {
    "task.goal": {"task": "regression", "loss": squared},
    "task.loss": {"loss": lambda o, t: squared(o, t)},
    "task.metrics": {"metrics": {"spread": spread}},
}


@pytest.mark.parametrize("key", OTHER)
def test_a_resume_with_another_task_is_refused(tmp_path: Any, key: str) -> None:
    settings = {**of_kind("own"), "out": tmp_path / "run"}
    run(**settings)
    run(**settings, resume=True)
    with pytest.raises((ConfigError, RunError), match=key):
        run(**{**settings, **OTHER[key]}, resume=True, rounds=3)


def test_a_resume_with_a_loss_that_is_set_otherwise_is_refused(tmp_path: Any) -> None:
    settings: dict[str, Any] = {**of_kind("regression"), "out": tmp_path / "run"}
    run(**settings, loss=nn.HuberLoss(delta=0.5))
    run(**settings, loss=nn.HuberLoss(delta=0.5), resume=True)
    with pytest.raises((ConfigError, RunError), match=r"delta=0\.5"):
        run(**settings, loss=nn.HuberLoss(delta=2.0), resume=True, rounds=3)


@dataclass(frozen=True)
class Focal(potluck.goals.Classes):
    """A goal with settings of its own, which is called like one of Potluck's."""

    gamma: float = 2.0
    weights: tuple[float, ...] = (1.0, 1.0, 1.0)
    shift: Tensor | None = field(default=None, compare=False)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(outputs, targets, torch.tensor(self.weights), reduction="none")
        return ((1 - torch.exp(-each)) ** self.gamma * each).mean()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Focal(gamma=1.0), r"recipe\.options\.gamma \(2\.0 there, 1\.0 here\)"),
        (Focal(weights=(1.0, 1.0, 2.0)), r"recipe\.options\.weights"),
        (Focal(shift=torch.zeros(3)), r"recipe\.options\.shift"),
        (potluck.goals.Classes(), r'task\.goal \(".*Focal" there, "classes" here\)'),
    ],
    ids=["a number", "a tuple", "a tensor", "another class"],
)
def test_a_resume_with_a_goal_that_is_set_otherwise_is_refused(tmp_path: Any, other: Any, says: str) -> None:
    settings: dict[str, Any] = {**of_kind("classes"), "out": tmp_path / "run"}
    first = run(**{**settings, "task": Focal()})
    run(**{**settings, "task": Focal()}, resume=True)
    with pytest.raises(RunError, match=says):
        run(**{**settings, "task": other}, resume=True)
    assert first.experiment.recipe.kind != run(**{**settings, "task": other, "out": None}).experiment.recipe.kind


def test_a_goal_is_set_as_the_record_says_when_a_run_is_read_back(tmp_path: Any) -> None:
    goal = Focal(gamma=0.5, weights=(1.0, 2.0, 3.0))
    own = run(**{**of_kind("classes"), "task": goal}, out=tmp_path / "run")
    found = Recorded(tmp_path / "run", own.experiment.task.model, trust=True).recipe
    assert found.task.goal == goal
    assert found.kind == own.experiment.recipe.kind


@pytest.mark.parametrize("loss", [Caller(), partial(Squared(2.0).forward), Squared(3.0), squared])
def test_the_name_of_a_loss_is_the_same_in_every_process(loss: Callable[..., Any]) -> None:
    name = criterion_name(potluck.goals.Own(loss))
    assert " at 0x" not in name
    assert name.startswith((f"{__name__}:", "functools:", "small_tasks:"))


# ---- notes ----


def notes_of(caught: Any) -> list[str]:
    return [str(each.message) for each in caught if "a loss without a task" in str(each.message)]


def test_a_loss_without_a_task_on_whole_numbers_is_noted_once() -> None:
    with pytest.warns(UserWarning, match="no accuracy is measured") as caught:
        result = run(model=net(3), data=(INPUTS, CLASSES), loss=F.cross_entropy)
    assert "accuracy" not in shown(result)
    (note,) = notes_of(caught)
    assert 'say so with task="classes"' in note


@pytest.mark.parametrize(
    "settings",
    [
        {"data": (INPUTS, CLASSES), "loss": F.cross_entropy, "task": "classes"},
        {"data": (INPUTS, NUMBERS), "loss": squared, "model": net(1)},
        {"data": (INPUTS, (CLASSES, CLASSES)), "loss": lambda o, t: F.cross_entropy(o, t[0])},
    ],
    ids=["a task", "numbers", "several targets"],
)
def test_other_losses_are_not_noted(settings: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(**{"model": net(3), **settings})
    assert not notes_of(caught)


# ---- configs ----


def with_task(*lines: str) -> str:
    return SMALL.replace("rounds = 3\n", "\n".join(["rounds = 1", *lines, ""]))


def smooth(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


class Smooth(potluck.goals.Classes):
    """A goal that a config names."""

    name: ClassVar[str] = "smooth"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return smooth(outputs, targets)


def test_a_network_that_gives_probabilities_is_noted() -> None:
    likely = nn.Sequential(*net(), nn.Softmax(-1))
    with pytest.warns(UserWarning, match="add up to 1, as probabilities do, but .* take logits: leave the softmax"):
        run(model=likely, rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(rounds=1)
        run(model=nn.Sequential(*net(), nn.LogSoftmax(-1)), rounds=1, loss=F.nll_loss, task="classes")


def test_a_config_names_a_task_its_loss_and_metrics(tmp_path: Any) -> None:
    text = with_task('goal = "classes"', f'loss = "{__name__}:smooth"', 'metrics = ["macro-f1"]')
    named = run_config(write_config(tmp_path, text), tmp_path / "run")
    assert shown(named) == ["accuracy", "loss", "macro-f1", "local_accuracy"]
    plain = run_config(write_config(tmp_path, with_task()), None)
    assert not same_tensors(named.state, plain.state)
    path = run_config(write_config(tmp_path, with_task(f'goal = "{__name__}:Smooth"')), None)
    assert same_tensors(path.state, named.state)
    assert shown(path)[0] == "accuracy"


@pytest.mark.parametrize("line", [f'goal = "{__name__}:Smooth"', f'loss = "{__name__}:smooth"'])
def test_code_of_a_config_is_run_only_if_it_is_trusted(tmp_path: Any, capsys: Any, monkeypatch: Any, line: str) -> None:
    path = write_config(tmp_path, with_task(line))
    for trust, code in ([], 2), (["--trust"], 0):
        monkeypatch.setattr(sys, "argv", ["potluck", "run", str(path), "--out", str(tmp_path / "run"), *trust])
        assert outcome() == code
        assert ("add --trust" in capsys.readouterr().err) == (code == 2)


def test_answers_are_dealt_out_by_what_they_say() -> None:
    result = run(model=net(1), data=(INPUTS, ANSWERS), task="binary", partition={"name": "dirichlet", "alpha": 0.1})
    held = [ANSWERS.float()[:0]] + [
        result.experiment.data.labels(result.experiment.holdings.of(client)).float() for client in range(4)
    ]
    shares = [float(each.mean()) for each in held[1:] if len(each)]
    assert max(shares) - min(shares) > 0.3  # seen: 0.9; a division by chance alone gives about 0.2
    assert len(CLASSES) == len(INPUTS)

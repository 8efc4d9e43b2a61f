"""Metrics of torchmetrics that a user gives: put together from pieces, or refused."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics
from measured import at_once, drawn, in_pieces, task_of, whole
from torch import Tensor
from torchmetrics import classification

from potluck.core.data import Arrays
from potluck.core.errors import ConfigError
from potluck.core.goals.classes import Classes
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.measures import Streamed

COUNT, KINDS = 40, 7
CLASSES = Arrays(drawn(COUNT, KINDS, seed=0), whole(KINDS, COUNT, seed=1))
NUMBERS = Arrays(drawn(COUNT, seed=2), drawn(COUNT, seed=3))
ANSWERS = Arrays(drawn(COUNT, seed=4), whole(2, COUNT, seed=5).float())
LABELS = Arrays(drawn(COUNT, 3, seed=6), whole(2, COUNT, 3, seed=7).float())


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).float()


def kinds_chosen(outputs: Tensor, targets: Tensor) -> float:
    return float(len(outputs.argmax(-1).unique()))


OWN: dict[str, tuple[Callable[[], Any], Goal, Arrays]] = {
    "sums": (lambda: classification.MulticlassAccuracy(KINDS, average="micro"), Classes(), CLASSES),
    "a matrix": (lambda: classification.MulticlassMatthewsCorrCoef(KINDS), Classes(), CLASSES),
    "lists": (lambda: classification.MulticlassAUROC(KINDS), Classes(), CLASSES),
    "lists of numbers": (lambda: classification.BinaryAveragePrecision(), Binary(), ANSWERS),
    "thresholds": (lambda: classification.BinaryAUROC(thresholds=20), Binary(), ANSWERS),
    "yes or no": (lambda: classification.BinaryF1Score(), Binary(), ANSWERS),
    "labels": (lambda: classification.MultilabelF1Score(3), MultiLabel(), LABELS),
    "a maximum": (lambda: Furthest(), Regression(), NUMBERS),
    "ranks": (lambda: torchmetrics.SpearmanCorrCoef(), Regression(), NUMBERS),
}


class Furthest(torchmetrics.Metric):
    """The largest error, and a list of what every batch gave, of no dimension."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("furthest", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="max")
        self.add_state("seen", [], dist_reduce_fx="cat")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.furthest = torch.maximum(self.furthest, (outputs - targets).abs().max())
        self.seen.append((outputs - targets).abs().max())  # type: ignore[union-attr, operator]

    def compute(self) -> Tensor:
        seen: Any = self.seen
        assert torch.cat([torch.atleast_1d(each) for each in seen]).max() == self.furthest
        return self.furthest


@pytest.mark.filterwarnings("ignore:Metric `SpearmanCorrcoef` will save")
@pytest.mark.parametrize("kind", OWN)
def test_a_metric_of_torchmetrics_is_what_it_is_on_everything(kind: str) -> None:
    make, goal, examples = OWN[kind]
    task = task_of(goal, examples, {"own": make()}, KINDS if goal.softmax else 0)
    metric = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.update(*goal.scored(examples.inputs, examples.targets))
        expected = float(metric.compute())
    for cuts in ([(39, 6)], [(5, 1), (17, 2), (30, 0)], [(1, 3), (2, 1), (38, 0), (20, 4)]):
        assert in_pieces(task, examples, cuts)["own"] == pytest.approx(expected, rel=1e-6)


def test_a_metric_that_was_shown_something_before_begins_anew() -> None:
    used = classification.MulticlassAccuracy(KINDS)
    used.update(CLASSES.inputs, CLASSES.targets.flip(0))
    new = classification.MulticlassAccuracy(KINDS)
    scores = [at_once(task_of(Classes(), CLASSES, {"own": each}, KINDS), CLASSES) for each in (used, new)]
    assert scores[0] == scores[1]


@pytest.mark.filterwarnings("ignore:Metric `SpearmanCorrcoef` will save")
def test_a_metric_keeps_outputs_if_it_has_lists() -> None:
    kept = {kind: Streamed(make()).keeps for kind, (make, _, _) in OWN.items()}
    assert [kind for kind, keeps in kept.items() if keeps] == ["lists", "lists of numbers", "a maximum", "ranks"]


class Averaged(torchmetrics.Metric):
    """Its state is a mean, whose weight is nowhere."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("mean", torch.tensor(0.0), dist_reduce_fx="mean")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.mean = right(outputs, targets).mean()

    def compute(self) -> Any:
        return self.mean


@pytest.mark.parametrize(
    "metric",
    [
        torchmetrics.PearsonCorrCoef(),
        torchmetrics.MetricCollection([torchmetrics.MeanAbsoluteError()]),
        torchmetrics.MeanAbsoluteError() + torchmetrics.MeanSquaredError(),
        torchmetrics.MinMaxMetric(torchmetrics.MeanAbsoluteError()),
        Averaged(),
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_a_metric_that_cannot_be_put_together_from_pieces_is_refused(metric: Any) -> None:
    name = type(metric).__name__
    with pytest.raises(ConfigError, match=rf"the metric 'own' \({name}\) cannot be put together from pieces: .*; or"):
        task_of(Regression(), NUMBERS, {"own": metric})


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (classification.MulticlassConfusionMatrix(KINDS), r"a tensor of shape \(7, 7\)"),
        (classification.MulticlassAccuracy(KINDS, average=None), r"a tensor of shape \(7,\)"),
        (classification.MulticlassROC(KINDS, thresholds=5), "a tuple"),
    ],
)
def test_a_metric_that_gives_several_numbers_is_refused(metric: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^the metric 'own' gives {says} for all examples, but it should give one"):
        at_once(task_of(Classes(), CLASSES, {"own": metric}, KINDS), CLASSES)


@pytest.mark.parametrize("kind", [classification.MulticlassF1Score, torchmetrics.Accuracy, Furthest])
def test_a_class_is_no_metric_but_its_instances_are(kind: type) -> None:
    name = kind.__name__
    with pytest.raises(
        ConfigError, match=rf"^the metric 'own' is the class {name}; give an instance of it, as in {name}\("
    ):
        task_of(Classes(), CLASSES, {"own": kind}, KINDS)


def test_a_metric_that_fails_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^the metric 'own' fails: .* raised "):
        at_once(task_of(Classes(), CLASSES, {"own": classification.MulticlassF1Score(KINDS - 1)}, KINDS), CLASSES)


def test_measures_travel_to_workers() -> None:
    metrics = {"macro-f1": None, "own": right, "all": kinds_chosen, "theirs": classification.MulticlassAccuracy(KINDS)}
    task = task_of(Classes(), CLASSES, metrics, KINDS)
    for name, measure in task.measures.items():
        there = pickle.loads(pickle.dumps(measure))
        assert there.value(there.of(CLASSES.inputs, CLASSES.targets)) == measure.value(
            measure.of(CLASSES.inputs, CLASSES.targets)
        ), name

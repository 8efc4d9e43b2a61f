"""Metrics by name, from torchmetrics, and metrics of the user's own.

torchmetrics is imported when one of its metrics is asked for: it takes about as long as PyTorch itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from potluck.core.errors import ConfigError
from potluck.core.evaluate import LOCAL, SCORING
from potluck.core.goals.blamed import blamed_on
from potluck.core.goals.classes import Classes
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.inputs import repeated, tensors_of
from potluck.core.measures import Mean, Measure, Streamed, Whole, told
from potluck.core.method import Method
from potluck.core.observe import observe
from potluck.core.plug import unknown
from potluck.core.types import Batch, Tensors
from potluck.study.headline import ACCURACY, COUNT
from potluck.study.schema import shown

FEW = (2, 3)  # examples on which it shows whether a function gives a number for each or one for all
SCORED = ("torchmetrics.classification", "torchmetrics.regression")  # that take what metrics by name take
JOINED = ("dim_zero_sum", "dim_zero_max", "dim_zero_min", "dim_zero_cat")  # torchmetrics' names for how states are
PERPLEXITY = "perplexity"
Maker = Callable[[Goal, int, int], Any]
"""(goal, classes, labels) -> a metric of torchmetrics."""


def of_classes(kind: str, goal: Goal, classes: int, labels: int, **options: Any) -> Any:
    """A metric of torchmetrics that has a form for classes, for yes or no, and for several labels."""
    library = import_module("torchmetrics.classification")
    if isinstance(goal, MultiLabel):
        return getattr(library, f"Multilabel{kind}")(num_labels=labels, average="macro")
    if isinstance(goal, Binary):
        return getattr(library, f"Binary{kind}")()
    return getattr(library, f"Multiclass{kind}")(num_classes=classes, **{"average": "macro", **options})


def of_numbers(kind: str, goal: Goal, classes: int, labels: int, **options: Any) -> Any:
    """A metric of torchmetrics for numbers, in double precision."""
    return getattr(import_module("torchmetrics"), kind)(**options).set_dtype(torch.float64)


@dataclass(frozen=True, eq=False)
class Explained(Streamed):
    """R², of all numbers together where a prediction has more dimensions than torchmetrics takes."""

    def of(self, outputs: Any, targets: Any) -> Tensors:
        return super().of(outputs.flatten(), targets.flatten()) if outputs.dim() > 2 else super().of(outputs, targets)

    def value(self, total: Tensors) -> float:
        return super().value(total) if int(total["total"]) > 1 else math.nan  # one prediction has no variance


CLASSED: tuple[type[Goal], ...] = (Classes, Binary)
METRICS: dict[str, tuple[tuple[type[Goal], ...], Maker]] = {
    "macro-f1": (CLASSED, partial(of_classes, "F1Score")),
    "precision": (CLASSED, partial(of_classes, "Precision")),
    "recall": (CLASSED, partial(of_classes, "Recall")),
    "auroc": (CLASSED, partial(of_classes, "AUROC")),
    "iou": (CLASSED, partial(of_classes, "JaccardIndex")),
    "balanced-accuracy": ((Classes,), partial(of_classes, "Accuracy")),
    "top-5": ((Classes,), partial(of_classes, "Accuracy", average="micro", top_k=5)),
    "mae": ((Regression,), partial(of_numbers, "MeanAbsoluteError")),
    "rmse": ((Regression,), partial(of_numbers, "MeanSquaredError", squared=False)),
    "r2": ((Regression,), partial(of_numbers, "R2Score")),
}


def as_metrics(metrics: Any) -> dict[str, Any] | None:
    """Metrics by name, from a list of names or a dictionary; one that has our name has nothing beside it."""
    if metrics is None:
        return None
    if isinstance(metrics, Mapping):
        # a metric of torchmetrics compares itself with anything, and says yes
        found = {
            str(name): None if isinstance(given, str) and given == name else given for name, given in metrics.items()
        }
    elif isinstance(metrics, list | tuple) and all(isinstance(name, str) for name in metrics):
        found = dict.fromkeys(metrics)
    else:
        raise ConfigError(
            f"metrics is {shown(metrics)}, but it should be a list of names, such as ['macro-f1'], or a dictionary of "
            "functions of (outputs, targets)"
        )
    for name in found:
        if not name or "/" in name:
            raise ConfigError(f"metrics has the name {name!r}, but a name has at least one letter and no '/'")
    return found


def measures_of(
    asked: Mapping[str, Any] | None, goal: Goal, classes: int, example: Batch, net: nn.Module
) -> dict[str, Measure]:
    """The measures that models are scored by beside the goal's own means."""
    wanted = dict.fromkeys(goal.metrics) if asked is None else dict(asked)
    with blamed_on(goal, SCORING):
        anyway = {*goal.means, *goal.derived(dict.fromkeys(goal.means, 0.0)), LOCAL}
    found: dict[str, Measure] = {}
    for name, given in wanted.items():
        if given is None and name in anyway and (name != LOCAL or ACCURACY in anyway):
            continue
        if name in anyway or name == COUNT:
            raise ConfigError(f"metrics has '{name}', which a record has anyway; give yours another name")
        if isinstance(given, str) and given in anyway:
            raise ConfigError(f"the metric '{name}' is '{given}', which a record has anyway; leave it out")
        if given is None or isinstance(given, str):
            found[name] = ready_made(name if given is None else given, goal, classes, example[1])
        else:
            found[name] = streamed(given, name) if is_metric(given) else of_function(given, goal, example, net, name)
    return found


def ready_made(name: str, goal: Goal, classes: int, targets: Any) -> Measure:
    """A measure by our name for it."""
    metric = named_metric(name, goal, classes, targets)
    return Explained(metric) if name == "r2" else Streamed(metric)


def named_metric(name: str, goal: Goal, classes: int, targets: Any) -> Any:
    """A metric of torchmetrics by our name for it."""
    fitting = [known for known, (goals, _) in METRICS.items() if isinstance(goal, goals)]
    if name not in fitting:
        if name in (*METRICS, ACCURACY, PERPLEXITY):
            others = f"it has {', '.join([*goal.means, *fitting])}"
            raise ConfigError(f"the metric '{name}' makes no sense for the task '{goal.name}'; {others}")
        raise ConfigError(unknown("metric", name, [*goal.means, *fitting]))
    if name == "top-5" and classes <= 5:
        raise ConfigError(f"the metric 'top-5' is always 1 with {classes} classes; leave it out")
    labels = tensors_of(targets)[0].shape[-1] if isinstance(goal, MultiLabel) else 0
    return METRICS[name][1](goal, classes, labels)


def is_metric(given: Any) -> bool:
    """Whether this is a metric of torchmetrics, or several in one."""
    return hasattr(given, "metric_state")


def streamed(metric: Any, name: str) -> Measure:
    """A metric of torchmetrics; one whose states cannot be joined is refused."""
    if isinstance(metric, type):
        raise ConfigError(
            f"the metric '{name}' is the class {metric.__name__}; give an instance of it, as in {metric.__name__}(…)"
        )
    if getattr(metric, "full_state_update", None) is not False or not has_joined_states(metric):
        raise ConfigError(
            f"the metric '{name}' ({type(metric).__name__}) cannot be put together from pieces: it should be a single "
            "metric with full_state_update = False, whose states are sums, maxima, minima or lists; or give a function "
            "of (outputs, targets) that computes it, and it is called once with everything"
        )
    return Streamed(metric, raw=not takes_scored(metric))


def takes_scored(metric: Any) -> bool:
    """Whether a metric takes probabilities, or numbers, with a row for each target that counts.

    Metrics of classification would take logits, too, but take those for probabilities of which all in a batch happen to
    lie between 0 and 1. An `update` of the user's is handed what a function is.
    """
    return str(type(metric).update.__module__).startswith(SCORED)


def has_joined_states(metric: Any) -> bool:
    """Whether a metric has states, all of which are the same however the examples are divided."""
    reductions = metric._reductions
    return bool(reductions) and all(
        getattr(rule, "__name__", "") in JOINED or (rule is None and isinstance(metric._defaults[name], list))
        for name, rule in reductions.items()
    )


def of_function(function: Any, goal: Goal, example: Batch, net: nn.Module, name: str) -> Measure:
    """A function of the user's: averaged if it gives a number for every example, else called once with everything."""
    if not callable(function):
        raise ConfigError(
            f"the metric '{name}' is a {type(function).__name__}, but it should be a function of (outputs, targets) or "
            "a metric of torchmetrics"
        )
    given = []
    for few in FEW:
        inputs, targets = repeated(example, few)
        outputs = goal.outputs(observe(net, inputs))
        try:
            given.append(as_numbers(function(outputs, targets)))
        except Exception:  # made-up targets may all be of one class, which some metrics refuse
            return Whole(function, numbered((outputs, targets)))
    if all(isinstance(each, Tensor) and each.shape == (few,) for few, each in zip(FEW, given, strict=True)):
        return Mean(function)
    for each in given:
        if (each.numel() != 1) if isinstance(each, Tensor) else not hasattr(each, "__float__"):
            raise ConfigError(
                f"the metric '{name}' gives {told(each)}, but it should give one number, or one for every example"
            )
    return Whole(function, numbered((outputs, targets)))


def numbered(tree: Any) -> Any:
    """The same with a number in the place of every leaf."""
    numbers = count()
    return tree_map(lambda _: next(numbers), tree)


def as_numbers(given: Any) -> Any:
    """An array as a tensor; anything else as it is."""
    return torch.as_tensor(given) if hasattr(given, "__array__") else given


def require_sendable(measures: Mapping[str, Measure], method: Method) -> None:
    """Refuse measures that need everybody's outputs where clients score their own models."""
    for name, measure in measures.items():
        if measure.keeps and not method.shares_model:
            raise ConfigError(
                f"the metric '{name}' needs the outputs for all examples at once, but with {type(method).__name__} "
                "every client scores its own model, and outputs stay there; give a function that has a number for "
                "every example, or a metric of torchmetrics that keeps sums (AUROC does with thresholds=100)"
            )

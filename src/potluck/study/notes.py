"""Settings that work, but hardly do what they were written for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.core.goals.own import Own
from potluck.core.insight import left_out
from potluck.core.observe import observe
from potluck.core.types import Train
from potluck.study.experiment import Experiment
from potluck.study.levels import build
from potluck.study.schema import NOWHERE, Origin
from potluck.study.settings import FleetSection, Settings


def notes_on(settings: Settings, origin: Origin = NOWHERE) -> list[str]:
    """A sentence for each setting that has no effect or another one than it says."""
    found, fleet, train = [], settings.fleet, settings.train
    if isinstance(fleet.cohort, int) and fleet.cohort > fleet.clients and fleet.cohort != FleetSection.cohort:
        found.append(
            f"{origin.about('fleet')}cohort is {fleet.cohort}, but there are only {fleet.clients} clients: all that "
            "are able take part in every round"
        )
    if train.schedule == "exponential" and train.decay == Train.decay:
        found.append(
            f"{origin.about('train')}schedule is 'exponential' and decay is {train.decay:g}: every round has a tenth "
            "of the rate before it; a usual decay is 0.99"
        )
    if train.warmup >= settings.task.rounds:
        found.append(
            f"{origin.about('train')}warmup is {train.warmup}, but there are only {settings.task.rounds} rounds: the "
            f"rate never gets to {train.lr:g}"
        )
    return found


def notes_on_experiment(experiment: Experiment) -> list[str]:
    """A sentence for each thing about an experiment that a user may not expect."""
    return [
        *left_out(experiment.method, experiment.task.goal),
        *notes_on_targets(experiment),
        *notes_on_outputs(experiment),
        *notes_on_names(experiment.names),
    ]


def notes_on_targets(experiment: Experiment) -> list[str]:
    """A sentence if a loss without a task is handed what look like classes."""
    targets = experiment.task.example[1]
    if not isinstance(experiment.task.goal, Own) or not isinstance(targets, Tensor):
        return []
    if targets.dim() != 1 or targets.is_floating_point() or targets.dtype is torch.bool:
        return []
    return [
        "targets are whole numbers, but a loss without a task says nothing of what they mean: no accuracy is measured, "
        'and methods make no use of labels; if they are classes, say so with task="classes" (in a config: [task] '
        'goal = "classes")'
    ]


def notes_on_outputs(experiment: Experiment) -> list[str]:
    """A sentence if a network gives probabilities where a loss takes logits."""
    task = experiment.task
    if not task.goal.softmax or task.goal.criterion is not None or task.classes < 2:
        return []
    size = experiment.method.trains(task.largest, experiment.site.context(0))
    outputs = task.goal.outputs(observe(build(task.model, size), task.example[0]))
    if bool((outputs < 0).any()) or not outputs.sum(-1).allclose(torch.ones(())):
        return []
    return [
        "the network's outputs add up to 1, as probabilities do, but the loss and the methods take logits: leave the "
        "softmax at its end out"
    ]


def notes_on_names(names: Sequence[str]) -> list[str]:
    """A sentence if clients are called by numbers, but by others than their own."""
    if not names or not all(name.isdecimal() for name in names):
        return []
    numbers = {int(name) for name in names}
    missing = next(number for number in range(len(numbers) + 1) if number not in numbers)
    if missing == len(numbers):
        return []
    return [f"clients keep the numbers that they came with, which have gaps: there is no client '{missing}'"]

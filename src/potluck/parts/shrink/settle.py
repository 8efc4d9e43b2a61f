"""Finding what the sizes that modules remember have to be for a narrow network to run.

The narrow network runs on the same example as the wide one did, and every tensor on the way has to be
narrower by the channels it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

import torch
from torch import nn

from potluck.core.inputs import Inputs
from potluck.parts.shrink.attributes import Attribute, assign
from potluck.parts.shrink.check import ANY, Course, Divergence, Outcome, compare
from potluck.parts.shrink.resize import NORM_SIZES, remembered

TRIES = 64  # sets of attributes to change at one problem, for each number of attributes
LARGEST = 4  # attributes to change at once, but for all of a module's
STEPS = 150_000  # operations to run in all before a network is given up

Choices = dict[Attribute, int]
Found = Mapping[str, list[Attribute]]
"""The attributes of every module that may be changed sizes."""


@dataclass
class Trials:
    """A narrow network, run again and again with other sizes."""

    narrow: nn.Module
    example: Inputs
    batch: Inputs | None  # what the wide network can train on
    found: Found
    course: Course
    steps: int  # operations to run before it is given up

    def outcome(self, choices: Choices) -> Outcome:
        """How a run with these sizes ends, in evaluation and then in training."""
        for name, listed in self.found.items():
            module = self.narrow.get_submodule(name)
            for attribute in listed:
                assign(module, attribute, choices[attribute])
        outcome = compare(self.narrow, self.example, self.course)
        steps = outcome.step if isinstance(outcome, Divergence) else len(self.course.steps)
        self.steps -= steps
        if isinstance(outcome, Divergence) or self.batch is None:
            return outcome
        self.steps -= steps
        before = [(buffer, buffer.clone()) for buffer in self.narrow.buffers()]
        training = compare(self.narrow, self.batch, ANY, training=True)
        for buffer, value in before:  # what norms counted
            buffer.copy_(value)
        if isinstance(training, Divergence):
            return replace(training, step=steps + training.step, message=f"{training.message} (in training)")
        return outcome


def find_sizes(trials: Trials) -> Choices | Divergence:
    """What the modules' own attributes have to be for the narrow network to run as it should.

    An attribute changes if the network needs that to run, or if its outputs stay the same: then it is a size
    that is only remembered, and neither a factor nor a number of steps.
    """
    choices = {each: first_guess(each) for listed in trials.found.values() for each in listed}
    third = trials.steps // 3
    trials.course, trials.steps = replace(trials.course, strict=True), third
    outcome = search(trials, choices)
    if isinstance(outcome, Divergence):  # PyTorch may take another way through the same computation when sizes become 1
        trials.course, trials.steps = replace(trials.course, strict=False), third
        outcome = search(trials, choices)
    trials.steps = third
    return outcome if isinstance(outcome, Divergence) else change_remembered(trials, outcome)


def first_guess(attribute: Attribute) -> int:
    """A norm without tensors of its own has as many channels as what it is given; other sizes are as they were."""
    name = str(attribute.path[0])
    return attribute.options[1 if name in NORM_SIZES and name in remembered(attribute.owner) else 0]


def search(trials: Trials, choices: Choices) -> Choices | Divergence:
    """Change attributes wherever the narrow network leaves its course, as long as that gets it further."""
    problem = trials.outcome(choices)
    while isinstance(problem, Divergence):
        for attempt in readings(trials.found, choices, problem):
            if trials.steps < 0:
                return problem
            outcome = trials.outcome(attempt)
            if further(outcome, problem.step):
                alike = likewise(attempt, choices)
                if alike != attempt:
                    wider = trials.outcome(alike)
                    if further(wider, outcome.step - 1 if isinstance(outcome, Divergence) else problem.step):
                        attempt, outcome = alike, wider
                choices, problem = attempt, outcome
                break
        else:
            return problem
    return choices


def further(outcome: Outcome, step: int) -> bool:
    """Whether a run came to its end, or beyond a step."""
    return not isinstance(outcome, Divergence) or outcome.step > step


def likewise(attempt: Choices, choices: Choices) -> Choices:
    """The same attributes changed in all modules of a class: what one module needs, others do."""
    changed = {(each.owner, each.path) for each, size in attempt.items() if size not in (choices[each], each.size)}
    return {
        each: each.options[1] if size == each.size and (each.owner, each.path) in changed else size
        for each, size in attempt.items()
    }


def readings(found: Found, choices: Choices, problem: Divergence) -> Iterator[Choices]:
    """Changes of the attributes around a problem, the smallest first."""
    path = problem.where.strip("'").split(".") if problem.where.startswith("'") else []
    around = ["", *(".".join(path[: end + 1]) for end in range(len(path)))]
    below = [place for place in found if place.rpartition(".")[0] == around[-1] and place]  # used without being called
    near = [list(dict.fromkeys(found.get(place, []))) for place in (*reversed(around), *below)]
    unsure = list(dict.fromkeys(each for listed in near for each in listed))
    for number in range(1, min(LARGEST, len(unsure)) + 1):
        for changed in islice(combinations(unsure, number), TRIES if number > 1 else None):
            for values in product(*([o for o in each.options if o != choices[each]] for each in changed)):
                yield {**choices, **dict(zip(changed, values, strict=True))}
        if number == 1:  # a module may need all that it remembers at once, and others of its class with it
            for listed in near:
                attempt = {**choices, **{each: each.options[1] for each in listed}}
                yield attempt
                yield likewise(attempt, choices)


def change_remembered(trials: Trials, choices: Choices) -> Choices:
    """Change all sizes that can be changed without any output changing, many at once as long as that goes well."""
    needed, batch = choices, trials.batch
    trials.batch = None  # training is tried once, at the end
    before = trials.outcome(choices)
    waiting = [[each for each, size in choices.items() if size == each.size]]
    while waiting and trials.steps > 0:
        group = waiting.pop()
        attempt = {**choices, **{each: each.options[1] for each in group}}
        if group and same(trials.outcome(attempt), before):
            choices = attempt
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    trials.batch = batch
    return needed if choices == needed or isinstance(trials.outcome(choices), Divergence) else choices


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs gave equal tensors."""
    if isinstance(one, Divergence) or isinstance(other, Divergence):
        return False
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

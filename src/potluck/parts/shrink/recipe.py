"""Making a narrow copy of a network run: sizes that its modules remember are brought up to date.

The copy runs on the same example as the network did, and every tensor on the way has to be narrower by
the channels it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

import torch
from torch import Tensor, nn

from potluck.core.copying import computed, copied
from potluck.core.errors import ModelError
from potluck.core.names import own_name
from potluck.core.observe import undisturbed
from potluck.parts.cut.plan import Plan
from potluck.parts.shrink.attributes import Attribute, Sizes, assign, attributes
from potluck.parts.shrink.check import Course, Divergence, compare, course
from potluck.parts.shrink.resize import resize, resizes
from potluck.parts.trace.findings import Findings
from potluck.parts.trace.tracer import tensors_in

TRIES = 64  # sets of attributes to change at one problem, for each number of attributes


@dataclass(frozen=True)
class Recipe:
    """How a narrow copy of a network is made."""

    plan: Plan
    sizes: dict[str, list[tuple[Attribute, int]]]  # what the modules' own attributes become

    def follow(self, net: nn.Module, example: tuple[Tensor, ...]) -> nn.Module:
        """A narrow copy."""
        narrow = copied(net)
        cut_tensors(narrow, self.plan)
        if computed(net):
            seeded_outputs(narrow, example)
        for module in narrow.modules():
            resize(module)
        for name, found in self.sizes.items():
            for attribute, size in found:
                assign(narrow.get_submodule(name), attribute, size)
        return narrow


def find_recipe(net: nn.Module, example: tuple[Tensor, ...], findings: Findings, plan: Plan) -> Recipe:
    """How to make a copy that holds what the plan says, and runs as the network does."""
    expected = course(findings.trace, findings.channel_of, findings.channels.held(plan))
    narrow = Recipe(plan, {}).follow(net, example)
    found = {name: list(attributes(module, sizes)) for name, module, sizes in own_sizes(net, plan, expected)}
    choices = find_sizes(narrow, example, expected, found)
    return Recipe(plan, {name: [(each, choices[each]) for each in listed] for name, listed in found.items() if listed})


def cut_tensors(net: nn.Module, plan: Plan) -> None:
    """Replace every parameter and buffer by the part of it that is held; tied ones stay tied."""
    done: dict[int, Tensor] = {}
    for prefix, module in net.named_modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            full = own_name(prefix, name)
            if full not in plan.narrowed:
                continue
            if id(tensor) not in done:
                part = plan.take({full: tensor.detach()})[full].clone()
                done[id(tensor)] = (
                    nn.Parameter(part, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else part
                )
            setattr(module, name, done[id(tensor)])


Choices = dict[Attribute, int]


def find_sizes(
    narrow: nn.Module, example: tuple[Tensor, ...], expected: Course, found: Mapping[str, list[Attribute]]
) -> Choices:
    """What the modules' own attributes have to be for the narrow network to run as it should.

    An attribute changes if the network needs that to run, or if its outputs stay the same: then it is a size
    that is only remembered, and neither a factor nor a number of steps.
    """
    choices: Choices = {each: each.size for listed in found.values() for each in listed}
    strict = replace(expected, strict=True)
    outcome = search(narrow, example, strict, found, choices)
    if isinstance(outcome, Divergence):  # PyTorch may take another way through the same computation when sizes become 1
        strict, outcome = expected, search(narrow, example, expected, found, choices)
    if isinstance(outcome, Divergence):
        raise refusal(outcome)
    choices = outcome
    apply(narrow, found, choices)
    before = seeded_outputs(narrow, example)
    for each in [each for each, size in choices.items() if size == each.size]:
        attempt = {**choices, each: each.options[1]}
        apply(narrow, found, attempt)
        if compare(narrow, example, strict) is None and same(seeded_outputs(narrow, example), before):
            choices = attempt
    return choices


def seeded_outputs(net: nn.Module, example: tuple[Tensor, ...]) -> list[Tensor]:
    """What a network gives for the example in evaluation, with the same random numbers each time."""
    with undisturbed(net):
        torch.manual_seed(0)
        return tensors_in(net(*example))


def same(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether all tensors are equal."""
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def search(
    narrow: nn.Module,
    example: tuple[Tensor, ...],
    expected: Course,
    found: Mapping[str, list[Attribute]],
    choices: Choices,
) -> Choices | Divergence:
    """Change attributes wherever the narrow network leaves its course, as long as that gets it further."""
    apply(narrow, found, choices)
    problem = compare(narrow, example, expected)
    while problem is not None:
        for attempt in readings(found, choices, problem):
            apply(narrow, found, attempt)
            outcome = compare(narrow, example, expected)
            if outcome is None or outcome.step > problem.step:
                choices, problem = attempt, outcome
                break
        else:
            return problem
    return choices


def readings(found: Mapping[str, list[Attribute]], choices: Choices, problem: Divergence) -> Iterator[Choices]:
    """Changes of the attributes around a problem, the smallest first."""
    path = problem.where.strip("'").split(".")
    around = ["", *(".".join(path[: end + 1]) for end in range(len(path)))]
    unsure = list({each: None for place in reversed(around) for each in found.get(place, [])})
    for number in range(1, len(unsure) + 1):
        for changed in islice(combinations(unsure, number), TRIES):
            for values in product(*([o for o in each.options if o != choices[each]] for each in changed)):
                yield {**choices, **dict(zip(changed, values, strict=True))}


def apply(narrow: nn.Module, found: Mapping[str, list[Attribute]], choices: Choices) -> None:
    """Write sizes into the modules' attributes."""
    for name, listed in found.items():
        for attribute in listed:
            assign(narrow.get_submodule(name), attribute, choices[attribute])


def own_sizes(net: nn.Module, plan: Plan, expected: Course) -> Iterator[tuple[str, nn.Module, Sizes]]:
    """The sizes that every module of the user's works with: its tensors', its steps', its descendants'."""
    stepped: dict[str, list[tuple[int, int]]] = {}
    for step, shapes in expected.steps:
        pairs = stepped.setdefault(step.where.strip("'") if step.where != "the network" else "", [])
        for full, wanted in zip(step.shapes, shapes, strict=True):
            pairs += [(size, kept) for size, kept in zip(full, wanted, strict=True) if kept is not None]
    tensors = {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers(remove_duplicate=False))}
    for name, module in net.named_modules():
        if type(module).__module__.startswith("torch.nn.") and resizes(module):
            continue
        prefix = f"{name}." if name else ""
        below = [each for each in tensors if each.startswith(prefix)]
        own = [each for each in below if "." not in each.removeprefix(prefix)]
        sizes: dict[int, list[int]] = {}
        for wide, kept in [*pairs_of(plan, own), *stepped.get(name, []), *pairs_of(plan, below)]:
            options = sizes.setdefault(wide, [])
            if kept not in options:
                options.append(kept)
        yield name, module, {wide: tuple(options) for wide, options in sizes.items()}


def pairs_of(plan: Plan, names: Sequence[str]) -> list[tuple[int, int]]:
    """Every size in these tensors, wide and narrow."""
    return [(kept.size, kept.count) for name in names for kept in plan[name]]


def refusal(problem: Divergence) -> ModelError:
    return ModelError(
        f"the network cannot be made narrower as it is: in {problem.where}, {problem.message}; a size may be written "
        "into its code: take sizes from the tensors (x.shape, flatten), name what must stay whole in keep=[…], or give "
        "a function of the width instead of a network"
    )

"""Making a narrow copy of a network run: sizes that its modules remember are brought up to date."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from potluck.core.copying import copied, plain_tensors, replace_plain_tensors
from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs
from potluck.core.names import own_name
from potluck.parts.cut.plan import Plan
from potluck.parts.shrink.attributes import Attribute, Sizes, assign, attributes
from potluck.parts.shrink.check import Course, Divergence, course, trained_on
from potluck.parts.shrink.resize import remembered, resize, resized, resizes
from potluck.parts.shrink.settle import STEPS, Found, Trials, find_sizes
from potluck.parts.trace.findings import Findings


@dataclass(frozen=True)
class Recipe:
    """How a narrow copy of a network is made."""

    plan: Plan
    sizes: dict[str, list[tuple[Attribute, int]]]  # what the modules' own attributes become

    def follow(self, net: nn.Module) -> nn.Module:
        """A narrow copy."""
        narrow = copied(net)
        cut_tensors(narrow, self.plan)
        for module in narrow.modules():
            resize(module)
        for name, found in self.sizes.items():
            for attribute, size in found:
                assign(narrow.get_submodule(name), attribute, size)
        return narrow


class RefusedError(ModelError):
    """A network cannot be made narrower as it is."""

    def __init__(self, problem: Divergence, enough: Sequence[str] = ()) -> None:
        works = f" (keep={json.dumps(enough)} works)" if enough else ""
        super().__init__(
            f"the network cannot be made narrower as it is: in {problem.where}, {problem.message}; a size may be "
            "written into its code: take sizes from the tensors (x.shape, flatten), name what must stay whole in "
            f"keep=[…]{works}, or give a function of the width instead of a network"
        )
        self.problem = problem


def find_recipe(net: nn.Module, example: Inputs, findings: Findings, plan: Plan, steps: int = STEPS) -> Recipe:
    """How to make a copy that holds what the plan says, and runs as the network does; at most so many operations."""
    expected = course(findings.trace, findings.channel_of, findings.channels.held(plan))
    narrow = Recipe(plan, {}).follow(net)
    found = remembered_sizes(net, plan, expected)
    choices = find_sizes(Trials(narrow, example, trained_on(net, example), found, expected, steps))
    if isinstance(choices, Divergence):
        raise RefusedError(choices)
    return Recipe(plan, {name: [(each, choices[each]) for each in listed] for name, listed in found.items() if listed})


def cut_tensors(net: nn.Module, plan: Plan) -> None:
    """Replace every tensor by the part of it that is held; tied ones stay tied."""
    plain = plain_tensors(net)
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
    parts = plan.take({name: tensor for name, tensor in plain.items() if is_cut(plan, name, tensor)})
    replace_plain_tensors(net, {id(plain[name]): part.clone() for name, part in parts.items()})


def is_cut(plan: Plan, name: str, tensor: Tensor) -> bool:
    """Whether a plan cuts a tensor of this shape; a later run may have left another one."""
    return name in plan.narrowed and tuple(kept.size for kept in plan[name]) == tuple(tensor.shape)


def remembered_sizes(net: nn.Module, plan: Plan, expected: Course) -> Found:
    """The attributes of every module that may be changed sizes."""
    stepped: dict[str, list[tuple[int, int]]] = {}
    for step, shapes in expected.steps:
        pairs = stepped.setdefault(step.where.strip("'") if step.where != "the network" else "", [])
        for full, wanted in zip(step.shapes, shapes, strict=True):
            pairs += [(size, kept) for size, kept in zip(full, wanted, strict=True) if kept is not None]
    tensors = {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers(remove_duplicate=False))}
    everywhere = options_of([*pairs_of(plan, tensors), *(pair for pairs in stepped.values() for pair in pairs)])
    found: dict[str, list[Attribute]] = {}
    for name, module in net.named_modules():
        ours = type(module).__module__.startswith("torch.nn.") and bool(remembered(type(module)))
        if ours and resizes(module):
            continue
        prefix = f"{name}." if name else ""
        below = [each for each in tensors if each.startswith(prefix)]
        own = [each for each in below if "." not in each.removeprefix(prefix)]
        sizes = options_of([*pairs_of(plan, own), *stepped.get(name, []), *pairs_of(plan, below)])
        listed = attributes(module, sizes, everywhere, resized(module))
        found[name] = [each for each in listed if not ours or each.path[0] in remembered(type(module))]
    return found


def options_of(pairs: Iterable[tuple[int, int]]) -> Sizes:
    """What each wide size may have become, in the order of the pairs."""
    sizes: dict[int, dict[int, None]] = {}
    for wide, kept in pairs:
        sizes.setdefault(wide, {})[kept] = None
    return {wide: tuple(options) for wide, options in sizes.items()}


def pairs_of(plan: Plan, names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Every size in these tensors, wide and narrow."""
    return ((kept.size, kept.count) for name in names for kept in plan[name])

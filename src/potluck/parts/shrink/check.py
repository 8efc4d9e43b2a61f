"""Whether a narrow network runs as the wide one did, with tensors that are narrower by the missing channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from potluck.core.copying import copied
from potluck.core.inputs import Inputs, call
from potluck.core.observe import undisturbed
from potluck.parts.trace.marks import Marked, strip
from potluck.parts.trace.seen import Step, Trace
from potluck.parts.trace.tracer import batches_to_train_on, placed, plain_operations, tensors_in

VIEWS = ("view", "_unsafe_view", "_reshape_alias", "reshape")
COPIES = ("clone", "_to_copy", "contiguous", "alias", "detach")

Expected = tuple[int | None, ...]


@dataclass(frozen=True)
class Divergence:
    """Where a narrow network first does something else."""

    step: int
    where: str
    message: str
    after: str = ""  # the module that ran last


def expected_shape(marked: Marked, channel_of: Tensor, held: Tensor) -> Expected:
    """A tensor's shape in the narrow network, None where nothing is known; `held` tells which channels are kept."""
    if marked.marks is None:
        return (None,) * len(marked.shape)
    shape: list[int | None] = list(marked.shape)
    kept: dict[int, Tensor] = {}
    unknown: set[int] = set()
    for one in marked.channels:
        channels = strip(torch.where(one.atoms > 0, channel_of[one.atoms.clamp_min(0)] + 1, one.atoms))
        if channels is not None:
            stays = (channels.atoms <= 0) | held[(channels.atoms - 1).clamp_min(0)]
            kept[channels.inner] = kept.get(channels.inner, torch.ones((), dtype=torch.bool)) & stays
            unknown |= {channels.inner} if bool((channels.atoms < 0).any()) else set()
    for dim, stays in kept.items():
        counts = stays.sum(dim)
        even = dim not in unknown and counts.unique().numel() == 1
        shape[dim] = int(counts.flatten()[0]) if even else None
    for one in marked.marks:
        if one.free and one.inner not in kept:
            shape[one.inner] = None
    return tuple(shape)


@dataclass(frozen=True)
class Course:
    """What a narrow network's run should look like."""

    steps: list[tuple[Step, tuple[Expected, ...]]]
    results: list[tuple[str, tuple[Expected, ...]]]
    strict: bool = False  # compare step by step; else only the modules' outputs once the steps differ


def course(trace: Trace, channel_of: Tensor, held: Tensor) -> Course:
    """The run of the wide network, as it should be once only these channels are held."""

    def expected(marked: Iterable[Marked]) -> tuple[Expected, ...]:
        return tuple(expected_shape(each, channel_of, held) for each in marked)

    steps = [(step, expected(step.marked)) for step in trace.steps if step.operation not in COPIES]
    return Course(steps, [(name, expected(marked)) for name, marked in trace.results])


class Compare(TorchDispatchMode):
    """Compares every step of a run, and every module's output, with what is expected."""

    def __init__(self, course: Course) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.course = course
        self.ran = 0
        self.done = 0
        self.given = 0
        self.last = ""
        self.watched = bool(course.results)
        self.in_step = bool(course.steps)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.ran += 1
        by_data = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
        if by_data and not self.course.strict:
            self.in_step = self.watched = False  # what runs from here on may differ
        if self.in_step and name not in COPIES:
            self.in_step = self.done < len(self.course.steps) and alike(name, self.course.steps[self.done][0].operation)
            if self.course.strict and not self.in_step:
                raise DivergedError(f"{name} runs where the wide network runs something else")
            if self.in_step:
                require_shapes(name, tensors_in(result), self.course.steps[self.done][1])
                self.done += 1
        return result

    def note(self, name: str, output: object) -> None:
        self.last = name
        if not self.watched:
            return
        if self.given >= len(self.course.results) or self.course.results[self.given][0] != name:
            raise DivergedError("another module ran in the wide network")
        require_shapes("it", tensors_in(output), self.course.results[self.given][1])
        self.given += 1


def alike(one: str, other: str) -> bool:
    """Whether two operations do the same."""
    return one == other or {one, other} <= set(VIEWS)


def require_shapes(who: str, tensors: Sequence[Tensor], expected: Sequence[Expected]) -> None:
    """Every tensor has the shape it should have."""
    for tensor, wanted in zip(tensors, expected, strict=False):
        got = tuple(tensor.shape)
        if len(got) != len(wanted) or any(w is not None and g != w for g, w in zip(got, wanted, strict=True)):
            shape = "x".join("?" if size is None else str(size) for size in wanted)
            raise DivergedError(f"{who} gives {'x'.join(map(str, got))} instead of {shape}")


class DivergedError(Exception):
    """The narrow network does something else."""


Outcome = Divergence | list[Tensor]
"""Where a run left its course, or what it gave."""


def compare(net: nn.Module, example: Inputs, course: Course, training: bool = False) -> Outcome:
    """Run a narrow network; where it first leaves the wide one's course, or its outputs if it does not."""
    place = ["the network"]
    watch = Compare(course)
    try:
        with plain_operations(), undisturbed(net, training), placed(net, place, watch.note), watch:
            torch.manual_seed(0)
            output = call(net, example)
        if course.strict and watch.in_step and watch.done < len(course.steps):
            raise DivergedError("it does less than the wide network")
    except Exception as error:  # whatever the user's own code raises when sizes do not fit
        return Divergence(watch.ran, place[-1], str(error).split("\n")[0], watch.last)
    return tensors_in(output)


ANY = Course([], [])
"""The course of a run that only has to come to its end."""


def trained_on(net: nn.Module, example: Inputs) -> Inputs | None:
    """A batch that a network can train on, if there is one."""
    tried = copied(net)
    batches = batches_to_train_on(example)
    return next((batch for batch in batches if not isinstance(compare(tried, batch, ANY, True), Divergence)), None)

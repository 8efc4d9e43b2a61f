"""Measures of a model that are put together from pieces: each piece gives some tensors, and these add up to one number.

What a piece gives is small if it can be: sums, or the state of a metric. A measure that needs all outputs at once keeps
them; they stay on the machine that scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from potluck.core.blame import foreign_failure
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.goals.classes import IGNORED
from potluck.core.types import Tensors

SUM = "sum"


class UnfitError(Exception):
    """What is wrong with a metric of the user's, to follow its name in a sentence."""


class Measure(Protocol):
    """A number that is put together from pieces."""

    @property
    def raw(self) -> bool:
        """Whether it compares what the loss does, or what the goal makes of it for metrics."""

    @property
    def keeps(self) -> bool:
        """Whether a piece gives outputs themselves, which no client may send."""

    def of(self, outputs: Any, targets: Any) -> Tensors:
        """What a batch gives."""

    def added(self, one: Tensors, other: Tensors) -> Tensors:
        """What two pieces give together."""

    def value(self, total: Tensors) -> float:
        """The number that all pieces together give."""


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of a function that gives a number for every example."""

    function: Callable[[Any, Any], Any]
    raw: bool = True
    keeps: bool = False

    def of(self, outputs: Any, targets: Any) -> Tensors:
        each = torch.as_tensor(self.function(outputs, targets)).double()
        return {SUM: torch.stack([each.sum(), each.new_tensor(float(each.numel()))])}

    def added(self, one: Tensors, other: Tensors) -> Tensors:
        return {SUM: one[SUM] + other[SUM]}

    def value(self, total: Tensors) -> float:
        return float(total[SUM][0] / total[SUM][1])


@dataclass(frozen=True, eq=False)
class Whole:
    """A function that gives one number, of all outputs and targets at once."""

    function: Callable[[Any, Any], Any]
    form: Any  # of (outputs, targets), each tensor replaced by its number
    raw: bool = True
    keeps: bool = True

    def of(self, outputs: Any, targets: Any) -> Tensors:
        leaves = tree_leaves((outputs, targets))
        if others := [leaf for leaf in leaves if not isinstance(leaf, Tensor)]:
            raise UnfitError(
                f"is given everything at once, but the network also gives {told(others[0])}, which cannot be joined; "
                "let it give a number for every example instead"
            )
        return {str(number): leaf for number, leaf in enumerate(leaves)}

    def added(self, one: Tensors, other: Tensors) -> Tensors:
        for name, tensor in one.items():
            if not tensor.dim() or tensor.dim() != other[name].dim():
                raise UnfitError(
                    f"is given everything at once, but batches of shapes {tuple(tensor.shape)} and "
                    f"{tuple(other[name].shape)} cannot be joined; let it give a number for every example instead"
                )
        return {name: torch.cat(equally_long(tensor, other[name])) for name, tensor in one.items()}

    def value(self, total: Tensors) -> float:
        outputs, targets = tree_map(lambda number: total[str(number)], self.form)
        given = self.function(outputs, targets)
        return one_number(given)


def equally_long(*pieces: Tensor) -> list[Tensor]:
    """Pieces of one shape but for the number of examples: sequences are filled up, targets by what does not count."""
    shape = [max(sizes) for sizes in zip(*(piece.shape[1:] for piece in pieces), strict=True)]
    filled = []
    for piece in pieces:
        if list(piece.shape[1:]) != shape:
            whole = not (piece.is_floating_point() or piece.dtype is torch.bool)
            room = piece.new_full((len(piece), *shape), IGNORED if whole else 0)
            room[tuple(slice(size) for size in piece.shape)] = piece
            piece = room
        filled.append(piece)
    return filled


@dataclass(frozen=True, eq=False)
class Streamed:
    """A metric of torchmetrics that adds pieces up itself, by its state."""

    metric: Any
    raw: bool = False

    @property
    def keeps(self) -> bool:
        """Whether its state is a list of all that it was shown."""
        return any(isinstance(state, list) for state in self.empty().metric_state.values())

    def empty(self) -> Any:
        """The metric before it is shown anything."""
        metric = self.metric.clone()
        metric.reset()
        return metric

    def of(self, outputs: Any, targets: Any) -> Tensors:
        metric = self.empty()
        if not isinstance(targets, Tensor) or targets.numel():  # in a batch there may be no target that counts
            metric.update(outputs, targets)
        return {name: joined(state) for name, state in metric.metric_state.items()}

    def holding(self, state: Tensors) -> Any:
        """The metric in a state."""
        metric = self.empty()
        for name, before in list(metric.metric_state.items()):
            setattr(metric, name, listed(state[name]) if isinstance(before, list) else state[name])
        return metric

    def added(self, one: Tensors, other: Tensors) -> Tensors:
        metric = self.holding(other)
        metric.merge_state(self.holding(one).metric_state)  # torchmetrics puts what is merged before what was there
        return {name: joined(state) for name, state in metric.metric_state.items()}

    def value(self, total: Tensors) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it was never updated: its state was
            given = self.holding(total).compute()
        return one_number(given)


def one_number(given: Any) -> float:
    """What a metric gave for all examples, if it is a number."""
    if not hasattr(given, "__float__") or math.prod(getattr(given, "shape", ())) != 1:
        raise UnfitError(f"gives {told(given)} for all examples, but it should give one number")
    return float(given)


def told(given: Any) -> str:
    """What a function gave."""
    return f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"


def listed(state: Tensor) -> list[Tensor]:
    """A state that is a list, from its tensors as one; one that was shown nothing has no type yet."""
    return [state] if state.numel() else []


def joined(state: Any) -> Tensor:
    """A state as one tensor."""
    if isinstance(state, Tensor):
        return state
    return torch.cat([torch.atleast_1d(each) for each in state]) if state else torch.empty(0)


def attempt(name: str, call: Callable[..., Any], *args: Any) -> Any:
    """What a measure of the user's gives; one that fails is named."""
    try:
        return call(*args)
    except PotluckError:
        raise
    except UnfitError as error:
        raise ConfigError(f"the metric '{name}' {error}") from error
    except Exception as error:
        raise ConfigError(
            f"the metric '{name}' fails: {foreign_failure(error) or f'{type(error).__name__}: {error}'}"
        ) from error

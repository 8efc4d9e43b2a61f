"""Finding the layer that makes the outputs, and checking that they fit the targets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.goals.blamed import blamed_on
from potluck.core.goals.goal import Goal
from potluck.core.inputs import Inputs, is_whole, tensors_of
from potluck.core.names import own_name
from potluck.core.observe import Given, observe
from potluck.core.types import Batch, Level


def find_head(net: nn.Module, example: Inputs, goal: Goal) -> tuple[str, ...]:
    """The parameters of the last layer that runs and has a row for every output; empty if no layer does."""
    ran: list[tuple[Tensor, dict[str, int]]] = []
    whole: list[Any] = []

    def note(name: str, layer: nn.Module, given: Given, output: object) -> None:
        made = output if name else goal.outputs(output)
        if not name:
            whole.append(made)
        rows = {own_name(name, own): len(p) for own, p in layer.named_parameters(recurse=False) if p.dim()}
        if rows and isinstance(made, Tensor):
            ran.append((made, rows))

    observe(net, example, dict(net.named_modules()), after=note)
    width = width_of(whole[-1])
    for made, rows in reversed(ran):
        own = tuple(name for name, count in rows.items() if count == width)
        if own and width in (made.shape[-1], made.shape[min(1, made.dim() - 1)]):
            return own
    return ()


def width_of(outputs: Any) -> int:
    """How many numbers a prediction has; 0 if outputs are several tensors."""
    if not isinstance(outputs, Tensor):
        return 0
    return int(outputs.shape[-1]) if outputs.dim() > 1 else 1


def find_embeddings(net: nn.Module, classes: int) -> dict[str, int]:
    """The embeddings with a row per class, and how many rows they have; one more row is for the mask."""
    return {
        f"{name}.weight": module.num_embeddings
        for name, module in net.named_modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings in (classes, classes + 1)
    }


def try_once(net: nn.Module, example: Inputs, goal: Goal, level: Level) -> Any:
    """The network's outputs for one example, or an error that names the level and the input."""
    require_taken(net, example)
    try:
        output = observe(net, example)
    except (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
        shapes = " and ".join(
            f"{tuple(tensor.shape[1:])}{' of whole numbers' if is_whole(tensor) else ''}"
            for tensor in tensors_of(example)
        )
        raise ModelError(
            f"the network of level '{level.name}' (ratio {level.ratio:g}) cannot run on an input of shape "
            f"{shapes}: {error}"
        ) from error
    with blamed_on(goal, "on what the network returns"):
        return goal.outputs(output)


def require_taken(net: nn.Module, example: Inputs) -> None:
    """Refuse inputs by name that the network does not take."""
    if not isinstance(example, Mapping):
        return
    parameters = inspect.signature(net.forward).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in example:
        if name not in parameters:
            raise ModelError(
                f"the data have an input '{name}', but the network's forward({', '.join(parameters)}) does not take "
                "it; leave it out, or give it the name that the network has for it"
            )


def check_outputs(net: nn.Module, example: Batch, goal: Goal, classes: int, level: Level) -> None:
    """Refuse a network that cannot run on the data, or whose outputs do not fit the targets."""
    inputs, targets = example
    outputs = try_once(net, inputs, goal, level)
    with blamed_on(goal, "on the network's outputs"):
        problem = goal.obstacle(outputs, targets, classes)
    if problem:
        raise ModelError(f"the network of level '{level.name}' (ratio {level.ratio:g}) {problem}")

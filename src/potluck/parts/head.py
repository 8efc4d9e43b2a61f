"""Finding the layer that makes the logits, and checking that they fit the labels."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.logits import logits_of
from potluck.core.names import own_name
from potluck.core.observe import After, Given, observe
from potluck.core.types import Level


def find_head(net: nn.Module, example: Tensor, classes: int) -> tuple[str, ...]:
    """The parameters of the last layer that runs and has one row per class; empty if no layer does."""
    ran: list[tuple[str, ...]] = []

    def note(name: str, layer: nn.Module, given: Given, output: object) -> None:
        rows = [own for own, p in layer.named_parameters(recurse=False) if p.dim() and len(p) == classes]
        made = output if name else logits_of(output)
        if rows and isinstance(made, Tensor) and made.shape[-1] == classes:
            ran.append(tuple(own_name(name, own) for own in rows))

    run_once(net, example, dict(net.named_modules()), note)
    return ran[-1] if ran else ()


def find_embeddings(net: nn.Module, classes: int) -> dict[str, int]:
    """The embeddings with a row per class, and how many rows they have; one more row is for the mask."""
    return {
        f"{name}.weight": module.num_embeddings
        for name, module in net.named_modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings in (classes, classes + 1)
    }


def run_once(
    net: nn.Module, example: Tensor, layers: Mapping[str, nn.Module] | None = None, after: After | None = None
) -> Tensor:
    """The network's logits for one example, in evaluation mode; `after` hears of every call of these layers."""
    return logits_of(observe(net, [example], layers, after=after))


def try_once(net: nn.Module, example: Tensor, level: Level) -> Tensor:
    """The network's output for one example, or an error that names the level and the input."""
    try:
        return run_once(net, example)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ModelError(
            f"the network of level '{level.name}' (ratio {level.ratio:g}) cannot run on an input of shape "
            f"{tuple(example.shape[1:])}: {error}"
        ) from error


def check_outputs(net: nn.Module, example: Tensor, classes: int, level: Level) -> None:
    """Refuse a network that cannot run on the data, or that has too few or too many outputs for the labels."""
    outputs = try_once(net, example, level).shape[-1]
    if outputs != classes:
        raise ModelError(
            f"the network of level '{level.name}' (ratio {level.ratio:g}) has {outputs} outputs, but the labels "
            f"go from 0 to {classes - 1}: it needs {classes}"
        )

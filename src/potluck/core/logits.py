"""Which part of a network's output are its logits: the one place that decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from torch import Tensor

from potluck.core.errors import ModelError

LOGITS = "logits"


def logits_of(output: object) -> Tensor:
    """The output itself if it is a tensor, what it calls `logits`, or else the only tensor in it that could be logits.

    >>> import torch
    >>> logits_of({"logits": torch.zeros(1, 3), "hidden": torch.zeros(1, 8)}).shape
    torch.Size([1, 3])
    """
    if isinstance(output, Tensor):
        return output
    entries = entries_of(output)
    named = entries.get(LOGITS)
    if isinstance(named, Tensor):
        return named
    possible = [value for value in entries.values() if could_be_logits(value)]
    if len(possible) != 1 or not isinstance(possible[0], Tensor):
        raise unclear(output, entries)
    return possible[0]


def could_be_logits(value: object) -> bool:
    """Whether a value may have a score for every example and class; a loss or a mask has none."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2


def entries_of(output: object) -> dict[str, object]:
    """What an output is made of, by name or number; nothing if that cannot be seen.

    >>> entries_of((1, 2))
    {'0': 1, '1': 2}
    """
    if isinstance(output, Mapping):
        return {str(name): value for name, value in output.items()}
    if isinstance(output, tuple | list):
        names = getattr(output, "_fields", range(len(output)))
        return {str(name): value for name, value in zip(names, output, strict=True)}
    if is_dataclass(output):
        return {each.name: getattr(output, each.name) for each in fields(output)}
    return {LOGITS: getattr(output, LOGITS)} if hasattr(output, LOGITS) else {}


def unclear(output: object, entries: Mapping[str, object]) -> ModelError:
    """The error for an output whose logits nobody can tell, with a subclass that would say it."""
    made_of = ", ".join(f"{name}: {described(value)}" for name, value in entries.items())
    first = next((name for name, value in entries.items() if isinstance(value, Tensor)), LOGITS)
    access = f".{first}"
    if isinstance(output, Mapping):
        access = f"[{first!r}]"
    elif first.isdigit():
        access = f"[{first}]"
    return ModelError(
        f"the network returns {type(output).__name__}{f' ({made_of})' if made_of else ''}, and which part of it are "
        "the logits is not clear; give a subclass that returns them, such as\n"
        f"class Mine(Net):\n    def forward(self, x): return super().forward(x){access}"
    )


def described(value: object) -> str:
    """What a part of an output is."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__

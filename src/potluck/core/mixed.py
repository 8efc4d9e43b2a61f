"""Training in mixed precision: a network computes in bfloat16 where PyTorch thinks that safe, all else is float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from potluck.core.errors import ConfigError
from potluck.core.types import Train


@contextmanager
def lowered(net: nn.Module) -> Iterator[None]:
    """Have a network compute in bfloat16 for a while. Its weights and gradients, and its loss, stay what they are."""
    inside: list[torch.autocast] = []

    def enter(net: nn.Module, args: Any) -> None:
        kind = next((p.device.type for p in net.parameters()), "cpu")
        inside.append(torch.autocast(kind, torch.bfloat16))
        inside[-1].__enter__()

    def leave(net: nn.Module, args: Any, output: Any) -> Any:
        inside.pop().__exit__(None, None, None)
        return tree_map(raised, output)

    handles = [net.register_forward_pre_hook(enter), net.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def raised(output: Any) -> Any:
    """An output that is float32 if it was computed in less."""
    return output.float() if isinstance(output, Tensor) and output.dtype == torch.bfloat16 else output


def require_precise(train: Train) -> None:
    """Refuse mixed precision for ways whose operations are made for float32."""
    if train.precision != "float32":
        raise ConfigError(
            f"train.precision is '{train.precision}', but only the plain way to train has it; choose "
            "engine.step = 'counted' or 'plain'"
        )

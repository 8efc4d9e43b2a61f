"""Networks of a few lines, and what is found in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.random import stream
from potluck.core.tensors import state_of
from potluck.parts.cut.channels import Channels
from potluck.parts.cut.plan import Plan
from potluck.parts.shrink.shrinkable import Shrinkable
from zoo.checks import furthest, kept_indices, outputs, with_channels_moved, with_nothing_outside


class Net(nn.Module):
    """Modules and parameters by name, and a function of them for what happens."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)


def raw(*shape: int) -> nn.Parameter:
    """A parameter of no layer."""
    return nn.Parameter(torch.zeros(shape))


def floats(*shape: int) -> Tensor:
    """An input with values of its own in every place."""
    return torch.randn(shape, generator=stream(0, "input", *shape))


def tokens(*shape: int, most: int = 10) -> Tensor:
    """Numbers of tokens."""
    return torch.randint(most, shape, generator=stream(0, "tokens", *shape))


@torch.no_grad()
def told_apart(net: nn.Module) -> nn.Module:
    """Values of its own in every place of every tensor, variances above 0."""
    rng = stream(0, "weights")
    for tensor in net.parameters():
        tensor.copy_(torch.randn(tensor.shape, generator=rng))
    for name, tensor in net.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=rng) + 0.5)
    return net


@dataclass(frozen=True, eq=False)
class Seen:
    """A network and its narrow copy."""

    shrink: Shrinkable
    width: float

    @cached_property
    def narrow(self) -> nn.Module:
        return self.shrink(self.width)

    @cached_property
    def plan(self) -> Plan:
        return self.shrink.plan(self.width)

    @property
    def channels(self) -> Channels:
        return self.shrink.findings.channels

    @property
    def cut(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters that are smaller now."""
        return {
            name: tuple(parameter.shape)
            for name, parameter in self.narrow.named_parameters()
            if name in self.plan.narrowed
        }

    def kept(self, name: str, dim: int = 0) -> list[int]:
        return kept_indices(self.plan, name)[dim]

    @property
    def blocks(self) -> list[tuple[int, str]]:
        """Every block as its size and the dimensions of parameters it lies in."""
        found = []
        names = [name for name, _ in self.shrink.net.named_parameters(remove_duplicate=False)]
        for block in self.channels.blocks:
            members = torch.tensor(block.channels)
            places = [
                f"{name}[{dim}]"
                for name in names
                for dim, ids in enumerate(self.channels.ids[name])
                if bool(torch.isin(ids, members).any())
            ]
            found.append((block.size, " ".join(places)))
        return sorted(found, key=lambda each: each[1])

    def why(self, name: str, dim: int = 0) -> str:
        """Why a dimension stays."""
        return self.channels.whole[name][dim]

    def changed_by_moving(self) -> float:
        """How much outputs change when channels of a block change places everywhere."""
        net, example = self.shrink.net, self.shrink.example
        return furthest(outputs(with_channels_moved(net, self.channels), example), outputs(net, example))

    def differs_from_zeroed(self) -> float:
        """How much the narrow network differs from the wide one with nothing outside the plan."""
        zeroed = with_nothing_outside(self.shrink.net, self.plan)
        return furthest(outputs(self.narrow, self.shrink.example), outputs(zeroed, self.shrink.example))


def see(net: nn.Module, *example: Tensor, width: float = 0.5, keep: tuple[str, ...] = ()) -> Seen:
    """Shrink a network whose values are all different; nothing is checked yet."""
    with torch.no_grad():
        net.train(False)(*example)  # weights that hooks compute can be copied once they were computed without gradients
        net.train()
    return Seen(Shrinkable(told_apart(net), example, keep), width)


def shrunk(net: nn.Module, *example: Tensor, width: float = 0.5, exact: bool = True) -> Seen:
    """Shrink a network; its channels can change places, and absent ones are as good as zeroed ones (if `exact`)."""
    seen = see(net, *example, width=width)
    state, taken = state_of(seen.narrow), seen.plan.take(state_of(net))
    assert all(torch.equal(state[name], taken[name]) for name in state)
    assert seen.plan.narrowed
    assert seen.changed_by_moving() < 1e-4
    assert not exact or seen.differs_from_zeroed() < 1e-5
    return seen

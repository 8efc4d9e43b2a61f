"""Where networks come from: every level has one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from torch import Tensor, nn

from potluck.core.copying import copied
from potluck.core.errors import ModelError
from potluck.core.names import under
from potluck.core.plug import unknown

if TYPE_CHECKING:
    from potluck.core.types import Level


SHARERS: WeakSet[nn.Module] = WeakSet()  # networks of this process whose frozen parameters may be those of others


class Networks(Protocol):
    """Builds the network of a level."""

    def __call__(self, level: Level) -> nn.Module: ...

    def given(self) -> dict[str, Tensor]:
        """The weights of ready-made networks: those that no seed could draw again."""


@dataclass(frozen=True)
class ByWidth:
    """One network at every width: a level's is the one of its ratio."""

    make: Callable[[float], nn.Module]

    def __call__(self, level: Level) -> nn.Module:
        return self.make(level.ratio)

    def given(self) -> dict[str, Tensor]:
        net = getattr(self.make, "net", None)
        return dict(net.state_dict()) if isinstance(net, nn.Module) else {}


@dataclass(frozen=True)
class ByName:
    """A network for every level by its name, related to the others or not: ready-made, or a function that makes one."""

    networks: Mapping[str, nn.Module | Callable[[], nn.Module]]

    def __call__(self, level: Level) -> nn.Module:
        if level.name not in self.networks:
            raise ModelError(unknown("network for level", level.name, self.networks))
        found = self.networks[level.name]
        return copied(found) if isinstance(found, nn.Module) else found()

    def given(self) -> dict[str, Tensor]:
        ready = {name: net for name, net in self.networks.items() if isinstance(net, nn.Module)}
        return {name: tensor for level, net in ready.items() for name, tensor in under(level, net.state_dict()).items()}


def share_frozen(net: nn.Module, known: dict[Hashable, list[nn.Parameter]]) -> nn.Module:
    """Let equal frozen parameters be one object in all networks of a process: nobody trains them."""
    for path, module in net.named_modules():
        for own, parameter in list(module._parameters.items()):
            if parameter is None or parameter.requires_grad or parameter.is_meta:
                continue
            alike = known.setdefault((path, own, parameter.shape, parameter.dtype, parameter.device), [])
            shared = next((each for each in alike if each is parameter or each.equal(parameter)), None)
            if shared is None:
                alike.append(parameter)
            else:
                module._parameters[own] = shared
            SHARERS.add(net)
    return net


def unshare(net: nn.Module) -> nn.Module:
    """Give a network frozen parameters of its own, before one of them gets another value."""
    if net in SHARERS:
        own: dict[nn.Parameter, nn.Parameter] = {}  # a parameter under two names stays one
        for module in net.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and not parameter.requires_grad:
                    own.setdefault(parameter, nn.Parameter(parameter.detach().clone(), requires_grad=False))
                    module._parameters[name] = own[parameter]
    return net

"""A network and the narrower ones that lie inside it: they run on slices of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from potluck.core.inputs import Inputs, arguments
from potluck.core.types import Level
from potluck.parts.cut.plan import Plan


@dataclass(frozen=True)
class Inner:
    """A narrower network inside a wide one: its layers, and the part of the wide one's parameters they run on."""

    level: Level
    net: nn.Module
    plan: Plan


class Nested(nn.Module):
    """A network with narrower ones inside it.

    Parameters that belong to one width are in the narrow networks themselves. They read everything else
    from the widest, and what they learn goes there.
    """

    def __init__(self, widest: nn.Module, inner: Sequence[Inner], own: frozenset[str]) -> None:
        super().__init__()
        self.widest = widest
        self.inner = tuple(inner)  # no submodules: only parameters that belong to their width are used
        self.own = nn.ModuleList([layer for each in inner for layer in layers_with(each.net, own)])
        self.shared = tuple(name for name, _ in widest.named_parameters() if name not in own)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Nested:
        """The narrow networks move along, wherever the widest goes."""
        for each in self.inner:
            each.net._apply(fn, recurse)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.widest(*args, **kwargs)

    def narrow(self, inner: Inner, inputs: Inputs) -> Any:
        """F_p(x): the narrow network on slices of the widest's parameters, into which its gradients flow."""
        parameters = dict(self.widest.named_parameters())
        slices = inner.plan.take({name: parameters[name] for name in self.shared})
        return functional_call(inner.net, slices, *arguments(inputs))


def layers_with(net: nn.Module, names: frozenset[str]) -> list[nn.Module]:
    """The layers that have a parameter of one of these names."""
    parameters = {name.rpartition(".")[0] for name, _ in net.named_parameters() if name in names}
    return [net.get_submodule(path) for path in sorted(parameters)]

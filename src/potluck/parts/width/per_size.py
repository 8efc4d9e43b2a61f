"""Parameters that belong to one size each, while the rest is averaged over all sizes.

Kang et al.: NeFL: Nested Model Scaling for Federated Learning with System Heterogeneous Clients (2023)
averages normalisation layers only among clients of one size, since features of a narrow network have
another distribution than those of a wide one.

The server keeps a copy per size, as `<ratio>/<name>`, each of the global network's shape: a client
holds the same part of its size's copy as it would of a common tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from potluck.core.errors import ModelError
from potluck.core.names import own_name, placed
from potluck.core.types import Context, Level, Tensors
from potluck.parts.cut.plan import Plan

PerSize = Literal["none", "norms"]
"""Which parameters belong to one size each."""

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)  # the first is batch and instance norm


def own_names(ctx: Context, per_size: PerSize) -> frozenset[str]:
    """The tensors that belong to one size each: all of the normalisation layers, or none."""
    if per_size == "none":
        return frozenset()
    return ctx.once(norm_names, ctx.task.largest)


def norm_names(level: Level, ctx: Context) -> frozenset[str]:
    """The parameters and statistics of a network's normalisation layers."""
    norms = ((path, module) for path, module in ctx.build(level).named_modules() if isinstance(module, NORMS))
    return frozenset(own_name(path, name) for path, module in norms for name in module.state_dict())


def owned(level: Level, name: str) -> str:
    """What a size's own tensor is called in state and payload."""
    return placed(level.ratio, name)


def give_own(tensors: Tensors, own: Collection[str], levels: Iterable[Level]) -> Tensors:
    """The global network's tensors, with a copy per size of those that belong to one size each."""
    common = {name: tensor for name, tensor in tensors.items() if name not in own}
    copies = {owned(level, name): tensors[name] for level in levels for name in tensors if name in own}
    return {**common, **copies}


def own_plan(common: Plan, own: Collection[str], sizes: Mapping[Level, Plan]) -> Plan:
    """The plan of a client that holds common tensors by one plan, and the own tensors of some sizes by theirs."""
    if not own:
        return common
    kept = {name: cut for name, cut in common.entries if name not in own}
    own_kept = {owned(level, name): cut for level, plan in sizes.items() for name, cut in plan.entries if name in own}
    return Plan.of({**kept, **own_kept})


def require_trained(level: Level, own: Collection[str], ctx: Context) -> None:
    """Refuse a size that no level has, if some tensors belong to one size each: nobody trained them."""
    if own and level.ratio not in {known.ratio for known in ctx.task.levels}:
        trained = ", ".join(f"{known.ratio:g}" for known in ctx.task.levels)
        raise ModelError(f"there is no network of ratio {level.ratio:g}: every size has norms of its own ({trained})")


def plain(tensors: Mapping[str, Tensor], own: Collection[str], level: Level) -> Tensors:
    """Common and own tensors by the names that a network of this level knows them by."""
    names = {owned(level, name): name for name in own}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def marked(tensors: Mapping[str, Tensor], own: Collection[str], level: Level) -> Tensors:
    """A network's tensors by the names that the server knows them by."""
    return {owned(level, name) if name in own else name: tensor for name, tensor in tensors.items()}

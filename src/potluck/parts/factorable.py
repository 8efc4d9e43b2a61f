"""Which layers of a network are put into factors, and why the others stay whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.plug import unknown
from potluck.parts.copying import copied
from potluck.parts.lowrank import Layer, Unrolled, replace_layers

DECLARED = "low_rank_from"  # the attribute in which a network names its first layer or block to be put into factors

FIRST_LAYER = "it is the first layer"
HEAD = "it makes the logits"
POINT = "its kernel is 1x1"
GROUPED = "its channels are in groups"
NAMED = "it is named in whole"
READ = "the network reads its weight itself"
DEFAULTS = (FIRST_LAYER, HEAD, POINT, GROUPED)  # reasons that a name in `factor` overrules


@dataclass(frozen=True)
class Survey:
    """Every convolution and linear layer in the order in which they run: how it is unrolled, or why it stays whole."""

    layers: Mapping[str, Unrolled]
    whole: Mapping[str, str]

    def ranks(self, ratio: float) -> dict[str, int]:
        """The rank of every layer at a ratio; a layer that factors would not make smaller has none."""
        if ratio == 1:
            return {}
        ranks = {name: layer.rank(ratio) for name, layer in self.layers.items()}
        return {name: rank for name, rank in ranks.items() if self.layers[name].size(rank) < self.layers[name].size()}


def survey(
    net: nn.Module,
    example: Sequence[Tensor],
    head: Collection[str],
    start: int | str | None = None,
    factor: Collection[str] = (),
    whole: Collection[str] = (),
) -> Survey:
    """Run a network once and decide about each of its layers.

    `start` is how many layers stay whole at the front (ρ of FedHM), or the name of the layer or block at which
    factors begin; otherwise the network's own `low_rank_from`, or all but the first layer. `factor` and `whole`
    name layers or blocks for which the defaults do not hold.
    """
    order = calls(net, example)
    known = {name for name, _ in net.named_modules() if name}
    for field, names in (("factor", factor), ("whole", whole)):
        for name in names:
            if name not in known:
                raise ModelError(f"{field}: {unknown('layer or block', name, known)}")
    found = {name: module for name, module in net.named_modules() if isinstance(module, Layer)}
    ranked = [*(name for name in order if name in found), *(name for name in found if name not in order)]
    reasons = {name: obstacle(net, name, order) for name in ranked}
    for name in ranked:
        reasons[name] = reasons[name] or (NAMED if within(name, whole) else "")
        reasons[name] = reasons[name] or ("" if within(name, factor) else custom(net, name, order, head))
    front = before_start(reasons, net, start)
    reasons |= {name: f"it comes before {front[name]}" for name in front if not within(name, factor)}
    for name in unreplaceable(net, example, [name for name in ranked if not reasons[name]]):
        reasons[name] = READ
    layers = {name: Unrolled.of(found[name]) for name in ranked if not reasons[name]}
    return Survey(layers, {name: reason for name, reason in reasons.items() if reason})


def within(name: str, blocks: Collection[str]) -> bool:
    """Whether a layer is one of these, or inside one."""
    return any(name == block or name.startswith(f"{block}.") for block in blocks)


def calls(net: nn.Module, example: Sequence[Tensor]) -> list[str]:
    """The convolutions and linear layers that a network calls, in the order of their first call."""
    called: dict[str, None] = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs, name=name: called.setdefault(name))
        for name, module in net.named_modules()
        if isinstance(module, Layer)
    ]
    try:
        run(net, example)
    finally:
        for hook in hooks:
            hook.remove()
    return list(called)


def run(net: nn.Module, example: Sequence[Tensor], training: bool = False) -> object:
    """The network's output for two of an example, on which batch norm can train."""
    before = net.training
    net.train(training)
    try:
        with torch.no_grad():
            return net(*(tensor.expand(2, *tensor.shape[1:]) for tensor in example))
    finally:
        net.train(before)


def obstacle(net: nn.Module, name: str, order: Collection[str]) -> str:
    """Why a layer cannot be put into factors, whatever the user wants."""
    layer = net.get_submodule(name)
    if type(layer) not in (nn.Conv2d, nn.Linear):
        return f"it is a {type(layer).__name__}, which may compute otherwise than the layer it is made from"
    if name not in order:
        return "the network does not call it as a layer"
    if not isinstance(layer.weight, nn.Parameter):
        return "its weight is computed from other parameters"
    if not layer.weight.requires_grad:
        return "it is frozen"
    places = Counter(id(module) for _, module in net.named_modules(remove_duplicate=False))
    if places[id(layer)] > 1:
        return "the network has it under several names"
    owners = Counter(id(p) for module in net.modules() for p in module.parameters(recurse=False))
    if owners[id(layer.weight)] > 1:
        return "it shares its weight with another layer"
    return ""


def custom(net: nn.Module, name: str, order: Sequence[str], head: Collection[str]) -> str:
    """Why a layer is left whole unless it is named in `factor`."""
    layer = net.get_submodule(name)
    if f"{name}.weight" in head:
        return HEAD
    if name == order[0]:
        return FIRST_LAYER
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        return GROUPED
    if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
        return POINT
    return ""


def before_start(reasons: Mapping[str, str], net: nn.Module, start: int | str | None) -> dict[str, str]:
    """The layers that stay whole because they come before the first one in factors, each with that one's name."""
    able = [name for name, reason in reasons.items() if not reason]
    start = getattr(net, DECLARED, None) if start is None else start
    if isinstance(start, str):
        at = next((place for place, name in enumerate(able) if within(name, [start])), None)
        if at is None:
            raise ModelError(f"rho: {unknown('layer or block that can be put into factors', start, able)}")
    else:
        leading = [name for name, reason in reasons.items() if not reason or reason == FIRST_LAYER]
        skipped = leading[: 1 if start is None else start]
        at = sum(name in skipped for name in able)
    return {name: able[at] if at < len(able) else "the end" for name in able[:at]}


def unreplaceable(net: nn.Module, example: Sequence[Tensor], names: Sequence[str]) -> list[str]:
    """The layers that the network does more with than calling them: it fails once they are pairs of layers."""
    if runs_with(net, example, names):
        return []
    failing = [name for name in names if not runs_with(net, example, [name])]
    if not runs_with(net, example, [name for name in names if name not in failing]):
        raise ModelError("the network does not run with its layers in factors; name those to leave alone in whole")
    return failing


def runs_with(net: nn.Module, example: Sequence[Tensor], names: Sequence[str]) -> bool:
    """Whether a network runs, in training and in use, with these layers in factors."""
    trial = replace_layers(copied(net), dict.fromkeys(names, 1))
    try:
        for training in (True, False):
            with torch.random.fork_rng(devices=[]):
                run(trial, example, training)
    except (AttributeError, TypeError, RuntimeError, ValueError, IndexError):
        return False
    return True

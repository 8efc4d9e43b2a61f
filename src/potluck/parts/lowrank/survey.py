"""Which layers of a network are put into factors, and why the rest stay whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import nn

from potluck.core.copying import copied
from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs, mapped
from potluck.core.observe import Given, observe
from potluck.parts.lowrank.layers import Layer, Unrolled, replace_layers
from potluck.parts.match import blocks_around, check_names, is_inside, setting_for

DECLARED = "low_rank_from"  # the attribute in which a network names its first layer or block to be put into factors

FIRST_LAYER = "it is the first layer"
HEAD = "it makes the logits"
POINT = "its kernel is 1x1, and a larger one reads the same input"
GROUPED = "its channels are in groups"
NAMED = "it is named in whole"
READ = "the network reads its weight itself"
BEFORE = "it comes before"
USUAL = (FIRST_LAYER, HEAD, POINT, GROUPED, BEFORE)  # reasons that a name in `factor` overrules

COMPUTES = ("__call__", "forward", "_conv_forward")  # what a layer computes with

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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
    example: Inputs,
    head: Collection[str],
    start: int | str | None = None,
    factor: Collection[str] = (),
    whole: Collection[str] = (),
) -> Survey:
    """Run a network once and decide about each of its layers.

    `start` is how many layers stay whole at the front (ρ of FedHM), or the name of the layer or block at which
    factors begin. Without it, the network's own `low_rank_from` counts, or the first layer alone. `factor` and `whole`
    name layers or blocks for which the defaults do not hold; the most specific name wins, and `whole` a tie.
    """
    found = {name: module for name, module in net.named_modules() if isinstance(module, Layer)}
    given = first_inputs(copied(net), example, found)
    order = list(given)
    named = {"whole": whole, "factor": factor}
    check_names(named, (name for name, _ in net.named_modules()))
    ranked = [*order, *(name for name in found if name not in order)]
    usual = {name: usual_reason(net, name, given, head) for name in ranked}
    declared = getattr(net, DECLARED, None)
    said_by, start = (f"the network's {DECLARED}", declared) if start is None else ("rho", start)
    front, first = before(usual, order, said_by, start)
    chosen = {name: setting_for(name, named) for name in ranked}
    reasons = {name: obstacle(net, name, order) or (NAMED if chosen[name] == "whole" else "") for name in ranked}
    for name in ranked:
        if not reasons[name] and chosen[name] != "factor":
            reasons[name] = usual[name] or (f"{BEFORE} {first}" if name in front else "")
    for name in unreplaceable(net, example, [name for name in ranked if not reasons[name]]):
        reasons[name] = READ
    layers = {name: Unrolled.of(found[name]) for name in ranked if not reasons[name]}
    return Survey(layers, {name: reason for name, reason in reasons.items() if reason})


def first_inputs(net: nn.Module, example: Inputs, names: Iterable[str], training: bool = False) -> dict[str, object]:
    """What each of these layers that a network calls is first given, in the order of their first calls."""
    given: dict[str, object] = {}
    layers = {name: net.get_submodule(name) for name in names}
    two = mapped(lambda tensor: torch.cat([tensor, tensor]), example)  # batch norm cannot train on one

    def note(name: str, layer: nn.Module, inputs: Given) -> None:
        given.setdefault(name, inputs[0])

    observe(net, two, layers, before=note, training=training)
    return given


def obstacle(net: nn.Module, name: str, order: Collection[str]) -> str:
    """Why a layer cannot be put into factors, whatever the user wants."""
    layer = net.get_submodule(name)
    base = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d
    if any(getattr(type(layer), each, None) is not getattr(base, each, None) for each in COMPUTES):
        return f"it is a {type(layer).__name__}, which computes otherwise than the {base.__name__} it is made from"
    if name not in order:
        return "the network does not call it as a layer"
    if not isinstance(layer.weight, nn.Parameter):
        return "its weight is computed from other parameters"
    if not layer.weight.requires_grad:
        return "it is frozen"
    if set(layer.state_dict()) - {"weight", "bias"}:
        return "it has tensors beside its weight and bias"
    if any(getattr(layer, hooks) for hooks in HOOKS) or set(COMPUTES) & set(vars(layer)):
        return "it has hooks or a forward of its own"
    places = Counter(id(module) for _, module in net.named_modules(remove_duplicate=False))
    if places[id(layer)] > 1:
        return "the network has it under several names"
    owners = Counter(id(p) for module in net.modules() for p in module.parameters(recurse=False))
    if any(owners[id(own)] > 1 for own in layer.parameters(recurse=False)):
        return "it shares its weight with another layer"
    return ""


def usual_reason(net: nn.Module, name: str, given: Mapping[str, object], head: Collection[str]) -> str:
    """Why a layer is left whole unless it is named in `factor`."""
    layer = net.get_submodule(name)
    if f"{name}.weight" in head:
        return HEAD
    if name == next(iter(given), None):
        return FIRST_LAYER
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        return GROUPED
    return POINT if is_shortcut(net, name, given) else ""


def is_shortcut(net: nn.Module, name: str, given: Mapping[str, object]) -> bool:
    """Whether a layer is a 1x1 convolution beside a larger one, as in the shortcuts that FedHM leaves whole."""
    if kernel_of(net.get_submodule(name)) != (1, 1):
        return False
    beside = [net.get_submodule(other) for other, inputs in given.items() if inputs is given.get(name)]
    return any(kernel_of(layer) not in (None, (1, 1)) for layer in beside)


def kernel_of(layer: nn.Module) -> tuple[int, ...] | None:
    """The kernel of a convolution whose channels are all in one group."""
    return layer.kernel_size if isinstance(layer, nn.Conv2d) and layer.groups == 1 else None


def before(
    usual: Mapping[str, str], order: Sequence[str], said_by: str, start: int | str | None
) -> tuple[Collection[str], str]:
    """The layers in front of the first one in factors, and its name; a number counts only layers not usually whole."""
    if isinstance(start, str):
        check_names({said_by: [start]}, blocks_around(order))
        counted = list(order)
        front = list(takewhile(lambda name: not is_inside(name, start), order))
    else:
        counted = [name for name in order if usual[name] in ("", FIRST_LAYER)]
        front = counted[: 1 if start is None else start]
    return front, next((name for name in counted if name not in front), "the end")


def unreplaceable(net: nn.Module, example: Inputs, names: Sequence[str]) -> list[str]:
    """The layers that the network does more with than call them, so that it fails when they are pairs of layers."""
    if runs_with(net, example, names):
        return []
    failing = [name for name in names if not runs_with(net, example, [name])]
    if not runs_with(net, example, [name for name in names if name not in failing]):
        raise ModelError("the network does not run with its layers in factors; name those to leave alone in whole")
    return failing


def runs_with(net: nn.Module, example: Inputs, names: Sequence[str]) -> bool:
    """Whether a network runs, in training and in evaluation, and calls the factors that replace these layers."""
    trial = replace_layers(copied(net), dict.fromkeys(names, 1))
    try:
        called = {name for training in (True, False) for name in first_inputs(trial, example, names, training)}
    except Exception:  # whatever a network does when a layer is not what it expects
        return False
    return called == set(names)

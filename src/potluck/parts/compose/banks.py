"""Which layers are composed, and how large their bases are: R1 inputs wide, R2 pieces.

Both are shares of the layer's width in the network of ratio 1, unless the network has an attribute
`neural_basis`, from layers to (R1, R2). Its attribute `neural_coefficients` says how coefficients start. A
layer is called like its module. Each matrix of a recurrent layer counts as a layer, called like the parameter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs
from potluck.core.names import own_name
from potluck.core.observe import Given, observe
from potluck.core.plug import unknown
from potluck.core.types import Context, Level
from potluck.parts.compose.layers import CONVOLUTIONS, Bank, Start
from potluck.parts.match import check_names, setting_for

FULL = Level("full", 1.0)  # the network whose width bases are a share of
READERS = (
    _ConvNd,
    nn.Linear,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.RNNBase,
    nn.RNNCellBase,
)  # the first to run is the stem
MATRICES = ("weight_ih", "weight_hh")  # PyTorch's names in recurrent layers, followed by the layer's number
FROM_INPUT = ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")


@dataclass(frozen=True)
class Settings:
    """The user's settings for bases."""

    size: float  # R1 as a share of a layer's inputs
    count: float  # R2 as a share of its outputs
    compose: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A weight that may be composed."""

    prefix: str
    module: nn.Module
    weight: str

    @property
    def name(self) -> str:
        return own_name(self.prefix, self.weight)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.module, self.weight).shape)


Places = dict[str, Place]


def places_in(net: nn.Module) -> Places:
    """The weights that may be composed, by layer: of convolutions, linear and recurrent layers."""
    found: Places = {}
    for prefix, module in net.named_modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            places = [Place(prefix, module, own) for own in module._parameters if own.startswith(MATRICES)]
            found |= {place.name: place for place in places}
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear):
            found[prefix] = Place(prefix, module, "weight")
    return found


def find_banks(settings: Settings, ctx: Context) -> dict[str, Bank | str]:
    """The basis of every layer that might be composed, or why it is left as it is."""
    full = ctx.build(FULL)
    sizes = {level.ratio: level for level in ctx.task.levels}
    places = {level: places_in(ctx.build(level)) for level in sizes.values()}
    named = {"whole": settings.whole, "compose": settings.compose}
    check_names(named, [*dict(full.named_modules()), *places_in(full)])
    declared = declared_in(full)
    stem = next(iter(outputs_of(full, ctx.task.example[0])), None)
    found: dict[str, Bank | str] = {}
    for layer, place in places_in(full).items():
        reason = obstacle(layer, place, full, places)
        chosen = setting_for(layer, named)
        if chosen == "compose" and reason is not None and layer in settings.compose:
            raise ModelError(f"compose names '{layer}', which cannot be composed: {reason}")
        if reason is None and chosen is None:
            reason = usual_reason(layer, place, stem, ctx.task.head(FULL), places)
        if reason is None and chosen == "whole":
            reason = "named in whole"
        inputs = {level: others[layer].shape[1] for level, others in places.items() if layer in others}
        found[layer] = reason or make_bank(layer, place, inputs, declared, settings)
    if not any(isinstance(each, Bank) for each in found.values()):
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in found.items())
        raise ModelError(
            f"no layer of the network is left to compose ({reasons or 'no convolution, linear or recurrent layer'}); "
            "name layers in compose, or choose another method"
        )
    return found


def obstacle(layer: str, place: Place, net: nn.Module, levels: Mapping[Level, Places]) -> str | None:
    """Why a layer cannot be composed at all."""
    weight = place.module._parameters.get(place.weight)
    if weight is None:
        return "its weight is computed"
    if not weight.requires_grad:
        return "it is frozen"
    if isinstance(place.module, _ConvNd) and place.module.groups > 1:
        return "a grouped convolution"
    shared = Counter(id(parameter) for _, parameter in net.named_parameters(remove_duplicate=False))
    if shared[id(weight)] > 1:
        return "it shares its weight with another layer"
    for level, others in levels.items():
        if layer not in others:
            return f"level '{level.name}' has no such layer"
        if others[layer].shape[2:] != place.shape[2:]:
            return f"its kernel is another at level '{level.name}'"
    return None


def usual_reason(
    layer: str, place: Place, stem: str | None, head: Iterable[str], levels: Mapping[Level, Places]
) -> str | None:
    """Why a layer is left as it is unless the user asks for it, as in the authors' code."""
    if place.name in head:
        return "the head"
    if place.prefix == stem and place.weight in ("weight", *FROM_INPUT):
        return "the stem"
    if isinstance(place.module, CONVOLUTIONS) and math.prod(place.module.kernel_size) == 1:
        return "a 1x1 convolution"
    shapes = {place.shape, *(others[layer].shape for others in levels.values())}
    several = {1.0, *(level.ratio for level in levels)} != {1.0}
    return "the same at every level" if several and len(shapes) == 1 else None


def make_bank(
    layer: str,
    place: Place,
    inputs: Mapping[Level, int],
    declared: Mapping[str, tuple[int, int]],
    settings: Settings,
) -> Bank:
    """A layer's basis, of the declared size or of the usual share of its width."""
    outputs, full, *kernel = place.shape
    if layer in declared:
        size, count = declared[layer]
        origin = "the network's neural_basis"
    else:
        share = round(settings.size * full, 9)  # 0.07 * 100 is 7.000000000000001
        origin = f"basis_size {settings.size:g} of {full} inputs at width 1"
        size = int(share)
        if size != share:
            raise misfit(layer, share, origin, inputs)
        gates = outputs // place.module.hidden_size if isinstance(place.module, nn.RNNBase | nn.RNNCellBase) else 1
        # No more pieces than there can be orthogonal ones; a matrix reaches that before a kernel does.
        count = min(max(1, round(settings.count * outputs / gates)), size * math.prod(kernel))
    if any(width % size for width in inputs.values()):
        raise misfit(layer, size, origin, inputs)
    if count > (most := size * math.prod(kernel)):
        raise ModelError(f"'{layer}' has R2 = {count} ({origin}), but only R1·k·k = {most} pieces can be orthogonal")
    return Bank(layer, place.prefix, place.weight, size, count, tuple(kernel))


def misfit(layer: str, size: float, origin: str, inputs: Mapping[Level, int]) -> ModelError:
    """The error for a basis that does not fit into a layer's inputs at some level."""
    level = next((level for level, width in inputs.items() if width % size), next(iter(inputs)))
    common = math.gcd(*inputs.values())
    fitting = ", ".join(str(number) for number in range(1, common + 1) if common % number == 0)
    return ModelError(
        f"'{layer}' has {inputs[level]} inputs at level '{level.name}', which R1 = {size:g} ({origin}) does not divide"
        f"; R1 should divide its inputs at every level ({fitting}), or the layer be named in whole"
    )


def declared_in(net: nn.Module) -> dict[str, tuple[int, int]]:
    """The bases that the network itself asks for."""
    declared = getattr(net, "neural_basis", {})
    known = places_in(net)
    for layer, sizes in declared.items():
        if layer not in known:
            raise ModelError(f"the network's neural_basis: {unknown('layer', layer, known)}")
        if len(sizes) != 2 or not all(isinstance(size, int) and size >= 1 for size in sizes):
            raise ModelError(f"the network's neural_basis has {sizes} for '{layer}': it should be (R1, R2), from 1 up")
    return dict(declared)


def declared_start(net: nn.Module) -> Start:
    """How the network asks coefficients to start; like PyTorch's 1x1 convolution if it does not."""
    declared: Start = getattr(net, "neural_coefficients", "uniform")
    if declared not in get_args(Start):
        raise ModelError(
            f"the network's neural_coefficients is {declared!r}, but it should be one of {', '.join(get_args(Start))}"
        )
    return declared


def outputs_of(net: nn.Module, example: Inputs) -> dict[str, int]:
    """How many numbers each layer that is called puts out for one example, in the order of running."""
    ran: dict[str, int] = {}

    def note(name: str, layer: nn.Module, given: Given, output: object) -> None:
        ran[name] = ran.get(name, 0) + (output.numel() if isinstance(output, Tensor) else 0)

    observe(
        net, example, {name: module for name, module in net.named_modules() if isinstance(module, READERS)}, after=note
    )
    return ran

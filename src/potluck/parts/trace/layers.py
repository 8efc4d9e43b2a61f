"""Rules for the operations that whole layers are made of: convolution, normalisation, embedding, pooling."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from potluck.parts.trace.call import Call
from potluck.parts.trace.marks import FIXED, Marked, Marks, Strip, strips

KERNEL = "it is a kernel's own"


def along(atoms: Tensor, dim: int, dims: int) -> Tensor:
    """Atoms laid along one of a tensor's dimensions."""
    return atoms.reshape([-1 if place == dim else 1 for place in range(dims)])


def convolution(call: Call) -> list[Marks]:
    """Input channels meet the kernel's input side, group by group; its output side comes out."""
    given, weight, groups = call.given["input"], call.given["weight"], call.given["groups"]
    entering, output = call.channels(given, 1), call.outputs[0]
    first, second = call.channels(weight, 0), call.channels(weight, 1)
    join = call.joins.join
    if groups == 1:
        reads, leaving = (first, second) if call.given["transposed"] else (second, first)
        join(entering, reads, call.reason)
    elif call.given["transposed"]:
        join(entering, first, call.reason)
        if len(first) == groups:  # a group is one channel: what follows it goes with it
            join(second, torch.tensor(FIXED), call.reason)
            leaving = first.repeat_interleave(len(second))
        else:
            call.note_lines(first.reshape(groups, -1))
            leaving = second.repeat(groups)
    elif len(second) == 1 or len(first) == groups:  # each group is one channel, on one side at least
        join(second, torch.tensor(FIXED), call.reason)
        lines = first.reshape(groups, -1)
        join(lines, lines[:, :1], call.reason)
        join(entering.reshape(groups, -1), lines, call.reason)
        leaving = first
    else:
        join(entering.reshape(groups, -1), second, call.reason)
        call.note_lines(first.reshape(groups, -1))
        leaving = first
    if isinstance(call.given.get("bias"), Tensor):
        join(call.channels(call.given["bias"], 0), leaving, call.reason)
    lying = {one.inner: one for one in call.by_channel(given, 2).strips}
    for dim in range(2, weight.dim()):
        kernel = call.channels(weight, dim)
        if dim in lying and weight.shape[dim] == given.shape[dim] and output.shape[dim] == 1:
            join(call.flat(lying[dim], dim), kernel, call.reason)  # all of the channels under the kernel
        else:
            join(kernel, torch.tensor(FIXED), KERNEL)
            if dim in lying and output.shape[dim] == 1:  # it reads those in front and no others
                call.joins.fix([lying[dim]], call.reason)
    return [(*strips([along(leaving, 1, output.dim())]), *slid_over(call, given, output, 2))]


def slid_over(call: Call, given: Tensor, output: Tensor, first: int) -> tuple[Strip, ...]:
    """Channels that lie along the dimensions a window slides over: kept where these stay as long as they were."""
    kept = []
    for one in call.by_channel(given, first).strips:
        if one.inner < first:
            continue
        if output.shape[one.inner] == given.shape[one.inner] and one.span == (one.inner,):
            kept.append(one)
        elif output.shape[one.inner] > 1:
            call.joins.fix([one], call.reason)
    return tuple(kept)


def pooling(call: Call) -> list[Marks]:
    """Windows over the last dimensions; channels are what lies before them."""
    given = call.tensors[0]
    if call.marks_of(given) is None:
        return [None] * len(call.outputs)
    digits = re.search(r"([123])d", call.operation.overloadpacket.__name__)
    first = given.dim() - (int(digits[1]) if digits else 2)
    strips = call.by_channel(given, first).strips
    call.joins.fix(
        [one for one in strips if one.inner >= first and not seen_whole(call, given, one.inner)], call.reason
    )
    before = tuple(one for one in strips if one.inner < first)
    return [(*before, *slid_over(call, given, output, first)) for output in call.outputs]


def seen_whole(call: Call, given: Tensor, dim: int) -> bool:
    """Whether a window takes in all that lies along a dimension, or leaves it alone, and not only what is in front."""
    sizes = call.given.get("kernel_size")
    window = given.shape[dim] if sizes is None else sizes[max(dim - given.dim(), -len(sizes))]
    return bool(window >= given.shape[dim] or window == 1)


def channel_norm(call: Call) -> list[Marks]:
    """Batch or group norm: everything it owns has one entry per channel."""
    given = call.given["input"]
    owned = [call.given.get(key) for key in ("weight", "bias", "running_mean", "running_var")]
    shape = [1, given.shape[1], *([1] * (given.dim() - 2))]
    sides = [call.marked(each).reshaped(shape) for each in owned if isinstance(each, Tensor)]
    marks = call.together(call.by_channel(given, 2), *sides).marks
    return [marks, *[None for _ in call.outputs[1:]]]


def layer_norm(call: Call) -> list[Marks]:
    """Normalised over the last dimensions; what it owns lies along them."""
    owned = [call.given.get(key) for key in ("input", "weight", "bias")]
    marks = call.together(*(call.marked(each) for each in owned if isinstance(each, Tensor))).marks
    return [marks, *[None for _ in call.outputs[1:]]]


def embedding(call: Call) -> list[Marks]:
    """Rows by token: the rows have to stay."""
    weight, output = call.given["weight"], call.outputs[0]
    call.joins.fix((one for one in call.marked(weight).strips if one.inner == 0), f"one row per token: {call.what}")
    return [strips([along(call.channels(weight, 1), output.dim() - 1, output.dim())]), *[()] * (len(call.outputs) - 1)]


def weight_norm(call: Call) -> list[Marks]:
    """g v / ‖v‖."""
    return [
        call.together(call.marked(call.given["v"]), call.marked(call.given["g"])).marks,
        call.marks_of(call.given["g"]),
    ]


def pixel_shuffle(call: Call) -> list[Marks]:
    """r² channels become one with r² times the pixels: they go together."""
    given, factor = call.given["self"], int(call.given["upscale_factor"]) ** 2
    dim = given.dim() - 3
    lines = call.channels(given, dim).reshape(-1, factor)
    call.joins.join(lines, lines[:, :1], call.reason)
    return [strips([along(lines[:, 0], dim, given.dim())])]


def pixel_unshuffle(call: Call) -> list[Marks]:
    """A channel becomes r² with fewer pixels."""
    given, factor = call.given["self"], int(call.given["downscale_factor"]) ** 2
    dim = given.dim() - 3
    return [strips([along(call.channels(given, dim).repeat_interleave(factor), dim, given.dim())])]


def patches(call: Call) -> list[Marks]:
    """im2col: every channel becomes a window of values."""
    given, window = call.given["self"], math.prod(call.given["kernel_size"])
    dim = given.dim() - 3
    return [strips([along(call.channels(given, dim).repeat_interleave(window), dim, given.dim() - 1)])]


def overlaid(call: Call) -> list[Marks]:
    """col2im: windows of values are added up to channels again."""
    given, output = call.given["self"], call.outputs[0]
    lines = call.channels(given, given.dim() - 2).reshape(-1, math.prod(call.given["kernel_size"]))
    call.joins.join(lines, lines[:, :1], call.reason)
    call.joins.fix((one for one in call.marked(given).strips if one.inner == given.dim() - 1), call.reason)
    return [strips([along(lines[:, 0], output.dim() - 3, output.dim())])]


def sampling(call: Call) -> list[Marks]:
    """Pixels read at places of a grid: every channel at the same ones."""
    given, output = call.given["input"], call.outputs[0]
    call.joins.fix(call.marked(call.given["grid"]).strips, f"used as an index: {call.what}")
    call.joins.fix((one for one in call.by_channel(given, 2).strips if one.inner > 1), call.reason)
    return [strips([along(call.channels(given, 1), 1, output.dim())])]


def gated(call: Call) -> list[Marks]:
    """glu: the second half gates the first."""
    given = call.given["self"]
    dim = call.dim(given, usually=-1)
    marked = call.marked(given)
    half = given.shape[dim] // 2
    for one in marked.strips:
        if one.inner == dim:
            call.note_pieces(list(one.atoms.movedim(dim, -1).reshape(-1, 2 * half).split(half, dim=-1)))
    halves = [
        marked.moved(lambda atoms: atoms.narrow(dim, 0, half)),
        marked.moved(lambda atoms: atoms.narrow(dim, half, half)),
    ]
    sides = [Marked(tuple(call.outputs[0].shape), marks) for marks in halves]
    return [call.together(*sides).marks]


def packed(call: Call) -> list[Marks]:
    """Padded sequences to packed ones and back: only the last dimension is known."""
    given, output = call.tensors[0], call.outputs[0]
    call.joins.fix((one for one in call.marked(given).strips if one.inner != given.dim() - 1), call.reason)
    return [strips([along(call.channels(given, given.dim() - 1), output.dim() - 1, output.dim())]), ()]


def as_pairs(call: Call) -> list[Marks]:
    """A complex tensor seen as pairs of numbers."""
    return [tuple(Strip(one.atoms.unsqueeze(-1), one.pending) for one in call.marked(call.given["self"]).strips)]


def as_complex(call: Call) -> list[Marks]:
    """Pairs of numbers seen as complex ones: both of a pair are one channel."""
    found = []
    for one in call.marked(call.given["self"]).strips:
        call.joins.join(one.atoms, one.atoms[..., :1], call.reason)
        found.append(one.atoms[..., 0])
    return [strips(found)]

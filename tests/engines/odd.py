"""Tensors that lie in memory in all the ways that a tensor can, and how to tell."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.core.types import Tensors


def oddly_laid(seed: int = 0) -> Tensors:
    """Numbers that a seed decides, laid out in many ways, each called by what is odd about it."""
    rng = torch.Generator().manual_seed(seed)
    row, square = torch.randn(40, generator=rng), torch.randn(6, 5, generator=rng)
    images = torch.randn(2, 3, 4, 5, generator=rng)
    return {
        "nothing": square.clone(),
        "transposed": square.t(),
        "expanded": row[:4].expand(6, 4),
        "expanded from one": row[0].expand(3, 7),
        "channels last": images.contiguous(memory_format=torch.channels_last),
        "permuted": images.permute(3, 0, 2, 1),
        "odd offset": row[1:30],
        "offset of a scalar": row[7],
        "every other": row[::2],
        "a column": square[:, 2],
        "inner part": images[:, 1:, 1:3, 2:],
        "diagonal": square.diagonal(),
        "rows of one": torch.empty_strided((1, 4, 1), (40, 1, 3)).copy_(row[:4].view(1, 4, 1)),
        "no rows": row.view(8, 5)[3:3].t(),
        "odd bytes": torch.arange(50, dtype=torch.uint8)[seed % 7 + 1 :],
        "flags": (row > 0)[3:],
        "halves": row.to(torch.bfloat16)[1:].view(3, 13).t(),
        "doubles": row.double()[3:35].view(4, 8).t(),
        "whole numbers": torch.arange(seed, seed + 12).view(3, 4).t(),
        "conjugated": torch.view_as_complex(row.view(20, 2))[1:].conj(),
        "learned": torch.nn.Parameter(square.clone().t()),
    }


def like(plain: Tensor) -> Tensor:
    """The same values, last dimension first, with gaps, from an odd address on."""
    room = torch.empty(2 * plain.numel() + 1, dtype=plain.dtype)[1:]
    return room.view(*reversed(plain.shape), 2)[..., 0].permute(tuple(reversed(range(plain.dim())))).copy_(plain)


def place_of(tensor: Tensor) -> Tensor:
    """How far beyond a multiple of 64 bytes a tensor begins, then its strides."""
    return torch.tensor([tensor.data_ptr() % 64, *tensor.stride()])


def plain_place(tensor: Tensor) -> Tensor:
    """What `place_of` says of a tensor of this shape that PyTorch has just made."""
    return torch.tensor([0, *torch.empty(tensor.shape).stride()])


def oddities(tensors: Tensors) -> list[str]:
    """The names of tensors that are not plainly laid out."""
    return [name for name, tensor in tensors.items() if not torch.equal(place_of(tensor), plain_place(tensor))]

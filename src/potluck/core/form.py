"""What tensors look like from outside: names, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Spec(NamedTuple):
    """The shape and type of one tensor."""

    shape: torch.Size
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{tuple(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


Form = dict[str, Spec]


def form_of(tensors: Mapping[str, Tensor]) -> Form:
    """The form of named tensors.

    >>> str(form_of({"w": torch.zeros(2, 3)})["w"])
    '(2, 3) of float32'
    """
    return {name: Spec(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}

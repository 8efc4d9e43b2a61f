"""Sizes that PyTorch's layers remember, brought up to date once their parameters are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


def resize_linear(layer: nn.Linear) -> None:
    layer.out_features, layer.in_features = layer.weight.shape


def resize_convolution(layer: _ConvNd) -> None:
    """The number of groups stays, unless each group is one channel."""
    first, second = layer.weight.shape[:2]
    turned = isinstance(layer, _ConvTransposeNd)
    entering, leaving = (layer.in_channels, layer.out_channels)
    if layer.groups > 1 and layer.groups == entering:
        layer.groups = first if turned else first // (leaving // entering)
    elif layer.groups > 1 and layer.groups == leaving:
        layer.groups = first
    layer.in_channels = first if turned else second * layer.groups
    layer.out_channels = second * layer.groups if turned else first


def resize_channel_norm(layer: _NormBase) -> None:
    layer.num_features = len(next(chain(layer.parameters(), layer.buffers())))


def resize_group_norm(layer: nn.GroupNorm) -> None:
    """The number of groups stays if it divides the channels; else the number of channels per group does."""
    before, after = layer.num_channels, len(layer.weight)
    layer.num_channels = after
    if after % layer.num_groups:
        each = before // layer.num_groups
        layer.num_groups = after // each if after % each == 0 else math.gcd(after, layer.num_groups)


def resize_last_dimensions(layer: nn.LayerNorm | nn.RMSNorm) -> None:
    layer.normalized_shape = tuple(layer.weight.shape)


def resize_embedding(layer: nn.Embedding | nn.EmbeddingBag) -> None:
    layer.num_embeddings, layer.embedding_dim = layer.weight.shape


def resize_attention(layer: nn.MultiheadAttention) -> None:
    layer.embed_dim = layer.out_proj.weight.shape[1]
    layer.head_dim = layer.embed_dim // layer.num_heads
    if isinstance(layer.in_proj_weight, Tensor):
        layer.kdim = layer.vdim = layer.embed_dim
    else:
        layer.kdim, layer.vdim = layer.k_proj_weight.shape[1], layer.v_proj_weight.shape[1]


def resize_recurrent(layer: nn.RNNBase) -> None:
    weights = dict(layer.named_parameters(recurse=False))
    rows, layer.input_size = weights["weight_ih_l0"].shape
    layer.hidden_size = rows // {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    layer.proj_size = len(weights["weight_hr_l0"]) if layer.proj_size else 0


def resize_cell(layer: nn.RNNCellBase) -> None:
    layer.input_size = layer.weight_ih.shape[1]
    layer.hidden_size = layer.weight_hh.shape[1]


def resize_bilinear(layer: nn.Bilinear) -> None:
    layer.out_features, layer.in1_features, layer.in2_features = layer.weight.shape


def resize_prelu(layer: nn.PReLU) -> None:
    layer.num_parameters = len(layer.weight)


NORM_SIZES = ("num_features", "num_channels", "normalized_shape")

RESIZE: list[tuple[type[nn.Module] | tuple[type[nn.Module], ...], Callable[..., None], str]] = [
    (nn.Linear, resize_linear, "in_features out_features"),
    (_ConvNd, resize_convolution, "in_channels out_channels groups kernel_size stride padding dilation output_padding"),
    (_NormBase, resize_channel_norm, "num_features"),
    (nn.GroupNorm, resize_group_norm, "num_channels num_groups"),
    ((nn.LayerNorm, nn.RMSNorm), resize_last_dimensions, "normalized_shape"),
    ((nn.Embedding, nn.EmbeddingBag), resize_embedding, "num_embeddings embedding_dim padding_idx"),
    (nn.MultiheadAttention, resize_attention, "embed_dim head_dim kdim vdim num_heads"),
    (nn.RNNBase, resize_recurrent, "input_size hidden_size proj_size num_layers"),
    (nn.RNNCellBase, resize_cell, "input_size hidden_size"),
    (nn.Bilinear, resize_bilinear, "out_features in1_features in2_features"),
    (nn.PReLU, resize_prelu, "num_parameters"),
]
"""Layers, how to update them, and the attributes that are then up to date."""


def resize(layer: nn.Module) -> None:
    """Bring one of PyTorch's own layers up to date."""
    for kind, update, _ in RESIZE:
        if isinstance(layer, kind) and resizes(layer):
            update(layer)


def resizes(layer: nn.Module) -> bool:
    """Whether it is one of PyTorch's own layers and has tensors to tell its sizes by."""
    known = any(isinstance(layer, kind) for kind, _, _ in RESIZE)
    return known and next(chain(layer.parameters(), layer.buffers()), None) is not None


def resized(layer: nn.Module) -> set[str]:
    """The attributes of a layer that are up to date once it is resized."""
    return remembered(type(layer)) if resizes(layer) else set()


def remembered(owner: type) -> set[str]:
    """The sizes that PyTorch's own layers of a class remember."""
    return {name for kind, _, names in RESIZE if issubclass(owner, kind) for name in names.split()}

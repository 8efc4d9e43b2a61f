"""Which rule holds for which of PyTorch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from potluck.parts.trace import general, indexed, layers, sums
from potluck.parts.trace.call import Call
from potluck.parts.trace.marks import Marks

Rule = Callable[[Call], list[Marks]]

NAMES: dict[Rule, str] = {
    general.pointwise: (
        "_to_copy clone detach alias contiguous hardswish _prelu_kernel tril triu dropout "
        "log_sigmoid_forward masked_fill masked_fill_ fill fill_ zero_ add_ mul_ lerp where polar complex "
        "hardswish_ silu_ gelu_ relu_ hardtanh_ hardsigmoid_ leaky_relu_ elu_ celu rrelu_with_noise threshold "
        "_conj _conj_physical conj_physical resolve_conj resolve_neg _neg_view native_dropout"
    ),
    general.fresh: (
        "lift_fresh lift_fresh_copy new_zeros new_ones new_empty new_full new_empty_strided zeros_like ones_like "
        "full_like empty_like rand_like randn_like"
    ),
    general.expanding: "expand repeat",
    general.restriding: "as_strided as_strided_",
    general.copying: "copy_",
    general.same_shape: (
        "_softmax _safe_softmax _log_softmax cumsum cumprod logcumsumexp cummax cummin sort argsort "
        "_fft_c2c _fft_r2c _fft_c2r"
    ),
    general.reshaping: "view _unsafe_view reshape _reshape_alias unflatten flatten",
    general.moving: (
        "permute transpose transpose_ t t_ unsqueeze unsqueeze_ squeeze squeeze_ unfold flip roll channel_shuffle "
        "native_channel_shuffle"
    ),
    general.padding: "constant_pad_nd",
    general.splitting: "split split_with_sizes unsafe_split unsafe_split_with_sizes chunk unsafe_chunk",
    general.slicing: "slice narrow",
    general.picking: "select unbind",
    indexed.indexing: "index",
    indexed.putting: "index_put index_put_ _index_put_impl_ _unsafe_index_put",
    indexed.selecting: "index_select",
    indexed.gathering: "gather topk",
    indexed.writing: (
        "index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ index_fill index_fill_ scatter "
        "scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"
    ),
    indexed.filling: "masked_scatter masked_scatter_",
    general.joining: "cat",
    general.stacking: "stack",
    sums.reducing: (
        "sum mean amax amin max min prod var std var_mean std_mean linalg_vector_norm norm logsumexp any all argmax "
        "argmin median nansum aminmax kthvalue mode"
    ),
    sums.matrix_product: " ".join(sums.MATRIX_OPERANDS),
    sums.linear: "linear",
    sums.trilinear: "_trilinear",
    sums.grouped_product: "_grouped_mm",
    sums.distances: "_cdist_forward _euclidean_dist",
    layers.convolution: "convolution _convolution",
    layers.pooling: (
        "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices "
        "max_pool3d_with_indices adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d "
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d upsample_linear1d "
        "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact3d "
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    ),
    layers.channel_norm: (
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
        "_batch_norm_no_update cudnn_batch_norm native_group_norm"
    ),
    layers.layer_norm: "native_layer_norm _fused_rms_norm rms_norm",
    layers.embedding: "embedding _embedding_bag _embedding_bag_forward_only",
    layers.weight_norm: "_weight_norm_interface",
    layers.pixel_shuffle: "pixel_shuffle",
    layers.pixel_unshuffle: "pixel_unshuffle",
    layers.patches: "im2col",
    layers.overlaid: "col2im",
    layers.sampling: "grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback",
    layers.gated: "glu",
    layers.as_pairs: "view_as_real",
    layers.as_complex: "view_as_complex",
    layers.packed: "_pack_padded_sequence _pad_packed_sequence",
}
RULES: dict[str, Rule] = {name: rule for rule, names in NAMES.items() for name in names.split()}


def rule_for(operation: Any) -> Rule:
    """The rule of an operation; one from another library may have the name of one of PyTorch's."""
    name = operation.overloadpacket.__name__
    if name in RULES and operation.namespace == "aten":
        return RULES[name]
    if torch.Tag.pointwise in operation.tags:
        return general.pointwise
    return general.unknown

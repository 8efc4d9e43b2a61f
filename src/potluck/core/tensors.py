"""Arithmetic on named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.networks import SHARERS, unshare
from potluck.core.types import Tensors

ALIGNMENT = 64  # bytes: what PyTorch's own allocator gives
CHUNK = 1 << 15  # scalars worked on at a time: PyTorch gives more to several threads


def size_in_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The bytes these tensors take on the wire, names aside."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def state_of(net: nn.Module) -> Tensors:
    """The network's parameters and persistent buffers, by name, detached but not copied."""
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


def plainly_laid(tensor: Tensor) -> bool:
    """Whether a tensor lies in main memory row after row, from an aligned address on."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != step:
            return False
        step *= max(size, 1)
    return tensor.data_ptr() % ALIGNMENT == 0 and tensor.device.type == "cpu"


def copied(tensors: Mapping[str, Tensor]) -> Tensors:
    """The same tensors in memory of their own, plainly laid out."""
    return {
        name: tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }


def laid_out(tensors: Mapping[str, Tensor]) -> Tensors:
    """The same tensors, plainly laid out; only those that are not are copied.

    Which kernel multiplies a matrix, and so the last bits, may depend on its strides and its address. What is handed
    from one place to another therefore has the same layout everywhere: in every engine, and after a resume.
    """
    return {name: tensor if plainly_laid(tensor) else copied({"": tensor})[""] for name, tensor in tensors.items()}


def same_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors are equal in names, types, shapes and bits."""
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and raw_bytes(one[name]) == raw_bytes(other[name])
        for name in one
    )


def raw_bytes(tensor: Tensor) -> memoryview:
    """The values of a tensor as bytes, row after row."""
    plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    data: memoryview = plain.reshape(-1).view(torch.uint8).numpy().data
    return data


def load(net: nn.Module, tensors: Mapping[str, Tensor], optional: Iterable[str] = ()) -> None:
    """Copy tensors into a network; every name must match, but those in `optional` may be missing."""
    if net in SHARERS and changes_frozen(net, tensors):
        unshare(net)
    try:
        missing, unexpected = net.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # a shape does not fit
        raise ModelError(f"these weights are of another network: {error}") from error
    missing = sorted(set(missing) - set(optional))
    if missing or unexpected:
        raise ModelError(
            f"these weights are of another network: it lacks {missing or 'nothing'}, it does not know {unexpected}"
        )


def changes_frozen(net: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    """Whether loading these tensors would give a frozen parameter another value."""
    frozen = ((name, p) for name, p in net.named_parameters() if not p.requires_grad and name in tensors)
    return any(tensors[name].shape == p.shape and not tensors[name].equal(p) for name, p in frozen)


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor has whole numbers, of which a mean must be rounded."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def restore_type(mean: Tensor, like: Tensor) -> Tensor:
    """A mean as the type it was made from; whole numbers (batch counters) are rounded."""
    return (mean.round() if is_whole(like) else mean).to(like.dtype)


def serial(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Pieces that no operation divides among threads; where a tensor has size 1, it is in every piece.

    PyTorch may round otherwise at the end of a thread's stretch. These pieces end where rows end or
    at multiples of any vector's length, so that they give the same bits as a single thread.
    """
    shape, size = tensors[0].shape, tensors[0].numel()
    if size <= CHUNK or torch.get_num_threads() == 1:
        yield tensors
        return
    if all(tensor.shape == shape and tensor.is_contiguous() for tensor in tensors):
        tensors, shape = tuple(tensor.view(-1) for tensor in tensors), torch.Size([size])
    dim = next(dim for dim, length in enumerate(shape) if length > 1)
    length = max(1, CHUNK * shape[dim] // size)
    for start in range(0, shape[dim], length):
        few = min(length, shape[dim] - start)
        yield from serial(*(tensor.narrow(dim, start, few) if tensor.shape[dim] > 1 else tensor for tensor in tensors))


def mean_type(like: Tensor) -> torch.dtype:
    """The type in which a mean of such tensors is kept: their own, at least float32."""
    return torch.promote_types(like.dtype, torch.float32)


def approach(mean: Tensor, sent: Tensor, ratio: float | Tensor, anew: bool = False) -> None:
    """mean += ratio · (sent - mean), exactly `sent` where they are equal; `anew`: also where the ratio is 1.

    The layout of `sent` and the number of threads do not show in the bits.
    """
    if not isinstance(ratio, Tensor) and ratio == 1:
        mean.copy_(sent)
        return
    sent = (sent if sent.dtype == mean.dtype else sent.to(mean.dtype)).contiguous()
    if not isinstance(ratio, Tensor):
        for into, new in serial(mean, sent):
            into.lerp_(new, ratio)
        return
    for into, new, share in serial(mean, sent, ratio):
        if anew:  # the old value may be infinite, or too far away to subtract
            into.copy_(torch.where(share == 1, new, into.lerp(new, share)))
        else:
            into.lerp_(new, share)

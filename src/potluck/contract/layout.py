"""The check that how tensors lie in memory does not show.

A method may send views, transposed or cut, of whatever it has. An engine lays them out plainly before a client sees
them, since kernels that add in another order for other strides would give other bits. So what can fail here is a method
that answers the same job in two ways, or an engine that hands tensors on as they lie.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from potluck.contract.bench import make_bench
from potluck.contract.playing import answers, difference, require
from potluck.core.method import Method
from potluck.core.server import first_state


def layout_does_not_show(method: Method) -> None:
    bench = make_bench(method)
    state = first_state(method, bench.context())
    jobs = [bench.job(state, client, round=1) for client in bench.clients()]
    odd = [replace(job, payload={name: oddly_laid(tensor) for name, tensor in job.payload.items()}) for job in jobs]
    for plain, other in zip(answers(bench, jobs), answers(bench, odd), strict=True):
        apart = difference(plain.payload, other.payload)
        require(not apart, f"the layout of what a client is sent shows in its answer: {apart}")


def oddly_laid(tensor: Tensor) -> Tensor:
    """The same values with strides and an address that no allocator would give."""
    room = torch.empty(*reversed(tensor.shape), 2, dtype=tensor.dtype)  # last dimension first, every other scalar
    odd = room[..., 1].permute(tuple(reversed(range(tensor.dim()))))
    return odd.copy_(tensor)

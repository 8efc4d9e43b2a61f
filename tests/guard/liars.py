"""Updates that no honest client sends, and methods and engines that send them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck.core.engine import Engine
from potluck.core.method import Method
from potluck.core.types import Job, Update

Sent = Mapping[str, Tensor]
Lie = Callable[[Sent], Any]


def first(sent: Sent) -> str:
    """The first weight by name: one that learns."""
    return min(name for name, tensor in sent.items() if tensor.is_floating_point() and tensor.dim() > 1)


def with_first(change: Callable[[Tensor], Any]) -> Lie:
    """All as it should be, but for one weight."""
    return lambda sent: {**sent, first(sent): change(sent[first(sent)])}


def filled(value: float) -> Lie:
    """One scalar of one weight has another value."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.view(-1)[0] = value
        return changed

    return with_first(change)


LIES: dict[str, tuple[Lie, str]] = {
    "a name is missing": (lambda sent: {n: t for n, t in sent.items() if n != first(sent)}, "lacks"),
    "a name is unknown": (lambda sent: {**sent, "backdoor": torch.zeros(3)}, "has the unknown 'backdoor'"),
    "a name is another": (lambda sent: {n + "x" * (n == first(sent)): t for n, t in sent.items()}, "lacks"),
    "empty": (lambda sent: {}, "lacks"),
    "twice as large": (with_first(lambda t: torch.cat([t, t])), "has the shape"),
    "a single number": (with_first(lambda t: torch.zeros(1)), "has the shape"),
    "transposed into one row": (with_first(lambda t: t.reshape(1, -1)), "has the shape"),
    "whole numbers": (with_first(lambda t: t.long()), "is of torch.int64"),
    "double precision": (with_first(lambda t: t.double()), "is of torch.float64"),
    "double precision that overflows": (with_first(lambda t: t.double() + 1e300), "is of torch.float64"),
    "half precision": (with_first(lambda t: t.half()), "is of torch.float16"),
    "complex and not a number": (with_first(lambda t: torch.full(t.shape, complex("nan+1j"))), "is of torch.complex"),
    "truth values": (with_first(lambda t: t > 0), "is of torch.bool"),
    "not a number": (filled(float("nan")), "not finite"),
    "infinite": (filled(float("inf")), "not finite"),
    "minus infinite": (filled(float("-inf")), "not finite"),
    "huge": (with_first(lambda t: t + 1e30), "norm"),
    "hugest": (with_first(lambda t: torch.full_like(t, torch.finfo(t.dtype).max)), "norm"),
    "one huge number": (filled(1e25), "norm"),
    "nothing in place of a tensor": (with_first(lambda t: None), "is a NoneType"),
    "a list in place of a tensor": (with_first(lambda t: t.tolist()), "is a list"),
    "without values": (with_first(lambda t: t.to("meta")), "no values"),
    "sparse": (with_first(lambda t: t.to_sparse()), "not a dense tensor"),
    "no mapping at all": (lambda sent: list(sent.values()), "is a list"),
    "nothing at all": (lambda sent: None, "is a NoneType"),
}


def lying(method: type[Method], told: Mapping[int, str]) -> type[Method]:
    """The method, but that some clients lie: which client tells which lie."""

    @dataclass(frozen=True)
    class Lying(method):  # type: ignore[misc, valid-type]
        """Some clients lie when they train."""

        def collect(self, net: Any, job: Job, ctx: Any) -> Any:
            sent, kept = super().collect(net, job, ctx)
            honest = job.work != "train" or job.client.turn is None
            return (sent if honest or job.client.id not in told else LIES[told[job.client.id]][0](sent)), kept

        def expects(self, job: Job, ctx: Any) -> Any:
            stands_in = replace(job, client=replace(job.client, id=-1))  # not a liar
            return super().expects(stands_in, ctx)

    return Lying


@dataclass
class Corrupting:
    """An engine between which and the server somebody sits who changes updates on the way."""

    inner: Engine
    change: Callable[[Update], Update]
    places: int = 1

    def open(self, *parts: Any) -> None:
        self.inner.open(*parts)

    def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
        return map(self.change, self.inner.map(bundles))

    def share(self, *parts: Any) -> Iterator[dict[str, Tensor]]:
        return self.inner.share(*parts)

    def close(self) -> None:
        self.inner.close()

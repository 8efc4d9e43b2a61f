"""Nothing touches an aggregate before it was checked against what was issued to that client for that round.

What an honest client would answer is found by taking its part without training, once for each level and form of
payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Gt
from torch import Tensor

from potluck.core.calibration import statistics_form
from potluck.core.errors import UpdateError
from potluck.core.form import Form, form_of
from potluck.core.method import Method
from potluck.core.own_score import score_form
from potluck.core.random import seeded
from potluck.core.rows import Row
from potluck.core.types import Client, Context, Job, Task, Update

LARGEST = torch.finfo(torch.float32).max
SHOWN = 3  # names that a reason lists


@dataclass(frozen=True)
class Guard:
    """What an update must be like to be used. It bounds damage and rubbish; it is no defence against clever lies."""

    bound: Annotated[float, Gt(0)] = 1e6  # how large an update may be, in multiples of what was issued; inf: no bound

    def check(self, update: Update, job: Job, form: Form) -> None:
        """Refuse an update, with the reason, that is not an answer to this job."""
        if update.failure:
            raise UpdateError(update.failure)
        if (update.run, update.round, update.client.id) != (job.run, job.round, job.client.id):
            raise UpdateError(misdirected(update, job))
        if not fits(update.payload, form):
            raise UpdateError(misfit(update.payload, form))
        size = norm(update.payload)
        if not size <= min(self.bound, LARGEST):  # √n is at least 1: nearly always, this is all there is to do
            self.check_size(update.payload, size, job.payload)

    def check_size(self, sent: Mapping[str, Tensor], size: float, issued: Mapping[str, Tensor]) -> None:
        """‖sent‖ ≤ bound · max(‖issued‖, √n), over all n scalars; what is not finite has no norm.

        √n is the norm of n ones: it lets an update grow from a start at zero.
        """
        for name, tensor in sent.items():
            if not is_finite(tensor):
                raise UpdateError(f"'{name}' has values that are not finite")
        usual = max(norm(issued), math.sqrt(sum(tensor.numel() for tensor in sent.values())))
        if size > self.bound * usual:
            raise UpdateError(f"its norm is {size:.3g}, but it may be {self.bound * usual:.3g} at most (guard.bound)")


def misdirected(update: Update, job: Job) -> str:
    """Which other question an update answers, or whose answer it is."""
    if update.run != job.run:
        return f"it is for run {update.run[:12] or '(none)'}, but this is run {job.run[:12] or '(none)'}"
    if update.round != job.round:
        return f"it is for round {update.round + 1}, but round {job.round + 1} is being played"
    return f"it says that it is client {update.client.id}'s, but client {job.client.id} was asked"


def fits(payload: Any, form: Form) -> bool:
    """Whether these are dense tensors in memory of the names, shapes and types that were asked for."""
    if isinstance(payload, Row):
        return payload.stack.form == form
    if not isinstance(payload, dict) or len(payload) != len(form):
        return False
    for name, (shape, dtype) in form.items():
        tensor = payload.get(name)
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
            return False
        if tensor.dtype is not dtype or tensor.shape != shape:
            return False
    return True


def misfit(payload: Any, form: Form) -> str:
    """Why tensors do not fit, in a sentence."""
    if unsendable := obstacle(payload):
        return unsendable
    missing, extra = ([n for n in one if n not in other] for one, other in ((form, payload), (payload, form)))
    if missing or extra:
        parts = [("lacks", missing), ("has the unknown", extra)]
        return "it " + " and ".join(f"{verb} {listed(names)}" for verb, names in parts if names)
    name = next(name for name, tensor in payload.items() if form_of({name: tensor})[name] != form[name])
    if payload[name].shape != form[name].shape:
        return f"'{name}' has the shape {tuple(payload[name].shape)}, but it should have {tuple(form[name].shape)}"
    return f"'{name}' is of {payload[name].dtype}, but it should be of {form[name].dtype}"


def obstacle(payload: Any) -> str:
    """Why something is no mapping from names to dense tensors in memory; empty if it is."""
    if not isinstance(payload, dict):
        return f"it is a {type(payload).__name__}, but it should be a dictionary of named tensors"
    for name, tensor in payload.items():
        if not isinstance(name, str):
            return f"it names a tensor {name!r}, but names are text"
        if not isinstance(tensor, Tensor):
            return f"'{name}' is a {type(tensor).__name__}, but it should be a tensor"
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            return f"'{name}' is not a dense tensor but {'nested' if tensor.is_nested else tensor.layout}"
        if tensor.is_meta:
            return f"'{name}' has a shape but no values (it is on the meta device)"
    return ""


def listed(names: list[str]) -> str:
    """The first few names."""
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def norm(tensors: Mapping[str, Tensor]) -> float:
    """The L2 norm over all scalars; infinite or not a number where one of them is."""
    if isinstance(tensors, Row) and math.isfinite(known := tensors.stack.norms[tensors.number]):
        return known
    total = 0.0
    for tensor in tensors.values():
        flat = tensor.reshape(-1)
        square = flat.dot(flat).item() if flat.dtype is torch.float32 else math.inf
        if not math.isfinite(square):  # squares may overflow float32
            square = in_double(flat).square().sum().item()
        total += square
    return math.sqrt(total)


def in_double(tensor: Tensor) -> Tensor:
    """The same numbers in double precision; complex ones as pairs."""
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite, and would be as float32."""
    return (not tensor.is_floating_point() and not tensor.is_complex()) or bool(
        in_double(tensor).float().isfinite().all()
    )


class Epochs(NamedTuple):
    """How often clients of a level go over their own examples in a round, and over the public ones."""

    private: int
    proxy: int

    def examples(self, client: Client, task: Task) -> int:
        """How often a client trains on an example, all phases and epochs together."""
        return self.private * client.size + self.proxy * (len(task.proxy) if task.proxy is not None else 0)


def expected(method: Method, job: Job, ctx: Context) -> Form:
    """The form of an honest client's answer to a job."""
    sent = tuple((name, tensor.shape, tensor.dtype) for name, tensor in job.payload.items())
    key = (expected, method, job.work, job.client.level, sent)
    if key not in ctx.memo.made:
        ctx.memo.keep(key, tried(method, job, ctx))
    form: Form = ctx.memo.made[key]
    return form


def tried(method: Method, job: Job, ctx: Context) -> Form:
    """The form of a client's answer, found by taking its part without training."""
    with seeded(ctx.seed, "expected"):
        if job.work == "score":
            return score_form(method.localize(job, ctx, {}), ctx.task)
        if job.work == "calibrate":
            return statistics_form(method.localize(job, ctx, {}), ctx.task.example[0])
        return method.expects(job, ctx)


def epochs_of(method: Method, job: Job, ctx: Context) -> Epochs:
    """How much a client trains for a job, as the method's phases say; nothing for other work."""
    epochs = {"private": 0, "proxy": 0}
    if job.work == "train":
        with seeded(ctx.seed, "expected"):
            phases = method.phases(job, ctx, {})
        for phase in phases:
            epochs[phase.source] += (phase.train or ctx.task.train).epochs
    return Epochs(**epochs)

"""Nothing touches an aggregate before it was checked against what was issued to that client for that round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Gt
from torch import Tensor

from potluck.core.errors import UpdateError
from potluck.core.form import Form
from potluck.core.types import Job, Update

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
        require_answer(update, job)
        require_tensors(update.payload)
        require_form(update.payload, form)
        self.require_size(update.payload, job.payload)

    def require_size(self, sent: Mapping[str, Tensor], issued: Mapping[str, Tensor]) -> None:
        """‖sent‖ ≤ bound · max(‖issued‖, √n), over all n scalars; what is not finite has no norm.

        The second term is the norm of n ones: it lets an update grow from a start at zero. It is also quick, so what
        was issued is only measured where it decides.
        """
        size, ones = norm(sent), math.sqrt(sum(tensor.numel() for tensor in sent.values()))
        if size <= min(self.bound * ones, LARGEST):
            return
        require_finite(sent)
        limit = self.bound * max(norm(issued), ones)
        if size > limit:
            raise UpdateError(f"its norm is {size:.3g}, but it may be {limit:.3g} at most ([guard] bound)")


def require_answer(update: Update, job: Job) -> None:
    """Refuse what answers another question, or is somebody else's answer."""
    if update.run != job.run:
        raise UpdateError(f"it is for run {update.run[:12] or '(none)'}, but this is run {job.run[:12] or '(none)'}")
    if update.round != job.round:
        raise UpdateError(f"it is for round {update.round + 1}, but round {job.round + 1} is being played")
    if update.client.id != job.client.id:
        raise UpdateError(f"it says that it is client {update.client.id}'s, but client {job.client.id} was asked")


def require_tensors(payload: Any) -> None:
    """Refuse what is no mapping from names to dense tensors in main memory."""
    if not isinstance(payload, Mapping):
        raise UpdateError(f"it is a {type(payload).__name__}, but it should be named tensors")
    for name, tensor in payload.items():
        if not isinstance(name, str):
            raise UpdateError(f"it names a tensor {name!r}, but names are text")
        if not isinstance(tensor, Tensor):
            raise UpdateError(f"'{name}' is a {type(tensor).__name__}, but it should be a tensor")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise UpdateError(f"'{name}' is not a dense tensor but {tensor.layout}")
        if tensor.is_meta:
            raise UpdateError(f"'{name}' has a shape but no values (it is on the meta device)")


def require_form(payload: Mapping[str, Tensor], form: Form) -> None:
    """Refuse other names, shapes and types than those that were asked for."""
    for name, tensor in payload.items():
        expected = form.get(name)
        if expected is None or tensor.shape != expected.shape or tensor.dtype is not expected.dtype:
            raise UpdateError(misfit(payload, form))
    if len(payload) != len(form):
        raise UpdateError(misfit(payload, form))


def misfit(payload: Mapping[str, Tensor], form: Form) -> str:
    """What is wrong with names, shapes or types, in a sentence."""
    missing, extra = ([n for n in one if n not in other] for one, other in ((form, payload), (payload, form)))
    if missing or extra:
        parts = [("lacks", missing), ("has the unknown", extra)]
        return "it " + " and ".join(f"{verb} {listed(names)}" for verb, names in parts if names)
    for name, tensor in payload.items():
        if tensor.shape != form[name].shape:
            return f"'{name}' has the shape {tuple(tensor.shape)}, but it should have {tuple(form[name].shape)}"
        if tensor.dtype is not form[name].dtype:
            return f"'{name}' is of {tensor.dtype}, but it should be of {form[name].dtype}"
    return ""


def listed(names: list[str]) -> str:
    """The first few names."""
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def norm(tensors: Mapping[str, Tensor]) -> float:
    """The L2 norm over all scalars; infinite or not a number where one of them is."""
    return math.sqrt(sum(map(squared, tensors.values())))


def squared(tensor: Tensor) -> float:
    """‖t‖², in a type that no finite float32 can overflow."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype is torch.float32:
        quick = float(flat.dot(flat))
        if math.isfinite(quick):
            return quick
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return float(flat.double().square().sum())


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse values that are not finite, or would not be once they are float32."""
    for name, tensor in tensors.items():
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        if values.is_floating_point() and not torch.isfinite(values.float()).all():
            raise UpdateError(f"'{name}' has values that are not finite")

"""Models as files, in the format that a file's name asks for."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.checkpoint import save, write_atomically
from potluck.core.errors import ConfigError, ModelError
from potluck.core.inputs import Inputs, arguments, mapped
from potluck.core.tensors import state_of

WEIGHTS, PROGRAM, ONNX = ".safetensors", ".pt2", ".onnx"
NEEDED_FOR_ONNX = ("onnx", "onnxscript")


def require_format(out: Path) -> None:
    """Refuse a file name that asks for a format which cannot be written, before anything is computed."""
    if out.suffix not in (WEIGHTS, PROGRAM, ONNX):
        raise ConfigError(
            f"cannot write {out}: its name should end in {WEIGHTS} (the weights), {PROGRAM} (a program for "
            f"torch.export.load) or {ONNX}"
        )
    if out.suffix == ONNX and not all(map(find_spec, NEEDED_FOR_ONNX)):
        raise ConfigError(f"cannot write {out}: ONNX needs more packages; pip install 'potluck[onnx]' brings them")


def write_model(out: Path, net: nn.Module, example: Inputs, about: Mapping[str, object]) -> None:
    """Write a network in the format that the name asks for; `example` is a batch of one."""
    require_format(out)
    if out.suffix == WEIGHTS:
        save(out, state_of(net), about)
        return
    # One example alone would make torch.export take 1 for the only batch size.
    args, kwargs = arguments(mapped(lambda tensor: torch.cat([tensor, tensor]), example))
    try:
        with torch.no_grad():
            program = torch.export.export(net, args, kwargs, dynamic_shapes=mapped(open_sizes, kwargs or args))
            content = as_onnx(program) if out.suffix == ONNX else as_program(program)
    except Exception as error:  # whatever the user's network and PyTorch's compiler may raise
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"cannot write {out}: torch.export does not take this network ({why}); its weights can be written as "
            f"{WEIGHTS}"
        ) from error
    write_atomically(out, content)


def open_sizes(tensor: Tensor) -> dict[int, Any]:
    """The dimensions of an input that may have another size: the batch's, and the length of a text."""
    text = tensor.dim() > 1 and not tensor.is_floating_point()
    return dict.fromkeys(range(2 if text else 1), torch.export.Dim.AUTO)


def as_program(program: torch.export.ExportedProgram) -> bytes:
    """What torch.export.load reads."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def as_onnx(program: torch.export.ExportedProgram) -> bytes:
    """The program as an ONNX graph with its weights."""
    converted = torch.onnx.export(program, dynamo=True, verbose=False)
    assert converted is not None
    content: bytes = converted.model_proto.SerializeToString()
    return content

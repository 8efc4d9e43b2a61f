"""Whose code failed: the user's (a network, a loss, a method of one's own), or ours."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import torch

from potluck.core.errors import DataError, PotluckError, UpdateError
from potluck.core.types import Job

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
OURS = (Path(__file__).parents[1], Path(torch.__file__).parent)
UNKNOWN = "index out of range in self"  # PyTorch's words of an embedding
TOO_FEW_ROWS = (
    "an input is a number for which the network's embedding has no row: it has those from 0 to num_embeddings - 1"
)
LONELY = "Expected more than 1 value per channel"  # PyTorch's words


def foreign_failure(error: BaseException) -> str:
    """Where code that is not ours failed, and how; empty if none of it ran."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_foreign(frame.filename, frame.name)]
    if not frames:
        return ""
    last = frames[-1]
    return f"{last.name} in {last.filename}:{last.lineno} raised {type(error).__name__}: {error}"


def is_foreign(file: str, function: str = "") -> bool:
    """Whether a function is neither ours nor PyTorch's nor Python's own; dataclasses write some in no file."""
    if file.startswith("<"):
        return file.startswith(("<stdin", "<string", "<ipython")) and not function.startswith("__")
    path = Path(file)
    if any(path.is_relative_to(place) for place in OURS):
        return False
    return path.is_relative_to(PACKAGES) or not path.is_relative_to(LIBRARY)


def reason_of(error: Exception, job: Job) -> UpdateError:
    """Why a client cannot answer. A mistake in the settings and a fault of ours are no client's: they end the run."""
    if isinstance(error, UpdateError):
        return error
    if isinstance(error, DataError):  # examples that are read as they are needed
        return UpdateError(str(error))
    if isinstance(error, PotluckError):
        raise error
    if LONELY in str(error):  # also of networks of ours: who has one example has batches of one
        return UpdateError("batch norm cannot train on a batch of one example; raise train.batch_size")
    if UNKNOWN in str(error):
        return UpdateError(TOO_FEW_ROWS)
    failure = foreign_failure(error)
    if not failure:
        raise RuntimeError(f"{described(job)} broke down: {type(error).__name__}: {error}") from error
    return UpdateError(failure)


def described(job: Job) -> str:
    """Whose job this is."""
    return f"client {job.client.id} of level '{job.client.level.name}' in round {job.round + 1}"

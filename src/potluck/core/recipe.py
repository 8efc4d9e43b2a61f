"""All that is public of a run, from which any machine can rebuild what it needs to take part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from potluck.core.memo import Memo
from potluck.core.method import Method
from potluck.core.networks import Networks
from potluck.core.tensors import raw_bytes
from potluck.core.types import Context, Task


@dataclass(frozen=True)
class Recipe:
    """The method, the task and the seed of a run; no data of anybody's."""

    method: Method
    task: Task
    seed: int
    ways: Mapping[str, str] = field(default_factory=dict)  # how clients of each level are trained, if not plainly
    run: str = ""  # its digest; updates for another recipe are refused
    kind: str = ""  # the same without the number of rounds

    def context(self, round: int, memo: Memo | None = None) -> Context:
        """The context of a round."""
        return Context(self.task, round, self.seed, Memo() if memo is None else memo)


def weights_digest(networks: Networks) -> str:
    """A digest of the weights of ready-made networks; empty if every weight is drawn from the seed."""
    given = networks.given()
    if not given:
        return ""
    digest = hashlib.sha256()
    for name in sorted(given):
        digest.update(f"{name} {given[name].dtype} {tuple(given[name].shape)}".encode())
        digest.update(raw_bytes(given[name]))
    return digest.hexdigest()


def table_digest(table: Mapping[str, object]) -> str:
    """A digest of settings, whatever order they are in."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def run_digest(kind: str, rounds: int) -> str:
    """The digest of a recipe of this kind for this many rounds."""
    return table_digest({"kind": kind, "rounds": rounds})

"""One client after the other, in this process: the plainest engine, and the one others are checked against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from potluck.core.client import Site, Work, perform
from potluck.core.threads import one_thread
from potluck.core.types import Job, Tensors, Update


class Serial:
    """Runs clients one after the other."""

    def __init__(self) -> None:
        self.personal: dict[int, Tensors] = {}

    def open(self, site: Site) -> None:
        self.site = site

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        for job in jobs:
            with one_thread():
                update, personal = perform(work, self.site, job, self.personal.get(job.client.id, {}))
            if personal:
                self.personal[job.client.id] = {name: tensor.clone() for name, tensor in personal.items()}
            yield replace(update, payload={name: tensor.clone() for name, tensor in update.payload.items()})

    def close(self) -> None:
        pass

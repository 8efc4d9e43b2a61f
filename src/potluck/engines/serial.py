"""One client after the other, in this process: the plainest engine, and the one others are checked against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from potluck.core.client import Site, Work, perform_bundle
from potluck.core.clock import Clock
from potluck.core.tensors import copied
from potluck.core.threads import one_thread
from potluck.core.types import Job, Tensors, Update
from potluck.engines.bundles import in_bundles


class Serial:
    """Runs clients one after the other."""

    places = 1

    def __init__(self) -> None:
        self.personal: dict[int, Tensors] = {}
        self.clock = Clock()

    def open(self, site: Site) -> None:
        self.site = site

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        for bundle in in_bundles(jobs):
            yield from self.run(work, bundle)

    def run(self, work: Work, bundle: list[Job]) -> list[Update]:
        """The updates of jobs that belong together."""
        with self.clock.spent("training"), one_thread():
            updates = []
            kept = [self.personal.get(job.client.id, {}) for job in bundle]
            for update, personal in perform_bundle(work, self.site, bundle, kept):
                if personal:
                    self.personal[update.client.id] = copied(personal)
                updates.append(replace(update, payload=copied(update.payload)))
        return updates

    def close(self) -> None:
        pass

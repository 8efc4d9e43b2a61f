"""One client after the other, in this process: the plainest engine, and the one others are checked against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.desk import Chore, Desk, Piece, whose
from potluck.core.errors import PotluckError
from potluck.core.rows import stacked
from potluck.core.store import Store
from potluck.core.tensors import copied, laid_out
from potluck.core.threads import one_thread
from potluck.core.types import Job, Tensors, Update
from potluck.core.works import perform


class Serial:
    """Runs clients one after the other."""

    places = 1

    def open(self, site: Site, desk: Desk, store: Store, clock: Clock) -> None:
        self.site, self.desk, self.store, self.clock = site, desk, store, clock

    def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
        for bundle in bundles:
            yield from self.run(bundle)

    def run(self, bundle: Sequence[Job]) -> list[Update]:
        """The updates of jobs that belong together."""
        with self.clock.spent("training"), one_thread():
            jobs = [replace(job, payload=laid_out(job.payload)) for job in bundle]
            updates = []
            kept = [copied(self.store.get(job.client.id)) for job in jobs]
            for update, stays in perform(self.site, jobs, kept):
                if stays:
                    self.store.put(update.client.id, copied(stays))
                updates.append(replace(update, payload=copied(update.payload)))
        if len(updates) == 1:
            return updates
        payloads = stacked([update.payload for update in updates])
        return [replace(update, payload=payload) for update, payload in zip(updates, payloads, strict=True)]

    def share(self, chore: Chore, pieces: Iterable[Piece]) -> Iterator[Tensors]:
        for piece in pieces:
            try:
                with one_thread():
                    found = copied(chore(self.desk, replace(piece, payload=laid_out(piece.payload))))
            except PotluckError:
                raise
            except Exception as error:
                raise RuntimeError(f"{whose(piece)} broke down: {type(error).__name__}: {error}") from error
            yield found

    def close(self) -> None:
        pass

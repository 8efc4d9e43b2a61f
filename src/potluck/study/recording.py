"""A run as it is written down, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.core.checkpoint import first_difference, save
from potluck.core.errors import RunError
from potluck.core.form import Form, form_of
from potluck.core.store import Folder
from potluck.core.types import Tensors
from potluck.study.files import read_toml
from potluck.study.journal import Journal, read_records
from potluck.study.record import RunDirectory
from potluck.study.resume import Standing
from potluck.study.seal import identity
from potluck.study.watchers import Record


@dataclass(frozen=True)
class Recording:
    """A run that is being played, and the files that it fills."""

    files: RunDirectory
    run: str  # the identity of its settings
    journal: Journal
    store: Folder
    form: Form  # of the server's state, in every round

    @classmethod
    def of(cls, standing: Standing, names: Sequence[str] = ()) -> Recording:
        """What goes on where a run stands, once its directory is ready for it."""
        files, progress = standing.run, standing.progress
        run, done = identity(read_toml(files.config)), progress.rounds_done if progress else 0
        journal = Journal(files.metrics, progress.seal.metrics_bytes if progress else 0)
        return cls(files, run, journal, Folder(files.personal, done, run, names), standing.form)

    def records(self) -> list[Record]:
        """The rounds that are done."""
        return read_records(self.files.metrics, self.journal.length)

    def write(self, record: Record, rounds_done: int, state: Tensors) -> None:
        """Write a round down: metrics, then the checkpoint that counts them, then what stays on clients."""
        self.require_form(state)
        self.journal.append(record)
        seal = {
            "run": self.run,
            "rounds_done": rounds_done,
            "metrics_bytes": self.journal.length,
            "metrics_sha256": self.journal.digest,
            "clients": self.store.roll.clients,
            "clients_digest": self.store.roll.digest,
        }
        save(self.files.checkpoint, state, seal)
        self.store.commit()

    def require_form(self, state: Tensors) -> None:
        """Refuse a state that a resume could not tell from another run's."""
        if form_of(state) != self.form:
            raise RunError(
                f"aggregate returned another state than init: {first_difference(form_of(state), self.form)}; a "
                "method's state keeps its names, shapes and types, so that a checkpoint can be checked"
            )

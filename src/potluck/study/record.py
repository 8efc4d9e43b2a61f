"""A run on disk: what it was asked, what happened, where it stands, what came out.

config.toml            the resolved config, before the first round
costs.json             what each level costs
tuning.json            the seconds of each way to train, if ways were timed
metrics.jsonl          one line per round
checkpoint/            the state after the last finished round
clients.json           what the clients are called, if they were known before
personal/              what stays on clients, a file each, if the method keeps anything there
final.safetensors      the server's state at the end
models/<level>.safetensors
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch import nn

from potluck.core.checkpoint import read, read_words, save, write_atomically
from potluck.core.errors import RunError
from potluck.core.form import Form
from potluck.core.recipe import table_digest
from potluck.core.store import survey
from potluck.core.tensors import state_of
from potluck.core.types import Tensors
from potluck.parts.cost.level import LevelCost
from potluck.study.config import write_toml
from potluck.study.files import is_number, read_json, read_toml
from potluck.study.journal import read_records, sealed_records
from potluck.study.roster import clients_digest, is_row
from potluck.study.schema import Table
from potluck.study.seal import OLD, Seal, identity, section
from potluck.study.watchers import Record

MOST_OF_CLIENTS = 1 << 28  # bytes of what is known of clients: a million of them, with a hundred labels each, take less


@dataclass(frozen=True)
class Progress:
    """Where a run stands: the state after its last finished round, and what belongs to it."""

    state: Tensors
    seal: Seal

    @property
    def rounds_done(self) -> int:
        return self.seal.rounds_done


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint" / "latest.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def counted(self) -> Path:
        return self.path / "costs.json"

    @property
    def final(self) -> Path:
        return self.path / "final.safetensors"

    @property
    def personal(self) -> Path:
        return self.path / "personal"

    @property
    def roster(self) -> Path:
        return self.path / "clients.json"

    def model(self, level: str) -> Path:
        """Where the model of a level is, once the run is finished."""
        return self.path / "models" / f"{level}.safetensors"

    # ---- read ----

    def settings(self) -> Table:
        """The run's config, if it is whole and belongs to the run's checkpoint."""
        config = read_toml(self.config)
        levels, method = section(section(config, "fleet"), "levels"), section(config, "method").get("name")
        if not (levels and isinstance(method, str) and isinstance(config.get("name"), str) and "recipe" in config):
            raise RunError(f"{self.config} is not the config of a run: {OLD}")
        if self.checkpoint.exists():
            self.require_one_run(config, self.seal())
        return config

    def require_one_run(self, config: Table, seal: Seal) -> None:
        """Refuse a config and a checkpoint of two runs."""
        if identity(config) != seal.run:
            raise RunError(
                f"{self.config} and {self.checkpoint} do not belong together: one of them was changed, or is of "
                "another run; restore it, or start over in another directory"
            )

    def require_clients(self, seal: Seal) -> None:
        """Refuse clients' files that are not of those clients who had one when the checkpoint was written."""
        roll = survey(self.personal, seal.rounds_done, seal.run).roll
        if (roll.clients, roll.digest) != (seal.clients, seal.clients_digest):
            raise RunError(
                f"{self.personal} has files of {roll.clients} clients, but {seal.clients} had one when the checkpoint "
                "was written, or they were other clients; if the run is going on, try again, else restore them, or "
                "start over in another directory"
            )

    def seal(self) -> Seal:
        """What the checkpoint says beside the state."""
        return Seal.of(read_words(self.checkpoint), self.checkpoint)

    def progress(self, form: Form | None = None) -> Progress:
        """Where the run stands; a state of another form is refused."""
        state, about = read(self.checkpoint, form)
        return Progress(state, Seal.of(about, self.checkpoint))

    def records(self) -> list[Record]:
        """The metrics, one record per finished round."""
        if not self.metrics.exists():
            raise no_run(self.path, self.metrics)
        if not self.checkpoint.exists():
            return read_records(self.metrics)
        return sealed_records(self.metrics, self.seal())

    def costs(self) -> list[LevelCost]:
        """What each level costs, as counted before the first round."""
        found = read_json(self.counted)
        rows = found.get("levels") if isinstance(found, dict) else None
        if not isinstance(rows, list) or found.get("sha256") != table_digest({"levels": rows}):
            raise RunError(
                f"{self.counted} is damaged: its figures do not match their digest; resuming the run counts them again"
            )
        if not all(map(is_cost, rows)):
            raise RunError(f"{self.counted} is of another version of Potluck; resuming the run counts them again")
        return [LevelCost(**row) for row in rows]

    def clients(self) -> list[Table]:
        """What is known of clients that have names, in their order; nothing if they have none."""
        digest = section(self.settings(), "recipe").get("clients")
        if digest is None:
            return []
        found = read_json(self.roster, MOST_OF_CLIENTS)
        if not isinstance(found, list) or not all(map(is_row, found)) or clients_digest(found) != digest:
            raise RunError(f"{self.roster} is not what the run wrote; restore it, or resume the run, which writes it")
        return found

    def final_state(self, form: Form | None = None) -> tuple[Tensors, int]:
        """The server's state at the end, and the number of rounds."""
        state, about = read(self.final, form)
        return state, self.rounds_in(about, self.final)

    def finished_model(self, level: str) -> tuple[Tensors, int]:
        """The weights of a level's model, and the number of rounds."""
        weights, about = read(self.model(level))
        if about.get("level") != level:
            raise RunError(f"{self.model(level)} is not the model of level '{level}'; restore it, or remove it")
        return weights, self.rounds_in(about, self.model(level))

    def rounds_in(self, about: Mapping[str, object], path: Path) -> int:
        """After how many rounds a file of this run was written."""
        rounds = about.get("rounds_done")
        if type(rounds) is not int or about.get("run") != identity(read_toml(self.config)):
            raise RunError(f"{path} is of another run: restore it, or remove it and resume the run")
        return rounds

    # ---- write ----

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, so that no two runs write to it; the lock ends with the process, however it ends."""
        lock = self.path / ".lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.require_no_links(lock)
            handle = os.open(lock, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror}; choose another directory") from error
        with os.fdopen(handle):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunError(f"{self.path} is in use by another run; wait for it, or choose another") from error
            yield

    def require_no_links(self, lock: Path) -> None:
        """Refuse a directory of which a part is elsewhere: who made it may want something there overwritten."""
        folders = (self.checkpoint.parent, self.model("").parent, self.personal)
        for path in (lock, self.metrics, *folders, *self.personal.glob("*")):
            if path.is_symlink():
                raise RunError(
                    f"{path} is a link to {path.readlink()}, but a run writes only below its directory; put the file "
                    "or folder itself there, or choose another directory"
                )

    def write_config(self, config: Table) -> None:
        """Write down what the run was asked."""
        write_atomically(self.config, write_toml(config).encode())

    def write_costs(self, costs: Sequence[LevelCost]) -> None:
        """Write down what each level costs, unless it is there."""
        rows = [asdict(cost) for cost in costs]
        content = json.dumps({"levels": rows, "sha256": table_digest({"levels": rows})}, indent=1).encode()
        if not holds(self.counted, content):
            write_atomically(self.counted, content)

    def write_clients(self, rows: Sequence[Table]) -> None:
        """Write down who the clients are, unless it is there."""
        content = "[\n{}\n]\n".format(",\n".join(map(json.dumps, rows))).encode()
        if not holds(self.roster, content):
            write_atomically(self.roster, content)

    def settle(self, ways: dict[str, str], timed: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Write down how the run's clients are trained, and the seconds by which that was chosen, if it was."""
        config = read_toml(self.config)
        config["engine"] = {**section(config, "engine"), "step": ways}
        if timed is not None:
            write_atomically(self.path / "tuning.json", json.dumps(timed, indent=1).encode())
        self.write_config(config)

    def finish(self, state: Tensors, models: Mapping[str, nn.Module], rounds: int, run: str) -> None:
        """Write what came out: a plain model per level, and the server's state last of all."""
        for level, net in models.items():
            save(self.model(level), state_of(net), {"level": level, "rounds_done": rounds, "run": run})
        save(self.final, state, {"rounds_done": rounds, "run": run})

    def unfinish(self, levels: Sequence[str]) -> None:
        """Remove what came out of a run that is to go on; first of all what says that it is finished."""
        try:
            for path in (self.final, *map(self.model, levels)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror}") from error


def is_cost(row: object) -> bool:
    """Whether this is what a level costs: every field of LevelCost, with a number or nothing but for the name."""
    if not isinstance(row, dict) or set(row) != {field.name for field in fields(LevelCost)}:
        return False
    figures = [value for key, value in row.items() if key != "level" and value is not None]
    return isinstance(row["level"], str) and all(map(is_number, figures))


def holds(path: Path, content: bytes) -> bool:
    """Whether a file has just this content."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def no_run(path: Path, missing: Path) -> RunError:
    """Why a path is no run."""
    if not path.is_file():
        return RunError(f"{path} holds no run: there is no {missing}")
    if RunDirectory(path.parent).metrics.exists():
        return RunError(f"{path} is a file of a run, but it should be the run's directory: {path.parent}")
    if path.suffix == ".toml":
        return RunError(f"{path} is a config, not a run; `potluck run {path}` makes a run of it, a directory in runs/")
    return RunError(f"{path} is a file, but a run is a directory")

"""A recorded run, read back: its metrics, and its models as plain networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torch import nn

from potluck.core.calibration import norms
from potluck.core.errors import ConfigError, PotluckError, RunError
from potluck.core.fleet import Fleet
from potluck.core.form import form_of
from potluck.core.method import Method
from potluck.core.networks import unshare
from potluck.core.recipe import Recipe
from potluck.core.server import first_state
from potluck.core.tensors import load as load_weights
from potluck.core.types import Level, Tensors
from potluck.data.assignment import assignment_named
from potluck.data.partitions import PARTITIONS
from potluck.engines import make_engine
from potluck.study.config import Config, Outline, name_of, options_of, parse_config, read_plug
from potluck.study.deployed import Deployed
from potluck.study.experiment import Experiment, from_config
from potluck.study.facts import Facts
from potluck.study.files import as_path
from potluck.study.formats import require_format, write_model
from potluck.study.headline import accuracies, scores_in
from potluck.study.levels import level_of
from potluck.study.recipes import Model, make_recipe, rebuilt
from potluck.study.record import RunDirectory, no_run
from potluck.study.roster import Told, client_number
from potluck.study.run import client_so_far, model_so_far
from potluck.study.schema import Origin, Table, read_table
from potluck.study.seal import section
from potluck.study.settings import FleetSection
from potluck.study.watchers import Record


@dataclass(frozen=True)
class Recorded:
    """A run on disk, finished or not."""

    directory: Path
    model: Model | None = field(default=None, repr=False)  # the network, if the config cannot name it
    data_dir: Path | None = None
    trust: bool = False  # whether code that the config names may run

    @property
    def origin(self) -> Origin:
        return Origin(self.run.config, trusted=self.trust)

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.directory)

    @cached_property
    def table(self) -> Table:
        """The run's settings as its file has them."""
        return self.run.settings()

    @cached_property
    def config(self) -> Config:
        """The run's settings. Who holds which data, and metrics, are left out: they may be functions that no file can
        name."""
        unnamed: Table = {"data": {"partition": "iid"}, "fleet": {"assignment": "fixed"}, "task": {"metrics": []}}
        return parse_config(self.table_with(unnamed), self.origin)

    def table_with(self, instead: Table) -> Table:
        """The run's settings with others in some sections."""
        changed = {
            section: {**found, **other}
            for section, other in instead.items()
            if isinstance(found := self.table.get(section), dict)
        }
        return {**self.table, **changed}

    @property
    def levels(self) -> dict[str, float]:
        """The ratios of the device classes, by name."""
        fleet = read_table(Outline, self.table, "", "the config", self.origin).fleet
        return read_table(FleetSection, fleet, "fleet", "", self.origin).levels

    @cached_property
    def latest(self) -> tuple[Tensors, int]:
        """The server's state and the rounds done, as of when this was first asked for."""
        return latest_state(self.run)

    @property
    def method(self) -> Method:
        return self.config.method

    @property
    def metrics(self) -> list[Record]:
        """One record per finished round."""
        return self.run.records()

    @property
    def accuracy(self) -> dict[str, float | None]:
        """The accuracy of every level's model after the last round; None for a level that has none."""
        metrics = self.metrics
        if not metrics:
            raise RunError(f"{self.directory} has no finished round yet; there is no accuracy")
        return accuracies(metrics[-1])

    @property
    def scores(self) -> dict[str, dict[str, float | None]]:
        """Every measure of every level's model after the last round."""
        if not self.metrics:
            raise RunError(f"{self.directory} has no finished round yet; there are no scores")
        return scores_in(self.metrics[-1])

    @cached_property
    def recipe(self) -> Recipe:
        """The networks and the method of the run, without any data."""
        if self.model is not None:  # its first weights need not be those of the run, which replace them
            return make_recipe(self.config, self.model, Facts.of_table(self.config.recipe, self.config.goal))
        try:
            return rebuilt(self.config)
        except PotluckError as error:
            raise RunError(
                f"the network of {self.directory} cannot be built: {error}; "
                f"in Python, potluck.load({str(self.directory)!r}, model=net) takes the network itself"
            ) from error

    @cached_property
    def experiment(self) -> Experiment:
        """The run with its data, which must be here."""
        if has_no_name(section(self.table, "data")):
            raise RunError(
                f"this model of {self.directory} is made with the run's data, which came from Python, or who holds "
                "them did: potluck.run with the same arguments and resume=True gives a result that can export it"
            )
        return from_config(parse_config(self.table_with({"task": {"metrics": []}}), self.origin), self.data_dir)

    def export(self, level: str | float, out: str | Path | None = None) -> nn.Module:
        """The model for devices of this level, or of any ratio: a plain network in evaluation mode, yours to keep.

        With `out` it is also written to a file, in the format that its name asks for.
        """
        if not self.method.shares_model:
            some = repr(self.names[0]) if self.names else 7
            raise ConfigError(f"every client has a model of its own: export_client({some}) gives that of client {some}")
        return self.written(self.level(level), out).net

    def export_client(self, client: int | str, out: str | Path | None = None) -> nn.Module:
        """The model that one client has, with what stayed on it; for methods whose models differ."""
        if self.method.shares_model:
            raise ConfigError(f"clients of a level share a model: export('{next(iter(self.levels))}') gives it")
        return self.written(self.client(client), out).net

    @cached_property
    def names(self) -> list[str]:
        """What the clients are called; nothing if they have no names."""
        return [row["name"] for row in self.run.clients()]

    def client(self, which: int | str) -> int:
        """The number of a client, which is asked for by its name if clients have names."""
        return client_number(which, self.names, self.config.fleet.clients)

    def level(self, which: str | float) -> Level:
        """A level by its name or by any ratio, if the method has a model for it."""
        if not isinstance(which, str):
            return level_of(which, self.levels)
        if which not in self.levels:
            raise RunError(f"{self.directory} has no level '{which}'; it has {', '.join(self.levels)}")
        return Level(which, self.levels[which])

    def written(self, of: Level | int, out: str | Path | None) -> Deployed:
        """The model of a level or of a client, written to a file if there is to be one."""
        file = None if out is None else as_path(out, "out")
        if file is not None:
            require_format(file)
        found = self.deployed(of)
        if file is not None:
            owner = {} if isinstance(of, Level) else {"client": of, **({"name": self.names[of]} if self.names else {})}
            about = {"level": found.level.name, **owner, "rounds_done": self.latest[1]}
            write_model(file, found.net, self.recipe.task.example[0], about)
        return found

    def deployed(self, of: Level | int) -> Deployed:
        """The model of a level or of a client. Data are needed only if batch norm has to be measured, or if nothing
        but the data says what a client holds."""
        if not isinstance(of, Level):
            if self.method.shares_model:
                raise ConfigError("clients of a level share a model; say which with --level")
            if not self.names:
                return model_so_far(self.experiment, make_engine("serial"), self.run, of)
            return client_so_far(self.recipe, self.fleet, self.run, of)
        if not self.method.shares_model:
            raise ConfigError("every client has a model of its own; say whose with --client")
        if self.run.model(of.name).exists():
            state, rounds = self.latest
            net = self.method.export(state, of, self.recipe.context(rounds - 1))
            load_weights(net, self.run.finished_model(of.name)[0])
            return Deployed(unshare(net).eval(), of)
        self.require_admitted(of)
        progress = self.run.progress(form_of(first_state(self.method, self.recipe.context(0))))
        net = self.method.export(progress.state, of, self.recipe.context(progress.rounds_done - 1))
        if self.method.calibrated and norms(net):
            return model_so_far(self.experiment, make_engine("serial"), self.run, of)
        return Deployed(unshare(net).eval(), of)

    @cached_property
    def fleet(self) -> Fleet:
        """The clients, as far as the run's directory tells of them."""
        dealt = section(self.table, "fleet").get("assignment", FleetSection.assignment)
        assignment = read_plug(assignment_named, dealt, "fleet.assignment", self.origin)
        return Fleet(self.recipe.task.levels, assignment, Told(self.run.clients()), self.config.seed)

    def require_admitted(self, level: Level) -> None:
        """Refuse a level whose devices do not take part."""
        ctx = self.recipe.context(0)
        if not self.method.admits(level, ctx):
            known = ", ".join(each.name for each in self.recipe.task.levels if self.method.admits(each, ctx))
            raise RunError(f"there is no model for level '{level.name}', which does not take part; try {known}")


def has_no_name(data: Table) -> bool:
    """Whether the data of a run, or who holds them, came from Python, so that its config cannot name them."""
    source, partition = (data.get(key) for key in ("source", "partition"))
    if not isinstance(source, str | dict) or not isinstance(partition, str | dict):
        return False
    return "labels" in options_of(source) or "owners" in options_of(partition) or name_of(partition) not in PARTITIONS


def latest_state(run: RunDirectory) -> tuple[Tensors, int]:
    """The server's state after the last finished round, and the number of rounds."""
    if run.final.exists():
        return run.final_state()
    progress = run.progress()
    return progress.state, progress.rounds_done


def load(
    run: str | Path, *, model: Model | None = None, data_dir: str | Path | None = None, trust: bool = False
) -> Recorded:
    """A recorded run, to take its models and metrics from.

    `model` is the run's network, or a function of the width, if the run came from Python with one that cannot be
    imported by its name; its weights do not matter. `data_dir` is where data sets are, if a model has to be made with
    them: one of a run that is not finished, of a ratio that is no level's, or of a client. With `trust`, code that the
    run's config names may run: a network, a method or data of your own, or of somebody you trust.
    """
    directory = as_path(run, "run")
    if not RunDirectory(directory).config.is_file():
        raise no_run(directory, RunDirectory(directory).config)
    return Recorded(directory, model, None if data_dir is None else as_path(data_dir, "data_dir"), trust)

"""Running an experiment from wherever it stands to its end."""

from __future__ import annotations

from pathlib import Path

from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.errors import ConfigError
from potluck.core.server import Server, first_state
from potluck.core.store import Reading
from potluck.core.types import Level
from potluck.core.ways.step import AUTO, TO_BE_CHOSEN, Step, ways_of
from potluck.parts.cost.level import LevelCost
from potluck.study.counting import count_ways
from potluck.study.deployed import Deployed, client_model, level_model
from potluck.study.experiment import Experiment
from potluck.study.play import Play
from potluck.study.recipes import recipe_table
from potluck.study.record import RunDirectory, step_of
from potluck.study.result import Result
from potluck.study.schema import Table
from potluck.study.tuning import fastest, time_ways
from potluck.study.watchers import Nobody, Watcher


def execute(
    experiment: Experiment,
    engine: Engine,
    config: Table,
    directory: Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Result:
    """Run an experiment to its end; with a directory it is recorded there and can be resumed at any round."""
    watcher, clock = watcher or Nobody(), Clock()
    if step_of(config) not in TO_BE_CHOSEN:
        ways_of(step_of(config), [level.name for level in experiment.task.levels])  # refused before anything is written
    if directory is None:
        costs = experiment.costs()
        experiment = tuned(experiment, engine, step_of(config), costs, None, watcher, clock)
        return Play.begun(experiment, engine, costs, watcher, clock).to_the_end()
    run = RunDirectory(directory)
    with run.locked():
        costs = experiment.costs()
        progress = run.begin({**config, "recipe": recipe_table(experiment.recipe)}, costs, resume)
        experiment = tuned(experiment, engine, run.step(), costs, run, watcher, clock)
        return Play.begun(experiment, engine, costs, watcher, clock, run, progress).to_the_end()


def tuned(
    experiment: Experiment,
    engine: Engine,
    step: Step,
    costs: list[LevelCost],
    run: RunDirectory | None,
    watcher: Watcher,
    clock: Clock,
) -> Experiment:
    """The experiment with a way to train for every level: the one that is asked for, or one that is chosen here."""
    if step not in TO_BE_CHOSEN:
        return experiment.trained_in(ways_of(step, [level.name for level in experiment.task.levels]))
    with clock.spent_in_all("tuning"):
        state = first_state(experiment.method, experiment.site.context(0))
        ways, timed = count_ways(experiment, state, costs), None
        if step == AUTO:
            timed = time_ways(experiment, engine, state, costs, ways, clock)
            ways = fastest(timed, ways)
    if run:
        run.settle(ways, timed)
    if timed is not None:
        watcher.tuned(ways, timed)
    return experiment.trained_in(ways)


def model_so_far(experiment: Experiment, engine: Engine, run: RunDirectory, of: Level | int) -> Deployed:
    """The model of a level, or of a client, as of the last finished round of a run that is still going, or was cut
    short."""
    progress, clock = run.progress(), Clock()
    store = Reading(run.personal, progress.rounds_done)
    engine.open(experiment.site, experiment.desk, store, clock)
    server = Server(experiment.recipe, engine, experiment.settings.guard, clock)
    round = progress.rounds_done - 1
    if isinstance(of, Level):
        if not experiment.method.shares_model:
            raise ConfigError("every client has a model of its own; say whose with --client")
        return level_model(experiment, server, progress.state, of, round)
    if experiment.method.shares_model:
        raise ConfigError("clients of a level share a model; say which with --level")
    return client_model(experiment, progress.state, store, of, round)

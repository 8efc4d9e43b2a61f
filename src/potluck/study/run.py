"""Running an experiment from wherever it stands to its end."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from potluck.core.clock import Clock
from potluck.core.desk import ready_model
from potluck.core.engine import Engine
from potluck.core.errors import ConfigError, PotluckError, RunError
from potluck.core.fleet import Fleet
from potluck.core.form import form_of
from potluck.core.networks import unshare
from potluck.core.recipe import Recipe
from potluck.core.server import Server, first_state
from potluck.core.store import Reading
from potluck.core.tensors import load, same_tensors
from potluck.core.types import Level, Tensors
from potluck.core.ways.step import AUTO, TO_BE_CHOSEN, Step, ways_of
from potluck.parts.cost.level import LevelCost
from potluck.study.counting import count_ways
from potluck.study.deployed import Deployed, client_model, level_model
from potluck.study.experiment import Experiment
from potluck.study.journal import sealed
from potluck.study.play import Play
from potluck.study.recipes import recipe_table
from potluck.study.record import RunDirectory
from potluck.study.recording import Recording
from potluck.study.result import Profile, Result
from potluck.study.resume import Standing, look_at
from potluck.study.roster import client_rows, clients_digest
from potluck.study.schema import Table
from potluck.study.seal import step_of
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
        clients = known_clients(experiment)
        recipe = {**recipe_table(experiment.recipe), **({"clients": clients_digest(clients)} if clients else {})}
        standing = look_at(run, {**config, "recipe": recipe}, experiment, resume)
        if clients:
            run.write_clients(clients)
        if result := finished(standing, experiment, watcher):
            return result
        costs = experiment.costs()
        standing.begin(costs)
        experiment = tuned(experiment, engine, step_of(standing.config), costs, run, watcher, clock)
        recording = Recording.of(standing, experiment.names)
        return Play.begun(experiment, engine, costs, watcher, clock, recording, standing.progress).to_the_end()


def known_clients(experiment: Experiment) -> list[Table]:
    """What the run's directory says of clients that have names; labels only where each has a model of its own."""
    if not experiment.names:
        return []
    return client_rows(experiment.fleet, experiment.names, with_labels=not experiment.method.shares_model)


def finished(standing: Standing, experiment: Experiment, watcher: Watcher) -> Result | None:
    """What came out of a run that is finished, as its files have it; None if it is not, or if one of them is amiss, and
    has to be made again."""
    run, progress, rounds = standing.run, standing.progress, experiment.task.rounds
    if progress is None or progress.rounds_done != rounds or not run.final.exists():
        return None
    try:
        costs, (state, ended) = run.costs(), run.final_state(standing.form)
        models = {level.name: kept_model(run, experiment, progress.state, level) for level in shared_levels(experiment)}
    except PotluckError:
        return None
    if ended != rounds or not same_tensors(state, progress.state):
        return None
    sealed(run.metrics, progress.seal).cut()
    metrics = run.records()
    watcher.begins(rounds, rounds)
    watcher.ends(metrics)
    experiment = experiment.trained_in(
        ways_of(step_of(standing.config), [each.name for each in experiment.task.levels])
    )
    store = Reading(run.personal, rounds, progress.seal.run)
    nothing = Profile({}, 0.0, 0.0, 1)
    return Result(progress.state, models, metrics, costs, nothing, run.path, experiment, store)


def shared_levels(experiment: Experiment) -> list[Level]:
    """The levels whose devices share a model."""
    return experiment.admitted() if experiment.method.shares_model else []


def kept_model(run: RunDirectory, experiment: Experiment, state: Tensors, level: Level) -> nn.Module:
    """The model of a level as a finished run has written it."""
    weights, rounds = run.finished_model(level.name)
    if rounds != experiment.task.rounds:
        raise RunError(f"{run.model(level.name)} is of round {rounds}")
    net = ready_model(experiment.recipe, state, level, rounds - 1, {}, experiment.site.memo)
    load(net, weights)
    return unshare(net)


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
    if not isinstance(of, Level):
        return client_so_far(experiment.recipe, experiment.fleet, run, of)
    if not experiment.method.shares_model:
        raise ConfigError("every client has a model of its own; say whose with --client")
    progress, clock = run.progress(form_of(first_state(experiment.method, experiment.site.context(0)))), Clock()
    store = Reading(run.personal, progress.rounds_done, progress.seal.run)
    engine.open(experiment.site, experiment.desk, store, clock)
    server = Server(experiment.recipe, engine, experiment.settings.guard, clock)
    return level_model(experiment, server, progress.state, of, progress.rounds_done - 1)


def client_so_far(recipe: Recipe, fleet: Fleet, run: RunDirectory, id: int) -> Deployed:
    """The model of a client as of the last finished round of a run."""
    if recipe.method.shares_model:
        raise ConfigError("clients of a level share a model; say which with --level")
    progress = run.progress(form_of(first_state(recipe.method, recipe.context(0))))
    run.require_clients(progress.seal)
    store = Reading(run.personal, progress.rounds_done, progress.seal.run)
    return client_model(recipe, fleet, progress.state, store, id, recipe.context(progress.rounds_done - 1))

"""Taking up a run where it stands: everything is checked first, then something is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.core.checkpoint import write_atomically
from potluck.core.errors import ConfigError, RunError
from potluck.core.form import Form, form_of
from potluck.core.method import recipient
from potluck.core.random import seeded
from potluck.core.recipe import run_digest
from potluck.core.server import first_state
from potluck.core.types import Job
from potluck.core.ways.step import TO_BE_CHOSEN, same_ways, ways_of
from potluck.parts.cost.level import LevelCost
from potluck.study.config import differences
from potluck.study.experiment import Experiment
from potluck.study.files import read_toml
from potluck.study.journal import sealed, sealed_records
from potluck.study.record import Progress, RunDirectory
from potluck.study.schema import Table
from potluck.study.seal import OLD, section, step_of


@dataclass(frozen=True)
class Standing:
    """What a directory holds of a run, before anything is changed in it."""

    run: RunDirectory
    config: Table  # as it is to be
    there: Table | None  # as it is
    progress: Progress | None  # None before the first round is done
    form: Form  # of the server's state

    def begin(self, costs: list[LevelCost]) -> None:
        """Write what is missing, and take away what is not true any more."""
        self.run.write_costs(costs)
        if self.progress is None:
            write_atomically(self.run.metrics, b"")
        else:
            sealed(self.run.metrics, self.progress.seal).cut()
        if self.there != self.config:
            if self.there is not None:
                self.run.unfinish(list(section(section(self.there, "fleet"), "levels")))
            self.run.write_config(self.config)


def look_at(run: RunDirectory, asked: Table, experiment: Experiment, resume: bool) -> Standing:
    """Where the run of this config in a directory stands; a directory that cannot be taken up is refused."""
    form = form_of(first_state(experiment.method, experiment.site.context(0)))
    if not run.config.exists():
        if run.checkpoint.exists():
            raise RunError(f"{run.path} holds a run whose {run.config.name} is missing; restore it, or choose another")
        return Standing(run, asked, None, None, form)
    if not resume:
        raise RunError(
            f"{run.path} already holds a run; add --resume (in Python resume=True) to continue it, or choose another "
            "directory"
        )
    there = require_same(run, asked)
    progress = run.progress(form) if run.checkpoint.exists() else None
    planned, rounds = section(there, "task").get("rounds"), experiment.task.rounds
    if progress:
        require_whole(run, there, progress)
    if planned == section(asked, "task").get("rounds"):
        return Standing(run, there, there, progress, form)
    if progress:
        require_longer(run, planned, progress.rounds_done, experiment)
    task, recipe = {**section(there, "task"), "rounds": rounds}, section(asked, "recipe")
    return Standing(run, {**there, "task": task, "recipe": recipe}, there, progress, form)


def require_whole(run: RunDirectory, there: Table, progress: Progress) -> None:
    """Refuse a checkpoint that is not of this run, or whose metrics or clients' files are not those it was written
    with."""
    seal, planned = progress.seal, section(there, "task").get("rounds")
    run.require_one_run(there, seal)
    if isinstance(planned, int) and seal.rounds_done > planned:
        raise RunError(f"{run.checkpoint} says that {seal.rounds_done} of {planned} rounds are done: {OLD}")
    sealed_records(run.metrics, seal)
    run.require_clients(seal)


def require_same(run: RunDirectory, asked: Table) -> Table:
    """The config that is there. Where clients run and for how many rounds may change, nothing else."""
    there = config_of(run)
    if weights_of(there) != weights_of(asked):
        raise RunError(f"{run.path} holds a run that began with other weights of the network; give it the same")
    changed = differences(comparable(there), comparable(asked))
    if all(change.startswith("task.rounds ") for change in changed):
        changed = []
    elif any(not change.startswith(("task.rounds ", "recipe.kind ")) for change in changed):  # it makes another kind
        changed = [change for change in changed if not change.startswith("recipe.kind ")]
    levels, (mine, yours) = section(section(asked, "fleet"), "levels"), (step_of(there), step_of(asked))
    if not changed and not same_ways(mine, yours, levels):
        changed = [f"engine.step is {mine!r} there and {yours!r} here ('counted' and 'auto' take over the first)"]
    if changed:
        raise RunError(f"{run.path} holds a run of another config: {'; '.join(changed)}")
    return there


def config_of(run: RunDirectory) -> Table:
    """The config of the run in a directory, if it is one that a run has written."""
    there = read_toml(run.config)
    recipe, rounds, step = section(there, "recipe"), section(there, "task").get("rounds"), step_of(there)
    kind = recipe.get("kind")
    if not isinstance(kind, str) or not isinstance(recipe.get("run"), str):
        raise RunError(f"{run.config} has no digest of its run ([recipe] run and kind): {OLD}")
    if rounds is not None and recipe["run"] != run_digest(kind, rounds):
        raise RunError(f"{run.config} says {rounds!r} rounds, but its digest ([recipe] run) says something else: {OLD}")
    try:
        if step not in TO_BE_CHOSEN:
            ways_of(step, section(section(there, "fleet"), "levels"))
    except (ConfigError, TypeError) as error:
        raise RunError(f"{run.config} cannot be used, since {error}: {OLD}") from error
    return there


def comparable(config: Table) -> Table:
    """A config without what may change, and without the digest that changes with the number of rounds."""
    free = {"run": ""} if "rounds" in section(config, "task") else {}
    return {**config, "engine": {}, "recipe": {**section(config, "recipe"), **free}}


def require_longer(run: RunDirectory, planned: Any, done: int, experiment: Experiment) -> None:
    """Refuse another number of rounds, unless the run then equals one that was planned for so many from the start."""
    rounds = experiment.task.rounds
    if rounds < planned:
        raise RunError(
            f"{run.path} holds a run of {planned} rounds, {done} of them done, but task.rounds is {rounds}: a run can "
            "be made longer, not shorter"
        )
    if reason := looks_ahead(experiment):
        raise RunError(
            f"{run.path} holds a run of {planned} rounds, but task.rounds is {rounds}, and {reason}: a run of "
            f"{rounds} rounds differs from its first round on; start it in another directory"
        )


def looks_ahead(experiment: Experiment) -> str:
    """Why a round depends on how many there will be; empty if it does not."""
    method, ctx = experiment.method, experiment.site.context(0)
    if method.looks_ahead:
        return f"{type(method).__name__} looks at the number of rounds"
    settings = [experiment.task.train]
    state = first_state(method, ctx)
    for level in experiment.admitted():
        job = Job(recipient(level, ctx), 0, method.distribute(state, recipient(level, ctx), ctx))
        with seeded(ctx.seed, "expected"):
            settings += [phase.train for phase in method.phases(job, ctx, {}) if phase.train]
    falls = next((train.schedule for train in settings if train.schedule in ("cosine", "linear")), "")
    return f"the learning rate falls to 0 towards the last round (train.schedule is '{falls}')" if falls else ""


def weights_of(config: Table) -> object:
    """The digest of a ready-made network's weights, if there was one."""
    return section(config, "recipe").get("weights")


def nothing_to_resume(path: Path) -> str:
    """What is said if a directory has no finished round that could be resumed; empty if it has."""
    run = RunDirectory(path)
    if run.checkpoint.exists():
        return ""
    what = "has no checkpoint" if run.config.exists() else "holds no run"
    return f"There is nothing to resume: {path} {what}. The run begins with its first round."

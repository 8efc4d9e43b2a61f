"""The short way in: `potluck.run` with a network and data of one's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from potluck import methods
from potluck.core.data import Arrays, Examples
from potluck.core.errors import DataError
from potluck.core.fleet import Assignment
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.random import stream
from potluck.core.types import Train
from potluck.core.ways.step import Step
from potluck.data import sources
from potluck.data.assignment import assignment_named
from potluck.data.dataset import Dataset
from potluck.data.own import examples_from
from potluck.data.partitions import Partition, partition_named
from potluck.engines import make_engine
from potluck.study.config import read_plug
from potluck.study.experiment import Experiment, assemble
from potluck.study.recipes import Model
from potluck.study.result import Result
from potluck.study.run import execute
from potluck.study.schema import Origin, Table, as_table, read_table
from potluck.study.settings import EngineSection, FleetSection, Named, Settings, TaskSection
from potluck.study.watchers import Rounds, Watcher

Checked = TypeVar("Checked")
ROUNDS = Rounds()


def run(
    *,
    model: Model,
    data: Any,
    levels: Mapping[str, float],
    clients: int,
    rounds: int,
    method: str | Method = "heterofl",
    test: Any = 0.2,
    proxy: Any = None,
    partition: Named | Partition = "iid",
    assignment: Named | Assignment = "fixed",
    train: Train | None = None,
    guard: Guard | None = None,
    cohort: int | float = 10,
    evaluate_every: int = 1,
    calibration_clients: int = 100,
    scored_clients: int = 100,
    seed: int = 0,
    engine: str = "local",
    workers: int = 0,
    step: Step = "plain",
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = ROUNDS,
) -> Result:
    """Train one network per device class in a simulated federation.

    `model` is your network, or a function of the width that builds one; `levels` gives each device class its width. A
    dictionary from levels to networks gives each a network of its own, for methods that take any.
    `data` is the name of a data set that Potluck knows, such as "digits", a `Dataset` of Potluck's, a pair of arrays or
    tensors, or any `torch.utils.data.Dataset` of (input, label) pairs; `test` is more of the same, or the share of your
    own data to hold out. `proxy` is more of the same that everybody may have, for methods that train on public data.
    With `out` the run is recorded in that directory, and `resume=True` continues it after an interruption.
    `step="auto"` finds the fastest way to run each level's training steps first.
    Each evaluated round prints a line to stderr; `watcher=None` keeps quiet.

    >>> import torch, potluck
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> result = potluck.run(model=net, data=(x, (x[:, 0] > 0).long()), levels={"server": 1.0, "watch": 0.25},
    ...                      clients=6, rounds=3, train=potluck.Train(lr=0.1), engine="serial")
    >>> result.export("watch")[0]
    Linear(in_features=4, out_features=4, bias=True)
    """
    here = Origin()
    dealt = read_plug(assignment_named, assignment, "fleet", here) if isinstance(assignment, str | dict) else assignment
    asked = {
        "task": {
            "model": name_of_object(model),
            "rounds": rounds,
            "evaluate_every": evaluate_every,
            "calibration_clients": calibration_clients,
            "scored_clients": scored_clients,
        },
        "fleet": {"clients": clients, "levels": dict(levels), "cohort": cohort, "assignment": plug_table(dealt)},
        "engine": {"name": engine, "workers": workers, "step": step, "device": device},
    }
    settings = Settings(
        method=recheck(method if isinstance(method, Method) else methods.find(method)(), "method"),
        task=read_table(TaskSection, asked["task"], "task", "", here),
        fleet=read_table(FleetSection, asked["fleet"], "fleet", "", here),
        partition=(
            read_plug(partition_named, partition, "partition", here) if isinstance(partition, str | dict) else partition
        ),
        assignment=dealt,
        train=recheck(train or Train(), "train"),
        engine=read_table(EngineSection, asked["engine"], "engine", "", here),
        guard=recheck(guard or Guard(), "guard"),
        seed=seed,
    )
    public = None if proxy is None else as_proxy(proxy)
    experiment = assemble(settings, model, as_dataset(data, test, seed), public)
    running = make_engine(settings.engine.name, settings.engine.workers)
    try:
        return execute(experiment, running, recorded(experiment), Path(out) if out else None, resume, watcher)
    finally:
        running.close()


def recorded(experiment: Experiment) -> Table:
    """What is written down of an experiment that was put together in Python."""
    settings, train = experiment.settings, experiment.data
    return {
        "name": settings.task.model,
        "seed": settings.seed,
        "task": as_table(settings.task),
        "data": {"source": described(train), "partition": plug_table(settings.partition)},
        "fleet": as_table(settings.fleet),
        "method": plug_table(settings.method),
        "train": as_table(settings.train),
        "guard": as_table(settings.guard),
        "engine": as_table(settings.engine),
    }


def as_proxy(data: Any) -> Examples:
    """Public examples, from whatever a user has."""
    if isinstance(data, Dataset):
        return data.train
    if isinstance(data, str) and data in known_sources():
        return sources.load(data).train
    return examples_from(data)


def known_sources() -> set[str]:
    """The names of data sets that Potluck knows."""
    return {known.name for known in sources.catalogue()}


def as_dataset(data: Any, test: Any, seed: int) -> Dataset:
    """The user's data, divided into what clients hold and what models are scored on."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str) and data in known_sources():
        return sources.load(data)
    examples = examples_from(data)
    if isinstance(test, float):
        kept, scored = hold_out(examples, test, seed)
    else:
        kept, scored = examples, examples_from(test)
    return Dataset(kept, scored, classes=int(max(kept.targets.max(), scored.targets.max())) + 1)


def hold_out(examples: Arrays, share: float, seed: int) -> tuple[Arrays, Arrays]:
    """Examples to train on and a random share of them to score on."""
    held = math.ceil(len(examples) * share)
    if not 0 < held < len(examples):
        raise DataError(f"test is {share}, which leaves {held} of {len(examples)} examples to score on; try 0.2")
    order = torch.randperm(len(examples), generator=stream(seed, "test"))
    return tuple(
        replace(examples, inputs=examples.inputs[part], targets=examples.targets[part])  # type: ignore[return-value]
        for part in (order[held:], order[:held])
    )


def described(examples: Examples) -> Table:
    """What tells these data from others in a record: how many there are, and a digest of their labels in order."""
    labels = examples.labels(torch.arange(len(examples)))
    return {"name": f"{len(examples)} examples", "labels": hashlib.sha256(labels.numpy().tobytes()).hexdigest()}


def recheck(settings: Checked, section: str) -> Checked:
    """The same settings with types and ranges checked, which their constructor does not do."""
    return read_table(type(settings), as_table(settings), section, type(settings).__name__, Origin())


def plug_table(thing: object) -> Table:
    """What a thing is and how it is set, for the record."""
    return {"name": name_of_object(type(thing)), **(as_table(thing) if is_dataclass(thing) else {})}


def name_of_object(thing: object) -> str:
    """`module:name` of a class or function."""
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', type(thing).__name__)}"

"""The short way in: `potluck.run` with a network and data of one's own."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from potluck import methods
from potluck.core.data import Examples
from potluck.core.errors import ConfigError
from potluck.core.fleet import Assignment
from potluck.core.goals.classes import IGNORED
from potluck.core.goals.goal import Goal
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.types import Train
from potluck.core.ways.step import Step
from potluck.data.assignment import ASSIGNMENTS
from potluck.data.dataset import Dataset, label_pieces
from potluck.data.partitions import PARTITIONS, Natural, Partition
from potluck.engines import make_engine
from potluck.study.config import name_and_options, name_of, require_milestones
from potluck.study.experiment import Experiment, assemble
from potluck.study.files import as_path
from potluck.study.given import (
    as_assignment,
    as_levels,
    as_method,
    as_model,
    as_proxy,
    as_settings,
    as_train,
    is_source,
    model_name,
)
from potluck.study.goals import as_goal, goal_table
from potluck.study.known import Divided, Lists, who_of, with_owner_column
from potluck.study.metrics import as_metrics
from potluck.study.notes import notes_on, notes_on_experiment
from potluck.study.recipes import Model
from potluck.study.result import Result
from potluck.study.resume import nothing_to_resume
from potluck.study.roster import owners_digest
from potluck.study.run import execute
from potluck.study.schema import PYTHON, Table, as_table, read_table, shown
from potluck.study.settings import Choosing, EngineSection, FleetSection, Named, Seeded, Settings, TaskSection
from potluck.study.training import train_table
from potluck.study.watchers import Rounds, completed, tell

ROUNDS = Rounds()


def run(
    *,
    model: Model | Named,
    data: Any = None,
    levels: Mapping[str, float],
    clients: int | Mapping[str, Any] | None = None,
    rounds: int,
    method: Named | Method = "heterofl",
    test: Any = 0.2,
    task: str | Goal | None = None,
    loss: Any = None,
    metrics: Mapping[str, Any] | Sequence[str] | None = None,
    proxy: Any = None,
    partition: Named | Partition | Lists | None = None,
    owners: Any = None,
    assignment: Named | Assignment = "fixed",
    train: Train | Mapping[str, Any] | None = None,
    guard: Guard | Mapping[str, Any] | None = None,
    cohort: int | float = 10,
    evaluate_every: int = 1,
    calibration_clients: int = 100,
    scored_clients: int = 100,
    validation: float = 0.0,
    seed: int = 0,
    engine: str = "local",
    workers: int = 0,
    step: Step = "counted",
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Any = ROUNDS,
) -> Result:
    """Train one network per device class in a simulated federation.

    `model` is your network, a function of the width that builds one, or the name of one, such as "heterofl-cnn";
    `levels` gives each device class its width. A dictionary from levels to networks gives each a network of its own,
    for methods that take any.
    `data` is the name of a data set that Potluck knows, such as "digits", a `Dataset` of Potluck's, (inputs, targets),
    a torch `Dataset` or `DataLoader`, a data frame, a CSV or Parquet file, a folder of images, a Hugging Face
    `Dataset`, or any of these described by `potluck.examples`; `test` is more of the same, or the share of your own
    data to hold out. `proxy` is more of the same that everybody may have, for methods that train on public data.
    `task` is what is learned: "classes" unless the data set says otherwise, "binary", "multi-label", "regression",
    "next-token", "masked-tokens", "pixels", or a goal of potluck.goals. `loss` is a function of your own of (outputs,
    targets), or a module such as nn.HuberLoss(). `metrics` names what models are scored by, such as ["macro-f1"], or is
    a dictionary of functions of (outputs, targets) and metrics of torchmetrics.
    `clients` is how many clients the data are divided over, by `partition`. If they are known already, give the data of
    each (`clients={"alice": data, …}`), the numbers of each client's examples (`partition=[[0, 5], …]`, or a dictionary
    by name), or the owner of each example (`owners=["alice", …]`, or the name of a table's column); a share to hold
    out is then one of each client's, and `test` may be a dictionary by name.
    `validation` is the share of test examples that choose the best round; `result.best` is then scored on the others.
    With `out` the run is recorded in that directory, and `resume=True` continues it after an interruption, or with
    more rounds.
    `step` says how training steps are run: "counted" chooses a fast way by what can be counted, "auto" times some ways
    first, "plain" is PyTorch as it is.
    Each evaluated round prints a line to stderr; `watcher=None` keeps quiet, and an object with some of the methods of
    `potluck.Watcher` is told what happens.

    >>> import torch, potluck
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> result = potluck.run(model=net, data=(x, (x[:, 0] > 0).long()), levels={"server": 1.0, "watch": 0.25},
    ...                      clients=6, rounds=3, train=potluck.Train(lr=0.1), engine="serial")
    >>> result.export("watch")[0]
    Linear(in_features=4, out_features=4, bias=True)
    """
    place = None if out is None or out == "" else as_path(out, "out")
    if resume and not place:
        raise ConfigError("resume is True, but out is not given; say with out= which directory holds the run")
    seed = read_table(Seeded, {"seed": seed}, "", "", PYTHON).seed
    if not isinstance(engine, str):
        raise ConfigError(f"engine is {shown(engine)}, but it should be 'local' or 'serial'")
    named = model_name(model)
    data, test, owners = with_owner_column(data, test, owners)
    who, goal, measured = who_of(clients, data, partition, owners), as_goal(task, loss), as_metrics(metrics)
    dealt = as_assignment(assignment)
    asked: dict[str, Table] = {
        "task": {
            "model": named if named is not None else name_of_object(model),
            "rounds": rounds,
            "evaluate_every": evaluate_every,
            "calibration_clients": calibration_clients,
            "scored_clients": scored_clients,
            **goal_table(goal, measured),
        },
        "fleet": {
            "clients": who.count,
            "levels": as_levels(levels),
            "cohort": cohort,
            "assignment": plug_table(dealt, ASSIGNMENTS),
        },
        "engine": {"name": engine, "workers": workers, "step": step, "device": device},
    }
    settings = Settings(
        method=as_method(method),
        task=read_table(TaskSection, asked["task"], "task", "", PYTHON),
        fleet=read_table(FleetSection, asked["fleet"], "fleet", "", PYTHON),
        partition=who.rule,
        assignment=dealt,
        train=require_milestones(as_train(train, rounds), PYTHON),
        engine=read_table(EngineSection, asked["engine"], "engine", "", PYTHON),
        guard=as_settings(Guard, guard, "guard"),
        seed=seed,
        goal=goal,
        metrics=measured,
        validation=read_table(Choosing, {"validation": validation}, "", "", PYTHON).validation,
    )
    watching = None if watcher is None else completed(watcher)
    for note in notes_on(settings, PYTHON):
        warnings.warn(note, stacklevel=2)
    public = None if proxy is None else as_proxy(proxy)
    examples = who.dataset(data, test, seed, goal)
    examples = examples.aimed_at(goal or examples.aim)
    experiment = assemble(settings, as_model(model, examples, seed), examples, public)
    for note in notes_on_experiment(experiment):
        warnings.warn(note, stacklevel=2)
    by_name_alone = is_source(data) and isinstance(who, Divided)
    config = recorded(experiment, data, proxy, None if by_name_alone else examples)
    if resume and place and watcher is not None and (sentence := nothing_to_resume(place)):
        tell(sentence)
    running = make_engine(settings.engine.name, settings.engine.workers)
    try:
        return execute(experiment, running, config, place, resume, watching)
    finally:
        running.close()


def recorded(experiment: Experiment, data: Any, proxy: Any, given: Dataset | None) -> Table:
    """What is written down of an experiment that was put together in Python: names, where things have one."""
    settings = experiment.settings
    source = {"name": data} if is_source(data) else described(experiment.data)
    whose = {"owners": owners_digest(given)} if given is not None and isinstance(settings.partition, Natural) else {}
    public = {"proxy": {"name": proxy}} if is_source(proxy) else {}
    return {
        "name": name_of(settings.task.model),
        "seed": settings.seed,
        "task": {**as_table(settings.task), "model": name_and_options(settings.task.model)},
        "data": {
            "source": source,
            "partition": {**plug_table(settings.partition, PARTITIONS), **whose},
            **({} if is_source(data) else {"test_examples": len(experiment.test)}),  # a name says which they are
            **public,
            "validation": settings.validation,
        },
        "fleet": as_table(settings.fleet),
        "method": plug_table(settings.method, ours(settings.method)),
        "train": train_table(settings.train),
        "guard": as_table(settings.guard),
        "engine": as_table(settings.engine),
    }


def described(examples: Examples) -> Table:
    """What tells these data from others in a record: how many there are, and a digest of their labels in order."""
    longest = max((labels.shape[1] for labels in label_pieces(examples) if labels.dim() > 1), default=0)
    digest = hashlib.sha256()
    for labels in label_pieces(examples):
        digest.update(labels_as_long(labels, longest).numpy().tobytes())
    return {"name": f"{len(examples)} examples", "labels": digest.hexdigest()}


def labels_as_long(labels: Tensor, longest: int) -> Tensor:
    """Targets filled up as if they were in a batch with the longest."""
    if labels.dim() < 2 or labels.shape[1] == longest:
        return labels
    return F.pad(labels, (0, 0) * (labels.dim() - 2) + (0, longest - labels.shape[1]), value=IGNORED)


def plug_table(thing: object, known: Mapping[str, type]) -> Table:
    """What a thing is and how it is set, for the record; its short name, if it has one."""
    short = next((name for name, kind in known.items() if kind is type(thing)), None)
    name = short or name_of_object(type(thing) if is_dataclass(thing) else thing)
    return {"name": name, **(as_table(thing) if is_dataclass(thing) else {})}


def ours(method: Method) -> dict[str, type]:
    """The method of Potluck's that this may be, by its short name."""
    short = type(method).__module__.rpartition(".")[2]
    return {short: methods.find(short)} if short in methods.names() else {}


def name_of_object(thing: object) -> str:
    """`module:name` of a class or function."""
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', type(thing).__name__)}"

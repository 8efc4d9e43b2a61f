"""An experiment as text: strict TOML, overridden from the command line, resolved to the last default."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from annotated_types import Ge

from potluck import methods
from potluck.core.errors import ConfigError
from potluck.core.guard import Guard
from potluck.core.random import seeded
from potluck.core.types import Train
from potluck.data.assignment import assignment_named
from potluck.data.partitions import partition_named
from potluck.study.files import toml_table
from potluck.study.goals import read_goal
from potluck.study.schema import Origin, Table, as_table, read_table, require_plain, shown
from potluck.study.settings import DataSection, EngineSection, FleetSection, Named, Settings, TaskSection
from potluck.study.training import read_train, train_table

LARGEST_FILE = 2**20  # bytes of a config: more is another file, or one without an end
LONGEST_NAME = 200  # bytes, which leaves a folder's name room for more
PLUGS = (
    "task.model",
    "data.source",
    "data.proxy",
    "data.partition",
    "fleet.assignment",
    "method",
    "method.server",
    "train.optimizer",
)
"""Where a table is a name with options of its own."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A whole experiment, every setting known."""

    name: str
    data: DataSection
    method_name: str
    recipe: Table = field(default_factory=dict)  # what an earlier run of it wrote down of its recipe
    series: Table = field(default_factory=dict)  # which of many runs it is
    origin: Origin = field(default_factory=Origin, compare=False, repr=False)

    def resolved(self) -> Table:
        """Every setting as it is in effect."""
        return {
            "name": self.name,
            "seed": self.seed,
            "task": {**as_table(self.task), "model": name_and_options(self.task.model)},
            "data": {
                **as_table(self.data),
                "source": name_and_options(self.data.source),
                "partition": {"name": name_of(self.data.partition), **as_table(self.partition)},
                **({"proxy": name_and_options(self.data.proxy)} if self.data.proxy is not None else {}),
            },
            "fleet": {
                **as_table(self.fleet),
                "assignment": {"name": name_of(self.fleet.assignment), **as_table(self.assignment)},
            },
            "method": {"name": self.method_name, **as_table(self.method)},
            "train": train_table(self.train),
            "guard": as_table(self.guard),
            "engine": as_table(self.engine),
            **({"series": self.series} if self.series else {}),
        }


@dataclass(frozen=True)
class Outline:
    """The sections a file must and may have, before any of them is read."""

    task: Table
    data: Table
    fleet: Table
    method: Table
    train: Table = field(default_factory=dict)
    engine: Table = field(default_factory=dict)
    guard: Table = field(default_factory=dict)
    recipe: Table = field(default_factory=dict)
    series: Table = field(default_factory=dict)
    name: str = "experiment"
    seed: Annotated[int, Ge(0)] = 0

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or "/" in self.name or not self.name.isprintable():
            raise ConfigError(f"name is {shown(self.name)}, but a folder gets this name: use letters, digits, - and _")
        if len(self.name.encode()) > LONGEST_NAME:
            raise ConfigError(f"name is {shown(self.name)}, but it should have at most {LONGEST_NAME} bytes")


def name_of(named: Named) -> str:
    """The name in a name or a table."""
    return named if isinstance(named, str) else str(named.get("name", ""))


def name_and_options(named: Named) -> Table:
    """A name or a table, as a table."""
    return {"name": named} if isinstance(named, str) else named


def options_of(named: Named) -> Table:
    """The options beside the name."""
    return {} if isinstance(named, str) else {key: value for key, value in named.items() if key != "name"}


def read_config(path: Path, overrides: Iterable[str] = (), trust: bool = False) -> Config:
    """An experiment from a TOML file and `key=value` overrides.

    Code that the file names, as in `my.module:net`, is refused unless you trust the file.
    """
    text = read_text(path)
    table, changed, notes = parse_toml(text, f"{path} is not valid TOML"), dict[str, str](), list[str]()
    for override in overrides:
        changed[apply_override(table, override, changed, notes)] = override.partition("=")[2]
    table.setdefault("name", path.stem)
    return parse_config(table, Origin(path, text, changed, trust, notes=tuple(notes)))


def read_text(path: Path) -> str:
    """The text of a config."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(f"{path} has more than {LARGEST_FILE} bytes; is it a config?")
        return content.decode("utf-8-sig")  # some editors put a mark in front
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error


def parse_toml(text: str, complaint: str) -> Table:
    """TOML as a table."""
    try:
        return toml_table(text)
    except ValueError as error:  # not valid, or a number of thousands of digits
        raise ConfigError(f"{complaint}: {error}") from error


def apply_override(table: Table, override: str, typed: Collection[str] = (), notes: list[str] | None = None) -> str:
    """Set one `section.key=value` in a table; returns the key. What a user may not expect is added to the notes.

    Another name drops the options of the thing that had the name before, but for those that were typed as well.
    """
    key, separator, text = override.partition("=")
    *sections, last = key.strip().split(".")
    if not separator or not last:
        raise ConfigError(f"--set {override}: expected key=value, such as train.lr=0.05")
    value = value_of(key.strip(), text)
    for section in sections:
        inner = table.setdefault(section, {})
        if isinstance(inner, str):  # `partition = "iid"` and `partition.alpha=1`: the name becomes a table
            inner = table[section] = {"name": inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override}: '{section}' is {shown(inner)}, which has no settings of its own")
        table = inner
    owner, before = ".".join(sections), table.get("name")
    if last == "name" and owner in PLUGS and before not in (None, value):
        dropped = [option for option in table if option != "name" and f"{owner}.{option}" not in typed]
        for option in dropped:
            del table[option]
        if dropped and notes is not None:
            notes.append(
                f"{owner} is {shown(value)} now: the options of {shown(before)} are dropped ({', '.join(dropped)})"
            )
    table[last] = value
    return key.strip()


def value_of(key: str, text: str) -> Any:
    """What is typed after `key=`; a bare word is a string, so that quotes need not survive the shell."""
    try:
        return parse_toml(f"value = {text}", f"--set {key}")["value"]
    except ConfigError as error:
        if isinstance(error.__cause__, tomllib.TOMLDecodeError):
            return text
        raise


def parse_config(table: Mapping[str, Any], origin: Origin) -> Config:
    """A config from tables, every part checked."""
    require_plain(table, origin)
    outline = read_table(Outline, table, "", "the config", origin)
    task = read_table(TaskSection, outline.task, "task", "", origin)
    data = read_table(DataSection, outline.data, "data", "", origin)
    fleet = read_table(FleetSection, outline.fleet, "fleet", "", origin)
    method_name = outline.method.get("name")
    if not isinstance(method_name, str):
        raise ConfigError(f"[method] needs a 'name', such as 'heterofl'{origin.place('method', 'name')}")
    with seeded(outline.seed, "model"):  # the method's file may make a network as well, as it is imported
        find = partial(methods.find, trusted=origin.trusts("method", "name"))
        method = read_plug(find, outline.method, "method", origin)
    with seeded(outline.seed, "model"):
        goal = read_goal(task, origin)
    return Config(
        name=outline.name,
        seed=outline.seed,
        task=task,
        data=data,
        fleet=fleet,
        method=method,
        train=require_milestones(read_train(outline.train, origin, task.rounds), origin),
        engine=read_table(EngineSection, outline.engine, "engine", "", origin),
        guard=read_table(Guard, outline.guard, "guard", "", origin),
        recipe=outline.recipe,
        series=outline.series,
        goal=goal,
        metrics=None if task.metrics is None else dict.fromkeys(task.metrics),
        validation=data.validation,
        partition=read_plug(partition_named, data.partition, "data.partition", origin),
        assignment=read_plug(assignment_named, fleet.assignment, "fleet.assignment", origin),
        method_name=method_name,
        origin=origin,
    )


def require_milestones(train: Train, origin: Origin) -> Train:
    """Refuse a rate that falls in steps, but never."""
    if train.schedule == "multistep" and not train.milestones:
        raise ConfigError(
            f"{origin.about('train')}schedule is 'multistep', but milestones is empty; name the rounds at which the "
            f"rate falls, such as [10, 20]{origin.place('train', 'schedule')}"
        )
    return train


def read_plug(find: Callable[[str], Any], named: Named, section: str, origin: Origin) -> Any:
    """A thing by name with its options: the name finds the dataclass, the options fill it."""
    name, (outer, _, key) = name_of(named), section.rpartition(".")
    try:
        schema = find(name)
    except ConfigError as error:
        place = origin.place(section, "name") if isinstance(named, dict) and not outer else origin.place(outer, key)
        raise ConfigError(f"{origin.about(section)}{error}{place}") from error
    return read_table(schema, options_of(named), section, name, origin)


def write_toml(table: Table) -> str:
    """A table as TOML text."""
    return tomli_w.dumps(table)


def differences(one: Table, other: Table, prefix: str = "") -> list[str]:
    """The dotted keys in which two tables differ, with both values."""
    found = []
    for key in sorted({*one, *other}):
        mine, yours = one.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(yours, dict):
            found += differences(mine, yours, f"{prefix}{key}.")
        elif mine != yours:
            found.append(f"{prefix}{key} ({json.dumps(mine)} there, {json.dumps(yours)} here)")
    return found

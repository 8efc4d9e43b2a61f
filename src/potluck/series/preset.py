"""The papers' experiments: tables of what varies, with the papers' numbers.

A preset is one table or figure. Its rows and cases are its two axes, and every row in every case is one experiment.
Settings that several presets share stand once in their file, by name; a preset, a case and a row say what they add
(`use`, and `on` where settings build on others). A file may write rows shorter: `compact.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from potluck.core.errors import ConfigError
from potluck.core.plug import hint, unknown
from potluck.series.compact import expanded, fleet_of
from potluck.series.layers import merged
from potluck.study.schema import NOWHERE, Table, fields_of, read_table

PLACE = "potluck.presets"
ALONE = ""  # the case of a preset that has no cases


@dataclass(frozen=True)
class Row:
    """A row of a table, or a line of a figure."""

    name: str
    settings: Table = field(default_factory=dict)
    where: dict[str, Table] = field(default_factory=dict)  # what it adds in a case
    cases: tuple[str, ...] | None = None  # those in which the paper has it; all if not given
    costs: dict[str, dict[str, str]] = field(default_factory=dict)  # column to level to what the paper prints
    misprints: dict[str, str] = field(default_factory=dict)  # `column.level` or `case.score` to what is wrong with it
    paper: dict[str, dict[str, float]] = field(default_factory=dict)  # case to score to what the paper reports
    deviations: dict[str, dict[str, float]] = field(default_factory=dict)  # of these scores over seeds, if it says so


@dataclass(frozen=True)
class Preset:
    """A table or figure of a paper."""

    name: str
    title: str
    rows: tuple[Row, ...]
    cases: dict[str, Table]
    settings: Table
    source: str  # the paper
    measure: str = "accuracy"  # what `paper` reports; accuracies are in percent
    note: str = ""
    targets: dict[str, float] = field(default_factory=dict)  # case to the score that costs are counted up to
    part_of: str = ""  # the preset whose experiments these are, if it has them already
    shows: tuple[str, ...] = ()  # the measures of each level to show where the paper has no numbers, if not `measure`

    @property
    def home(self) -> str:
        """The preset in whose folder the runs are: a table that is a part of another has none of its own."""
        return self.part_of or self.name

    def row(self, name: str) -> Row:
        """A row by name."""
        known = {row.name: row for row in self.rows}
        if name not in known:
            raise ConfigError(unknown(f"row of {self.name}", name, known))
        return known[name]

    def cases_of(self, row: Row) -> tuple[str, ...]:
        """The cases in which a row was run."""
        return tuple(self.cases) if row.cases is None else row.cases

    def config(self, row: Row, case: str) -> Table:
        """The settings of one experiment."""
        layers = [self.settings, self.cases[case], row.settings, row.where.get(case, {})]
        return {"name": self.home, **merged(layers)}


@dataclass(frozen=True)
class RowText:
    """A row as a file has it."""

    name: str
    levels: str = ""  # those that it has, as in "a-e", with their shares as in "a1-e9"
    use: tuple[str, ...] = ()
    set: Table = field(default_factory=dict)
    where: dict[str, Table] = field(default_factory=dict)
    cases: tuple[str, ...] | None = None
    costs: dict[str, dict[str, str]] = field(default_factory=dict)
    misprints: dict[str, str] = field(default_factory=dict)
    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    deviations: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class PresetText:
    """A preset as a file has it."""

    name: str
    title: str
    rows: tuple[RowText, ...] = ()
    part_of: str = ""  # has these rows among its own, with their numbers
    like: str = ""  # has the rows and the cases to which this one adds settings; its numbers are not this one's
    only: tuple[str, ...] | None = None  # the rows taken from there; all if not given
    use: tuple[str, ...] = ()
    set: Table = field(default_factory=dict)
    cases: dict[str, Table] = field(default_factory=dict)
    measure: str | None = None  # that of the preset it is like, else "accuracy"
    note: str = ""
    targets: dict[str, float] = field(default_factory=dict)
    shows: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileText:
    """A file of presets: one paper's."""

    paper: str
    presets: tuple[PresetText, ...]
    settings: dict[str, Table] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)  # what names in `levels` of rows mean


def read_file(text: str) -> list[Preset]:
    """The presets in a file."""
    table = tomllib.loads(text)
    table["presets"] = [expanded(each, table.get("levels", {})) for each in table.get("presets", [])]
    for preset in table["presets"]:
        require_keys(PresetText, preset, f"preset {preset.get('name', '')}")
        for row in preset["rows"]:
            require_keys(RowText, row, f"row {row['name']} of {preset.get('name', '')}")
    file = read_table(FileText, table, "", "a file of presets", NOWHERE)
    found: dict[str, Preset] = {}
    for each in file.presets:
        whole = each.part_of or each.like
        if whole and whole not in found:
            raise ConfigError(unknown("preset above", whole, found))
        found[each.name] = derived(each, found[whole], file) if whole else preset_of(each, file)
    return list(found.values())


def require_keys(schema: type[Any], table: Table, whose: str) -> None:
    """Refuse what nothing reads: tables in tables are not checked otherwise."""
    for key in table:
        if key not in fields_of(schema):
            raise ConfigError(f"{whose} has no {key!r}; {hint(key, fields_of(schema))}")


def preset_of(text: PresetText, file: FileText) -> Preset:
    """A preset with rows of its own."""
    cases = cases_in(text, file) or {ALONE: {}}
    rows = tuple(row_of(row, file) for row in text.rows)
    for row in rows:
        for name in (*row.where, *row.paper, *(row.cases or ())):
            if name not in cases:
                raise ConfigError(f"row {row.name} of {text.name}: {unknown('case', name, cases)}")
    settings = settings_of(text, file)
    return Preset(
        text.name,
        text.title,
        rows,
        cases,
        settings,
        file.paper,
        text.measure or "accuracy",
        note_of(text.note),
        text.targets,
        shows=text.shows,
    )


def note_of(*texts: str) -> str:
    """A note in one line, however a file breaks it."""
    return " ".join(word for text in texts for word in text.split())


def row_of(text: RowText, file: FileText) -> Row:
    """A row with all of its settings."""
    return Row(
        text.name,
        merged([fleet_of(text.levels, file.levels), settings_of(text, file)]),
        {case: with_used(table, file) for case, table in text.where.items()},
        text.cases,
        text.costs,
        text.misprints,
        text.paper,
        text.deviations,
    )


def derived(text: PresetText, whole: Preset, file: FileText) -> Preset:
    """Some rows of another preset: its experiments, or such with other settings, of which no numbers are known."""
    rows = whole.rows if text.only is None else tuple(whole.row(name) for name in text.only)
    note, shows = note_of(whole.note, text.note), text.shows or whole.shows
    part = replace(whole, name=text.name, title=text.title, rows=rows, note=note, shows=shows)
    if text.part_of:
        return replace(part, part_of=whole.part_of or whole.name)
    cases = cases_in(text, file) or whole.cases
    rows = tuple(
        Row(row.name, row.settings, {case: row.where[case] for case in cases if case in row.where}) for row in rows
    )
    settings = merged([whole.settings, settings_of(text, file)])
    return replace(part, rows=rows, cases=cases, settings=settings, measure=text.measure or whole.measure, targets={})


def cases_in(text: PresetText, file: FileText) -> dict[str, Table]:
    """A preset's own cases, each with all of its settings."""
    return {name: with_used(case, file) for name, case in text.cases.items()}


def settings_of(text: PresetText | RowText, file: FileText) -> Table:
    """What a preset or a row uses by name, and what it sets itself."""
    return with_used({**text.set, "use": text.use}, file)


def with_used(table: Table, file: FileText) -> Table:
    """Settings after those that they use by name."""
    own = dict(table)
    used = [layer for name in own.pop("use", ()) for layer in chain_of(file.settings, name)]
    return merged([*used, own])


def chain_of(settings: Mapping[str, Table], name: str) -> list[Table]:
    """Settings by name, after those that they build on (`on`)."""
    if name not in settings:
        raise ConfigError(unknown("settings", name, settings))
    own: dict[str, Any] = dict(settings[name])
    on = own.pop("on", None)
    return [*([] if on is None else chain_of(settings, on)), own]


@cache
def presets() -> dict[str, Preset]:
    """All presets by name, in the order of the files."""
    texts = sorted((file.name, file) for file in files(PLACE).iterdir() if file.name.endswith(".toml"))
    return {preset.name: preset for _, file in texts for preset in read_file(file.read_text(encoding="utf-8"))}


def preset_named(name: str) -> Preset:
    """A preset by name."""
    if name not in presets():
        raise ConfigError(unknown("preset", name, presets()))
    return presets()[name]

"""All presets that there are: they load, and cost what their papers print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files

import pytest

from potluck.series.preset import PLACE, Preset, Row, presets, read_file
from potluck.series.price import LevelPrice, Work, level_price, price, work_of
from potluck.study.config import Config, name_of, parse_config
from potluck.study.schema import NOWHERE

OWN = [preset for preset in presets().values() if not preset.part_of]  # the others have the same experiments
PARTS = [preset for preset in presets().values() if preset.part_of]
MANY = 40  # rows
QUICK = {"heterofl-cnn", "preresnet18"}  # networks whose costs are counted in a moment
UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
COLUMNS = {"parameters": "parameters", "macs": "paper_macs", "flops": "heterofl_flops", "space": "space"}
Costs = dict[str, LevelPrice]


def config_of(preset: Preset, row: Row, case: str) -> Config:
    return parse_config(preset.config(row, case), NOWHERE)


def first_config(preset: Preset, row: Row) -> Config:
    """Costs do not depend on the case."""
    return config_of(preset, row, preset.cases_of(row)[0])


def require_experiments(preset: Preset, rows: Sequence[Row]) -> None:
    for row in rows:
        for case in preset.cases_of(row):
            config = config_of(preset, row, case)
            assert config.name == preset.name
            scored = {score.partition("/")[0] for score in row.paper.get(case, {})} - {"mean"}
            assert scored <= set(config.fleet.levels), (row.name, case)


@pytest.mark.parametrize("preset", OWN, ids=lambda preset: preset.name)
def test_rows_are_experiments(preset: Preset) -> None:
    every = 1 if len(preset.rows) <= MANY else 9  # of a row that differs in a share alone, one in nine
    require_experiments(preset, preset.rows[::every])


@pytest.mark.slow
@pytest.mark.parametrize("preset", OWN, ids=lambda preset: preset.name)
def test_every_row_is_an_experiment(preset: Preset) -> None:
    require_experiments(preset, preset.rows)


@pytest.mark.parametrize("preset", presets().values(), ids=lambda preset: preset.name)
def test_rows_and_cases_have_names_of_their_own(preset: Preset) -> None:
    names = [row.name for row in preset.rows]
    assert names
    assert all(names)
    assert len(set(names)) == len(names)
    for row in preset.rows:
        assert {*row.paper, *row.deviations, *row.where, *preset.cases_of(row)} <= set(preset.cases)
    assert set(preset.targets) <= set(preset.cases)


def test_the_gram_matrices_of_flancs_figure_6_are_of_runs_without_orthogonality() -> None:
    figure = presets()["flanc-figure-6"]
    assert [figure.config(row, case)["method"]["orthogonality"] for row in figure.rows for case in figure.cases] == [
        0.0
    ]


def test_cells_that_fedhms_first_version_copied_are_known() -> None:
    """Table 3 repeats three cells of table 2, and table 4 a row of it."""
    table_3, table_4 = (presets()[f"fedhm-v1-table-{name}"] for name in ("3-cifar10", "4"))
    assert set(table_3.row("heterofl-v2").misprints) >= {"iid.g2", "iid.g3", "iid.g4"}
    copied = {f"{case}.g{level}" for case in ("iid", "non-iid") for level in (1, 2, 3, 4)}
    assert set(table_4.row("fedhm").misprints) == copied


def test_a_strength_that_the_paper_does_not_give_is_said_to_be_ours() -> None:
    own = [preset for preset in presets().values() if preset.name.startswith("fedhm-v1")]
    distilled = {
        preset.name
        for preset in own
        for row in preset.rows
        for case in preset.cases_of(row)
        if "self_distill" in preset.config(row, case)["method"]
    }
    assert distilled == {preset.name for preset in own if "the strength, 0.1, is ours" in preset.note}
    assert distilled


def test_heterofls_tables_say_that_the_baselines_are_left_out() -> None:
    assert all(
        "Standalone, FedAvg and LG-FedAvg" in presets()[f"heterofl-table-{table}"].note for table in (1, 2, 7, 8)
    )


@pytest.mark.parametrize("preset", presets().values(), ids=lambda preset: preset.name)
def test_notes_are_sentences_in_one_line(preset: Preset) -> None:
    assert "\n" not in preset.note
    assert not preset.note or ((preset.note[0].isupper() or preset.note[0].isdigit()) and preset.note.endswith("."))


def test_presets_have_names_of_their_own() -> None:
    texts = [file.read_text(encoding="utf-8") for file in files(PLACE).iterdir() if file.name.endswith(".toml")]
    names = [preset.name for text in texts for preset in read_file(text)]
    assert sorted(names) == sorted(presets())


@pytest.mark.parametrize("preset", PARTS, ids=lambda preset: preset.name)
def test_a_part_has_fewer_rows_than_the_whole_and_its_experiments(preset: Preset) -> None:
    whole = presets()[preset.part_of]
    assert len(preset.rows) < len(whole.rows)
    for row in preset.rows:
        assert row == whole.row(row.name)
        assert all(preset.config(row, case) == whole.config(row, case) for case in preset.cases)


def test_no_two_presets_have_the_same_settings_in_all_rows() -> None:
    seen: dict[str, str] = {}
    for preset in OWN:
        tables = [preset.config(row, case) for row in preset.rows for case in preset.cases_of(row)]
        key = repr(sorted(repr(sorted({**table, "name": ""}.items())) for table in tables))
        assert key not in seen, f"{preset.name} repeats {seen[key]}"
        seen[key] = preset.name


# What a paper prints for a column and a level


def quick(preset: Preset, row: Row) -> bool:
    return name_of(first_config(preset, row).task.model) in QUICK


PRICED = [(preset, row) for preset in OWN for row in preset.rows if row.costs]
TIERS = [
    pytest.param(preset, row, id=f"{preset.name} {row.name}", marks=[] if quick(preset, row) else [pytest.mark.slow])
    for preset, row in PRICED
]


@cache
def alone(work: Work, ratio: float) -> LevelPrice:
    """What a level costs without others."""
    found = level_price(work, ratio, frozenset({ratio}))
    assert found is not None
    return found


def priced(config: Config) -> Costs:
    """What the levels cost; those of HeteroFL are counted once for all of their combinations, which is quicker."""
    if config.method_name == "heterofl":
        return {name: alone(work_of(config), ratio) for name, ratio in config.fleet.levels.items()}
    return price(config).levels


def found_in(costs: Costs, column: str, level: str) -> float:
    """A level's value in a column, or the mean over all."""
    if level == "mean":
        return sum(found_in(costs, column, name) for name in costs) / len(costs)
    if column == "ratio":
        return costs[level].parameters / max(cost.parameters for cost in costs.values())
    return float(getattr(costs[level], COLUMNS[column]))


def agrees(value: float, printed: str) -> bool:
    """Whether a value is printed so, rounded to as many digits.

    >>> agrees(974_122, "974.1 K"), agrees(11_173_962, "11.1M")
    (True, False)
    """
    number, unit = re.fullmatch(r"([0-9.]+)\s*([A-Z]?)", printed).groups()  # type: ignore[union-attr]
    decimals = len(number.partition(".")[2])
    return abs(value / UNITS[unit] - float(number)) <= 0.5 * 10**-decimals * (1 + 1e-9)


def checked(row: Row, costs: Costs) -> Iterator[tuple[bool, bool, str]]:
    """Of every printed cost: whether it is known for a misprint, whether it is what we count, and what it is."""
    for column, levels in row.costs.items():
        for level, printed in levels.items():
            value = found_in(costs, column, level)
            known = {column, f"{column}.{level}"} & set(row.misprints)
            yield bool(known), agrees(value, printed), f"{column}.{level}: {printed}, counted {value}"


def require_columns(preset: Preset, row: Row, count: Callable[[Config], Costs]) -> None:
    entries = list(checked(row, count(first_config(preset, row))))
    assert not [told for misprint, same, told in entries if not misprint and not same]
    assert not [told for misprint, same, told in entries if misprint and same]  # it is none


@pytest.mark.parametrize(("preset", "row"), TIERS)
def test_costs_are_what_the_paper_prints_but_for_misprints(preset: Preset, row: Row) -> None:
    require_columns(preset, row, priced)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "row"), PRICED, ids=lambda each: each.name)
def test_costs_of_whole_experiments_are_what_the_paper_prints(preset: Preset, row: Row) -> None:
    require_columns(preset, row, lambda config: price(config).levels)


def unit_of(preset: Preset) -> float:
    """The last digit that a table prints."""
    numbers = [number for row in preset.rows for scores in row.paper.values() for number in scores.values()]
    decimals = max((len(f"{number!r}".partition(".")[2].removesuffix("0")) for number in numbers), default=0)
    return float(10**-decimals)


AVERAGED = [
    (preset, row, case)
    for preset in OWN
    for row in preset.rows
    for case, scores in row.paper.items()
    if "mean" in scores and len(scores) > 1
]


@pytest.mark.parametrize(("preset", "row", "case"), AVERAGED, ids=lambda each: getattr(each, "name", each))
def test_means_are_those_of_the_levels_but_for_misprints(preset: Preset, row: Row, case: str) -> None:
    scores = {level: score for level, score in row.paper[case].items() if "/" not in level}
    mean = scores.pop("mean")
    if set(scores) != set(first_config(preset, row).fleet.levels):
        return
    apart = abs(sum(scores.values()) / len(scores) - mean)
    # Levels and mean are rounded, by half of the last digit each.
    assert (apart > unit_of(preset) * (1 + 1e-9)) == (f"{case}.mean" in row.misprints), apart


def test_misprints_name_something_that_is_printed() -> None:
    for preset in OWN:
        for row in preset.rows:
            printed = {f"{column}.{level}" for column, levels in row.costs.items() for level in levels} | set(row.costs)
            printed |= {f"{case}.{score}" for case, scores in row.paper.items() for score in scores}
            assert set(row.misprints) <= printed, (preset.name, row.name)
            assert all(row.misprints.values())

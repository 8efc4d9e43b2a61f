"""How a file of presets becomes experiments."""

from __future__ import annotations

from textwrap import dedent

import pytest

from potluck.core.errors import ConfigError
from potluck.series.compact import fleet_of
from potluck.series.layers import merged
from potluck.series.preset import Preset, preset_named, presets, read_file

HEAD = """
    paper = "A paper"
    levels = { big = 1.0, half-size = 0.5, small = 0.25 }

    [settings.base]
    task.model = "preresnet18"
    train.lr = 0.1
    fleet.assignment = "blocks"

    [settings.longer]
    on = "base"
    task.rounds = 20

    [settings.clipped]
    train.clip = 1.0
"""


def read(text: str) -> dict[str, Preset]:
    return {preset.name: preset for preset in read_file(dedent(HEAD) + dedent(text))}


def one(text: str) -> Preset:
    (found,) = read('[[presets]]\nname = "one"\ntitle = "One"\n' + dedent(text)).values()
    return found


def test_later_layers_win_key_by_key() -> None:
    assert merged([{"train": {"lr": 1, "clip": 2}}, {"train": {"lr": 3}, "seed": 4}]) == {
        "train": {"lr": 3, "clip": 2},
        "seed": 4,
    }


def test_a_name_takes_the_place_of_the_name_and_its_options() -> None:
    layers = [{"method": {"name": "fedhm", "rho": 2}}, {"method": {"name": "heterofl"}}]
    assert merged(layers) == {"method": {"name": "heterofl"}}
    layers = [{"data": {"source": {"name": "mnist", "recipe": "plain"}}}, {"data": {"source": {"name": "digits"}}}]
    assert merged(layers) == {"data": {"source": {"name": "digits"}}}


def test_options_without_a_name_go_to_what_is_named_already() -> None:
    layers = [{"task": {"model": "preresnet18"}}, {"task": {"model": {"norm": "gn"}}}, {"task": {"model": {"a": 1}}}]
    assert merged(layers) == {"task": {"model": {"name": "preresnet18", "norm": "gn", "a": 1}}}


def test_levels_are_taken_whole() -> None:
    assert merged([{"fleet": {"levels": {"a": 1.0}}}, {"fleet": {"levels": {"b": 0.5}}}]) == {
        "fleet": {"levels": {"b": 0.5}}
    }


def test_a_layer_leaves_those_before_it_as_they_were() -> None:
    first = {"task": {"model": {"name": "cnn"}}}
    merged([first, {"task": {"model": {"norm": "gn"}, "rounds": 3}}])
    assert first == {"task": {"model": {"name": "cnn"}}}


def test_settings_come_from_presets_then_cases_then_rows_then_rows_in_a_case() -> None:
    preset = one("""
        use = ["longer"]
        set = { train.lr = 0.2, seed = 1 }
        cases.iid = { train.lr = 0.3, train.epochs = 3 }
        cases.skewed.use = ["clipped"]
        rows = [{ name = "r", set = { train.epochs = 4 }, where.skewed = { use = ["base"], train.epochs = 5 } }]
    """)
    (row,) = preset.rows
    iid, skewed = (preset.config(row, case) for case in ("iid", "skewed"))
    assert iid["train"] == {"lr": 0.3, "epochs": 4}
    assert skewed["train"] == {"lr": 0.1, "clip": 1.0, "epochs": 5}
    assert iid["task"] == {"model": "preresnet18", "rounds": 20}
    assert (iid["seed"], iid["name"]) == (1, "one")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('use = ["longr"]', "there is no settings 'longr'; did you mean 'longer'?"),
        ('cases.iid.use = ["clippd"]', "there is no settings 'clippd'; did you mean 'clipped'?"),
        ('rows = [{ name = "r", levels = "big-smal" }]', "there is no level 'smal'; did you mean 'small'?"),
        (
            'cases.iid = {}\nrows = [{ name = "r", paper.idd = { big = 1.0 } }]',
            "row r of one: there is no case 'idd'; did you mean 'iid'?",
        ),
        ("rowz = []", "did you mean 'rows'?"),
        ('table = """\nname | levels\nr | big | 3\n"""', "table has 2 columns, but this row 3 cells: r | big | 3"),
        ('part_of = "two"', "there is no preset above 'two'; there are none"),
    ],
)
def test_what_a_file_names_wrongly_is_told_with_the_nearest_name(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        one(text)
    assert told in str(error.value)


def test_unknown_presets_and_rows_are_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="there is no preset 'heterofl-table-77'; did you mean 'heterofl-table-7'"):
        preset_named("heterofl-table-77")
    with pytest.raises(ConfigError, match="there is no row of heterofl-table-7 'a-x'; did you mean"):
        presets()["heterofl-table-7"].row("a-x")


def test_a_table_is_rows_and_empty_cells_say_nothing() -> None:
    preset = one('''
        use = ["base"]
        cases.iid = {}
        table = """
        levels    | use     | costs.space.mean | set.method.scaler | set.task.model.norm | paper.iid.{largest}/loss
        big-small | clipped | 1.50             |                   | gn                  | 90
        small     |         |                  | false             |                     |
        """
    ''')
    wide, narrow = preset.rows
    assert (wide.name, narrow.name) == ("big-small", "small")
    assert wide.costs == {"space": {"mean": "1.50"}}
    assert wide.paper == {"iid": {"big/loss": 90.0}}
    assert preset.config(wide, "iid")["fleet"]["levels"] == {"big": 1.0, "small": 0.25}
    assert preset.config(wide, "iid")["train"]["clip"] == 1.0
    assert preset.config(wide, "iid")["task"]["model"] == {"name": "preresnet18", "norm": "gn"}
    assert preset.config(narrow, "iid")["method"] == {"scaler": False}
    assert (narrow.costs, narrow.paper) == ({}, {})


def test_levels_may_have_dashes_in_their_names_only_if_no_row_lists_them() -> None:
    with pytest.raises(ConfigError, match="there is no level 'half'"):
        fleet_of("big-half-size", {"big": 1.0, "half-size": 0.5})


def test_a_number_at_the_end_of_a_level_is_its_name_if_there_is_one_of_that_name() -> None:
    assert fleet_of("g1-g2", {"g1": 1.0, "g": 0.5, "g2": 0.25}) == {"fleet": {"levels": {"g1": 1.0, "g2": 0.25}}}


def test_an_interpolation_mixes_every_two_levels_in_tenths() -> None:
    preset = one('use = ["base"]\ninterpolate = ["big", "small"]')
    assert [row.name for row in preset.rows] == [f"big{part}-small{10 - part}" for part in range(1, 10)]
    assert preset.config(preset.rows[0], "")["fleet"] == {
        "levels": {"big": 1.0, "small": 0.25},
        "assignment": {"name": "blocks", "mix": {"big": 1, "small": 9}},
    }


TWO = """
    [[presets]]
    name = "whole"
    title = "Whole"
    measure = "perplexity"
    targets = { iid = 3.5 }
    use = ["base"]
    cases.iid = {}
    cases.skewed = {}
    rows = [
      { name = "r", set.seed = 1, where.skewed.train.clip = 2.0, paper.iid.big = 3.0, costs.space.big = "1" },
      { name = "s", set.seed = 2 },
    ]

    [[presets]]
    name = "other"
    title = "Other"
"""


def test_a_part_has_the_experiments_and_the_numbers_of_the_whole() -> None:
    found = read(TWO + 'part_of = "whole"\nonly = ["r"]')
    whole, part = found["whole"], found["other"]
    assert part.rows == whole.rows[:1]
    assert part.config(part.rows[0], "skewed") == whole.config(whole.rows[0], "skewed")
    assert (part.name, part.part_of, part.title, part.measure) == ("other", "whole", "Other", "perplexity")
    assert part.targets == whole.targets == {"iid": 3.5}


def test_what_is_like_another_has_its_rows_but_not_its_numbers() -> None:
    found = read(TWO + 'like = "whole"\nuse = ["longer"]\nset.train.lr = 0.5')["other"]
    assert [row.name for row in found.rows] == ["r", "s"]
    assert all((row.costs, row.paper) == ({}, {}) for row in found.rows)
    assert found.targets == {}
    config = found.config(found.rows[0], "skewed")
    assert config["name"] == "other"
    assert config["train"] == {"lr": 0.5, "clip": 2.0}
    assert config["task"]["rounds"] == 20
    assert found.measure == "perplexity"


def test_what_is_like_another_may_have_cases_of_its_own() -> None:
    found = read(TWO + 'like = "whole"\nonly = ["r"]\ncases.few.fleet.cohort = 2')["other"]
    (row,) = found.rows
    assert found.cases_of(row) == ("few",)
    assert row.where == {}
    assert found.config(row, "few")["fleet"]["cohort"] == 2


def test_rows_of_another_that_are_not_there_are_told() -> None:
    with pytest.raises(ConfigError, match="there is no row of whole 'q'"):
        read(TWO + 'part_of = "whole"\nonly = ["q"]')

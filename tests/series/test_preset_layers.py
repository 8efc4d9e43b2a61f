"""How a file of presets puts settings together: what stands once, and what a preset, a case and a row add."""

from __future__ import annotations

import pytest

from potluck.core.errors import ConfigError
from potluck.series.preset import Preset, read_file

FILE = """
paper = "A paper"

[settings.common]
fleet = { clients = 20, levels = { a = 1.0, b = 0.5 } }
train.lr = 0.1

[settings.dynamic]
fleet.assignment = "dynamic"

[settings.fixed]
fleet.assignment = { name = "blocks" }

[settings.mostly-b]
fleet.assignment.mix = { a = 1, b = 3 }

[settings.warm]
method.temperature = 5.0

[[presets]]
name = "table"
title = "A table"
use = ["common"]
targets = { dynamic = 92.0 }
cases.dynamic.use = ["dynamic"]
cases.fixed = { use = ["fixed"], train.lr = 0.2 }

[[presets.rows]]
name = "plain"
set.method = { name = "fedhm", rho = 2 }
where.dynamic = { use = ["warm"], method.decay = 0.1 }
paper.dynamic = { a = 90.0 }
deviations.dynamic = { a = 0.5 }

[[presets.rows]]
name = "uneven"
use = ["mostly-b"]
set.method = { name = "heterofl" }
set.fleet.levels = { b = 0.5, c = 0.25 }
"""


@pytest.fixture
def preset() -> Preset:
    return read_file(FILE)[0]


def test_a_case_uses_settings_by_name_and_adds_its_own(preset: Preset) -> None:
    config = preset.config(preset.row("plain"), "fixed")
    assert config["fleet"]["assignment"] == {"name": "blocks"}
    assert config["train"] == {"lr": 0.2}
    assert all("use" not in section for section in (config, *preset.cases.values()))


def test_a_row_uses_settings_by_name_in_one_case_only(preset: Preset) -> None:
    row = preset.row("plain")
    assert preset.config(row, "dynamic")["method"] == {"name": "fedhm", "rho": 2, "temperature": 5.0, "decay": 0.1}
    assert preset.config(row, "fixed")["method"] == {"name": "fedhm", "rho": 2}


@pytest.mark.parametrize(("case", "name"), [("dynamic", "dynamic"), ("fixed", "blocks")])
def test_options_without_a_name_join_the_name_that_the_case_gave(preset: Preset, case: str, name: str) -> None:
    config = preset.config(preset.row("uneven"), case)
    assert config["fleet"]["assignment"] == {"name": name, "mix": {"a": 1, "b": 3}}


def test_levels_are_taken_whole(preset: Preset) -> None:
    assert preset.config(preset.row("uneven"), "fixed")["fleet"]["levels"] == {"b": 0.5, "c": 0.25}


def test_deviations_and_targets_stand_beside_what_the_paper_reports(preset: Preset) -> None:
    row = preset.row("plain")
    assert (row.paper, row.deviations) == ({"dynamic": {"a": 90.0}}, {"dynamic": {"a": 0.5}})
    assert preset.targets == {"dynamic": 92.0}


def test_a_case_that_uses_what_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"settings .*'dynamics'.*dynamic"):
        read_file(FILE.replace('cases.dynamic.use = ["dynamic"]', 'cases.dynamic.use = ["dynamics"]'))


LATER = """
paper = "A paper"

[[presets]]
name = "whole"
title = "Whole"
note = "Of the whole."
cases.plain = {}
cases.free = { method.orthogonality = 0.0, fleet.assignment.mix = { a = 1 } }

[[presets.rows]]
name = "row"
set = { method.name = "flanc", fleet.assignment = "blocks" }

[[presets]]
name = "part"
title = "Part"
part_of = "whole"
note = "Of the part."

[[presets]]
name = "other"
title = "Other"
like = "whole"
"""


def test_options_that_a_case_sets_stay_when_the_row_names_the_thing() -> None:
    """Cases come before rows: what a case sets of a method that only the row names was lost."""
    whole = read_file(LATER)[0]
    found = {case: whole.config(whole.row("row"), case) for case in whole.cases}
    assert found["free"]["method"] == {"name": "flanc", "orthogonality": 0.0}
    assert found["free"]["fleet"]["assignment"] == {"name": "blocks", "mix": {"a": 1}}
    assert found["plain"]["method"] == {"name": "flanc"}


def test_what_is_said_of_a_preset_is_said_of_what_is_a_part_of_it_or_like_it() -> None:
    assert [preset.note for preset in read_file(LATER)] == [
        "Of the whole.",
        "Of the whole. Of the part.",
        "Of the whole.",
    ]

"""What a smaller network saves until it is as good as the whole one."""

from pathlib import Path

import pytest

from potluck.core.errors import ConfigError
from potluck.series.played import Played
from potluck.series.preset import read_file
from potluck.series.reproduction import cells_of, names, with_whole
from potluck.series.results import NO_TARGET, reproduction_sheet, require_costs
from potluck.series.savings import saved

FIGURE = """
paper = "a paper"

[[presets]]
name = "figure"
title = "Figure: what it takes to get there"
targets = { iid = 80.0 }
cases.iid.data = { source = "digits" }
set = { fleet.levels = { all = 1.0 }, task.rounds = 3 }

[[presets.rows]]
name = "whole"

[[presets.rows]]
name = "small"
paper.iid = { "all/communication_saved" = 4.0, "all/computation_saved" = 2.0 }
"""


def played(scores: list[float], sent: int, macs: int) -> Played:
    records = [
        {
            "round": at,
            "levels": {"all": {"accuracy": score, "loss": 1.0}},
            "bytes_down": sent,
            "bytes_up": sent,
            "macs": macs,
            "seconds_training": 1.0,
        }
        for at, score in enumerate(scores, start=1)
    ]
    return Played(Path("run"), {"seed": 0}, records)


WHOLE = played([0.7, 0.8, 0.9], sent=400, macs=100)  # there after two rounds: 1,600 bytes, 200 MACs
SMALL = played([0.6, 0.7, 0.8], sent=50, macs=10)  # after three: 300 bytes, 30 MACs
NEVER = played([0.1, 0.2, 0.3], sent=50, macs=10)


def test_what_is_saved_is_the_quotient_of_the_costs_to_the_target() -> None:
    assert saved([SMALL], [WHOLE], "communication_saved", 0.8) == pytest.approx(1600 / 300)
    assert saved([SMALL, SMALL], [WHOLE], "computation_saved", 0.8) == pytest.approx(200 / 30)


def test_of_several_seeds_the_mean_costs_are_divided() -> None:
    """Not the mean of quotients, which one lucky seed of the smaller network carries away."""
    lucky, cheaper = played([0.8], sent=50, macs=10), played([0.8], sent=400, macs=100)
    assert saved([SMALL, lucky], [WHOLE, cheaper], "communication_saved", 0.8) == pytest.approx(1200 / 200)


def test_nothing_is_said_of_runs_that_do_not_get_there_and_without_a_target() -> None:
    assert saved([SMALL, NEVER], [WHOLE], "communication_saved", 0.8) is None
    assert saved([SMALL], [NEVER], "communication_saved", 0.8) is None
    assert saved([SMALL], [], "communication_saved", 0.8) is None
    assert saved([SMALL], [WHOLE], "communication_saved", None) is None


def test_a_reproduction_shows_savings_beside_the_papers() -> None:
    (preset,) = read_file(FIGURE)
    runs = {"whole.iid": [WHOLE], "small.iid": [SMALL]}
    sheet = reproduction_sheet(preset, cells_of(preset, ["small"]), runs)
    assert [row[:6] for row in sheet.rows] == [
        ("small.iid", "all/communication_saved", "5.33", "-", "4.00", "+1.33"),
        ("small.iid", "all/computation_saved", "6.67", "-", "2.00", "+4.67"),
        ("small.iid", "all", "80.00", "-", "-", "-"),
    ]
    assert sheet.notes == ()


def test_another_target_may_be_asked_for() -> None:
    """At 70 % the whole network is after one round, the small one after two."""
    (preset,) = read_file(FIGURE)
    runs, cells = {"whole.iid": [WHOLE], "small.iid": [SMALL]}, cells_of(preset, ["small"])
    assert reproduction_sheet(preset, cells, runs, 0.7).rows[0][2] == "4.00"
    (preset,) = read_file(FIGURE.replace("targets = { iid = 80.0 }", ""))
    without = reproduction_sheet(preset, cells_of(preset, ["small"]), runs)
    assert (without.rows[0][2], without.notes) == ("-", (NO_TARGET,))
    assert reproduction_sheet(preset, cells_of(preset, ["small"]), runs, 0.7).rows[0][2] == "4.00"


@pytest.mark.parametrize(
    ("row", "target", "says"),
    [
        ("small", 80.0, "--target is 80, but accuracy is a share of 1: give 0.8 for 80 %"),
        ("whole", 0.8, "--target is 0.8, but these rows of figure have no costs up to a target; leave it out"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(row: str, target: float, says: str) -> None:
    (preset,) = read_file(FIGURE)
    with pytest.raises(ConfigError) as error:
        require_costs(preset, cells_of(preset, [row]), target)
    assert str(error.value) == says


def test_savings_are_over_the_whole_network_of_the_same_case_though_only_the_small_one_is_asked_for() -> None:
    (preset,) = read_file(FIGURE)
    assert names(with_whole(preset, cells_of(preset, ["small"]))) == ["small.iid", "whole.iid"]
    assert names(with_whole(preset, cells_of(preset, []))) == ["whole.iid", "small.iid"]
    assert names(with_whole(preset, cells_of(preset, ["whole"]))) == ["whole.iid"]

"""What a smaller network saves until it is as good as the whole one."""

from pathlib import Path

import pytest

from potluck.series.played import Played
from potluck.series.preset import read_file
from potluck.series.reproduction import cells_of, reproduction_sheet
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
            "seconds": 1.0,
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
    ]

"""What a preset has, what it would cost, and what is done of it."""

import json
from dataclasses import replace
from itertools import count

import pytest
from tiny import TINY

from potluck.core.errors import RunError
from potluck.series import pace
from potluck.series.listing import details, overview
from potluck.series.pace import macs_per_second
from potluck.series.preset import read_file
from potluck.series.price import price
from potluck.series.reproduction import cells_of, entries_of
from potluck.series.scale import Scale
from potluck.study.config import parse_config, write_toml
from potluck.study.schema import Origin

(PRESET,) = read_file(TINY)


def record(folder, row, case="iid", seed=0, rounds=20, scale=None):
    """What a run leaves behind, with this many finished rounds."""
    cells = [cell for cell in cells_of(PRESET, [row]) if cell.case == case]
    (entry,) = entries_of(PRESET, cells, [seed], scale or Scale())
    path = folder / PRESET.name / entry.name
    path.mkdir(parents=True)
    config = {**entry.config().resolved(), "recipe": {"kind": "none"}}
    (path / "config.toml").write_text(write_toml(config))
    lines = [json.dumps({"round": at, "seconds": 2.0}) for at in range(1, rounds + 1)]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def results(tmp_path):
    record(tmp_path, "heterofl", seed=0)
    record(tmp_path, "heterofl", seed=1, rounds=5)
    record(tmp_path, "fedavg", seed=2, rounds=3)
    record(tmp_path, "heterofl", case="skewed", scale=Scale(rounds=0.5), rounds=10)  # another scale is no reproduction
    return tmp_path


def test_each_experiment_stands_with_the_papers_numbers_its_cost_and_what_is_done(results):
    sheet = details(PRESET, results, macs_per_second=1e6)
    cost = price(parse_config(PRESET.config(PRESET.row("heterofl"), "iid"), Origin())).macs
    first, second, third = sheet.rows
    assert first == ("heterofl.iid", "mean 85.50", f"{cost:.1e}", f"{cost / 1e6 / 3600:.1f}", "1 run, 5 of 20 rounds")
    assert (second[0], second[1], second[4]) == ("heterofl.skewed", "-", "-")
    assert (third[0], third[4]) == ("fedavg.iid", "3 of 20 rounds")
    numbers = sheet.numbers[0]
    assert (numbers["MACs"], numbers["finished"], numbers["seconds"]) == (cost, 1, 40.0)
    assert numbers["reported"] == {"big": 90.0, "mean": 85.5}


def test_the_papers_deviations_and_misprints_are_shown(tmp_path):
    known = 'deviations.iid.mean = 0.5\nmisprints."iid.mean" = "a slip"\nmisprints."iid.big" = "not shown"\n'
    (preset,) = read_file(TINY.replace("paper.iid", f"{known}paper.iid", 1))
    sheet = details(preset, tmp_path, macs_per_second=1e6)
    assert (sheet.rows[0][1], sheet.notes) == ("mean 85.50 ± 0.50 [1]", ("[1] A misprint: a slip.",))
    assert sheet.numbers[0]["misprints"] == {"big": "not shown", "mean": "a slip"}
    assert sheet.numbers[0]["reported deviations"] == {"mean": 0.5}


def test_the_overview_counts_experiments_with_a_finished_run(results, monkeypatch):
    monkeypatch.setattr("potluck.series.listing.presets", lambda: {"tiny": PRESET})
    sheet, damaged = overview(results)
    assert (sheet.rows, damaged) == ((("tiny", "Table 0, digits", "3", "1"),), [])
    assert overview(results / "nothing here")[0].rows == (("tiny", "Table 0, digits", "3", "-"),)


def test_the_overview_says_which_presets_are_of_which_paper(results, monkeypatch):
    found = [replace(PRESET, name=name, source=paper) for name, paper in (("a", "One"), ("b", "One"), ("c", "Two"))]
    monkeypatch.setattr("potluck.series.listing.presets", lambda: {preset.name: preset for preset in found})
    assert overview(results)[0].notes == ("a to b: One.", "c: Two.")


def test_the_overview_tells_once_what_it_cannot_read(results, monkeypatch):
    part = replace(PRESET, name="part", part_of="tiny")
    monkeypatch.setattr("potluck.series.listing.presets", lambda: {"tiny": PRESET, "part": part})
    (results / "tiny" / "fedavg.iid.seed2" / "metrics.jsonl").write_text("{")
    sheet, (damaged,) = overview(results)
    assert [row[3] for row in sheet.rows] == ["1", "1"]
    assert "metrics.jsonl, line 1, is damaged" in damaged
    assert damaged.endswith("; it is not counted")


def test_a_damaged_record_is_named(results):
    damaged = results / "tiny" / "heterofl.iid.seed0" / "config.toml"
    damaged.write_text("name = 1\n")
    with pytest.raises(RunError, match=r"heterofl\.iid\.seed0.config\.toml is not the config of a run"):
        details(PRESET, results, 1e6)


def test_all_cores_train_at_the_pace_of_one(monkeypatch):
    ticks = count()  # the clock: two steps of training, and four seconds
    monkeypatch.setattr("potluck.series.pace.time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr("potluck.series.pace.MINIMUM", 3)
    monkeypatch.setattr("potluck.series.pace.cores", lambda: 6)
    assert macs_per_second.__wrapped__() == 6 * 2 * pace.LAYERS * pace.MACS / 4

"""The demo's claims, over three seeds, with margins wide enough for another machine's last bits."""

import io
import re
from statistics import mean

import pytest
from rich.console import Console

from potluck.cli.demo import (
    COMPOSED,
    EVERYBODY,
    LARGEST,
    LEVELS,
    LOW_RANK,
    RUNS,
    SMALL,
    STRONG,
    by_method,
    demo_config,
    unused,
    verdict,
)
from potluck.cli.show import progress_bar
from potluck.cli.summary import Summary
from potluck.engines import make_engine
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.run import execute

CHANCE = 0.1
NOISE = 0.06
FAR_ABOVE_CHANCE = 0.4  # the lowest seen over five seeds was 0.57, for a watch


def accuracy(title, seed):
    config = demo_config({**RUNS[title]}, seed)
    experiment = from_config(config)
    return execute(experiment, make_engine("serial"), config.resolved()).accuracy


@pytest.mark.whole
def test_heterofl_keeps_up_with_strong_devices_alone_and_every_level_learns():
    """On average: single runs of either differ by several points in their last bits alone, so also by machine."""
    runs = [(accuracy(EVERYBODY, seed), accuracy(STRONG, seed)) for seed in (0, 1)]
    # seen: 94.1 against 90.3 percent over three seeds on one machine, 93.6 against 93.9 on another
    gap = mean(everybody[LARGEST] for everybody, _ in runs) - mean(strong[LARGEST] for _, strong in runs)
    assert gap > -NOISE
    for everybody, _ in runs:
        assert min(everybody.values()) > FAR_ABOVE_CHANCE > 2 * CHANCE


@pytest.mark.whole
@pytest.mark.parametrize(
    ("title", "lowest"),
    [
        (LOW_RANK, 0.85),  # seen: 0.96 for a watch
        (COMPOSED, FAR_ABOVE_CHANCE),  # seen: 0.60 for a watch, whose coefficients two clients a round train
    ],
)
def test_every_level_of_the_other_methods_learns(title, lowest):
    assert min(accuracy(title, 0).values()) > lowest


def test_strong_devices_alone_leave_the_others_without_a_model():
    config = demo_config({**RUNS[STRONG]}, 0)
    assert [level.name for level in from_config(config).admitted()] == [LARGEST]


@pytest.mark.parametrize(
    ("title", "file"),
    [
        (EVERYBODY, "digits-heterofl"),
        (SMALL, "digits-fedavg-smallest"),
        (STRONG, "digits-fedavg-strong"),
        (LOW_RANK, "digits-fedhm"),
        (COMPOSED, "digits-flanc"),
    ],
)
def test_the_experiments_are_the_demos_runs(title, file, pytestconfig):
    there = read_config(pytestconfig.rootpath / "experiments" / f"{file}.toml").resolved()
    assert {**there, "name": ""} == {**demo_config({**RUNS[title]}, 0).resolved(), "name": ""}


def summary(largest, smallest=None):
    levels = {"server": largest, "laptop": None, "phone": None, "watch": smallest}
    return Summary("x", "m", 1, "accuracy", levels, {}, {}, {}, 0, 0, 0, 0, 0, 0.0)


def test_the_verdict_is_one_honest_sentence_whoever_wins():
    others = {STRONG: summary(0.7), SMALL: summary(0.6, 0.65)}
    runs = {EVERYBODY: summary(0.9, 0.4), LOW_RANK: summary(0.5, 0.5), COMPOSED: summary(0.7, 0.1), **others}
    said = verdict(runs)
    assert "for a server is HeteroFL's with 90.0 % (strong devices alone: 70.0 %)" in said
    assert "for a watch is FedHM's with 50.0 % (one small network for all: 65.0 %)" in said
    assert said.count(". ") == 0
    assert said.endswith(".")


def test_the_table_fits_eighty_columns_with_a_row_for_each_method():
    runs = {
        title: Summary(
            "x", "m", 15, "accuracy", dict.fromkeys(LEVELS, 1.0), {}, {}, {}, 999 * 10**9, 10**9, 0, 0, 0, 1234.5
        )
        for title in RUNS
    }
    console = Console(width=80, file=io.StringIO())
    console.print(by_method(runs))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    rows = {title: next(line for line in lines if line.strip().startswith(title)) for title in RUNS}
    assert all(row.count("100.0") == len(LEVELS) and "999.0G" in row and "1234.5" in row for row in rows.values())
    (header,) = (line for line in lines if "server" in line)
    assert all(word in header for word in (*LEVELS, "MACs", "bytes", "seconds"))


def test_progress_has_labels_and_fits_eighty_columns(monkeypatch):
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None)
    monkeypatch.setattr("potluck.cli.show.console", console)
    with progress_bar(max(RUNS, key=len)) as bar:
        bar.begins(15, 0)
        bar.round_done(
            {"round": 12, "levels": {"a": {"accuracy": 0.604}, "b": {"accuracy": 0.941}, "c": {"accuracy": None}}}
        )
        for _ in range(10):
            bar.client_done(None)
    last = re.split(r"[\r\n]", console.file.getvalue())
    shown = [line for line in last if "round 12/15" in line][-1]
    assert "client 10" in shown
    assert "accuracy 60 to 94 %" in shown
    assert len(re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", shown).rstrip()) <= 80


def test_help_says_what_it_runs(potluck):
    told = potluck("demo", "--help")
    assert "Five federations" in told.words
    assert len(RUNS) == 5
    for name in ("FedAvg", "HeteroFL", "FedHM", "FLANC"):
        assert name in told.words


def test_a_second_demo_does_not_overwrite_the_first(tmp_path):
    first = unused(tmp_path / "demo")
    first.mkdir()
    assert unused(tmp_path / "demo") == tmp_path / "demo-2" != first

"""`potluck run --profile`: where the time went."""

import json
import re
from pathlib import Path

import potluck
from potluck.cli import profile
from potluck.cli.profile import PARTS, profile_table
from potluck.cli.show import console
from potluck.study.result import Profile

ROW = re.compile(r"[│|]\s*(\w+(?: \w+)?)\s*[│|]\s*([\d.]+)\s*[│|]\s*(?:([\d.]+)%)?\s*[│|]")


def rows_of(text):
    """(seconds, share in percent) of each row by its name."""
    return {name: (float(seconds), float(share or "nan")) for name, seconds, share in ROW.findall(text)}


def profiled(potluck, monkeypatch, *arguments):
    """What was told, and what it was told of."""
    seen = []
    monkeypatch.setattr(profile, "profile_table", lambda of: (seen.append(of), profile_table(of))[1])
    told = potluck("run", *arguments)
    assert told.code == 0, told.err
    return told, seen


def require_complete(told, profile):
    rows = rows_of(told.out.partition("Where the time went")[2])
    assert set(rows) == {*profile.seconds, "other", "in all", "clients"}
    for part, seconds in profile.seconds.items():
        assert rows[part][0] == float(f"{seconds:.2f}")
    shares = [rows[part][1] for part in (*profile.seconds, "other")]
    assert abs(sum(shares) - 100) < 0.05 * len(shares) + 1e-6  # each is rounded to a tenth
    whole = sum(rows[part][0] for part in (*profile.seconds, "other"))
    assert abs(rows["in all"][0] - whole) < 0.005 * len(shares) + 0.005 + 1e-6
    return rows


def test_every_part_that_was_timed_is_told(potluck, config, tmp_path, monkeypatch):
    told, (profile,) = profiled(potluck, monkeypatch, config, "--out", tmp_path / "run", "--profile")
    rows = require_complete(told, profile)
    assert {"planning", "extraction", "training", "aggregation", "evaluation", "records"} <= set(rows)
    assert "Where the time went" in told.words
    assert profile.places == 1
    assert 0 < profile.busy <= profile.seconds["training"]
    assert sum(profile.seconds.values()) <= profile.total + profile.seconds["tuning"] + 0.01  # which came before
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == 3
    for record in records:
        parts = record["seconds_by_part"]
        assert set(parts) <= set(profile.seconds)
        assert {"extraction", "training", "aggregation"} <= {part for part, seconds in parts.items() if seconds > 0}
        assert all(seconds >= 0 for seconds in parts.values())
        assert sum(parts.values()) - parts.get("transport", 0.0) <= record["seconds"] + 0.01
    assert records[1]["seconds_by_part"]["evaluation"] > 0
    for part, seconds in profile.seconds.items():  # what a round took, and what came after the last
        assert sum(record["seconds_by_part"].get(part, 0.0) for record in records) <= seconds + 1e-6


def test_tuning_is_a_part_of_its_own(potluck, config, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.core.ways.trial.TURNS", 1)
    monkeypatch.setattr("potluck.study.tuning.SHARE", 1e9)
    arguments = ("--set", "engine.step=auto", "--set", "task.rounds=1", "--out", tmp_path / "run")
    told, (profile,) = profiled(potluck, monkeypatch, config, *arguments, "--profile")
    rows = require_complete(told, profile)
    assert rows["tuning"][0] > 0
    assert "Training steps: big " in told.words


def test_nothing_is_told_unasked(potluck, config, tmp_path, monkeypatch):
    arguments = ("--set", "task.rounds=1", "--out", tmp_path / "run")
    told, seen = profiled(potluck, monkeypatch, config, *arguments)
    assert seen == []
    assert "Where the time went" not in told.words


def test_every_part_that_is_ever_timed_has_a_name():
    source = Path(potluck.__file__).parent
    timed = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'\.spent(?:_in_all)?\("(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    assert timed == set(PARTS)


def test_the_table_by_hand(capsys):
    profile = Profile({"training": 3.0, "evaluation": 1.0, "tuning": 2.0, "waiting": 1.0}, 6.0, busy=8.0, places=4)
    console.print(profile_table(profile))
    rows = rows_of(capsys.readouterr().out)
    assert rows["tuning"] == (2.0, 25.0)  # it came before the rounds, and counts in all
    assert rows["training"] == (3.0, 37.5)
    assert rows["evaluation"] == (1.0, 12.5)
    assert rows["waiting"] == (1.0, 12.5)
    assert rows["other"] == (1.0, 12.5)
    assert rows["in all"][0] == 8.0
    assert rows["clients"] == (8.0, 40.0)  # of four places in the five seconds of the rounds


def test_a_run_of_no_time_is_told_too(capsys):
    console.print(profile_table(Profile({"training": 1e-9}, 0.0, busy=0.0, places=1)))
    rows = rows_of(capsys.readouterr().out)
    assert rows["training"] == (0.0, 100.0)

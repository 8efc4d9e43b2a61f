"""What a resume writes before it goes on, and how it tells another config; no run is played here."""

import hashlib
import json

import pytest

from potluck.core.errors import RunError
from potluck.core.recipe import run_digest
from potluck.parts.cost.level import LevelCost
from potluck.study.files import read_toml
from potluck.study.journal import Journal
from potluck.study.record import Progress, RunDirectory
from potluck.study.resume import Standing, require_same
from potluck.study.seal import Seal

LINE, REST = b'{"round": 1}\n', b'{"round": 2, "lev'
COSTS = [LevelCost("big", 1.0, 10, 10, 0.1, 20, None, None, 40, 40)]


def config_for(rounds=3, kind="a", lr=0.1, **levels):
    return {
        "task": {"rounds": rounds},
        "fleet": {"levels": levels or {"big": 1.0}},
        "train": {"lr": lr},
        "engine": {"step": "plain"},
        "recipe": {"run": run_digest(kind, rounds), "kind": kind},
    }


def after_one_round(metrics=LINE):
    return Progress({}, Seal("run", 1, len(metrics), hashlib.sha256(metrics).hexdigest(), 0, ""))


@pytest.fixture
def run(tmp_path):
    """A directory with metrics, models and a final state, whatever they say."""
    run = RunDirectory(tmp_path / "run")
    (run.path / "models").mkdir(parents=True)
    run.metrics.write_bytes(LINE + REST)
    for path in (run.final, run.model("big"), run.model("small")):
        path.write_bytes(b"as it was")
    return run


def outcomes(run):
    return [path.exists() for path in (run.final, run.model("big"), run.model("small"))]


def begun(run, config, there, progress):
    if there is not None:
        run.write_config(there)
    Standing(run, config, there, progress, {}).begin(COSTS)
    return run


def test_metrics_from_before_the_first_checkpoint_do_not_count(run):
    assert begun(run, config_for(), None, None).metrics.read_bytes() == b""


def test_nor_do_they_if_the_config_was_written_already(run):
    assert begun(run, config_for(), config_for(), None).metrics.read_bytes() == b""


def test_a_new_run_has_metrics_from_its_start(tmp_path):
    run = RunDirectory(tmp_path)
    assert begun(run, config_for(), None, None).metrics.read_bytes() == b""
    assert read_toml(run.config) == config_for()
    assert run.costs() == COSTS


def test_metrics_are_cut_to_what_the_checkpoint_counts(run):
    assert begun(run, config_for(), config_for(), after_one_round()).metrics.read_bytes() == LINE


def test_metrics_that_were_changed_are_not_cut(run):
    run.metrics.write_bytes(b"?" * len(LINE) + REST)
    with pytest.raises(RunError, match="is not what it was when the checkpoint was written"):
        begun(run, config_for(), config_for(), after_one_round())
    assert run.metrics.read_bytes() == b"?" * len(LINE) + REST


def test_costs_are_counted_before_anything_else_is_changed(run):
    (run.path / "costs.json").mkdir()
    with pytest.raises(RunError):
        begun(run, config_for(5), config_for(), after_one_round())
    assert run.metrics.read_bytes() == LINE + REST
    assert outcomes(run) == [True, True, True]
    assert read_toml(run.config) == config_for()


def test_the_same_run_keeps_what_came_out_and_its_config_untouched(run):
    run.write_config(config_for())
    before = run.config.stat().st_mtime_ns, run.config.stat().st_ino
    Standing(run, config_for(), config_for(), after_one_round(), {}).begin(COSTS)
    assert outcomes(run) == [True, True, True]
    assert (run.config.stat().st_mtime_ns, run.config.stat().st_ino) == before


def test_a_longer_run_loses_what_came_out_of_the_levels_it_had(run):
    begun(run, config_for(5, big=1.0), config_for(3, big=1.0), after_one_round())
    assert outcomes(run) == [False, False, True]
    assert read_toml(run.config) == config_for(5, big=1.0)


def test_a_run_without_a_config_takes_nothing_away(run):
    begun(run, config_for(), None, None)
    assert outcomes(run) == [True, True, True]


# ---- the journal ----


def test_a_journal_is_cut_to_its_length(run):
    Journal(run.metrics, len(LINE)).cut()
    assert run.metrics.read_bytes() == LINE


def test_cutting_never_makes_a_journal_longer(run):
    journal = Journal(run.metrics, len(LINE))
    run.metrics.write_bytes(b"{}\n")
    journal.cut()
    assert run.metrics.read_bytes() == b"{}\n"


def test_a_journal_that_goes_on_has_the_length_and_digest_of_its_file(run):
    journal = Journal(run.metrics, len(LINE))
    journal.cut()
    journal.append({"round": 2})
    written = LINE + json.dumps({"round": 2}).encode() + b"\n"
    assert run.metrics.read_bytes() == written
    assert (journal.length, journal.digest) == (len(written), hashlib.sha256(written).hexdigest())


def test_a_line_is_on_disk_before_it_counts(run, monkeypatch):
    forced = []
    monkeypatch.setattr("potluck.study.journal.os.fsync", lambda file: forced.append(run.metrics.read_bytes()))
    run.metrics.write_bytes(b"")
    Journal(run.metrics, 0).append({"round": 1})
    assert forced == [LINE]


def test_a_journal_that_is_gone_cannot_be_cut(run):
    journal = Journal(run.metrics, len(LINE))
    run.metrics.unlink()
    with pytest.raises(RunError, match=r"cannot write .*metrics\.jsonl: No such file"):
        journal.cut()


# ---- what a config of another run is told by ----


def said_of(run, there, asked):
    run.write_config(there)
    with pytest.raises(RunError) as caught:
        require_same(run, asked)
    return str(caught.value)


def test_a_recipe_of_another_kind_is_refused_though_every_setting_is_the_same(run):
    assert said_of(run, config_for(kind="a"), config_for(kind="b")).endswith(
        'holds a run of another config: recipe.kind ("a" there, "b" here)'
    )


def test_the_kind_is_not_told_beside_the_setting_that_makes_it_another(run):
    assert said_of(run, config_for(kind="a"), config_for(kind="b", lr=0.5)).endswith(
        "holds a run of another config: train.lr (0.1 there, 0.5 here)"
    )


def test_more_rounds_do_not_hide_that_the_kind_is_another(run):
    said = said_of(run, config_for(3, "a"), config_for(5, "b"))
    assert 'recipe.kind ("a" there, "b" here)' in said


def test_more_rounds_alone_are_the_same_run(run):
    run.write_config(config_for(3))
    assert require_same(run, config_for(5)) == config_for(3)


def test_so_is_the_same_config_on_another_engine(run):
    run.write_config(config_for())
    assert require_same(run, {**config_for(), "engine": {"step": "plain", "workers": 7}}) == config_for()


def stepping(step, **changes):
    return {**config_for(**changes), "engine": {"step": step}}


def test_a_run_that_trains_in_another_way_is_another(run):
    said = said_of(run, stepping({"big": "plain"}), stepping({"big": "swift"}))
    assert "engine.step is {'big': 'plain'} there and {'big': 'swift'} here" in said


def test_another_setting_is_told_before_another_way_to_train(run):
    said = said_of(run, stepping({"big": "plain"}), stepping({"big": "swift"}, kind="b", lr=0.5))
    assert said.endswith("holds a run of another config: train.lr (0.1 there, 0.5 here)")

"""Records of finished reproductions: what is kept, what is refused, and the tables in docs/results.md."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from made_runs import record
from tiny import TINY

from potluck.core.errors import RunError
from potluck.series.entry import stages
from potluck.series.preset import read_file
from potluck.series.records import (
    BEGIN,
    EARLIER,
    END,
    KEPT,
    NOTHING,
    is_record,
    keep,
    kept_of,
    page_with,
    records_in,
    tables,
)
from potluck.series.reproduction import cells_of, entries_of, finished_runs
from potluck.series.scale import Scale
from potluck.study.config import write_toml

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
REFRESH = "run `make records`, which writes the tables of docs/results.md again"


# ---- those of this repository ----


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_record_is_what_its_preset_asks_for_or_says_what_has_changed(path):
    if is_record(path):
        assert kept_of(path)


def test_the_page_has_the_tables_of_the_records():
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, tables(RESULTS)), REFRESH


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_of_results_git_takes_in_records_alone(tmp_path):
    shutil.copy(ROOT / ".gitignore", tmp_path)
    run = Path("results", "table", "row.case.seed0")
    for name in ("final.safetensors", "costs.json", "checkpoint/latest.safetensors", "models/big.safetensors", EARLIER):
        write(tmp_path / run / name, "")
    for name in KEPT:
        write(tmp_path / run / name, "")
    write(tmp_path / f"{run}.toml", "")
    write(tmp_path / f"{run}.log", "")
    write(tmp_path / "docs" / "results" / "picture.svg", "")
    settings = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, env=settings, check=True)
    listed = subprocess.run(["git", "ls-files"], cwd=tmp_path, env=settings, check=True, capture_output=True, text=True)
    wanted = {f"{run}/{name}" for name in (*KEPT, EARLIER)}
    assert set(listed.stdout.split()) == {".gitignore", "docs/results/picture.svg"} | wanted


# ---- made ones ----


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def preset(monkeypatch):
    (found,) = read_file(TINY)
    monkeypatch.setattr("potluck.series.preset.presets", lambda: {"tiny": found})
    monkeypatch.setattr("potluck.series.records.presets", lambda: {"tiny": found})
    return found


@pytest.fixture
def play(preset, tmp_path):
    """Make runs as `potluck reproduce --out` would have left them, with one score in all rounds."""

    def make(row, scores, scale="1", rounds=None, **settings):
        folder = tmp_path / "elsewhere"
        entries = entries_of(preset, cells_of(preset, [row]), range(len(scores)), Scale.read(scale))
        for entry, score in zip(entries, scores, strict=True):
            config = entry.config()
            path = folder / "tiny" / entry.name
            write(path / "config.toml", write_toml({**config.resolved(), "recipe": {"run": "x"}, **settings}))
            played = range(1, (rounds or config.task.rounds) + 1)
            lines = [json.dumps(record(round, {"big": score, "small": score})) for round in played]
            write(path / "metrics.jsonl", "".join(f"{line}\n" for line in lines))
            write(path / "costs.json", "{}")
        return folder

    return make


def test_only_config_and_metrics_of_finished_runs_are_kept(play, tmp_path):
    play("heterofl.iid", [0.9, 0.8])
    folder = play("fedavg", [0.5], rounds=7)
    copied, left_out = keep(folder, tmp_path / "results")
    assert [path.relative_to(tmp_path) for path in copied] == [
        Path("results/tiny/heterofl.iid.seed0"),
        Path("results/tiny/heterofl.iid.seed1"),
    ]
    assert all({each.name for each in path.iterdir()} == set(KEPT) for path in copied)
    assert left_out == [f"{folder / 'tiny' / 'fedavg.iid.seed0'} is not finished; it is not kept"]
    assert [(each.cell.name, each.scale, each.earlier) for each in records_in(tmp_path / "results")] == [
        ("heterofl.iid", "", "")
    ] * 2
    assert not is_record(folder / "tiny" / "heterofl.iid.seed0")  # of which more than that is there


def test_a_run_with_nothing_but_some_rounds_begins_anew(play, preset):
    entries = entries_of(preset, cells_of(preset, ["fedavg"]), [0], Scale())
    (stage,) = stages(entries, play("fedavg", [0.5], rounds=7) / "tiny")
    assert (stage.done, stage.rounds, stage.finished) == (0, 20, False)


def test_only_finished_runs_stand_beside_the_papers_numbers(play, preset):
    play("fedavg", [0.5], rounds=7)
    folder = play("heterofl.iid", [0.9, 0.8])
    entries = entries_of(preset, cells_of(preset, ["fedavg", "heterofl.iid"]), [0, 1], Scale())
    found = finished_runs(stages(entries, folder / "tiny"))
    assert {name: [run.seed for run in runs] for name, runs in found.items()} == {"heterofl.iid": [0, 1]}


def test_the_tables_are_those_of_reproduce_one_for_each_scale(play, tmp_path):
    play("heterofl.iid", [0.92, 0.94])
    keep(play("fedavg", [0.5], "0.5"), tmp_path / "results")
    assert tables(tmp_path / "results") == "\n\n".join(
        [
            "### Table 0, digits",
            "Nobody et al., A Table, Nowhere 2026. `potluck reproduce tiny`.",
            "| row | level | last round | best round | paper | difference | seeds |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n"
            "| heterofl.iid | big | 93.00 ± 1.41 | - | 90.00 | +3.00 | 2 |\n"
            "| heterofl.iid | mean | 93.00 ± 1.41 | - | 85.50 | +7.50 | 2 |",
            "### Table 0, digits",
            "Nobody et al., A Table, Nowhere 2026. `potluck reproduce tiny --scale rounds=0.5`.",
            "| row | level | last round | best round | paper | difference | seeds |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n"
            "| fedavg.iid | big | 50.00 | - | - | - | 1 |\n"
            "| fedavg.iid | small | 50.00 | - | - | - | 1 |\n"
            "| fedavg.iid | mean | 50.00 | - | - | - | 1 |",
        ]
    )


def test_without_records_the_page_says_so(tmp_path):
    assert tables(tmp_path / "results") == NOTHING


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"seed": 7}, "should be in tiny/heterofl.iid.seed7"),
        ({"train": {"lr": 0.5}}, "holds another experiment than the one asked for: train.epochs (5 there, 1 here)"),
        ({"series": {"preset": "tiny", "row": "fedavg", "case": "skewed"}}, "which tiny does not have"),
        ({"series": {"preset": "tiny", "row": "heterofl", "case": "iid", "scale": {"rounds": 0.5}}}, "should be in"),
    ],
)
def test_a_record_that_is_not_what_its_preset_asks_for_is_refused_unless_it_says_what_has_changed(
    play, tmp_path, settings, says
):
    keep(play("heterofl.iid", [0.9]), tmp_path / "results")
    path = tmp_path / "results" / "tiny" / "heterofl.iid.seed0"
    changed = play("heterofl.iid", [0.9], **settings)
    shutil.copy(changed / "tiny" / path.name / "config.toml", path)
    with pytest.raises(RunError) as error:
        kept_of(path)
    assert says in str(error.value)
    write(path / EARLIER, "Its rate was 0.5.\n")
    assert tables(tmp_path / "results") == "`tiny/heterofl.iid.seed0` is not counted: Its rate was 0.5."


def test_settings_that_were_not_there_yet_have_their_defaults(play, tmp_path):
    """Else every record would be of an earlier version as soon as Potluck has one setting more."""
    keep(play("heterofl.iid", [0.9]), tmp_path / "results")
    config = tmp_path / "results" / "tiny" / "heterofl.iid.seed0" / "config.toml"
    before, there, after = config.read_text().partition("accumulate = 1\n")
    assert there
    config.write_text(before + after)
    assert kept_of(config.parent)
    metrics = config.with_name("metrics.jsonl")
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(RunError, match=r"train\.accumulate"):
        kept_of(config.parent)  # it would go on, and must have all settings


def test_an_earlier_record_must_still_be_readable(play, tmp_path):
    keep(play("heterofl.iid", [0.9]), tmp_path / "results")
    path = tmp_path / "results" / "tiny" / "heterofl.iid.seed0"
    write(path / EARLIER, "Its rate was 0.5.")
    write(path / "metrics.jsonl", '{"round": 1}\n')
    with pytest.raises(RunError, match="makes no sense"):
        kept_of(path)


def test_a_page_keeps_what_is_around_its_tables():
    page = f"# Results\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n"
    assert page_with(page, "new") == f"# Results\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe rest.\n"
    with pytest.raises(RunError, match="the page has no"):
        page_with("# Results\n", "new")

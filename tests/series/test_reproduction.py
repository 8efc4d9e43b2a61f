"""A preset's runs, their names and records, and the table beside the paper's numbers."""

import pytest
from made_runs import run
from tiny import TINY

from potluck.core.errors import ConfigError
from potluck.series.preset import read_file
from potluck.series.reproduction import cells_of, entries_of, names
from potluck.series.results import reproduction_sheet
from potluck.series.scale import Scale

(PRESET,) = read_file(TINY)
ALL = ["heterofl.iid", "heterofl.skewed", "fedavg.iid"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], ALL),
        (["heterofl"], ALL[:2]),
        (["heterofl.iid"], ALL[:1]),
        (["*.iid"], [ALL[0], ALL[2]]),
        (["fedavg", "heterofl.?id"], [ALL[0], ALL[2]]),
        (["*", "fedavg"], ALL),
    ],
)
def test_rows_and_cases_are_chosen_by_name_and_keep_the_papers_order(asked, found):
    assert names(cells_of(PRESET, asked)) == found


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("heterfl", "there is no row of tiny 'heterfl'; did you mean 'heterofl'?"),
        ("fedavg.skewed", "no row of tiny 'fedavg.skewed'; did you mean 'fedavg.iid'?"),
        ("zzz", "there are fedavg, fedavg.iid, heterofl, heterofl.iid, heterofl.skewed"),
        ("", "no row of tiny ''"),
    ],
)
def test_an_unknown_row_is_refused_with_the_nearest_names(asked, says):
    with pytest.raises(ConfigError) as error:
        cells_of(PRESET, ["heterofl", asked])
    assert says.replace("there is no", "no") in str(error.value)


def entries(scale="1", seeds=(0,), asked=()):
    return entries_of(PRESET, cells_of(PRESET, list(asked)), list(seeds), Scale.read(scale))


def test_there_is_a_run_for_each_cell_and_seed():
    found = entries(seeds=(0, 3))
    assert [entry.name for entry in found] == [f"{name}.seed{seed}" for name in ALL for seed in (0, 3)]
    assert [entry.table["seed"] for entry in found] == [0, 3] * 3


def test_a_record_says_preset_row_case_and_scale():
    (entry,) = entries("rounds=0.1,width=0.5", asked=["heterofl.skewed"])
    assert entry.name == "heterofl.skewed.seed0.rounds=0.1,width=0.5"
    wanted = {"preset": "tiny", "row": "heterofl", "case": "skewed", "scale": {"rounds": 0.1, "width": 0.5}}
    assert entry.config().resolved()["series"] == wanted
    assert entries(asked=["fedavg"])[0].config().resolved()["series"] == {
        "preset": "tiny",
        "row": "fedavg",
        "case": "iid",
    }


def test_each_scale_has_runs_of_its_own():
    assert len({entry.name for scale in ("1", "0.5", "0.1", "width=0.5") for entry in entries(scale)}) == 12


def test_a_fifth_of_the_test_examples_chooses_the_best_round():
    assert {entry.table["data"]["validation"] for entry in entries()} == {0.2}


def scored(big, small, best):
    found = run([0.0])
    (record,) = found.records
    record["levels"] = {"big": {"accuracy": big}, "small": {"accuracy": small}}
    record["validation"] = record["levels"]
    record["rest"] = {"big": {"accuracy": best}, "small": {"accuracy": small}}
    return found


def test_the_table_has_last_best_paper_and_difference():
    runs = {"heterofl.iid": [scored(0.9, 0.7, 0.95), scored(0.94, 0.8, 0.96)]}
    sheet = reproduction_sheet(PRESET, cells_of(PRESET, ["heterofl.iid"]), runs)
    assert sheet.headers == ("row", "level", "last round", "best round", "paper", "difference", "seeds")
    assert sheet.rows == (
        ("heterofl.iid", "big", "92.00 ± 2.83", "95.50 ± 0.71", "90.00", "+2.00", "2"),
        ("heterofl.iid", "mean", "83.50 ± 4.95", "85.25 ± 3.89", "85.50", "-2.00", "2"),
    )
    assert sheet.numbers[0]["last"] == pytest.approx(92.0)
    assert sheet.numbers[0]["difference"] == pytest.approx(2.0)


def test_the_best_round_is_that_of_the_score_that_is_shown():
    """The mean is best in the second round, the largest network in the first."""
    run = scored(0.99, 0.2, 0.99)
    run.records.append({**scored(0.9, 0.95, 0.9).records[0], "round": 2})
    sheet = reproduction_sheet(PRESET, cells_of(PRESET, ["heterofl.iid"]), {"heterofl.iid": [run]})
    assert [row[3] for row in sheet.rows] == ["99.00", "92.50"]


MISPRINTED = """
deviations.iid = { big = 0.43 }
misprints."iid.mean" = "the mean of the two is 85.0"
"""


def test_deviations_and_misprints_of_the_paper_are_shown_and_nothing_is_compared_with_a_misprint():
    given = "paper.iid = { big = 90.0, mean = 85.5 }\n"
    (preset,) = read_file(TINY.replace(given, given + MISPRINTED))
    runs = {"heterofl.iid": [scored(0.9, 0.7, 0.95)]}
    sheet = reproduction_sheet(preset, cells_of(preset, ["heterofl.iid"]), runs)
    assert [row[4:6] for row in sheet.rows] == [("90.00 ± 0.43", "+0.00"), ("85.50 [1]", "-")]
    assert sheet.notes == ("[1] A misprint: the mean of the two is 85.0.",)
    big, mean = sheet.numbers
    assert (big["paper deviation"], big["misprint"], big["difference"]) == (0.43, None, 0.0)
    assert (mean["paper"], mean["misprint"], mean["difference"]) == (85.5, "the mean of the two is 85.0", None)


def test_a_preset_may_name_the_measures_to_show_where_the_paper_has_a_picture():
    (preset,) = read_file(TINY.replace('use = ["common"]', 'use = ["common"]\nshows = ["local_accuracy", "accuracy"]'))
    run = scored(0.9, 0.7, 0.95)
    for level in run.records[0]["levels"].values():
        level["local_accuracy"] = level["accuracy"] / 2
    rows = reproduction_sheet(preset, cells_of(preset, ["fedavg"]), {"fedavg.iid": [run]}).rows
    assert [row[1:3] for row in rows] == [
        ("big/local_accuracy", "45.00"),
        ("big", "90.00"),
        ("small/local_accuracy", "35.00"),
        ("small", "70.00"),
        ("mean/local_accuracy", "40.00"),
        ("mean", "80.00"),
    ]


def test_without_numbers_of_the_paper_every_level_is_shown():
    sheet = reproduction_sheet(PRESET, cells_of(PRESET, ["fedavg"]), {"fedavg.iid": [scored(0.9, 0.7, 0.95)]})
    assert [row[1:] for row in sheet.rows] == [
        ("big", "90.00", "95.00", "-", "-", "1"),
        ("small", "70.00", "70.00", "-", "-", "1"),
        ("mean", "80.00", "82.50", "-", "-", "1"),
    ]


def test_a_row_that_was_not_run_has_the_papers_numbers_alone():
    sheet = reproduction_sheet(PRESET, cells_of(PRESET, ["heterofl.iid"]), {})
    assert sheet.rows[0] == ("heterofl.iid", "big", "-", "-", "90.00", "-", "0")

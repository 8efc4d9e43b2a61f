"""Grids of settings: values, their combinations, and what is refused before anything runs."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import ConfigError
from potluck.series.grid import axis_of, entries_of_grid, seeds_of

CONFIG = 'seed = 7\n[train]\nlr = 0.5\n[data]\npartition = "iid"\n'


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("seed=0-3", "seed", ["0", "1", "2", "3"]),
        ("seed=0-1,5", "seed", ["0", "1", "5"]),
        ("seed=4-4", "seed", ["4"]),
        (" train.lr = 0.1, 0.2 ", "train.lr", ["0.1", "0.2"]),
        ("train.lr=1e-3,1e-4", "train.lr", ["1e-3", "1e-4"]),
        ("train.milestones=[1,2],[3]", "train.milestones", ["[1,2]", "[3]"]),
        ("fleet.levels={a=1,b=0.5},{a=1}", "fleet.levels", ["{a=1,b=0.5}", "{a=1}"]),
        ("task.metrics=[[1,2],{a=[3,4]}],5", "task.metrics", ["[[1,2],{a=[3,4]}]", "5"]),
        ('data.owner="a,b",c', "data.owner", ['"a,b"', "c"]),
        ("data.owner='a]',b", "data.owner", ["'a]'", "b"]),
        ("method.name=fedhm,heterofl", "method.name", ["fedhm", "heterofl"]),
    ],
)
def test_values_are_cut_at_commas_outside_of_brackets_and_quotes(text, key, values):
    assert axis_of(text) == (key, values)


@given(st.lists(st.integers(0, 10**6), min_size=1, unique=True))
def test_numbers_come_back_as_they_were_given(numbers):
    assert axis_of(f"seed={','.join(map(str, numbers))}") == ("seed", [str(number) for number in numbers])


@given(st.integers(0, 10**9), st.integers(0, 300))
def test_a_range_has_all_whole_numbers_between_its_ends(first, more):
    assert seeds_of(f"{first}-{first + more}") == list(range(first, first + more + 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train.lr", "'train.lr', but it should be a setting with values"),
        ("train.lr=", "should be a setting with values"),
        ("=1", "should be a setting with values"),
        ("train.lr=0.1,,0.2", "a comma too many"),
        ("train.lr=0.1,", "a comma too many"),
        ("train.lr=0.1,0.1", "a value twice"),
        ("train.lr=1,1.0", "a value twice"),
        ("train.lr=0.1,0.10", "a value twice"),
        ("seed=0-3,2", "a value twice"),
        ("seed=3-1", "it should go up"),
        ("seed=0-100000", "by fewer than 100,000"),
    ],
)
def test_what_is_no_list_of_different_values_is_refused(text, says):
    with pytest.raises(ConfigError, match=says):
        axis_of(text)


@pytest.mark.parametrize("text", ["x", "", "1.5", "1,,2", "2-1", "0,0", "0,00"])
def test_seeds_are_different_whole_numbers(text):
    with pytest.raises(ConfigError, match=r"--seeds is .* different whole numbers"):
        seeds_of(text)


def test_every_combination_is_one_run_and_the_first_setting_changes_last(path):
    entries = entries_of_grid(path, ["train.clip=1"], ["train.lr=0.1,0.2", "seed=0-1"])
    assert [entry.name for entry in entries] == [f"lr={lr},seed={seed}" for lr, seed in product((0.1, 0.2), (0, 1))]
    assert [(entry.table["train"], entry.table["seed"]) for entry in entries] == [
        ({"lr": lr, "clip": 1}, seed) for lr, seed in product((0.1, 0.2), (0, 1))
    ]
    assert {entry.table["name"] for entry in entries} == {"some"}


def test_runs_do_not_share_tables(path):
    one, other = entries_of_grid(path, [], ["data.partition.alpha=1,2"])
    assert (one.table["data"]["partition"]["alpha"], other.table["data"]["partition"]["alpha"]) == (1, 2)


def test_settings_whose_last_words_are_alike_keep_their_sections_in_names(path):
    names = {entry.name for entry in entries_of_grid(path, [], ["data.x.alpha=1,2", "method.alpha=1,2"])}
    assert names == {f"data.x.alpha={one},method.alpha={other}" for one, other in product((1, 2), (1, 2))}


def test_names_are_names_of_folders(path):
    (entry,) = entries_of_grid(path, [], ['series.a/b="../x y"'])
    assert "/" not in entry.name
    assert entry.table["series"] == {"a/b": "../x y"}


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        (["seed=0", "seed=1"], "the same setting twice"),
        (["seed=0", " seed =1"], "the same setting twice"),
        (["train.how=[1],{1}"], "would be saved as how=_1_"),
        ([f"train.how={'x' * 300}"], "at most 200 bytes"),
        (["seed.more=1"], "'seed' is 7, which has no settings of its own"),
        (["seed=0-999", "train.lr=0-999"], "more than 100,000 points"),
    ],
)
def test_points_that_cannot_be_told_apart_or_saved_are_refused(path, grid, says):
    with pytest.raises(ConfigError, match=says):
        entries_of_grid(path, [], grid)


def test_a_huge_grid_is_refused_before_it_is_made(path, monkeypatch):
    monkeypatch.setattr("potluck.series.grid.deepcopy", None)
    grid = [f"train.x{number}=0-9" for number in range(50)]
    with pytest.raises(ConfigError, match="more than"):
        entries_of_grid(path, [], grid)

"""Smaller scales keep an experiment's shape."""

import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import ConfigError
from potluck.models.catalogue import catalogue
from potluck.series.scale import Scale

DOCS = Path(__file__).parents[2] / "docs" / "many-runs.md"

PAPER = {
    "task": {"model": {"name": "heterofl-cnn", "hidden": [64, 128]}, "rounds": 200, "evaluate_every": 5},
    "fleet": {"clients": 100, "cohort": 10},
    "train": {"schedule": "multistep", "milestones": [100, 150], "warmup": 10},
}


def scaled(text, **changes):
    return Scale.read(text).applied({**PAPER, **changes})


def test_milestones_warmup_and_evaluations_move_with_the_rounds():
    found = scaled("0.1")
    assert found["task"] == {**PAPER["task"], "rounds": 20, "evaluate_every": 1}
    assert found["train"] == {"schedule": "multistep", "milestones": [10, 15], "warmup": 1}
    assert found["fleet"] == PAPER["fleet"]


def test_a_share_of_the_clients_takes_the_same_share_of_the_cohort():
    assert scaled("clients=0.5")["fleet"] == {"clients": 50, "cohort": 5}
    assert scaled("clients=0.5", fleet={"clients": 100, "cohort": 0.1})["fleet"] == {"clients": 50, "cohort": 0.1}


FLEET = {"clients": 100, "cohort": 10, "levels": {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.2}}


@pytest.mark.parametrize(
    ("assignment", "clients", "cohort"),
    [
        ("dynamic-all", 30, 4),
        ({"name": "dynamic-all", "mix": {"a": 1, "b": 3}}, 30, 3),
        ("dynamic", 30, 3),
        ("my.module:dealt", 30, 3),
    ],
)
def test_a_cohort_has_room_for_all_levels_where_each_must_be_in_it(assignment, clients, cohort):
    fleet = scaled("clients=0.3", fleet={**FLEET, "assignment": assignment})["fleet"]
    assert (fleet["clients"], fleet["cohort"]) == (clients, cohort)


def test_a_cohort_that_is_a_share_has_room_for_all_levels_too():
    fleet = {**FLEET, "assignment": "dynamic-all", "cohort": 0.1}
    assert scaled("clients=0.5", fleet=fleet)["fleet"]["cohort"] == 0.1
    assert scaled("clients=0.3", fleet=fleet)["fleet"]["cohort"] == 4
    assert scaled("clients=0.01", fleet=fleet)["fleet"]["clients"] == 4


def test_milestones_stay_apart_while_there_is_room():
    def milestones(share):
        return scaled(share, task={"model": "rnn", "rounds": 160}, train={"milestones": [100, 150]})["train"][
            "milestones"
        ]

    assert (milestones("0.1"), milestones("0.025"), milestones("0.02")) == ([10, 15], [2, 3], [1, 2])
    near = scaled("0.1", task={"model": "rnn", "rounds": 160}, train={"milestones": [10, 11, 12]})["train"]
    assert near["milestones"] == [1, 2, 3]
    with pytest.raises(ConfigError, match="scale leaves 2 of 160 rounds, but milestones at 100, 150 need at least 3"):
        milestones("0.0125")


def test_the_usual_cohort_is_scaled_as_one_that_is_given():
    assert scaled("clients=0.5", fleet={"clients": 100})["fleet"] == {"clients": 50, "cohort": 5}


def test_width_takes_a_share_of_given_and_of_usual_channels():
    assert scaled("width=0.25")["task"]["model"]["hidden"] == [16, 32]
    usual = scaled("width=0.5", task={"model": "heterofl-cnn", "rounds": 2})["task"]["model"]
    assert usual == {"name": "heterofl-cnn", "hidden": [32, 64, 128, 256]}


def test_a_network_without_such_channels_cannot_be_narrower():
    with pytest.raises(ConfigError, match="vit-small has no channels to choose"):
        scaled("width=0.5", task={"model": "vit-small", "rounds": 2})


def test_many_runs_md_names_the_networks_that_can_be_narrower():
    (line,) = (line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `width=0.25`"))
    named = {name for name in catalogue() if f"`{name}`" in line}
    assert named == {name for name, make in catalogue().items() if "hidden" in inspect.signature(make).parameters}


def test_factors_for_each_round_keep_their_places():
    task, train = {"model": "rnn", "rounds": 8}, {"schedule": [1.0, 1.0, 0.5, 0.5, 0.25]}
    assert scaled("0.5", task=task, train=train)["train"]["schedule"] == [1.0, 0.5, 0.25, 0.25]


def test_what_is_scaled_does_not_change_the_original():
    before = repr(PAPER)
    scaled("rounds=0.1,clients=0.1,width=0.1")
    assert repr(PAPER) == before


def test_full_scale_changes_nothing_and_says_nothing():
    assert Scale.read("1").applied(PAPER) == PAPER
    assert (str(Scale.read("1")), Scale.read("1").cut) == ("", {})


def test_it_says_what_it_cuts():
    scale = Scale.read(" width=0.25, rounds=0.1")
    assert (str(scale), scale.cut) == ("rounds=0.1,width=0.25", {"rounds": 0.1, "width": 0.25})


@given(
    st.integers(1, 500),
    st.lists(st.integers(1, 600), max_size=5).map(sorted),
    st.floats(1e-6, 1, exclude_min=True),
)
def test_a_scaled_schedule_keeps_its_shape(rounds, milestones, share):
    task, inside = {"model": "rnn", "rounds": rounds}, {each for each in milestones if each < rounds}
    if len(inside) >= max(1, round(rounds * share)):
        with pytest.raises(ConfigError, match="keep more rounds"):
            scaled(f"rounds={share!r}", task=task, train={"milestones": milestones})
        return
    found = scaled(f"rounds={share!r}", task=task, train={"milestones": milestones})
    fewer, moved = found["task"]["rounds"], found["train"]["milestones"]
    assert 1 <= fewer <= rounds
    assert len(moved) == len(milestones)
    assert moved == sorted(moved)
    assert all(milestone >= 1 for milestone in moved)
    for before, after in zip(milestones, moved, strict=True):
        assert abs(after - before * fewer / rounds) <= len(milestones)
        assert (after < fewer) == (before < rounds)
    apart = {after for before, after in zip(milestones, moved, strict=True) if before < rounds}
    assert len(apart) == len(inside)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "rounds 0, but it should be a share above 0 and at most 1"),
        ("1.5", "rounds 1.5"),
        ("-0.1", "rounds -0.1"),
        ("nan", "rounds nan"),
        ("inf", "rounds inf"),
        ("clients=0", "clients 0"),
        ("width=2", "width 2"),
        ("half", "'half'"),
        ("", "''"),
        ("rounds=", "'rounds='"),
        ("0.1,width=0.5", "'0.1,width=0.5'"),
        ("depth=0.5", "it can cut rounds, clients, width"),
        ("rounds=0.1,rounds=0.2", "a share twice"),
    ],
)
def test_a_scale_that_makes_no_sense_is_refused(text, says):
    with pytest.raises(
        ConfigError, match=f"scale (has|is) {says}" if "twice" not in says and "cut" not in says else says
    ):
        Scale.read(text)


def test_a_rate_that_fell_in_the_last_round_still_falls():
    task = {"model": "rnn", "rounds": 200}
    assert scaled("0.1", task=task, train={"milestones": [199, 200]})["train"]["milestones"] == [19, 20]

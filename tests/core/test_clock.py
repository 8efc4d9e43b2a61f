"""Seconds by what they were spent on, with a clock that is set by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from potluck.core import clock as clock_module
from potluck.core.clock import Clock


class Hand:
    """A clock's hand that only moves when it is pushed."""

    now = 100.0

    def push(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    found = Hand()
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=found.perf_counter))
    return found


def test_seconds_add_up_by_name_and_those_between_are_nobodys(hand: Hand) -> None:
    clock = Clock()
    hand.push(50)
    with clock.spent("training"):
        hand.push(1)
    hand.push(50)
    with clock.spent("transport"):
        hand.push(2)
    with clock.spent("training"):
        hand.push(4)
    hand.push(50)
    with clock.spent("nothing"):
        pass
    assert clock.seconds == {"training": 5.0, "transport": 2.0, "nothing": 0.0}


def test_the_time_of_what_runs_inside_is_not_the_outer_ones(hand: Hand) -> None:
    clock = Clock()
    with clock.spent("aggregation"):
        hand.push(1)
        with clock.spent("transport"):
            hand.push(2)
            with clock.spent("waiting"):
                hand.push(4)
            hand.push(8)
        hand.push(16)
        with clock.spent("waiting"):
            hand.push(32)
        hand.push(64)
    assert clock.seconds == {"aggregation": 81.0, "transport": 10.0, "waiting": 36.0}


def test_the_same_name_inside_itself_counts_once(hand: Hand) -> None:
    clock = Clock()
    with clock.spent("training"):
        hand.push(1)
        with clock.spent("training"):
            hand.push(2)
        hand.push(4)
    assert clock.seconds == {"training": 7.0}


def test_lumped_time_is_one_name_whatever_is_timed_inside(hand: Hand) -> None:
    clock = Clock()
    with clock.spent("round"):
        hand.push(1)
        with clock.spent_in_all("evaluation"):
            hand.push(2)
            with clock.spent("transport"):
                hand.push(4)
                with clock.spent("waiting"):
                    hand.push(8)
            hand.push(16)
        hand.push(32)
        with clock.spent("transport"):
            hand.push(64)
    assert clock.seconds == {"round": 33.0, "evaluation": 30.0, "transport": 64.0}


@pytest.mark.parametrize("lump", [False, True])
def test_an_exception_ends_what_was_running(hand: Hand, lump: bool) -> None:
    clock = Clock()

    def fail() -> None:
        with clock.spent_in_all("tuning") if lump else clock.spent("tuning"):
            hand.push(1)
            with clock.spent("transport"):
                hand.push(2)
                raise KeyError("a bug")

    with clock.spent("round"):
        with pytest.raises(KeyError, match="a bug"):
            fail()
        hand.push(4)
    hand.push(8)
    with clock.spent("transport"):
        hand.push(16)
    if lump:
        assert clock.seconds == {"tuning": 3.0, "round": 4.0, "transport": 16.0}
    else:
        assert clock.seconds == {"tuning": 1.0, "round": 4.0, "transport": 18.0}
    assert clock.running == []
    assert clock.lumped == ""


def test_a_lump_inside_a_lump_is_the_outer_ones(hand: Hand) -> None:
    clock = Clock()
    with clock.spent_in_all("tuning"):
        hand.push(1)
        with clock.spent_in_all("evaluation"):
            hand.push(2)
            with clock.spent("transport"):
                hand.push(4)
        with clock.spent("transport"):
            hand.push(8)
    assert clock.seconds == {"tuning": 15.0}


NAMES = st.sampled_from("abc")
TREES = st.recursive(st.integers(0, 100), lambda inside: st.tuples(NAMES, st.lists(inside, max_size=4)), max_leaves=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TREES, max_size=4))
def test_every_second_counts_once_and_under_the_innermost_name(hand: Hand, trees: list[object]) -> None:
    clock, expected = Clock(), dict[str, float]()

    def play(tree: object, running: str) -> None:
        if isinstance(tree, int):
            hand.push(tree)
            if running:
                expected[running] += tree
            return
        name, inside = tree  # type: ignore[misc]
        expected.setdefault(name, 0.0)
        with clock.spent(name):
            for each in inside:
                play(each, name)

    for tree in trees:
        play(tree, "")
    assert clock.seconds == expected
    assert clock.running == []

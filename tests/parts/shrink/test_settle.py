"""The search for sizes, piece by piece: what a run leaves behind, which sizes are tried, when a search ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hand_made import Net, floats, see
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.shrink import settle
from potluck.parts.shrink.attributes import Attribute
from potluck.parts.shrink.check import ANY, Course, Divergence, Outcome
from potluck.parts.shrink.settle import (
    Trials,
    change_remembered,
    find_sizes,
    first_guess,
    further,
    likewise,
    readings,
    same,
    search,
)


class Holder(nn.Module):
    """A module that remembers sizes."""


class Another(nn.Module):
    """Another one."""


def attribute(name: str, owner: type = Holder, *options: int) -> Attribute:
    return Attribute(owner, (name,), 8, (8, *(options or (4,))))


A, B = attribute("a"), attribute("b")


@dataclass
class Told:
    """Trials whose outcomes a function tells."""

    tell: Callable[[dict[Attribute, int]], Outcome]
    found: dict[str, list[Attribute]]
    batch: Any = "a batch"
    steps: int = 10_000
    course: Course = ANY
    batches: list[Any] = field(default_factory=list)
    tried: list[dict[Attribute, int]] = field(default_factory=list)

    def outcome(self, choices: dict[Attribute, int]) -> Outcome:
        self.batches.append(self.batch)
        self.tried.append(choices)
        self.steps -= 1
        return self.tell(choices)


# ---- a run ----


def trials_of(net: nn.Module, batch: Tensor | None, steps: int = 100) -> Trials:
    return Trials(net, floats(4, 3), batch, {}, Course([None] * 7, []), steps)  # type: ignore[list-item]


def test_what_norms_count_in_training_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    trials = trials_of(net, floats(4, 3))
    trials.course = ANY
    assert not isinstance(trials.outcome({}), Divergence)
    assert {name: buffer.tolist() for name, buffer in net.named_buffers()} == {
        name: buffer.tolist() for name, buffer in before.items()
    }


@pytest.mark.parametrize(("batch", "left"), [(None, 93), (floats(4, 3), 86)])
def test_a_run_costs_its_operations_once_and_again_in_training(
    monkeypatch: pytest.MonkeyPatch, batch: Tensor | None, left: int
) -> None:
    monkeypatch.setattr(settle, "compare", lambda *args, **named: [])
    trials = trials_of(Linear(3, 4), batch)
    trials.outcome({})
    assert trials.steps == left


def test_a_run_that_diverges_costs_what_it_ran_and_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "compare", lambda *args, **named: Divergence(3, "here", "why"))
    trials = trials_of(Linear(3, 4), floats(4, 3))
    assert trials.outcome({}) == Divergence(3, "here", "why")
    assert trials.steps == 97


def test_a_problem_in_training_comes_after_all_of_evaluation_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(net: Any, example: Any, course: Course, training: bool = False) -> Outcome:
        return Divergence(2, "here", "why") if training else []

    monkeypatch.setattr(settle, "compare", compare)
    assert trials_of(Linear(3, 4), floats(4, 3)).outcome({}) == Divergence(9, "here", "why (in training)")


# ---- pieces of the search ----


@pytest.mark.parametrize(
    ("each", "guess"),
    [
        (attribute("num_features", nn.InstanceNorm1d), 4),
        (attribute("num_channels", nn.GroupNorm), 4),
        (attribute("num_groups", nn.GroupNorm), 8),
        (attribute("in_features", Linear), 8),
        (attribute("num_features", Holder), 8),
    ],
    ids=["norm", "group norm", "groups", "linear", "own"],
)
def test_only_a_norms_channels_are_first_taken_as_changed(each: Attribute, guess: int) -> None:
    assert first_guess(each) == guess


def test_a_run_is_further_if_it_ends_or_diverges_later() -> None:
    assert further([], 5)
    assert further(Divergence(6, "", ""), 5)
    assert not further(Divergence(5, "", ""), 5)


def test_only_equal_tensors_are_the_same_outcome() -> None:
    one = [torch.ones(2), torch.zeros(2)]
    assert same(one, [torch.ones(2), torch.zeros(2)])
    assert not same(one, [torch.ones(2), torch.ones(2)])
    assert not same(one, [torch.ones(2)])
    assert not same(one, Divergence(1, "", ""))
    assert not same(Divergence(1, "", ""), one)


def test_what_changed_in_one_module_changes_in_all_of_its_class_and_in_no_other() -> None:
    mine, yours = attribute("a", Holder, 4), Attribute(Holder, ("a",), 6, (6, 3))
    other, foreign = attribute("b", Holder, 4), attribute("a", Another, 4)
    before = {mine: 8, yours: 6, other: 8, foreign: 8}
    assert likewise({**before, mine: 4}, before) == {**before, mine: 4, yours: 3}
    assert likewise(before, before) == before
    third = attribute("a", Holder, 4, 2)
    assert likewise({mine: 4, third: 2}, {mine: 8, third: 2}) == {mine: 4, third: 2}  # it was chosen before
    later = {**before, other: 4}  # chosen before: no reason to change it elsewhere
    assert likewise({**later, mine: 4}, later) == {**later, mine: 4, yours: 3}


def test_single_sizes_are_tried_first_then_all_of_a_module_then_several() -> None:
    choices = {A: 8, B: 8}
    tried = list(readings({"x": [A, B]}, choices, Divergence(1, "'x'", "")))
    assert tried[:3] == [{A: 4, B: 8}, {A: 8, B: 4}, {A: 4, B: 4}]
    assert tried[-1] == {A: 4, B: 4}


def test_the_nearest_module_comes_first_then_what_it_is_in_then_what_is_below_without_being_called() -> None:
    inner, outer, root, below, far = (attribute(name) for name in ("inner", "outer", "root", "below", "far"))
    found = {"": [root], "x": [outer], "x.y": [inner], "x.y.z": [below], "w": [far]}
    choices = dict.fromkeys([root, outer, inner, below, far], 8)
    tried = list(readings(found, choices, Divergence(1, "'x.y'", "")))
    order = [next(each for each in choices if attempt[each] == 4) for attempt in tried[:4]]
    assert order == [inner, outer, root, below]
    assert all(attempt[far] == 8 for attempt in tried)


# ---- the search ----


def test_a_search_goes_on_from_what_got_it_further() -> None:
    def tell(choices: dict[Attribute, int]) -> Outcome:
        return [] if choices == {A: 4, B: 4} else Divergence(1 + (choices[A] == 4), "'x'", "")

    assert search(Told(tell, {"x": [A, B]}), {A: 8, B: 8}) == {A: 4, B: 4}  # type: ignore[arg-type]


TWIN = Attribute(Holder, ("a",), 6, (6, 3))


@pytest.mark.parametrize(("wider", "size"), [(3, 3), (4, 3), (2, 6)], ids=["as far", "further", "less far"])
def test_a_class_changes_with_its_module_if_that_gets_the_network_as_far(wider: int, size: int) -> None:
    """One module's size gets the run to step 3; where the run ends well is for another size to say."""
    steps = {(8, 6): 1, (4, 6): 3, (4, 3): wider}

    def tell(choices: dict[Attribute, int]) -> Outcome:
        return (
            []
            if choices[B] == 4 and choices[A] == 4
            else Divergence(steps.get((choices[A], choices[TWIN]), 1), "'x'", "")
        )

    found = search(Told(tell, {"x": [A, B]}), {A: 8, TWIN: 6, B: 8})  # type: ignore[arg-type]
    assert found == {A: 4, TWIN: size, B: 4}


def test_a_class_changes_with_its_module_if_the_network_then_still_runs() -> None:
    trials = Told(lambda choices: [] if choices[A] == 4 else Divergence(1, "'x'", ""), {"x": [A]})
    assert search(trials, {A: 8, TWIN: 6}) == {A: 4, TWIN: 3}  # type: ignore[arg-type]
    trials.tell = lambda choices: [] if choices == {A: 4, TWIN: 6} else Divergence(1, "'x'", "")
    assert search(trials, {A: 8, TWIN: 6}) == {A: 4, TWIN: 6}  # type: ignore[arg-type]


def test_more_sizes_of_a_module_than_are_tried_in_sets_change_at_once() -> None:
    many = [attribute(f"size{number}") for number in range(settle.LARGEST + 1)]
    all_changed = dict.fromkeys(many, 4)
    trials = Told(lambda choices: [] if choices == all_changed else Divergence(1, "'x'", ""), {"x": many})
    assert search(trials, dict.fromkeys(many, 8)) == all_changed  # type: ignore[arg-type]


def test_a_search_without_steps_left_tries_nothing_more() -> None:
    trials = Told(lambda choices: Divergence(1, "'x'", ""), {"x": [A, B]}, steps=0)
    assert search(trials, {A: 8, B: 8}) == Divergence(1, "'x'", "")  # type: ignore[arg-type]
    assert len(trials.tried) == 1


def test_sizes_that_change_no_output_change_and_those_that_do_stay() -> None:
    trials = Told(lambda choices: [torch.tensor(choices[B])], {"x": [A, B]})
    assert change_remembered(trials, {A: 8, B: 8}) == {A: 4, B: 8}  # type: ignore[arg-type]
    assert trials.batches == [None] * (len(trials.tried) - 1) + ["a batch"]  # training is tried once, at the end


def test_sizes_that_only_training_needs_stay_all_of_them() -> None:
    trials = Told(lambda choices: [], {"x": [A, B]})
    trials.tell = lambda choices: Divergence(9, "'x'", "") if trials.batch and choices[A] == 4 else []
    assert change_remembered(trials, {A: 8, B: 8}) == {A: 8, B: 8}  # type: ignore[arg-type]


def test_sizes_stay_when_no_steps_are_left() -> None:
    trials = Told(lambda choices: [], {"x": [A, B]}, steps=1)
    assert change_remembered(trials, {A: 8, B: 8}) == {A: 8, B: 8}  # type: ignore[arg-type]


def test_a_search_that_took_all_its_steps_leaves_some_for_what_is_only_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def costly(trials: Told, choices: dict[Attribute, int]) -> dict[Attribute, int]:
        trials.steps = 0
        return choices

    monkeypatch.setattr(settle, "search", costly)
    assert find_sizes(Told(lambda choices: [], {"x": [A]}, steps=300)) == {A: 4}  # type: ignore[arg-type]


def test_the_second_search_has_steps_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    began = []

    def fails(trials: Told, choices: dict[Attribute, int]) -> Outcome:
        began.append((trials.course.strict, trials.steps))
        trials.steps = 0
        return Divergence(1, "", "")

    monkeypatch.setattr(settle, "search", fails)
    assert find_sizes(Told(lambda choices: [], {"x": [A]}, steps=300)) == Divergence(1, "", "")  # type: ignore[arg-type]
    assert began == [(True, 100), (False, 100)]


# ---- both searches on a network ----


def test_a_size_that_only_chooses_the_way_is_found_since_the_first_search_is_strict() -> None:
    """The size never stops the run: with the old one, it would only take the other way."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.a(x)
        return m.out(x.relu() if x.shape[1] == m.size else x.sigmoid())

    net = Net(run, a=Linear(3, 8), out=Linear(8, 2))
    net.size = 8
    assert see(net, floats(2, 3)).narrow.size == 4


def test_a_network_that_does_something_else_for_one_channel_is_found_by_the_second_search() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        x = m.a(x)
        return m.out((x.sin().exp() if x.shape[1] == 1 else x).view(-1, m.size))

    net = Net(run, a=Linear(3, 8), out=Linear(8, 2))
    net.size = 8
    assert see(net, floats(2, 3), width=0.125).narrow.size == 1

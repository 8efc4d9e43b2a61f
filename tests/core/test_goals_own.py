"""Losses of one's own, goals by name, and which part of an output a goal learns from."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import potluck
from potluck.core.errors import ConfigError, ModelError
from potluck.core.goals.classes import Classes
from potluck.core.goals.goal import Goal
from potluck.core.goals.named import GOALS, goal_named
from potluck.core.goals.numbers import Regression
from potluck.core.goals.own import Own

LOGITS = torch.tensor([[1.0, 2.0]])


def likelihood(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    mean, spread = outputs
    return F.gaussian_nll_loss(mean, targets, spread.exp())


def test_an_own_loss_is_handed_the_output_as_it_is() -> None:
    output = torch.zeros(4), torch.zeros(4)
    goal, targets = Own(likelihood), torch.ones(4)
    assert goal.outputs(output) is output
    assert torch.equal(goal.loss(output, targets), likelihood(output, targets))


def test_its_sum_counts_examples_however_the_inputs_come() -> None:
    output, targets = (torch.zeros(4), torch.zeros(4)), torch.ones(4)
    for inputs in (torch.zeros(4, 2), {"x": torch.zeros(4, 2)}, (torch.zeros(4), torch.zeros(4))):
        assert Own(likelihood).sums(output, inputs, targets)["loss"] == (
            pytest.approx(4 * float(likelihood(output, targets))),
            4,
        )


def test_nothing_is_refused_before_the_loss_has_seen_it() -> None:
    assert Own(likelihood).obstacle((torch.zeros(1),), torch.zeros(3), 0) == ""
    assert Own(likelihood).targets(torch.tensor([-3]), "data").tolist() == [-3]
    assert Own(likelihood).targets(torch.zeros(2, dtype=torch.float64), "data").dtype is torch.float32
    assert Own(likelihood).scored(1, 2) == (1, 2)


@pytest.mark.parametrize("name", GOALS)
def test_every_goal_has_a_name_and_travels(name: str) -> None:
    goal = goal_named(name)
    assert goal.name == name
    assert goal.means[-1] == "loss" or "loss" in goal.means
    assert pickle.loads(pickle.dumps(goal)) == goal


def test_potluck_goals_has_them_all() -> None:
    assert {each for each in vars(potluck.goals).values() if isinstance(each, type)} == {Goal, Own, *GOALS.values()}


def test_a_name_that_no_goal_has_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"^there is no task 'regresion'; did you mean 'regression'\?$"):
        goal_named("regresion")


@pytest.mark.parametrize(
    "output", [LOGITS, {"logits": LOGITS, "hidden": torch.zeros(1, 8)}, (LOGITS, None), OrderedDict(out=LOGITS, n=3)]
)
def test_a_goal_learns_from_the_logits(output: object) -> None:
    for goal in (Classes(), Regression()):
        assert torch.equal(goal.outputs(output), LOGITS)


def test_an_output_that_could_be_several_things_is_refused() -> None:
    with pytest.raises(ModelError, match="which part of it are the logits is not clear"):
        Classes().outputs((LOGITS, LOGITS))


def test_a_goal_is_a_loss_of_a_network_and_a_batch() -> None:
    net = nn.Bilinear(2, 2, 3)
    batch = ((torch.ones(4, 2), torch.ones(4, 2)), torch.tensor([0, 1, 2, 0]))
    assert torch.equal(Classes()(net, batch, {}), F.cross_entropy(net(*batch[0]), batch[1]))

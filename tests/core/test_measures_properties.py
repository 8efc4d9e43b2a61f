"""However examples are divided into pieces and batches, in whatever grouping they are joined: the score is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import Cuts, at_once, divisions, drawn, in_pieces, task_of, whole
from torch import Tensor
from torchmetrics import classification

from potluck.core.data import Arrays
from potluck.core.goals.classes import IGNORED, Classes, MaskedTokens, NextToken, Pixels
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.goals.own import Own
from potluck.study.metrics import METRICS

KINDS = 7
TOKENS = (NextToken, MaskedTokens)
ROUNDED = ("loss", "masked_loss", "perplexity", "masked_perplexity", "paper_perplexity", "mae", "rmse", "r2", "auroc")


def with_gaps(targets: Tensor, seed: int) -> Tensor:
    """The same, about a third of it -100; the first example counts."""
    holed = torch.where(whole(3, *targets.shape, seed=seed) == 0, IGNORED, targets)
    holed[0] = targets[0]
    return holed


def examples_of(goal: Goal, count: int, seed: int) -> Arrays:
    """Outputs as a network of this goal gives them, and targets."""
    if isinstance(goal, MultiLabel):
        return Arrays(drawn(count, 3, seed=seed), whole(2, count, 3, seed=seed + 1).float())
    if isinstance(goal, Binary):
        return Arrays(drawn(count, 1, seed=seed), whole(2, count, seed=seed + 1).float())
    if isinstance(goal, Regression):
        return Arrays(drawn(count, 2, seed=seed), drawn(count, 2, seed=seed + 1))
    if isinstance(goal, Own):
        return Arrays(drawn(count, 2, seed=seed), drawn(count, 2, seed=seed + 1))
    shape: tuple[int, ...] = (count,) if type(goal) is Classes else (count, 3)
    outputs, targets = drawn(*shape, KINDS, seed=seed), whole(KINDS, *shape, seed=seed + 1)
    if isinstance(goal, Pixels):
        outputs, targets = outputs[:, None].movedim(-1, 1), targets[:, None]
    return Arrays(outputs, with_gaps(targets, seed) if goal.gaps else targets)


GOALS: dict[str, Goal] = {
    "classes": Classes(),
    "classes with gaps": Classes(gaps=True),
    "pixels": Pixels(),
    "pixels with gaps": Pixels(gaps=True),
    "next token": NextToken(),
    "next token with gaps": NextToken(gaps=True),
    "masked tokens": MaskedTokens(),
    "masked tokens with gaps": MaskedTokens(gaps=True),
    "binary": Binary(),
    "labels": MultiLabel(),
    "numbers": Regression(),
    "own": Own(torch.nn.MSELoss()),
}


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten(1).sum(1) > targets.flatten(1).sum(1) if targets.dim() > 1 else outputs.sum(-1) > 0).float()


def middle(outputs: Tensor, targets: Tensor) -> Tensor:
    """It cannot be put together from sums."""
    return outputs.flatten().double().median()


def metrics_of(goal: Goal) -> dict[str, Any]:
    """What a goal can be scored by; tokens are classes, whose metrics need not be tried again."""
    named = [name for name, (kinds, _) in METRICS.items() if isinstance(goal, kinds) and not isinstance(goal, TOKENS)]
    found: dict[str, Any] = {**dict.fromkeys(named), "own mean": right, "own function": middle}
    if type(goal) is Classes:
        found["matthews"] = classification.MulticlassMatthewsCorrCoef(KINDS)
        found["precision lists"] = classification.MulticlassAveragePrecision(KINDS)
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torchmetrics, on classes that nobody has
@pytest.mark.parametrize("name", GOALS)
@settings(max_examples=4)
@given(count=st.integers(2, 24), seed=st.integers(0, 1000), cuts=divisions())
def test_pieces_add_up_to_the_whole(name: str, count: int, seed: int, cuts: Cuts) -> None:
    goal = GOALS[name]
    examples = examples_of(goal, count, seed)
    task = task_of(goal, examples, metrics_of(goal), KINDS if goal.softmax else 0)
    expected, found = at_once(task, examples), in_pieces(task, examples, cuts)
    assert set(found) == set(expected)
    assert {*goal.means} - {"masked_accuracy", "masked_loss"} <= set(found)
    assert set(task.measures) <= set(found)
    for measure, value in expected.items():
        if measure in ROUNDED:
            assert found[measure] == pytest.approx(value, rel=1e-6, abs=1e-6), measure
        else:
            assert found[measure] == value, measure


@settings(max_examples=8)
@given(count=st.integers(1, 30), seed=st.integers(0, 1000), cuts=divisions())
def test_perplexity_is_that_of_all_tokens(count: int, seed: int, cuts: Cuts) -> None:
    goal = NextToken(gaps=True)
    examples = examples_of(goal, count, seed)
    losses = goal.losses(examples.inputs, examples.targets)[examples.targets != IGNORED].double()
    found = in_pieces(task_of(goal, examples, None, KINDS), examples, cuts)
    assert found["perplexity"] == pytest.approx(float(losses.mean().exp()), rel=1e-6)

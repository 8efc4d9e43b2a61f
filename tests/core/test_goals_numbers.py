"""Numbers, and yes or no: beside PyTorch's own losses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.errors import DataError
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression

OUTPUTS = torch.tensor([0.5, -2.0, 3.0, 0.0])
NUMBERS = torch.tensor([1.0, 0.0, 2.5, -1.0])
ANSWERS = torch.tensor([1.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("goal", "targets", "pytorchs"),
    [(Regression(), NUMBERS, F.mse_loss), (Binary(), ANSWERS, F.binary_cross_entropy_with_logits)],
)
def test_the_loss_is_pytorchs_also_where_a_dimension_of_one_is_missing(
    goal: Goal, targets: Tensor, pytorchs: nn.Module
) -> None:
    """(4, 1) minus (4,) would be sixteen numbers."""
    expected = pytorchs(OUTPUTS, targets)
    for outputs, wanted in (
        (OUTPUTS, targets),
        (OUTPUTS[:, None], targets),
        (OUTPUTS, targets[:, None]),
        (OUTPUTS[:, None], targets[:, None]),
    ):
        assert torch.equal(goal.loss(outputs, wanted), expected)
        assert goal.sums(outputs, None, wanted)["loss"] == (pytest.approx(4 * float(expected)), 4)
        assert goal.obstacle(outputs, wanted, 0) == ""


def test_several_numbers_count_each() -> None:
    outputs, targets = OUTPUTS.view(2, 2), NUMBERS.view(2, 2)
    assert torch.equal(Regression().loss(outputs, targets), F.mse_loss(outputs, targets))
    assert Regression().sums(outputs, None, targets)["loss"][1] == 4


def test_an_own_criterion_is_given_what_is_compared() -> None:
    for criterion in (nn.HuberLoss(delta=0.3), F.l1_loss):
        goal = Regression(criterion)
        expected = criterion(OUTPUTS, NUMBERS)
        assert torch.equal(goal.loss(OUTPUTS[:, None], NUMBERS), expected)
        assert goal.sums(OUTPUTS[:, None], None, NUMBERS)["loss"] == (pytest.approx(4 * float(expected)), 4)


def test_yes_is_a_logit_above_0() -> None:
    assert Binary().sums(OUTPUTS, None, ANSWERS)["accuracy"] == (2.0, 4)  # 0.5 and -2 are right; 0 means no
    probabilities, wanted = Binary().scored(OUTPUTS[:, None], ANSWERS)
    assert torch.equal(probabilities, OUTPUTS.sigmoid())
    assert wanted.tolist() == [1, 0, 0, 1]


def test_numbers_are_compared_in_double_precision() -> None:
    found, wanted = Regression().scored(OUTPUTS[:, None], NUMBERS)
    assert (found.dtype, wanted.dtype, found.shape) == (torch.float64, torch.float64, (4,))


@pytest.mark.parametrize("outputs", [torch.zeros(4, 2), torch.zeros(3), torch.zeros(4, 1, 1), torch.zeros(2, 2)])
@pytest.mark.parametrize("goal", [Regression(), Binary()])
def test_outputs_of_another_shape_are_refused_with_both_shapes(goal: Goal, outputs: Tensor) -> None:
    told = goal.obstacle(outputs, ANSWERS, 0)
    assert told == f"gives outputs of shape {tuple(outputs.shape)}, but the targets have shape (4,)"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_numbers_are_finite(wrong: float) -> None:
    with pytest.raises(DataError, match=r"^test: a target is not finite; remove that example, or replace it$"):
        Regression().targets(torch.tensor([1.0, wrong]), "test")


def test_numbers_may_be_whole() -> None:
    assert Regression().targets(torch.tensor([3, -2]), "data").dtype is torch.float32


def test_yes_and_no_are_0_and_1_in_any_type() -> None:
    for given in (torch.tensor([True, False]), torch.tensor([1, 0]), torch.tensor([1.0, 0.0])):
        assert Binary().targets(given, "data").tolist() == [1.0, 0.0]
    for wrong, told in ((torch.tensor([0, 2]), "2"), (torch.tensor([-1.0, 1.0]), "-1"), (torch.tensor([0.5]), "0.5")):
        with pytest.raises(DataError, match=f"a target is {told}, but for the task 'binary' it should be 0 or 1"):
            Binary().targets(wrong, "data")


def test_several_labels_are_a_row_of_0_and_1() -> None:
    goal, rows = MultiLabel(), torch.tensor([[1, 0, 1], [0, 0, 0]])
    assert goal.targets(rows, "data").dtype is torch.float32
    with pytest.raises(DataError, match=r"targets have shape \(2,\), but for the task 'multi-label' each example"):
        goal.targets(rows[:, 0], "data")
    with pytest.raises(DataError, match="a target is 3, but for the task 'multi-label' it should be 0 or 1"):
        goal.targets(rows * 3, "data")
    logits = torch.tensor([[2.0, -1.0, -1.0], [-1.0, -1.0, 3.0]])
    assert goal.sums(logits, None, rows.float())["accuracy"] == (4.0, 6)
    assert not goal.labelled


@pytest.mark.parametrize("goal", [Regression(), Binary(), MultiLabel()])
def test_there_are_no_classes_to_choose_among(goal: Goal) -> None:
    assert goal.classes_in(ANSWERS) == 0
    assert not goal.softmax

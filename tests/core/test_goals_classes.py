"""Classes: of an input, of each position, of each pixel; beside PyTorch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.errors import DataError
from potluck.core.goals.classes import IGNORED, Classes, Pixels

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.3, 0.1], [-2.0, 1.0, 4.0], [1.0, 1.0, 1.5]])
TARGETS = torch.tensor([0, 1, 0, 2])
HOLED = torch.tensor([0, IGNORED, 0, IGNORED])


def wide(logits: Tensor) -> Tensor:
    """Logits of two rows of two positions."""
    return logits.view(2, 2, 3)


def test_the_loss_is_pytorchs() -> None:
    assert torch.equal(Classes().loss(LOGITS, TARGETS), F.cross_entropy(LOGITS, TARGETS))


def test_every_position_counts_alike() -> None:
    found = Classes().loss(wide(LOGITS), TARGETS.view(2, 2))
    assert torch.equal(found, F.cross_entropy(wide(LOGITS).movedim(-1, 1), TARGETS.view(2, 2)))


def test_gaps_do_not_count_in_the_loss() -> None:
    for gaps in (False, True):
        found = Classes(gaps=gaps).loss(LOGITS, HOLED)
        assert float(found) == pytest.approx(float(F.cross_entropy(LOGITS, HOLED)))


def test_a_batch_of_gaps_alone_has_loss_0_and_a_gradient_of_0() -> None:
    """PyTorch's mean over no target is not a number, which would spoil the network."""
    nothing = torch.full((4,), IGNORED)
    for criterion in (None, nn.CrossEntropyLoss(), F.multi_margin_loss):
        logits = LOGITS.clone().requires_grad_()
        loss = Classes(criterion, gaps=True).loss(logits, nothing)
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert logits.grad is not None
        assert not logits.grad.any()


def test_an_own_criterion_is_given_what_counts_alone() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append((outputs, targets))
        return F.multi_margin_loss(outputs, targets)

    found = Classes(criterion, gaps=True).loss(wide(LOGITS), HOLED.view(2, 2))
    assert torch.equal(seen[0][0], LOGITS[[0, 2]])
    assert seen[0][1].tolist() == [0, 0]
    assert torch.equal(found, F.multi_margin_loss(LOGITS[[0, 2]], torch.tensor([0, 0])))
    Classes(criterion).loss(wide(LOGITS), TARGETS.view(2, 2))
    assert torch.equal(seen[1][0], LOGITS)


def test_sums_are_right_answers_and_losses_of_what_counts() -> None:
    sums = Classes(gaps=True).sums(LOGITS, None, HOLED)
    assert sums["accuracy"] == (1.0, 2)  # the first is right, the third says 2
    each = F.cross_entropy(LOGITS, HOLED, reduction="none")
    assert sums["loss"] == (pytest.approx(float(each[0] + each[2])), 2)


def test_the_sums_of_an_own_criterion_are_its_mean_as_often_as_targets_count() -> None:
    sums = Classes(F.multi_margin_loss, gaps=True).sums(LOGITS, None, HOLED)
    assert sums["loss"][0] == pytest.approx(2 * float(F.multi_margin_loss(LOGITS[[0, 2]], torch.tensor([0, 0]))))
    assert Classes(F.multi_margin_loss, gaps=True).sums(LOGITS, None, torch.full((4,), IGNORED))["loss"] == (0.0, 0)


def test_metrics_see_probabilities_a_row_per_target_that_counts() -> None:
    found, wanted = Classes().scored(wide(LOGITS), HOLED.view(2, 2))
    assert torch.equal(found, LOGITS[[0, 2]].softmax(-1))
    assert wanted.tolist() == [0, 0]


def test_networks_of_other_shapes_are_refused_with_both_shapes() -> None:
    goal = Classes()
    assert goal.obstacle(LOGITS, TARGETS, 3) == ""
    assert goal.obstacle(wide(LOGITS), TARGETS.view(2, 2), 3) == ""
    assert goal.obstacle(LOGITS, TARGETS, 4) == (
        "has 3 outputs, but classes are numbered from 0 and the last is 3: it needs 4"
    )
    assert "number the classes, or let the task be 'multi-label'" in goal.obstacle(LOGITS, torch.ones(4, 3), 2)
    assert goal.obstacle(wide(LOGITS), TARGETS[:2], 3).startswith(
        "gives logits of shape (2, 2, 3), classes last, but the labels have shape (2,)"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (torch.tensor([0.5, 1.0]), "labels are float32, not whole numbers; number the classes from 0, or say"),
        (torch.tensor([True, False]), "labels are bool, not whole numbers"),
        (torch.tensor([1j]), "labels are complex64"),
        (torch.tensor([3, -2, IGNORED]), r"label -2 is negative; number the classes from 0 \(-100 is for"),
    ],
)
def test_targets_that_are_no_classes_are_refused(given: Tensor, says: str) -> None:
    with pytest.raises(DataError, match=f"^data: {says}"):
        Classes().targets(given, "data")


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_whole_numbers_of_any_type_are_classes(kind: torch.dtype) -> None:
    found = Classes().targets(torch.tensor([0, 4], dtype=kind), "data")
    assert found.dtype is torch.int64
    assert Classes().classes_in(found) == 5


def test_gaps_are_targets_too_and_none_may_be_given() -> None:
    assert Classes().targets(HOLED, "data").tolist() == HOLED.tolist()
    assert len(Classes().targets(HOLED[:0], "data")) == 0


def test_pixels_are_classes_with_the_classes_second() -> None:
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(40).view(2, 4, 5) % 3
    goal = Pixels()
    outputs = goal.outputs(image)
    assert torch.equal(outputs, image.movedim(1, -1))
    assert float(goal.loss(outputs, targets)) == pytest.approx(float(F.cross_entropy(image, targets)))
    assert goal.sums(outputs, None, targets)["accuracy"] == (float((image.argmax(1) == targets).sum()), 40)
    assert goal.obstacle(outputs, targets, 3) == ""


@pytest.mark.parametrize("shape", [(2, 3, 2, 5), (2, 4, 4, 5), (2, 4, 5, 3), (2, 3), (2,), (2, 3, 20)])
def test_pixels_of_another_shape_are_refused_in_the_networks_own(shape: tuple[int, ...]) -> None:
    goal, targets = Pixels(), torch.zeros(2, 4, 5, dtype=torch.long)
    assert goal.obstacle(goal.outputs(torch.zeros(shape)), targets, 3) == (
        f"gives logits of shape {shape}, but labels of shape (2, 4, 5) from 0 to 2 need (2, 3, 4, 5), classes second"
    )


def test_255_among_pixels_is_said_to_be_what_many_data_sets_have_for_no_label() -> None:
    goal, targets = Pixels(), torch.zeros(2, 4, 5, dtype=torch.long)
    outputs = goal.outputs(torch.zeros(2, 3, 4, 5))
    assert goal.obstacle(outputs, targets, 256).endswith("; if 255 stands for pixels without a label, make it -100")


def test_pixels_are_found_in_a_dictionary_as_vision_networks_return_it() -> None:
    image = torch.zeros(1, 3, 2, 2)
    assert Pixels().outputs({"logits": image, "aux": image}).shape == (1, 2, 2, 3)

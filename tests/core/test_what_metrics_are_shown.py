"""What metrics of torchmetrics are handed: what a function is, or what metrics by name are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from measured import at_once, drawn, in_pieces, task_of, whole
from torch import Tensor
from torchmetrics import classification
from torchmetrics.text import Perplexity

from potluck.core.data import Arrays
from potluck.core.goals.classes import IGNORED, Classes, MaskedTokens, NextToken, Pixels
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.goals.own import Own

COUNT, KINDS = 40, 3
CUTS = [(1, 0), (2, 1), (17, 2), (30, 0)]
EVERY_THIRD = torch.arange(COUNT * KINDS).view(COUNT, KINDS) % 3 == 0
# as many positions as classes, so that nothing fails if one is taken for the other
SEQUENCES = Arrays(
    drawn(COUNT, KINDS, KINDS, seed=0), whole(KINDS, COUNT, KINDS, seed=1).masked_fill(EVERY_THIRD, IGNORED)
)
PIXELS = Arrays(drawn(COUNT, KINDS, 2, 2, seed=2), whole(KINDS, COUNT, 2, 2, seed=3))
ANSWERS = Arrays(drawn(COUNT, 1, seed=4), whole(2, COUNT, seed=5).float())
LABELS = Arrays(drawn(COUNT, 4, seed=6), whole(2, COUNT, 4, seed=7).float())
NUMBERS = Arrays(drawn(COUNT, 1, seed=8), drawn(COUNT, seed=9))

GOALS: list[tuple[Goal, Arrays]] = [
    (Classes(gaps=True), SEQUENCES),
    (NextToken(gaps=True), SEQUENCES),
    (MaskedTokens(gaps=True), SEQUENCES),
    (Pixels(), PIXELS),
    (Binary(), ANSWERS),
    (MultiLabel(), LABELS),
    (Regression(), NUMBERS),
    (Own(lambda outputs, targets: (outputs[:, 0] - targets).abs().mean()), NUMBERS),
]


class Seen(torchmetrics.Metric):
    """Everything that it was shown, added up; and a list of it in `seen`."""

    full_state_update = False
    seen: list[tuple[Tensor, Tensor]]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.seen.append((outputs, targets))
        self.total = self.total + outputs.sum()

    def compute(self) -> Any:
        return self.total


@pytest.mark.parametrize(("goal", "examples"), GOALS, ids=lambda given: getattr(given, "name", ""))
def test_an_update_of_ones_own_is_handed_what_a_function_is(goal: Goal, examples: Arrays) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    Seen.seen = []

    def function(outputs: Tensor, targets: Tensor) -> float:
        seen.append((outputs, targets))
        return 0.0

    at_once(task_of(goal, examples, {"own": Seen(), "function": function}, KINDS), examples)
    ((outputs, targets),) = Seen.seen
    assert torch.equal(outputs, seen[-1][0])
    assert torch.equal(targets, seen[-1][1])
    assert torch.equal(outputs, examples.inputs.movedim(1, -1) if isinstance(goal, Pixels) else examples.inputs)
    assert torch.equal(targets, examples.targets)


class CrossEntropy(torchmetrics.MeanMetric):
    """Computed from logits: probabilities would give another number."""

    def update(self, outputs: Tensor, targets: Tensor) -> None:  # type: ignore[override]
        super().update(F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none"))


def entropy_by_hand() -> float:
    """-log p of what is right, where that counts."""
    sure = [
        -math.log(math.exp(logits[right]) / sum(map(math.exp, logits)))
        for rows, wanted in zip(SEQUENCES.inputs.tolist(), SEQUENCES.targets.tolist(), strict=True)
        for logits, right in zip(rows, wanted, strict=True)
        if right != IGNORED
    ]
    return sum(sure) / len(sure)


def test_metrics_that_need_logits_positions_and_gaps_have_them() -> None:
    metrics = {"entropy": CrossEntropy(), "perplexity of theirs": Perplexity(ignore_index=IGNORED)}
    task = task_of(NextToken(gaps=True), SEQUENCES, metrics, KINDS)
    score, expected = in_pieces(task, SEQUENCES, CUTS), entropy_by_hand()
    counting = float((SEQUENCES.targets != IGNORED).double().mean())
    assert score["entropy"] == pytest.approx(expected * counting, rel=1e-5)  # PyTorch gives 0 where nothing counts
    assert score["perplexity of theirs"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert score["perplexity of theirs"] == pytest.approx(score["perplexity"], rel=1e-5)


def f1_by_hand(outputs: Tensor, targets: Tensor) -> float:
    """The mean over classes, of rows of logits."""
    found = []
    for kind in range(KINDS):
        said, wanted = (outputs.argmax(-1) == kind)[targets != IGNORED], (targets == kind)[targets != IGNORED]
        found.append(2 * float((said & wanted).sum()) / float(said.sum() + wanted.sum()))
    return sum(found) / KINDS


@pytest.mark.parametrize("ignored", [IGNORED, None])
def test_classes_of_positions_need_no_other_shape_and_gaps_do_not_count(ignored: int | None) -> None:
    metric = classification.MulticlassF1Score(num_classes=KINDS, ignore_index=ignored)
    for goal, examples in ((NextToken(gaps=True), SEQUENCES), (Pixels(), PIXELS)):
        outputs = goal.outputs(examples.inputs)
        found = in_pieces(task_of(goal, examples, {"f1": metric}, KINDS), examples, CUTS)["f1"]
        assert found == pytest.approx(f1_by_hand(outputs, examples.targets), rel=1e-6)


def test_logits_between_0_and_1_are_not_taken_for_probabilities() -> None:
    """torchmetrics looks at each batch by itself: here some have such logits alone, and some do not."""
    logits = torch.tensor([0.2, 0.9, 0.4, 0.1, -3.0, 4.0, -0.5, 0.3])
    answers = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    examples = Arrays(logits[:, None], answers)
    metrics = {"auroc": classification.BinaryAUROC(), "recall": classification.BinaryRecall()}
    yes, no = logits[answers == 1], logits[answers == 0]
    for cuts in ([(7, 6)], [(1, 0), (3, 0), (5, 0)]):
        score = in_pieces(task_of(Binary(), examples, metrics), examples, cuts)
        assert score["auroc"] == pytest.approx(float((yes[:, None] > no).double().mean()))
        assert score["recall"] == pytest.approx(float((yes > 0).double().mean()))


def test_labels_and_numbers_are_what_they_are_by_hand() -> None:
    labels = in_pieces(
        task_of(MultiLabel(), LABELS, {"own": classification.MultilabelAccuracy(num_labels=4)}), LABELS, CUTS
    )
    assert labels["own"] == pytest.approx(float(((LABELS.inputs > 0) == (LABELS.targets > 0)).double().mean()))
    numbers = in_pieces(task_of(Regression(), NUMBERS, {"own": torchmetrics.MeanAbsoluteError()}), NUMBERS, CUTS)
    assert numbers["own"] == pytest.approx(float((NUMBERS.inputs[:, 0] - NUMBERS.targets).abs().mean()))


class Renamed(classification.MulticlassAccuracy):
    """Has the update of its base."""


class Moved(classification.MulticlassAccuracy):
    """Has one of its own, and is told where the classes are."""

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        super().update(outputs.movedim(-1, 1), targets)


def test_whose_update_it_is_decides() -> None:
    options: dict[str, Any] = {"num_classes": KINDS, "average": "micro", "ignore_index": IGNORED}
    metrics = {"renamed": Renamed(**options), "moved": Moved(**options)}
    score = in_pieces(task_of(NextToken(gaps=True), SEQUENCES, metrics, KINDS), SEQUENCES, CUTS)
    assert score["renamed"] == pytest.approx(score["accuracy"])
    assert score["moved"] == pytest.approx(score["accuracy"])

"""Scores by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from potluck.core.data import Arrays
from potluck.core.evaluate import LocalTest, added, as_tensors, score_of
from potluck.core.goals.classes import Classes, MaskedTokens
from potluck.core.networks import ByWidth
from potluck.core.types import Task
from whole import evaluate

THREE = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0], [0.0, 0.0]])


class Looking(nn.Module):
    """Answers with logits by the number that it is shown."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table[inputs]


def test_accuracy_and_loss_by_hand() -> None:
    score = evaluate(nn.Identity(), Arrays(THREE, torch.tensor([0, 1, 0])))
    assert set(score) == {"accuracy", "loss"}
    assert score["accuracy"] == pytest.approx(2 / 3)  # at a tie the first class is taken
    assert score["loss"] == pytest.approx((math.log(4 / 3) + math.log(4) + math.log(2)) / 3)


@pytest.mark.parametrize("turned", [False, True])
def test_what_some_pieces_alone_measure_is_kept_in_either_order(turned: bool) -> None:
    """Which tokens were hidden shows in some batches only, if two inputs are of one length in others."""
    task = Task(ByWidth(lambda ratio: nn.Identity()), (), 4, {}, (THREE, THREE), goal=MaskedTokens())
    pieces = [as_tensors({"loss": (2.0, 4)}), as_tensors({"loss": (1.0, 2), "masked_accuracy": (1.0, 2)})]
    score = score_of(added(*(reversed(pieces) if turned else pieces), task), task)
    assert (score["loss"], score["masked_accuracy"]) == (0.5, 0.5)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 500])
def test_batches_of_unequal_size_count_by_example(batch_size: int) -> None:
    logits = torch.tensor([[5.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
    score = evaluate(nn.Identity(), Arrays(logits, torch.tensor([0, 0, 0])), batch_size=batch_size)
    whole = float(nn.functional.cross_entropy(logits, torch.zeros(3, dtype=torch.long)))
    assert score["accuracy"] == pytest.approx(2 / 3)
    assert score["loss"] == pytest.approx(whole)


def test_every_token_of_a_sequence_counts() -> None:
    logits = torch.zeros(2, 4, 3)
    logits[..., 1] = 10
    score = evaluate(nn.Identity(), Arrays(logits, torch.tensor([[1, 1, 1, 0], [1, 1, 2, 2]])), "next-token")
    assert score["accuracy"] == 5 / 8
    assert score["perplexity"] == pytest.approx(math.exp(score["loss"]))


def test_hidden_tokens_are_scored_on_their_own_too() -> None:
    table = torch.log(torch.tensor([[1.0, 1.0], [1.0, 3.0], [3.0, 1.0]]))  # the last row answers for the hidden token
    shown, meant = torch.tensor([[0, 2], [1, 2]]), torch.tensor([[0, 0], [1, 1]])
    losses = [[math.log(2), math.log(4 / 3)], [math.log(4 / 3), math.log(4)]]
    score = evaluate(Looking(table), Arrays(shown, meant), "masked-tokens", batch_size=1)
    assert score["accuracy"] == 3 / 4
    assert score["masked_accuracy"] == 1 / 2
    assert score["perplexity"] == pytest.approx(math.exp(sum(map(sum, losses)) / 4))
    assert score["masked_perplexity"] == pytest.approx(math.exp((math.log(4 / 3) + math.log(4)) / 2))
    assert score["paper_perplexity"] == pytest.approx(sum(math.exp(sum(window) / 2) for window in losses) / 2)


def test_a_client_chooses_among_its_classes_with_absent_ones_at_zero() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [-1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    classes = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]).bool()
    local = LocalTest(classes, owned=torch.tensor([True, True, True, False]))
    score = evaluate(nn.Identity(), Arrays(logits, torch.tensor([1, 1, 0, 0])), local=local, batch_size=3)
    # right; wrong; an absent class at 0 beats -1; nobody's
    assert score["local_accuracy"] == pytest.approx(1 / 3)
    assert score["accuracy"] == 1 / 4


def test_cross_entropy_over_tokens_is_the_mean_over_all_of_them() -> None:
    logits, targets = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10).view(2, 5) % 3
    one_by_one = [-logits[b, t].log_softmax(0)[targets[b, t]] for b in range(2) for t in range(5)]
    assert float(Classes().loss(logits, targets)) == pytest.approx(float(torch.stack(one_by_one).mean()))


def test_evaluation_has_no_dropout_no_gradients_and_no_augmentation() -> None:
    class Watching(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            assert not self.training
            assert not torch.is_grad_enabled()
            assert inputs.max() < 5
            return inputs

    examples = Arrays(torch.eye(3), torch.arange(3), augment=lambda inputs, rng: inputs + 10)
    assert evaluate(Watching().train(), examples)["accuracy"] == 1.0

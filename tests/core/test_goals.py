"""Accuracy, perplexities and HeteroFL's Local accuracy, by hand."""

import math

import pytest
import torch
from torch import nn

from potluck.core.data import Arrays
from potluck.core.evaluate import LocalTest
from whole import evaluate


class Fixed(nn.Module):
    """Gives the same logits for any token."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


def test_next_token_perplexity_is_the_exponential_of_the_mean_loss():
    examples = Arrays(torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 1]))
    score = evaluate(Fixed(0.0, 0.0), examples, "next-token")
    assert score["perplexity"] == pytest.approx(2.0)
    assert score["accuracy"] == pytest.approx(2 / 3)
    assert "masked_perplexity" not in score


def test_masked_perplexity_counts_hidden_positions_alone():
    # token 0 has probability 3/4, token 1 has 1/4; the mask is token 2
    net = Fixed(math.log(3.0), 0.0)
    inputs, targets = torch.tensor([[0, 2], [0, 0]]), torch.tensor([[0, 1], [0, 0]])
    score = evaluate(net, Arrays(inputs, targets), "masked-tokens", batch_size=1)
    assert score["masked_perplexity"] == pytest.approx(4.0)
    assert score["masked_accuracy"] == 0.0
    assert score["perplexity"] == pytest.approx(math.exp((3 * math.log(4 / 3) + math.log(4)) / 4))
    first, second = math.exp((math.log(4 / 3) + math.log(4)) / 2), 4 / 3
    assert score["paper_perplexity"] == pytest.approx((first + second) / 2)


def test_local_accuracy_lets_only_the_clients_classes_compete():
    net = Fixed(3.0, 2.0, -1.0)
    examples = Arrays(torch.zeros(4, dtype=torch.long), torch.tensor([1, 1, 2, 0]))
    has = torch.tensor([[False, True, True], [True, True, True], [False, False, True], [True, True, True]])
    local = LocalTest(has, torch.tensor([True, True, True, False]))
    score = evaluate(net, examples, "classes", local, batch_size=3)
    # right: the first (0 is absent, so 1 wins); wrong: the second (0 wins); wrong: the third, whose own logit -1
    # loses to an absent class at 0, as in the authors' code; the fourth belongs to nobody
    assert score["local_accuracy"] == pytest.approx(1 / 3)
    assert score["accuracy"] == pytest.approx(1 / 4)

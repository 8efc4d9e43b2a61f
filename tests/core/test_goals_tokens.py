"""The next token and hidden tokens: what counts, and which perplexities follow."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from potluck.core.goals.classes import IGNORED, MaskedTokens, NextToken, perplexity
from potluck.core.goals.goal import Goal

RANDOM = torch.Generator().manual_seed(0)
LOGITS = torch.randn(2, 3, 4, generator=RANDOM)
TOKENS = torch.tensor([[0, 3, 1], [2, 2, 0]])
MASK = 4
SHOWN = torch.tensor([[0, MASK, 1], [2, 2, MASK]])


def mean_of(sums: dict[str, tuple[float, int]], name: str) -> float:
    value, count = sums[name]
    return value / count


@pytest.mark.parametrize("goal", [NextToken(), MaskedTokens()])
def test_the_loss_is_the_mean_over_all_tokens(goal: Goal) -> None:
    expected = F.cross_entropy(LOGITS.flatten(0, 1), TOKENS.flatten())
    assert torch.equal(goal.loss(LOGITS, TOKENS), expected)
    assert mean_of(goal.sums(LOGITS, TOKENS, TOKENS), "loss") == pytest.approx(float(expected))


def test_the_next_token_may_be_one_per_sequence() -> None:
    assert torch.equal(NextToken().loss(LOGITS[:, -1], TOKENS[:, -1]), F.cross_entropy(LOGITS[:, -1], TOKENS[:, -1]))


def test_hidden_tokens_are_those_that_the_inputs_do_not_show() -> None:
    sums = MaskedTokens().sums(LOGITS, SHOWN, TOKENS)
    hidden = SHOWN == MASK
    assert sums["masked_accuracy"][1] == 2
    assert mean_of(sums, "masked_loss") == pytest.approx(float(F.cross_entropy(LOGITS[hidden], TOKENS[hidden])))


ATTENTION = torch.ones_like(SHOWN)
KINDS = torch.zeros_like(SHOWN)


@pytest.mark.parametrize(
    "inputs",
    [
        {"input_ids": SHOWN},
        {"attention_mask": ATTENTION, "input_ids": SHOWN, "token_type_ids": KINDS},
        {"tokens": SHOWN, "mask": ATTENTION.bool(), "weights": ATTENTION.float(), "lengths": torch.tensor([3, 3])},
        (SHOWN, ATTENTION.float()),
        [SHOWN],
    ],
    ids=["a dictionary", "of transformers", "the only whole numbers", "a tuple", "a list"],
)
def test_tokens_are_found_among_several_inputs(inputs: Any) -> None:
    assert MaskedTokens().sums(LOGITS, inputs, TOKENS) == MaskedTokens().sums(LOGITS, SHOWN, TOKENS)


@pytest.mark.parametrize(
    "inputs",
    [
        {"tokens": SHOWN, "mask": ATTENTION},
        (SHOWN, KINDS),
        {"embedded": LOGITS},
        {"input_ids": SHOWN[:, :2], "attention_mask": ATTENTION},
        SHOWN.float(),
    ],
    ids=["two", "two in order", "none", "another shape", "no whole numbers"],
)
def test_nothing_is_said_of_hidden_tokens_if_it_is_not_clear_which_they_are(inputs: Any) -> None:
    found, known = MaskedTokens().sums(LOGITS, inputs, TOKENS), MaskedTokens().sums(LOGITS, SHOWN, TOKENS)
    assert found == {name: pair for name, pair in known.items() if not name.startswith("masked")}
    assert "masked_accuracy" not in MaskedTokens(F.multi_margin_loss).sums(LOGITS, inputs, TOKENS)


def test_hidden_tokens_are_those_that_have_targets_if_the_others_have_none() -> None:
    """As collators of transformers make them, whatever the inputs are."""
    targets = torch.where(SHOWN == MASK, TOKENS, IGNORED)
    for inputs in (SHOWN, {"input_ids": SHOWN, "attention_mask": SHOWN}, (SHOWN,)):
        sums = MaskedTokens(gaps=True).sums(LOGITS, inputs, targets)
        assert sums["masked_accuracy"] == sums["accuracy"]
        assert mean_of(sums, "masked_loss") == pytest.approx(mean_of(sums, "loss"))


def test_perplexities_are_exponentials_of_means() -> None:
    assert NextToken().derived({"accuracy": 0.5, "loss": math.log(7)}) == {"perplexity": pytest.approx(7)}
    found = MaskedTokens().derived({"loss": 0.0, "masked_loss": math.log(2)})
    assert found == {"perplexity": 1.0, "masked_perplexity": pytest.approx(2)}


def test_a_perplexity_that_no_number_can_hold_is_infinite() -> None:
    assert perplexity(1e4) == math.inf


@pytest.mark.parametrize("goal", [NextToken(), MaskedTokens()])
def test_nothing_follows_where_no_target_counts(goal: Goal) -> None:
    assert goal.derived({}) == {}


@pytest.mark.parametrize("kind", [NextToken, MaskedTokens])
def test_a_loss_of_ones_own_makes_no_perplexity(kind: type[Goal]) -> None:
    goal = kind(F.multi_margin_loss)
    sums = goal.sums(LOGITS, SHOWN, TOKENS)
    expected = F.multi_margin_loss(LOGITS.flatten(0, 1), TOKENS.flatten())
    assert mean_of(sums, "loss") == pytest.approx(float(expected))
    assert goal.derived({name: mean_of(sums, name) for name in sums}) == {}
    assert "masked_loss" not in sums
    assert "paper_perplexity" not in sums

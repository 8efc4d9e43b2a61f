"""A few sequences that are much longer than all others: what is filled up to them is never all examples at once."""

import hashlib

import pytest
import torch
from torch import nn

import potluck
from potluck.core.data import Arrays
from potluck.core.goals.classes import IGNORED, NextToken
from potluck.data.columns.ragged import Ragged
from potluck.data.dataset import PIECE, Dataset
from potluck.data.own import examples
from potluck.study.api import described

TOKENS, LONGEST = 7, 500
SHORT = [torch.arange(2 + number % 3) % TOKENS for number in range(3 * PIECE)]
TEXTS = [*SHORT, torch.arange(LONGEST) % TOKENS]


def texts(tokens):
    return examples((tokens, [each.roll(-1) for each in tokens]), pad=0)


def run(**changes):
    torch.manual_seed(0)
    settings = {
        "model": nn.Sequential(nn.Embedding(TOKENS, 8), nn.ReLU(), nn.Linear(8, TOKENS)),
        "data": texts(TEXTS),
        "test": texts(SHORT),
        "task": "next-token",
        "levels": {"all": 1.0},
        "clients": 4,
        "rounds": 1,
        "train": {"lr": 0.05, "epochs": 1, "batch_size": 64},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.fixture
def filled(monkeypatch):
    """How many positions were filled up, each time that examples were taken."""
    found, take = [], Ragged.take

    def noting(column, index):
        made = take(column, index)
        found.append(made.numel())
        return made

    monkeypatch.setattr(Ragged, "take", noting)
    return found


@pytest.mark.parametrize("partition", ["iid", {"name": "drawn", "size": 20}])
def test_no_more_than_a_piece_is_filled_up_at_once(filled, partition):
    assert run(partition=partition).experiment.task.goal.gaps
    assert max(filled) <= PIECE * LONGEST


def test_a_partition_of_the_users_has_all_targets():
    shapes = []

    def in_turn(targets, clients, rng, owners):
        shapes.append(tuple(targets.shape))
        return [range(client, len(targets), clients) for client in range(clients)]

    run(partition=in_turn)
    assert shapes == [(len(TEXTS), LONGEST)]


def column(lengths):
    return Ragged.of([torch.arange(length) % TOKENS for length in lengths], IGNORED)


@pytest.mark.parametrize(("lengths", "gaps"), [([3] * PIECE + [5] * PIECE, True), ([3] * 2 * PIECE, False)])
def test_batches_of_unequal_pieces_have_positions_that_do_not_count(lengths, gaps):
    targets = column(lengths)
    data = Arrays(targets, targets)
    found = Dataset(data, data).aimed_at(NextToken())
    assert (found.goal.gaps, found.classes) == (gaps, max(lengths))


def test_the_digest_is_that_of_all_targets_together():
    targets = column([3] * PIECE + [5] * PIECE)
    together = targets.take(torch.arange(len(targets)))
    assert described(Arrays(targets, targets))["labels"] == hashlib.sha256(together.numpy().tobytes()).hexdigest()

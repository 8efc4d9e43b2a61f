"""Scoring in pieces, wherever clients run: what all test examples at once would give."""

import itertools
import tomllib
from dataclasses import replace

import pytest
import torch
from small_experiment import SMALL
from torch import nn

from potluck.core import desk
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Part
from potluck.core.desk import ready_model, score_piece
from potluck.core.memo import Memo
from potluck.core.server import Server
from potluck.core.store import Memory
from potluck.core.types import Train
from potluck.data.assignment import Fixed
from potluck.data.dataset import Dataset
from potluck.data.partitions import partition_named
from potluck.engines.local import Local
from potluck.engines.serial import Serial
from potluck.methods.heterofl import HeteroFL
from potluck.study.config import parse_config
from potluck.study.experiment import assemble, from_config
from potluck.study.schema import Origin
from potluck.study.scoring import PIECES, pieces_of, score_levels
from potluck.study.settings import FleetSection, Settings, TaskSection
from whole import evaluate

CLASSES, WORDS, LENGTH = 4, 7, 5


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def small(width):
    hidden = round(4 * width)
    return nn.Sequential(
        nn.Conv2d(1, hidden, 3, padding=1),
        nn.BatchNorm2d(hidden),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * hidden, CLASSES),
    ).double()


class ByHand(nn.Module):
    """Reshapes by hand, as many networks do."""

    def __init__(self, width):
        super().__init__()
        self.body, self.head = nn.Linear(16, round(4 * width)), nn.Linear(round(4 * width), CLASSES)
        self.double()

    def forward(self, images):
        return self.head(self.body(images.view(images.size(0), -1)).relu())


def words(width):
    hidden = round(8 * width)
    layers = nn.Embedding(WORDS, hidden), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, WORDS)
    return nn.Sequential(*layers).double()


def texts(count, seed):
    found = torch.randint(WORDS, (count, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
    return Arrays(found[:, :-1], found[:, 1:])


def images(count, seed):
    return Arrays(numbers(count, 1, 4, 4, seed=seed).double(), torch.arange(count) % CLASSES)


TWO = {"big": 1.0, "small": 0.5}


def experiment_of(model, data, levels):
    settings = Settings(
        method=HeteroFL(),
        task=TaskSection(model="", rounds=2, calibration_clients=2),
        fleet=FleetSection(clients=6, levels=levels, cohort=3),
        partition=partition_named("iid")(),
        assignment=Fixed(),
        train=Train(epochs=1),
    )
    return assemble(settings, model, data)


def classes(tests, model=small, levels=TWO):
    return experiment_of(model, Dataset(images(60, 1), images(tests, 2), CLASSES), levels)


def next_tokens(tests):
    return experiment_of(words, Dataset(texts(60, 1), texts(tests, 2), WORDS, "next-token"), TWO)


def opened(experiment, engine=None, store=None):
    """A server whose engine is ready for this experiment."""
    engine = engine or Serial()
    engine.open(experiment.site, experiment.desk, store or Memory(), Clock())
    return Server(experiment.recipe, engine)


def state_of(experiment, seed=0):
    return experiment.method.init(replace(experiment.site.context(0), seed=seed))


def require_whole(experiment, scored, state, tolerance=1e-9):
    """Accuracies to the bit; losses as far as products of other batches round alike."""
    assert set(scored.scores) == {level.name for level in experiment.task.levels}
    for level in experiment.task.levels:
        net = ready_model(experiment.recipe, state, level, 0, scored.statistics[level.name], Memo())
        whole = evaluate(net, experiment.test, experiment.task.goal, experiment.desk.local)
        found = scored.scores[level.name]
        assert set(found) == set(whole)
        for name, value in whole.items():
            if name.endswith("accuracy"):
                assert found[name] == value
            else:
                assert found[name] == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("tests", [PIECES, PIECES + 1, 23, 600, 4001])
def test_classes_are_scored_as_if_at_once(tests):
    experiment = classes(tests)
    state = state_of(experiment)
    scored = score_levels(experiment, opened(experiment), state, 0)
    require_whole(experiment, scored, state)
    assert "local_accuracy" in scored.scores["big"]
    assert scored.scores["big"] != scored.scores["small"]


@pytest.mark.parametrize("tests", [PIECES, 29])
def test_next_tokens_are_scored_as_if_at_once(tests):
    experiment = next_tokens(tests)
    state = state_of(experiment)
    scored = score_levels(experiment, opened(experiment), state, 0)
    require_whole(experiment, scored, state)
    assert "perplexity" in scored.scores["big"]


@pytest.mark.parametrize("tests", [1, 2, PIECES - 1])
def test_fewer_test_examples_than_pieces(tests):
    for experiment in (classes(tests), next_tokens(tests)):
        state = state_of(experiment)
        require_whole(experiment, score_levels(experiment, opened(experiment), state, 0), state)


def test_a_piece_without_examples_is_not_shown_to_the_network():
    """Many networks cannot take a batch of none, as `images.view(len(images), -1)` cannot."""
    experiment = classes(3, ByHand)
    state = state_of(experiment)
    require_whole(experiment, score_levels(experiment, opened(experiment), state, 0), state)


def test_networks_that_reshape_by_hand():
    experiment = classes(PIECES, ByHand)
    state = state_of(experiment)
    require_whole(experiment, score_levels(experiment, opened(experiment), state, 0), state)


@pytest.mark.parametrize("tests", [1, 7, 8, 9, 100, 1003])
def test_pieces_are_every_example_once(tests, monkeypatch):
    experiment, seen, count = classes(tests), [], min(PIECES, tests)

    def note(net, examples, chosen, *others):
        seen.append(chosen)
        return {}

    monkeypatch.setattr(desk, "tally_as_trained", note)
    pieces = list(pieces_of(experiment, state_of(experiment), {"big": {}, "small": {}}, 0))
    assert [piece.level.name for piece in pieces] == ["big"] * count + ["small"] * count
    for piece in pieces:
        score_piece(experiment.desk, piece)
    for of_level in (seen[:count], seen[count:]):
        assert torch.cat(of_level).tolist() == list(range(tests))
        sizes = [len(chosen) for chosen in of_level]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("levels", [TWO, {"big": 1.0}])
def test_two_evaluations_in_one_round_do_not_share_a_network(levels):
    experiment = classes(40, levels=levels)
    server, states = opened(experiment), [state_of(experiment, seed) for seed in range(2)]
    scores = []
    for state in states:
        scored = score_levels(experiment, server, state, 0)
        require_whole(experiment, scored, state)
        scores.append(scored.scores)
    assert scores[0] != scores[1]
    again = score_levels(experiment, server, states[0], 0)
    assert again.scores == scores[0]


def test_a_network_is_set_up_once_for_all_pieces_of_an_occasion(monkeypatch):
    experiment, made = classes(40), []
    real = desk.ready_model
    monkeypatch.setattr(desk, "ready_model", lambda *given: (made.append(given[2].name), real(*given))[1])
    engine, state = opened(experiment).engine, state_of(experiment)
    for _ in range(2):
        list(engine.share(score_piece, pieces_of(experiment, state, {"big": {}, "small": {}}, 0)))
    assert made == ["big", "small"] * 2


def test_scoring_leaves_nothing_on_clients_and_counts_as_nobodys_update():
    experiment, store = classes(40), Memory()
    scored = score_levels(experiment, opened(experiment, store=store), state_of(experiment), 0)
    assert store.kept == {}
    assert scored.ledger.clients == 2 * 2  # those who measured statistics


def test_a_worker_gives_the_same_bits():
    engine = Local(1)
    try:
        for experiment in (classes(61), next_tokens(61), classes(5)):
            for seed, round in itertools.product(range(2), range(2)):
                state = state_of(experiment, seed)
                here = score_levels(experiment, opened(experiment), state, round)
                there = score_levels(experiment, opened(experiment, engine), state, round)
                assert there.scores == here.scores
                for level, found in here.statistics.items():
                    assert all(torch.equal(there.statistics[level][name], value) for name, value in found.items())
    finally:
        engine.close()


def test_the_share_of_test_examples_that_a_config_asks_for():
    table = tomllib.loads(SMALL)
    table["data"]["test_examples"] = 50
    experiment = from_config(parse_config(table, Origin()))
    assert isinstance(experiment.test, Part)
    state = state_of(experiment)
    require_whole(experiment, score_levels(experiment, opened(experiment), state, 0), state, tolerance=1e-6)

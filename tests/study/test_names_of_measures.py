"""What a user calls measures, and goals of a user's own, before anything is trained."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import potluck
from potluck.core.errors import ConfigError
from potluck.core.tensors import same_tensors
from potluck.goals import Classes

INPUTS = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0.5).long()


def run(**changes):
    torch.manual_seed(0)
    settings = {
        "model": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        "data": (INPUTS, LABELS),
        "levels": {"server": 1.0},
        "clients": 4,
        "rounds": 1,
        "train": {"epochs": 1},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


def test_a_metric_of_torchmetrics_stands_beside_its_name():
    metrics = pytest.importorskip("torchmetrics.classification")
    result = run(metrics={"mcc": metrics.MulticlassMatthewsCorrCoef(num_classes=2), "macro-f1": "macro-f1"})
    assert {"accuracy", "loss", "mcc", "macro-f1"} <= set(result.scores["server"])


def test_what_a_goal_derives_may_be_asked_for():
    tokens = torch.arange(40).view(8, 5) % 3
    net = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 3))
    result = run(model=net, data=(tokens, tokens), task="next-token", metrics=["perplexity", "macro-f1"])
    assert set(result.scores["server"]) == {"accuracy", "loss", "perplexity", "macro-f1"}


@dataclass(frozen=True)
class Unscored(Classes):
    name = "unscored"

    def sums(self, outputs, inputs, targets):
        raise ValueError("no sums today")


@dataclass(frozen=True)
class Flat(Classes):
    name = "flat"

    def loss(self, outputs, targets):
        return torch.zeros(())


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Unscored(), r"the task 'unscored' fails as a model is scored: sums in .*: no sums today"),
        (Flat(), "loss gives a number that has no gradient"),
    ],
)
def test_a_goal_that_fails_is_refused_before_anything_is_trained(task, says):
    with pytest.raises(ConfigError, match=says):
        run(task=task)


def test_a_recorded_run_with_metrics_of_ones_own_gives_its_models(tmp_path):
    def right(outputs, targets):
        return (outputs.argmax(-1) == targets).double()

    result = run(metrics={"right": right}, out=tmp_path / "run", data="digits", model="lg-mlp")
    recorded = potluck.load(tmp_path / "run")
    for level in ("server", 0.5):
        assert same_tensors(recorded.export(level).state_dict(), result.export(level).state_dict())
    assert recorded.scores == result.scores
    assert "right" in recorded.scores["server"]

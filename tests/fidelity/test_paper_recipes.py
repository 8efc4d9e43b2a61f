"""The experiments that claim a paper's recipe have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from potluck.core.fit import learning_rate
from potluck.data.partitions import Classes
from potluck.study.config import read_config

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FASHION = sorted(EXPERIMENTS.glob("fashion-*.toml"))


@pytest.mark.parametrize("path", FASHION, ids=lambda path: path.stem)
def test_the_rate_falls_to_a_tenth_after_100_of_flancs_200_rounds(path: Path) -> None:
    train = read_config(path).train
    rates = [learning_rate(train, round, 200) for round in range(200)]
    assert rates == [0.01] * 100 + [pytest.approx(0.001)] * 100


def test_there_are_such_experiments() -> None:
    assert len(FASHION) == 8


@pytest.mark.parametrize("alpha", [0.5, 0.1])
@pytest.mark.parametrize("name", ["cifar10-fedhm", "cifar10-heterofl"])
def test_fedhms_clients_have_2500_examples_each(name: str, alpha: float) -> None:
    config = read_config(EXPERIMENTS / f"{name}.toml", [f"data.partition.alpha={alpha}"])
    targets = torch.arange(50_000) % 10
    held = config.partition(targets, config.fleet.clients, torch.Generator().manual_seed(0))
    assert [held.size(client) for client in range(20)] == [2500] * 20
    assert min(len(torch.unique(targets[held.of(client)])) for client in range(20)) < 10
    assert config.train.lr == 0.1
    assert "start" not in config.resolved()["task"]["model"]  # the authors' initial weights are the default


def test_all_classes_for_everybody_are_flancs_equally_distributed_data() -> None:
    targets = torch.arange(60_000) % 10
    held = Classes(10)(targets, 100, torch.Generator().manual_seed(0))
    for client in range(100):
        assert targets[held.of(client)].bincount().tolist() == [60] * 10

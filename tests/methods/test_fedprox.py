"""FedProx: the proximal term, in every way to train, and that it learns."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from clouds import learned
from torch import nn

from potluck.core.fit import fit
from potluck.core.goals.classes import Classes
from potluck.core.types import Phase, Train
from potluck.core.ways.way import Way
from potluck.methods.fedprox import FedProx, proximal_loss


def test_the_loss_has_half_of_mu_times_the_squared_distance() -> None:
    net = nn.Linear(2, 3)
    batch = (torch.ones(4, 2), torch.tensor([0, 1, 2, 0]))
    start = {"weight": net.weight.detach() - 2, "bias": net.bias.detach()}
    apart = proximal_loss(Classes(), 0.5, net, batch, start) - Classes()(net, batch, {})
    assert apart.item() == pytest.approx(0.5 / 2 * 6 * 4)


def test_it_learns() -> None:
    # Chance is 0.25, and no client has every class. Over five seeds the lowest was 0.9.
    assert learned(FedProx(width=0.125, mu=0.1))["full"] > 0.8


def test_a_strong_pull_keeps_clients_near() -> None:
    strong, free = (learned(FedProx(width=0.125, mu=mu), rounds=2)["full"] for mu in (15.0, 0.0))
    assert strong < free  # seen: 0.25 and 0.56


def test_steps_in_the_backward_pass_are_pulled_back_too() -> None:
    """Where a layer would take its step before the pull on its weights is known, it must wait."""
    rng = torch.Generator().manual_seed(0)
    batches = [(torch.randn(20, 6, generator=rng), torch.arange(20) % 3) for _ in range(3)]
    train, found = Train(lr=0.1, momentum=0.0, weight_decay=0.0, clip=0.0), []
    start = {"weight": torch.zeros(3, 6), "bias": torch.zeros(3)}
    for way in ("plain", "swift"):
        net = nn.Linear(6, 3)
        net.load_state_dict(start)
        phase = Phase(partial(proximal_loss, Classes(), 2.0), start)
        fit(net, Way.called(way).phase(phase, train), batches, train)
        found.append(net.weight.detach())
    torch.testing.assert_close(found[0], found[1])

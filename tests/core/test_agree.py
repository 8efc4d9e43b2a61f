"""Whether a way computes what the plain way does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from small_sites import (
    CLASSES,
    NARROW,
    WIDE,
    at_once,
    batch_normed,
    client_of,
    conv,
    job_for,
    jobs_of,
    mlp,
    normed,
    same,
    site_of,
)
from torch import Tensor, nn

from potluck import methods
from potluck.core.client import Site, train_in
from potluck.core.errors import ConfigError
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.tensors import copied, state_of
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Train
from potluck.core.ways import agree
from potluck.core.ways.agree import agrees
from potluck.core.ways.way import Way
from potluck.methods.fjord import FjORD
from potluck.methods.flanc import FLANC

WAYS = ("swift", "channels-last", "stacked-2", "stacked-32")
ONE_BY_ONE = WAYS[:2]


def agreeing(site: Site, level: Level = WIDE) -> tuple[str, ...]:
    job = job_for(site, client_of(0, level))
    return tuple(name for name in WAYS if agrees(Way.called(name), site, job, {}))


@pytest.mark.parametrize("level", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["fedavg", "fednova", "fedprox", "fedrolex", "heterofl", "scaffold", "splitmix"])
def test_all_ways_agree_on_a_network_that_suits_them(name: str, level: Level) -> None:
    site = site_of(batch_normed, methods.find(name)())
    if site.method.admits(level, site.context(0)):
        assert agreeing(site, level) == WAYS


@pytest.mark.parametrize("form", ["compose", "grouped"])
@pytest.mark.parametrize("level", [WIDE, NARROW])
def test_flanc_agrees_in_both_forms(form: Any, level: Level) -> None:
    site = site_of(normed(nn.BatchNorm2d, full=16), FLANC(form=form))
    assert agreeing(site, level)[:2] == ONE_BY_ONE


def test_fedhm_agrees_in_factors() -> None:
    site = site_of(normed(nn.BatchNorm2d, full=16), methods.find("fedhm")())
    assert agreeing(site, NARROW)[:2] == ONE_BY_ONE


def test_what_draws_random_numbers_is_not_stacked() -> None:
    assert agreeing(site_of(batch_normed, FjORD())) == ONE_BY_ONE
    dropping = site_of(lambda width: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, CLASSES)))
    assert agreeing(dropping) == ONE_BY_ONE


class Whitened(torch.optim.SGD):
    """Steps by what all numbers of a parameter have in common."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for parameter in (each for group in self.param_groups for each in group["params"] if each.grad is not None):
            parameter.add_(parameter.grad / parameter.grad.norm(), alpha=-0.1)


@dataclass(frozen=True)
class OwnSteps(Method):
    """A method whose phase has an optimiser of its own."""

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> list[Phase]:
        return [Phase(Classes(), train=Train(optimizer=Whitened))]


def test_an_optimiser_that_may_mix_clients_is_not_stacked() -> None:
    assert agreeing(site_of(mlp, settings=Train(optimizer=Whitened))) == ONE_BY_ONE
    assert agreeing(site_of(mlp, OwnSteps())) == ONE_BY_ONE
    assert agreeing(site_of(mlp, settings=Train(optimizer="adagrad"))) == WAYS
    site = site_of(mlp, settings=Train(optimizer=Whitened))
    with pytest.raises(
        ConfigError, match=r"not known that .*Whitened steps each number by itself; choose engine\.step"
    ):
        at_once(site, jobs_of(site))


class Idle(nn.Module):
    """Has a layer that drops units, and does not call it."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(108, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def test_what_would_not_be_stacked_in_a_run_is_not_here() -> None:
    assert agreeing(site_of(lambda width: Idle())) == ONE_BY_ONE


def before_a_head(layer: nn.Module) -> Site:
    """A network with this layer on four channels."""
    return site_of(lambda width: nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.Flatten(), nn.Linear(64, CLASSES)))


def test_a_layout_that_dropout_would_notice_is_still_right() -> None:
    """Swift drops the units of the plain layout."""
    assert agreeing(before_a_head(nn.Dropout(0.5))) == ONE_BY_ONE


class Noise(nn.Module):
    """Draws numbers in the order in which its input lies in memory."""

    def forward(self, images: Tensor) -> Tensor:
        return images * torch.randn_like(images)


class View(nn.Module):
    """Takes the plain layout for granted."""

    def forward(self, images: Tensor) -> Tensor:
        return images.view(len(images), -1).relu().view_as(images)


class Strides(nn.Module):
    """Reads memory as it lies."""

    def forward(self, images: Tensor) -> Tensor:
        return images.as_strided(images.shape, (64, 16, 4, 1)) * torch.arange(4.0)


@pytest.mark.parametrize("layer", [Noise(), View(), Strides()])
def test_a_layout_that_shows_is_noticed(layer: nn.Module) -> None:
    found = agreeing(before_a_head(layer))
    assert "channels-last" not in found
    assert "swift" in found


class Hidden(nn.Module):
    """Reads one of its parameters past its name, so that nobody can give it another."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(())), nn.Linear(108, CLASSES)
        self.read = [self.scale]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1) * self.read[0])
        return logits


def test_a_parameter_that_a_stack_cannot_replace_is_noticed() -> None:
    assert agreeing(site_of(lambda width: Hidden())) == ONE_BY_ONE


@pytest.mark.parametrize(("by", "left"), [(0.1, False), (0.001, True)])
def test_rounding_is_no_disagreement(by: float, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = agree.gradients

    def spoiled(way: Way, *of: Any) -> Tensors:
        return {name: each * (1 + by * way.swift) for name, each in real(way, *of).items()}

    monkeypatch.setattr(agree, "gradients", spoiled)
    assert ("swift" in agreeing(site_of(conv))) == left


@pytest.mark.parametrize(
    "settings",
    [
        Train(optimizer="adam", lr=1e-7, epochs=1, batch_size=5),  # steps as small as rounding
        Train(lr=1e30, clip=0.0, epochs=1, batch_size=5),  # training that diverges
        Train(lr=0.05, momentum=0.0, weight_decay=0.0, clip=0.0, epochs=1, batch_size=32),  # steps in the backward pass
    ],
)
def test_how_steps_are_taken_does_not_matter(settings: Train) -> None:
    assert agreeing(site_of(batch_normed, settings=settings)) == WAYS


class TwoPhases(Method):
    """Trains the head, then the rest."""

    def phases(self, job: Job, ctx: Any, personal: Tensors) -> Any:
        (phase,) = super().phases(job, ctx, personal)
        return [type(phase)(phase.loss, trains=is_head), type(phase)(phase.loss, trains=is_body)]


def is_head(name: str) -> bool:
    return name.startswith("3.")


def is_body(name: str) -> bool:
    return not is_head(name)


def test_every_phase_is_looked_at() -> None:
    site = site_of(mlp, TwoPhases())
    found = agree.gradients(Way(), site, job_for(site, client_of(0)), {})
    assert list(found) == ["0 3.weight", "0 3.bias", "1 1.weight", "1 1.bias"]
    assert agreeing(site) == WAYS


def test_a_client_without_examples_agrees_with_nothing() -> None:
    site = site_of(conv)
    nobody = Job(Client(99, WIDE, 0, ()), 0, job_for(site, client_of(0)).payload)
    assert not agrees(Way.called("swift"), site, nobody, {})


def test_looking_leaves_no_trace() -> None:
    site = site_of(batch_normed)
    job = job_for(site, client_of(0))
    before = copied(job.payload)
    net = site.method.localize(job, site.context(0), {})
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for name in WAYS:
        assert agrees(Way.called(name), site, job, {})
    assert same(job.payload, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert all(tensor.is_contiguous() for tensor in state_of(net).values())


def test_what_training_left_behind_does_not_count() -> None:
    site = site_of(conv)
    job = job_for(site, client_of(0))
    train_in(Way(), site, job, {})
    assert agreeing(site) == WAYS

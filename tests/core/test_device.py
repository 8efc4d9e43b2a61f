"""Networks elsewhere than in the CPU's memory: on a device that computes shapes alone, all of a client's round runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from small_sites import BRISK, CLASSES, NARROW, WIDE, batch_normed, client_of, conv, job_for, jobs_of, mlp, site_of
from torch import Tensor, nn

from potluck.core.calibration import calibrate
from potluck.core.client import train, train_in
from potluck.core.errors import DataError
from potluck.core.evaluate import tally_over
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.types import Batch, Context, Job, Level, Phase, Tensors
from potluck.core.ways.way import Way
from potluck.methods.fjord import FjORD
from potluck.methods.heterofl import HeteroFL
from potluck.methods.splitmix import SplitMix

pytestmark = pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")


CASES = [
    (HeteroFL(), "plain"),
    (HeteroFL(), "swift"),
    (HeteroFL(), "channels-last"),
    (HeteroFL(static_norm=False), "plain"),
    (SplitMix(), "plain"),
]


@pytest.mark.parametrize("level", [WIDE, NARROW])
@pytest.mark.parametrize(("method", "way"), CASES)
def test_a_round_runs_where_the_site_says(method: Method, way: str, level: Level) -> None:
    site = site_of(batch_normed, method, device="meta")
    for round in range(2):  # networks are kept for the next round
        job = job_for(site, client_of(1, level), round)
        sent, own = train_in(Way.called(way), site, job, {})
        assert {name: tuple(t.shape) for name, t in sent.items()} == {n: tuple(t.shape) for n, t in job.payload.items()}
        assert all(tensor.device.type == "meta" for tensor in sent.values())
        assert {name: t.dtype for name, t in sent.items()} == {name: t.dtype for name, t in job.payload.items()}
        assert own == {}


@pytest.mark.parametrize(
    "level",
    [
        WIDE,
        NARROW,  # has none inside
    ],
)
def test_networks_inside_another_move_along(level: Level) -> None:
    site = site_of(batch_normed, FjORD(), device="meta")
    job = job_for(site, client_of(1, level))
    sent, _ = train(site, job, {})
    assert {name: t.shape for name, t in sent.items()} == {name: t.shape for name, t in job.payload.items()}


@pytest.mark.parametrize("settings", [BRISK, replace(BRISK, optimizer="adam"), replace(BRISK, momentum=0.0, clip=0.0)])
def test_every_optimiser_runs_there(settings: object) -> None:
    site = site_of(mlp, settings=settings, device="meta")  # type: ignore[arg-type]
    sent, _ = train(site, job_for(site, client_of(0)), {})
    assert sent["3.weight"].shape == (CLASSES, 8)


def test_statistics_are_measured_there() -> None:
    site = site_of(batch_normed, HeteroFL(), device="meta")
    found, _ = calibrate(site, job_for(site, client_of(0, NARROW)), {})
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        f"{layer}.{kind}": (1,) if kind == "batches" else (size,)
        for layer, size in (("1", 2), ("5", 4))
        for kind in ("mean", "var", "batches")
    }


def test_networks_with_frozen_layers_run_there_round_after_round() -> None:
    def frozen(width: float) -> nn.Module:
        net = mlp(width)
        net[1].requires_grad_(False)  # type: ignore[index]
        return net

    site = site_of(frozen, HeteroFL(), device="meta")
    for round in range(2):  # in the second the network is there already
        sent, _ = train(site, job_for(site, client_of(0), round), {})
        assert all(tensor.device.type == "meta" for tensor in sent.values())
    first, second = (site.context(0).build(WIDE).get_parameter("1.weight") for _ in range(2))
    assert first is not second  # one that moves takes its parameters along


SEEN: list[set[str]] = []


def watching(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    SEEN.append({tensor.device.type for tensor in (*batch, *extra.values(), *net.parameters(), *net.buffers())})
    return Classes()(net, batch, extra)


@dataclass(frozen=True)
class Watching(Method):
    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(watching, {"mask": torch.ones(3)})]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_network_its_batches_and_a_phases_tensors_are_in_one_place(device: str) -> None:
    SEEN.clear()
    site = site_of(conv, Watching(), device=device)
    train(site, jobs_of(site)[0], {})
    assert len(SEEN) == 6
    assert all(found == {device} for found in SEEN)


def test_examples_are_scored_where_the_network_is() -> None:
    seen: list[str] = []

    class Where(nn.Linear):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images.device.type)
            raise StopIteration  # seen enough

    site = site_of(mlp)
    net = Where(108, CLASSES, device="meta")
    with pytest.raises(DataError, match="the network fails"):
        tally_over(net, site.holder.examples(0), torch.arange(3), site.task, None, 100)
    assert seen == ["meta"]

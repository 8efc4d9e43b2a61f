"""A federation small enough to try a method on in a second: six clients, three levels, a network with batch norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from potluck.core.data import Arrays
from potluck.core.method import Method
from potluck.core.server import draw_cohort
from potluck.core.tensors import state_of
from potluck.core.types import Client, Context, Job, Tensors, Train, Update
from potluck.data.assignment import Blocks
from potluck.data.dataset import Dataset
from potluck.data.partitions import IID, Partition, Shards
from potluck.study.experiment import Experiment, assemble
from potluck.study.recipes import Model
from potluck.study.settings import FleetSection, Settings, TaskSection

LEVELS = {"large": 1.0, "medium": 0.5, "small": 0.25}
CLASSES = 4


class Small(nn.Module):
    """A little of everything a method may meet: convolution, batch norm, dropout, a linear head."""

    def __init__(self, width: float, norm: bool = True) -> None:
        super().__init__()
        channels = max(1, round(16 * width))
        self.conv = nn.Conv2d(1, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels) if norm else nn.Identity()
        self.drop = nn.Dropout(0.1) if norm else nn.Identity()
        self.hidden = nn.Linear(channels * 4, channels)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.max_pool2d(self.norm(self.conv(images)).relu(), 2)
        logits: Tensor = self.head(self.drop(self.hidden(features.flatten(1)).relu()))
        return logits


class Plain(Small):
    """The same without batch norm and dropout, where averaging is all there is."""

    def __init__(self, width: float) -> None:
        super().__init__(width, norm=False)


def wide_mlp() -> nn.Module:
    """A network that has nothing to do with the other."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, CLASSES))


def half() -> nn.Module:
    """The usual network at half its width."""
    return Small(0.5)


OWN_NETWORKS: dict[str, Callable[[], nn.Module]] = {"one": half, "other": wide_mlp}


def patterns(count: int, seed: int) -> Arrays:
    """Noisy 4x4 images of four patterns: learnable, made up, in equal parts."""
    rng = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % CLASSES
    images = torch.zeros(count, 1, 4, 4)
    for label in range(CLASSES):
        images[targets == label, 0, label] = 2.0
    return Arrays(images + torch.randn(images.shape, generator=rng), targets)


@dataclass(frozen=True)
class Bench:
    """A method at work: its experiment, and the verbs applied by hand."""

    experiment: Experiment

    @property
    def method(self) -> Method:
        return self.experiment.method

    def context(self, round: int = 0) -> Context:
        """A context with nothing remembered, as on a device that has just been switched on."""
        return self.experiment.recipe.context(round)

    def clients(self) -> list[Client]:
        """All the clients that the method admits."""
        fleet = self.experiment.fleet
        macs = {level.name: 1 for level in fleet.levels}
        return draw_cohort(self.method, fleet, len(fleet), macs, self.context())

    def job(self, state: Tensors, client: Client, round: int = 0) -> Job:
        """The job this client is given."""
        payload = self.method.distribute(state, client, self.context(round))
        return Job(client, round, payload, run=self.experiment.recipe.run)

    def untouched(self, state: Tensors, client: Client) -> Update:
        """What a client sends back if it does not train."""
        ctx, job = self.context(), self.job(state, client)
        sent, _ = self.method.collect(self.method.localize(job, ctx, {}), job, ctx)
        return Update(client, copy(sent), run=job.run)


def make_bench(
    method: Method,
    levels: Mapping[str, float] = LEVELS,
    model: Model = Small,
    partition: Partition | None = None,
    rounds: int = 3,
) -> Bench:
    """A bench with this method on it; clients lack labels unless a partition says otherwise."""
    settings = Settings(
        method=method,
        task=TaskSection(model="", rounds=rounds, calibration_clients=6),
        fleet=FleetSection(clients=6, levels=dict(levels), cohort=6),
        partition=partition or Shards(2, keep_duplicates=True),
        assignment=Blocks(),
        train=training(method),
        seed=3,
    )
    experiment = assemble(settings, model, Dataset(patterns(96, seed=0), patterns(48, seed=1), CLASSES))
    return Bench(experiment)


def training(method: Method) -> Train:
    """How clients train on a bench: with all that is usual, or plainly if the method needs that."""
    settings = Train(lr=0.1, epochs=2, batch_size=8)
    return replace(settings, momentum=0.0, clip=0.0) if method.steps_plainly else settings


def make_even_bench(method: Method) -> Bench:
    """One level at ratio 1, every client with every label, no batch norm: where most papers reduce to FedAvg."""
    return make_bench(method, {"large": 1.0}, Plain, IID())


def copy(tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors' values, independent of what becomes of the originals."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def plain_state(level_ratio: float, model: type[nn.Module] = Small) -> Tensors:
    """The state of the network as its author wrote it."""
    return state_of(model(level_ratio))

"""Places with a few equal clients, for any network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from potluck.core.client import Site, train
from potluck.core.data import Arrays, Examples, Holdings, Pool
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.tensors import copied
from potluck.core.types import Client, Job, Level, Task, Tensors, Train
from potluck.core.ways.together import train_stacked

torch.set_num_threads(1)  # networks so small that more threads only wait for each other

WIDE, NARROW = Level("wide", 1.0), Level("narrow", 0.5)
CLIENTS, EACH, CLASSES = 4, 14, 6
IMAGE = (3, 6, 6)
FEDAVG = Method()
BRISK = Train(lr=0.05, epochs=2, batch_size=5)  # batches of 5, 5 and 4


def mlp(width: float) -> nn.Module:
    hidden = round(8 * width)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))


def normed(norm: Callable[[int], nn.Module], full: int = 4) -> Callable[[float], nn.Module]:
    """A convolutional network with this norm."""

    def conv(width: float) -> nn.Module:
        channels = round(full * width)
        return nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            norm(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            norm(2 * channels),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(18 * channels, CLASSES),
        )

    return conv


conv = normed(lambda channels: nn.Identity())
batch_normed = normed(nn.BatchNorm2d)


def in_double(model: Callable[[float], nn.Module]) -> Callable[[float], nn.Module]:
    return lambda width: model(width).double()


def site_of(
    model: Callable[[float], nn.Module],
    method: Method = FEDAVG,
    settings: Train = BRISK,
    dtype: torch.dtype = torch.float32,
    ways: Mapping[str, str] | None = None,
    device: str = "cpu",
    proxy: Examples | None = None,
) -> Site:
    rng = torch.Generator().manual_seed(0)
    count = CLIENTS * EACH
    examples = Arrays(torch.randn(count, *IMAGE, generator=rng).to(dtype), torch.arange(count) % CLASSES)
    holdings = Holdings.of_lists(list(torch.split(torch.arange(count), EACH)))
    example = (torch.zeros(1, *IMAGE, dtype=dtype), torch.zeros(1, dtype=torch.long))
    names = [name for name, _ in model(1.0).named_parameters()]
    heads = dict.fromkeys((WIDE.name, NARROW.name), tuple(names[-2:]))
    task = Task(ByWidth(model), (WIDE, NARROW), CLASSES, heads, example, settings, rounds=2, proxy=proxy)
    return Site(Recipe(method, task, 5, ways or {}), Pool(examples, holdings), device)


def client_of(number: int, level: Level = WIDE, labels: Sequence[int] = tuple(range(CLASSES))) -> Client:
    return Client(number, level, EACH, tuple(labels), turn=number)


def job_for(site: Site, client: Client, round: int = 0) -> Job:
    state = site.method.init(site.context(0))
    return Job(client, round, site.method.distribute(state, client, site.context(round)))


def jobs_of(site: Site, level: Level = WIDE, round: int = 0) -> list[Job]:
    return [job_for(site, client_of(number, level), round) for number in range(CLIENTS)]


Answers = list[tuple[Tensors, Tensors]]


def one_by_one(site: Site, jobs: Sequence[Job], personal: Sequence[Tensors] | None = None) -> Answers:
    """What each client sends back and keeps."""
    kept = personal or [{}] * len(jobs)
    return [
        (copied(sent), copied(own))
        for sent, own in (train(site, job, mine) for job, mine in zip(jobs, kept, strict=True))
    ]


def at_once(site: Site, jobs: Sequence[Job], personal: Sequence[Tensors] | None = None) -> Answers:
    """The same of clients trained at once."""
    found = train_stacked(site, jobs, personal or [{}] * len(jobs))
    return [(copied(sent), copied(own)) for sent, own in found]  # type: ignore[misc]


def apart(one: Tensors, other: Tensors) -> float:
    """By how much the tensors of two answers differ at most, relative to the largest value of each."""
    assert list(one) == list(other)
    return max((difference(one[name], other[name]) for name in one), default=0.0)


def difference(one: Tensor, other: Tensor) -> float:
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    if not one.numel():
        return 0.0
    scale = max(float(other.double().abs().max()), 1e-12)
    return float((one.double() - other.double()).abs().max()) / scale


def same(one: Tensors, other: Tensors) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)

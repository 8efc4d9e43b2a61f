"""Gradients of several batches that make one step: the same as one batch that is as large as all of them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_sites import apart, at_once, batch_normed, in_double, jobs_of, mlp, one_by_one, site_of
from torch import Tensor, nn

from potluck.core.batches import batches
from potluck.core.data import Arrays
from potluck.core.fit import fit, pieces
from potluck.core.goals.classes import Classes
from potluck.core.types import Batch, Phase, Tensors, Train
from potluck.core.ways.way import Way

SETTINGS = [
    Train(lr=0.05, momentum=0.0, weight_decay=0.0, clip=0.0),
    Train(lr=0.05, clip=0.1),
    Train("adamw", lr=0.01),
]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 1))
def test_pieces_are_the_batch_and_none_is_a_single_example(count: int, size: int, dim: int) -> None:
    shape = (count, 3) if dim == 0 else (2, count, 3)
    batch = torch.randn(shape), torch.randint(5, shape[: dim + 1])
    found = list(pieces(batch, size, dim))
    for number, whole in enumerate(batch):
        assert torch.equal(torch.cat([piece[number] for piece, _ in found], dim), whole)
    sizes = [piece[0].shape[dim] for piece, _ in found]
    assert all(each == size for each in sizes[:-1])
    assert sizes[-1] <= size + (size > 1)
    assert size == 1 or count == 1 or min(sizes) > 1
    assert [share for _, share in found] == [each / count for each in sizes]


@given(st.integers(1, 30), st.integers(1, 8), st.integers(2, 4), st.sampled_from(SETTINGS))
def test_several_small_batches_are_one_large_one(count: int, size: int, accumulate: int, settings: Train) -> None:
    """Also the last step of an epoch, for which there may be fewer batches, or a smaller one."""
    rng = torch.Generator().manual_seed(count)
    examples = Arrays(torch.randn(count, 4, generator=rng).double(), torch.arange(count) % 3)
    nets = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()]
    nets.append(deepcopy(nets[0]))
    seen: list[int] = []

    def watched(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        seen.append(len(batch[0]))
        return Classes()(net, batch, extra)

    for net, train in zip(
        nets,
        (replace(settings, batch_size=size, accumulate=accumulate), replace(settings, batch_size=size * accumulate)),
        strict=True,
    ):
        seen.clear()
        stream = batches(examples, size * accumulate, 2, torch.Generator().manual_seed(size))
        fit(net, Phase(watched), stream, train)
        assert max(seen) <= train.batch_size + 1
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stacked", [False, True])
def test_a_client_does_so_alone_and_stacked(settings: Train, stacked: bool) -> None:
    answers = []
    for train in (replace(settings, batch_size=3, accumulate=3), replace(settings, batch_size=9)):
        site = site_of(in_double(mlp), settings=replace(train, epochs=2), dtype=torch.float64)  # 9 examples and 5
        answers.append((at_once if stacked else one_by_one)(site, jobs_of(site)))
    small = site_of(in_double(mlp), settings=replace(settings, batch_size=3, epochs=2), dtype=torch.float64)
    for (one, _), (other, _), (every, _) in zip(*answers, one_by_one(small, jobs_of(small)), strict=True):
        assert apart(one, other) < 1e-11
        assert apart(one, every) > 1e-4  # steps were fewer


def test_batch_norm_sees_one_small_batch_after_the_other() -> None:
    counts = []
    for train in (Train(batch_size=3, accumulate=3, epochs=1), Train(batch_size=9, epochs=1)):
        site = site_of(batch_normed, settings=train)
        counts.append(one_by_one(site, jobs_of(site)[:1])[0][0]["1.num_batches_tracked"].item())
    assert counts == [5, 2]  # of 14 examples: 3, 3, 3 and 3, 2; and 9 and 5


def test_swift_steps_wait_for_all_gradients() -> None:
    """Where a step is w - η·g, a backward pass may take it: not while there are more to come."""
    train = Train(lr=0.5, momentum=0.0, weight_decay=0.0, clip=0.0, batch_size=16, accumulate=2)
    rng = torch.Generator().manual_seed(0)
    batch = torch.randn(32, 6, generator=rng), torch.randint(3, (32,), generator=rng)
    nets = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))]
    nets.append(deepcopy(nets[0]))
    for net, way in zip(nets, ("plain", "swift"), strict=True):
        fit(net, Way.called(way).phase(Phase(Classes()), train), [batch] * 3, train)
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)

"""Phases of their own data and settings: they are trained so, and counted so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from small_sites import (
    BRISK,
    CLASSES,
    CLIENTS,
    EACH,
    IMAGE,
    NARROW,
    WIDE,
    apart,
    at_once,
    client_of,
    in_double,
    job_for,
    jobs_of,
    mlp,
    one_by_one,
    same,
    site_of,
)
from torch import Tensor, nn

from potluck.core.client import Site, train
from potluck.core.data import Arrays
from potluck.core.errors import UpdateError
from potluck.core.goals.classes import Classes
from potluck.core.guard import epochs_of
from potluck.core.method import Method
from potluck.core.types import Batch, Context, Job, Phase, Tensors, Train
from potluck.core.works import perform

PUBLIC = 9  # examples
MARK = 1000.0  # on the first pixel of public examples
OWN = Train(lr=0.01, epochs=3, batch_size=4, momentum=0.0, weight_decay=0.0, clip=0.0)
SEEN: list[tuple[str, int]] = []


def public(dtype: torch.dtype = torch.float32) -> Arrays:
    images = torch.randn(PUBLIC, *IMAGE, generator=torch.Generator().manual_seed(1))
    images[:, 0, 0, 0] = MARK
    return Arrays(images.to(dtype), torch.arange(PUBLIC) % CLASSES)


def noting(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    marked = batch[0][:, 0, 0, 0] == MARK
    assert marked.all() or not marked.any()  # never mixed
    SEEN.append(("proxy" if marked.all() else "private", len(batch[0])))
    return Classes()(net, batch, extra)


@dataclass(frozen=True)
class Mixed(Method):
    """Private data, public data with settings of its own, private data again with these."""

    loss: object = noting

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        loss = self.loss
        return [
            Phase(loss),  # type: ignore[arg-type]
            Phase(loss, source="proxy", train=OWN),  # type: ignore[arg-type]
            Phase(loss, train=OWN),  # type: ignore[arg-type]
        ]


@dataclass(frozen=True)
class OnlyPublic(Method):
    settings: Train | None = None

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(Classes(), source="proxy", train=self.settings)]


def examples_trained(method: Method, job: Job, ctx: Context) -> int:
    """How often a client is expected to train on an example."""
    return epochs_of(method, job, ctx).examples(job.client, ctx.task)


def job_of(site: Site, size: int = EACH) -> Job:
    return job_for(site, replace(client_of(0), size=size))


def test_every_phase_is_counted_with_its_own_data_and_epochs() -> None:
    site = site_of(mlp, Mixed(), proxy=public())
    ctx = site.context(0)
    assert examples_trained(site.method, job_of(site), ctx) == BRISK.epochs * EACH + 3 * PUBLIC + 3 * EACH
    assert examples_trained(site.method, job_of(site, 100), ctx) == 2 * 100 + 3 * PUBLIC + 3 * 100  # another client


def test_by_default_it_is_the_clients_examples_in_every_epoch() -> None:
    site = site_of(mlp)
    assert examples_trained(site.method, job_of(site), site.context(0)) == BRISK.epochs * EACH
    assert examples_trained(site.method, job_of(site, 0), site.context(0)) == 0


def test_counts_are_of_the_method_and_the_level() -> None:
    site = site_of(mlp, proxy=public())
    ctx, job = site.context(0), job_of(site)
    assert examples_trained(Method(), job, ctx) == BRISK.epochs * EACH
    assert examples_trained(OnlyPublic(), job, ctx) == BRISK.epochs * PUBLIC
    assert examples_trained(OnlyPublic(OWN), job, ctx) == OWN.epochs * PUBLIC

    @dataclass(frozen=True)
    class ByLevel(Method):
        def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
            return [Phase(Classes())] * (3 if job.client.level == WIDE else 1)

    narrow = replace(job, client=client_of(0, NARROW))
    assert [examples_trained(ByLevel(), each, ctx) for each in (job, narrow)] == [6 * EACH, 2 * EACH]


def test_counting_draws_nothing() -> None:
    @dataclass(frozen=True)
    class Drawing(Method):
        def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
            return [Phase(Classes(), {"noise": torch.rand(3)})]

    site = site_of(mlp, Drawing())
    job = job_of(site)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    examples_trained(site.method, job, site.context(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_phase_sees_its_own_data_in_its_own_batches() -> None:
    SEEN.clear()
    site = site_of(mlp, Mixed(), proxy=public())
    train(site, job_of(site), {})
    private = [("private", size) for size in (5, 5, 4)] * BRISK.epochs
    proxy = [("proxy", size) for size in (4, 5)] * 3  # 9 in fours: the one left over joins the batch before it
    again = [("private", size) for size in (4, 4, 4, 2)] * 3
    assert private + proxy + again == SEEN
    assert sum(size for _, size in SEEN) == examples_trained(site.method, job_of(site), site.context(0))


def test_clients_at_once_train_them_as_they_do_alone() -> None:
    site = site_of(in_double(mlp), Mixed(Classes()), dtype=torch.float64, proxy=public(torch.float64))
    jobs = jobs_of(site)
    alone, together = one_by_one(site, jobs), at_once(site, jobs)
    for (sent, _), (own, _) in zip(together, alone, strict=True):
        assert apart(sent, own) < 1e-12
    assert apart(alone[0][0], alone[1][0]) > 1e-6
    assert len(alone) == CLIENTS


def test_public_data_is_the_same_for_all_but_each_shuffles_it_anew() -> None:
    site = site_of(in_double(mlp), OnlyPublic(OWN), dtype=torch.float64, proxy=public(torch.float64))
    results = [sent for sent, _ in one_by_one(site, jobs_of(site))]
    assert not same(results[0], results[1])
    at_a_time = OnlyPublic(replace(OWN, batch_size=100))
    once = site_of(in_double(mlp), at_a_time, dtype=torch.float64, proxy=public(torch.float64))
    whole = [sent for sent, _ in one_by_one(once, jobs_of(once))]
    assert apart(whole[0], whole[1]) < 1e-12  # in one batch the order is no matter


@pytest.mark.parametrize(
    "settings", [replace(OWN, lr=0.05), replace(OWN, optimizer="adam"), replace(OWN, clip=0.01), replace(OWN, epochs=1)]
)
def test_a_phases_settings_matter(settings: Train) -> None:
    one, other = (site_of(mlp, OnlyPublic(each), proxy=public()) for each in (OWN, settings))
    assert apart(train(one, job_of(one), {})[0], train(other, job_of(other), {})[0]) > 1e-4


def test_a_phases_rate_follows_its_own_schedule() -> None:
    stopped = replace(OWN, schedule="multistep", milestones=(1,), decay=1e-30)
    site = site_of(mlp, OnlyPublic(stopped), proxy=public())
    for number, moves in enumerate((True, False)):
        job = job_for(site, client_of(0), number)
        for sent, _ in (*one_by_one(site, [job]), *at_once(site, [job])):
            assert same(sent, job.payload) != moves


def test_without_public_data_a_client_says_so() -> None:
    site = site_of(mlp, OnlyPublic())
    with pytest.raises(UpdateError, match="a phase trains on proxy data, but the task has none"):
        train(site, job_of(site), {})
    for jobs in (jobs_of(site)[:1], jobs_of(site)):
        reasons = {update.failure for update, _ in perform(site, jobs, [{}] * len(jobs))}
        assert reasons == {"a phase trains on proxy data, but the task has none"}
    assert examples_trained(site.method, job_of(site), site.context(0)) == 0

"""Clients trained at once: each gets what it gets alone, but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from small_sites import (
    BRISK,
    CLASSES,
    CLIENTS,
    EACH,
    NARROW,
    WIDE,
    apart,
    at_once,
    batch_normed,
    client_of,
    conv,
    in_double,
    job_for,
    jobs_of,
    mlp,
    normed,
    one_by_one,
    same,
    site_of,
)
from torch import Tensor, nn

from potluck.core.client import Site, train_in
from potluck.core.errors import ConfigError, UpdateError
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.server import Server, bundles
from potluck.core.tensors import copied
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Tensors, Train, Update
from potluck.core.ways.stacked import clip_each
from potluck.core.ways.way import Way
from potluck.core.works import perform
from potluck.engines.serial import Serial
from potluck.methods.fedrolex import FedRolex
from potluck.methods.heterofl import HeteroFL
from potluck.methods.splitmix import SplitMix


class Tied(nn.Module):
    """One weight under two names, a buffer that counts and one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(108, 108), nn.Linear(108, 108), nn.Linear(108, CLASSES)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        self.seen += 1
        logits: Tensor = self.head(self.second(self.first(images.flatten(1)).relu()) * self.scale)
        return logits


NETS: dict[str, Callable[[float], nn.Module]] = {
    "linear": lambda width: nn.Sequential(nn.Flatten(), nn.Linear(108, CLASSES)),
    "mlp": mlp,
    "conv": conv,
    "group norm": normed(lambda channels: nn.GroupNorm(2, channels)),
    "running statistics": batch_normed,
    "batch statistics": normed(lambda channels: nn.BatchNorm2d(channels, track_running_stats=False)),
    "tied": lambda width: Tied(),
}
STILL = Train(lr=0.05, epochs=2, batch_size=5, momentum=0.0, weight_decay=0.0, clip=0.0)
SETTINGS = {
    "the recipe": BRISK,
    "plain sgd": STILL,
    "clipped": replace(STILL, clip=0.01),
    "momentum": replace(STILL, momentum=0.9),
    "decay": replace(STILL, weight_decay=0.1),
    "adam": replace(STILL, optimizer="adam", lr=0.003, weight_decay=0.1, clip=0.5),
    "adamw": replace(STILL, optimizer="adamw", lr=0.003, weight_decay=0.1, clip=0.5),
    "adagrad": replace(STILL, optimizer="adagrad", lr=0.02, weight_decay=0.1),
    "rmsprop": replace(STILL, optimizer={"name": "rmsprop", "centered": True}, lr=0.002, momentum=0.5),
    "accumulated": replace(STILL, accumulate=2),
    "warming up": replace(STILL, warmup=3),
    "falling rate": replace(STILL, schedule="multistep", milestones=(1,)),
    "one batch": replace(STILL, batch_size=100),
    "batches of one": replace(STILL, batch_size=1, epochs=1),
}


def require_close(site: Site, jobs: Sequence[Job], tolerance: float, kept: Sequence[Tensors] | None = None) -> None:
    alone, together = one_by_one(site, jobs, kept), at_once(site, jobs, kept)
    assert len(alone) == len(together) == len(jobs)
    for job, (sent, own), (expected, mine) in zip(jobs, together, alone, strict=True):
        assert apart(sent, expected) < tolerance
        assert apart(own, mine) < tolerance
        if set(expected) <= set(job.payload):
            assert apart(expected, {name: job.payload[name] for name in expected}) > 1e-3  # it did train
    first, second = alone[0][0], alone[1][0]
    assert set(first) != set(second) or apart(first, second) > 100 * tolerance  # and each on its own data


@pytest.mark.parametrize("name", NETS)
def test_every_client_gets_what_it_gets_alone(name: str) -> None:
    site = site_of(NETS[name])
    require_close(site, jobs_of(site), 1e-5)
    exact = site_of(in_double(NETS[name]), dtype=torch.float64)
    require_close(exact, jobs_of(exact), 1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_the_settings(name: str) -> None:
    exact = site_of(in_double(mlp), settings=SETTINGS[name], dtype=torch.float64)
    require_close(exact, jobs_of(exact, round=1), 1e-12)


def test_the_settings_above_all_matter() -> None:
    results = []
    for settings in SETTINGS.values():
        site = site_of(in_double(mlp), settings=settings, dtype=torch.float64)
        results.append(at_once(site, jobs_of(site, round=1))[0][0])
    assert all(apart(one, other) > 1e-4 for place, one in enumerate(results) for other in results[:place])


@pytest.mark.parametrize("level", [WIDE, NARROW])
@pytest.mark.parametrize(
    "method",
    [HeteroFL(), HeteroFL(static_norm=False), HeteroFL(per_size="norms"), FedRolex(masking="-inf"), SplitMix()],
)
def test_methods_that_train_parts(method: Method, level: Level) -> None:
    site = site_of(batch_normed, method)
    require_close(site, jobs_of(site, level, round=1), 1e-5)


def test_every_client_has_its_own_labels() -> None:
    site = site_of(in_double(conv), HeteroFL(masking="zero"), dtype=torch.float64)
    masked = [job_for(site, client_of(number, labels=range(number, CLASSES))) for number in range(CLIENTS)]
    require_close(site, masked, 1e-12)
    found, unmasked = at_once(site, masked), at_once(site, jobs_of(site))
    assert same(found[0][0], unmasked[0][0])  # that one has all labels
    assert all(apart(one, other) > 1e-6 for (one, _), (other, _) in zip(found[1:], unmasked[1:], strict=True))


def reweighted(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """A loss that reads tensors of several shapes."""
    inputs, targets = batch
    return extra["strength"] * Classes().loss(net(inputs) + extra["offsets"], targets)


def twice(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    return 2 * Classes()(net, batch, extra)


@dataclass(frozen=True)
class Phased(Method):
    """The head first, with a loss of each client's own; then the body alone; then everything. No bias decays."""

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        own = {"strength": torch.tensor(0.5 + job.client.id), "offsets": torch.arange(CLASSES) * float(job.client.id)}
        head, weights = is_head, is_weight
        return [Phase(reweighted, own, head, weights), Phase(twice, {}, is_body, weights), Phase(Classes())]


def is_head(name: str) -> bool:
    return name.startswith("3.")


def is_body(name: str) -> bool:
    return not is_head(name)


def is_weight(name: str) -> bool:
    return name.endswith("weight")


@dataclass(frozen=True)
class FirstPhase(Phased):
    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return super().phases(job, ctx, personal)[:1]


def test_phases_losses_and_groups_are_each_clients_own() -> None:
    settings = replace(BRISK, weight_decay=0.2)
    site = site_of(in_double(mlp), Phased(), settings, torch.float64)
    require_close(site, jobs_of(site), 1e-12)


def test_what_a_phase_freezes_stays_bit_for_bit() -> None:
    site = site_of(in_double(mlp), FirstPhase(), replace(BRISK, weight_decay=0.2), torch.float64)
    jobs = jobs_of(site)
    for (sent, _), (alone, _) in zip(at_once(site, jobs), one_by_one(site, jobs), strict=True):
        assert torch.equal(sent["1.weight"], jobs[0].payload["1.weight"])
        assert torch.equal(sent["1.bias"], jobs[0].payload["1.bias"])
        assert not torch.equal(sent["3.bias"], jobs[0].payload["3.bias"])
        assert apart(sent, alone) < 1e-12


def test_what_the_author_of_a_network_froze_stays_frozen() -> None:
    site = site_of(first_layer_frozen)
    jobs = jobs_of(site)
    for (sent, _), (alone, _) in zip(at_once(site, jobs), one_by_one(site, jobs), strict=True):
        assert torch.equal(sent["1.weight"], jobs[0].payload["1.weight"])
        assert apart(sent, alone) < 1e-5


@dataclass(frozen=True)
class Fixing(Method):
    """Gives every client other values of what is frozen."""

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return {**state, "1.weight": state["1.weight"] + client.id}


def first_layer_frozen(width: float) -> nn.Module:
    net = mlp(width)
    net[1].weight.requires_grad_(False)  # type: ignore[index]
    return net


def test_what_is_frozen_may_differ_from_client_to_client() -> None:
    site = site_of(first_layer_frozen, Fixing())
    jobs = jobs_of(site)
    for job, (sent, _), (alone, _) in zip(jobs, at_once(site, jobs), one_by_one(site, jobs), strict=True):
        assert torch.equal(alone["1.weight"], job.payload["1.weight"])
        assert torch.equal(sent["1.weight"], job.payload["1.weight"])
        assert apart(sent, alone) < 1e-5


def test_networks_side_by_side_may_be_frozen_at_different_values() -> None:
    """Each base of Split-Mix has a first layer of its own, here one that is equally wide in all networks."""

    def projected(width: float) -> nn.Module:
        hidden = round(8 * width)
        first = nn.Linear(108, 12).requires_grad_(False)
        return nn.Sequential(nn.Flatten(), first, nn.Linear(12, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))

    site = site_of(projected, SplitMix(bases=2))
    (job, *_) = jobs_of(site)
    assert not torch.equal(job.payload["0/1.weight"], job.payload["1/1.weight"])
    for sent, _ in (*one_by_one(site, [job]), *at_once(site, [job])):
        for base in "01":
            assert torch.equal(sent[f"{base}/1.weight"], job.payload[f"{base}/1.weight"])


@dataclass(frozen=True)
class Remembering(Method):
    """Every client keeps a bias of its own."""

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        net = super().localize(job, ctx, personal)
        if personal:
            net.get_parameter("1.bias").data.copy_(personal["own"])
        return net

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        sent, _ = super().collect(net, job, ctx)
        own = sent.pop("1.bias")
        return sent, {"own": own, "id": torch.tensor(job.client.id)}


def test_clients_keep_what_is_their_own() -> None:
    site = site_of(in_double(mlp), Remembering(), dtype=torch.float64)
    jobs = jobs_of(site)
    kept = [{}, *({"own": torch.full((8,), float(number), dtype=torch.float64)} for number in range(1, CLIENTS))]
    require_close(site, jobs, 1e-12, kept)
    found = at_once(site, jobs, kept)
    assert [int(own["id"]) for _, own in found] == [0, 1, 2, 3]
    assert [round(float(own["own"].mean())) for _, own in found] == [0, 1, 2, 3]
    assert [float(mine["own"][0]) for mine in kept[1:]] == [1.0, 2.0, 3.0]  # what it was given is as it was


def test_what_was_sent_is_not_changed_and_the_generator_is_left_alone() -> None:
    site = site_of(batch_normed)
    jobs = jobs_of(site)
    before = [copied(job.payload) for job in jobs]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = at_once(site, jobs)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(same(job.payload, sent) for job, sent in zip(jobs, before, strict=True))
    assert all(same(one, other) for (one, _), (other, _) in zip(at_once(site, jobs), first, strict=True))
    assert all(
        same(one, other) for (one, _), (other, _) in zip(at_once(site_of(batch_normed), jobs), first, strict=True)
    )


def test_what_another_way_trained_before_does_not_show() -> None:
    """As when ways were tried in this process, and a resumed run is in a fresh one."""
    site = site_of(batch_normed, HeteroFL())
    jobs = jobs_of(site)
    fresh = at_once(site, jobs)
    train_in(Way.called("channels-last"), site, jobs[0], {})
    assert all(same(one, other) for (one, _), (other, _) in zip(at_once(site, jobs), fresh, strict=True))


def dropping(p: float) -> Callable[[float], nn.Module]:
    return lambda width: nn.Sequential(nn.Flatten(), nn.Linear(108, 8), nn.Dropout(p), nn.Linear(8, CLASSES))


def test_dropout_is_refused_in_words() -> None:
    site = site_of(dropping(0.2))
    with pytest.raises(ConfigError, match=r"stacked, since '2' drops units .* choose engine\.step = 'counted'"):
        at_once(site, jobs_of(site))
    harmless = site_of(dropping(0.0))
    require_close(harmless, jobs_of(harmless), 1e-5)


def test_dropout_that_is_no_layer_is_not_shared_silently() -> None:
    class Hidden(nn.Linear):
        def forward(self, images: Tensor) -> Tensor:
            return F.dropout(super().forward(images.flatten(1)), 0.2, self.training)

    site = site_of(lambda width: Hidden(108, CLASSES))
    with pytest.raises(RuntimeError, match="random operation"):
        at_once(site, jobs_of(site))


@given(st.lists(st.floats(-50, 50, width=32), min_size=24, max_size=24), st.floats(0.01, 20))
def test_clipping_is_each_clients_own(values: list[float], most: float) -> None:
    gradients = torch.tensor(values, dtype=torch.float64).view(3, 8)
    stacked = [nn.Parameter(torch.zeros(3, 2, 3, dtype=torch.float64)), nn.Parameter(torch.zeros(3, 2).double())]
    stacked[0].grad, stacked[1].grad = gradients[:, :6].reshape(3, 2, 3).clone(), gradients[:, 6:].clone()
    without = nn.Parameter(torch.zeros(3, 5))  # nothing came back to it
    clip_each([*stacked, without], most)
    for place in range(3):
        alone = [nn.Parameter(torch.zeros(6).double()), nn.Parameter(torch.zeros(2).double())]
        alone[0].grad, alone[1].grad = gradients[place, :6].clone(), gradients[place, 6:].clone()
        nn.utils.clip_grad_norm_(alone, most)
        for ours, theirs in zip(stacked, alone, strict=True):
            assert ours.grad is not None
            assert torch.allclose(ours.grad[place].flatten(), theirs.grad, rtol=1e-12, atol=0)  # type: ignore[arg-type]


# ---- bundles ----

COHORTS = st.lists(
    st.tuples(st.sampled_from([WIDE, NARROW]), st.integers(1, 3), st.integers(1, 9)), max_size=8
)  # (level, size, how many in a row)
STACKS = st.dictionaries(st.sampled_from(["wide", "narrow"]), st.integers(1, 5))


@given(COHORTS, STACKS)
def test_bundles_keep_the_order_and_never_mix(runs: list[tuple[Level, int, int]], stacks: dict[str, int]) -> None:
    kinds = [(level, size) for level, size, count in runs for _ in range(count)]
    cohort = [Client(id, level, size, ()) for id, (level, size) in enumerate(kinds)]
    found = list(bundles(cohort, stacks))
    assert [client for together in found for client in together] == cohort
    for together in found:
        assert len({(client.level, client.size) for client in together}) == 1
        assert 1 <= len(together) <= stacks.get(together[0].level.name, 1)
    assert list(bundles(iter(cohort), stacks)) == found  # however they come
    for place in range(1, len(found)):  # neighbours alike: nothing is gained by fewer bundles, nor by a large one
        before, after = found[place - 1], found[place]
        if (before[0].level, before[0].size) == (after[0].level, after[0].size):
            assert abs(len(before) - len(after)) <= 1
            assert len(before) + len(after) > stacks.get(before[0].level.name, 1)


def test_bundles_are_even() -> None:
    cohort = [Client(id, WIDE, 1, ()) for id in range(10)]
    assert [len(together) for together in bundles(cohort, {"wide": 4})] == [3, 3, 4]
    assert [len(together) for together in bundles(cohort, {"wide": 10})] == [10]
    assert [len(together) for together in bundles(cohort, {"narrow": 10})] == [1] * 10
    assert list(bundles([], {"wide": 4})) == []


@given(COHORTS, STACKS, st.integers(0, 80))
def test_who_is_together_does_not_depend_on_when_jobs_are_drawn(
    runs: list[tuple[Level, int, int]], stacks: dict[str, int], drawn: int
) -> None:
    kinds = [(level, size) for level, size, count in runs for _ in range(count)]
    cohort = [Client(id, level, size, ()) for id, (level, size) in enumerate(kinds)]
    site = site_of(mlp)
    ctx = site.context(0)

    def issued() -> Iterator[list[int]]:
        jobs = Server(site.recipe, Serial(), stacks=stacks).jobs("train", {}, bundles(cohort, stacks), ctx)
        return ([job.client.id for job in together] for together in jobs)

    expected = [[client.id for client in together] for together in bundles(cohort, stacks)]
    assert list(issued()) == expected
    jobs = issued()
    first = list(islice(jobs, drawn))
    assert first + list(jobs) == expected


def test_a_bundle_is_made_when_it_is_asked_for() -> None:
    made: list[int] = []

    @dataclass(frozen=True)
    class Noting(Method):
        def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
            made.append(client.id)
            return state

    site = site_of(mlp, Noting())
    cohort = [Client(id, WIDE, 1, ()) for id in range(6)]
    jobs = Server(site.recipe, Serial()).jobs("train", {}, bundles(cohort, {"wide": 3}), site.context(0))
    assert made == []
    assert [job.client.id for job in next(jobs)] == [0, 1, 2]
    assert made == [0, 1, 2]


# ---- what comes of a bundle ----


def performed(site: Site, jobs: Sequence[Job]) -> list[Update]:
    return [
        replace(update, payload=copied(update.payload))
        for update, _ in perform(site, jobs, [{"kept": torch.ones(1)}] * len(jobs))
    ]


def test_clients_at_once_share_the_time() -> None:
    site = site_of(mlp)
    updates = performed(site, jobs_of(site))
    assert [update.client.id for update in updates] == [0, 1, 2, 3]
    assert len({update.seconds for update in updates}) == 1
    assert updates[0].seconds > 0
    assert not any(update.failure for update in updates)
    expected = at_once(site, jobs_of(site))
    assert all(same(update.payload, sent) for update, (sent, _) in zip(updates, expected, strict=True))


def test_other_work_on_a_bundle_is_done_one_by_one() -> None:
    seen: list[int] = []

    def work(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
        seen.append(job.client.id)
        if job.client.id == 1:
            raise UpdateError("flat battery")
        return {"id": torch.tensor(job.client.id)}, {}

    site = replace(site_of(mlp), works={"own": work})
    jobs = [replace(job, work="own") for job in jobs_of(site)]
    updates = [update for update, _ in perform(site, jobs, [{}] * CLIENTS)]
    assert seen == [0, 1, 2, 3]
    assert [update.failure for update in updates] == ["", "flat battery", "", ""]


def test_jobs_of_another_run_are_not_done_at_once_either() -> None:
    site = site_of(mlp)
    jobs = [replace(job, run="b" * 64) for job in jobs_of(site)]
    updates = performed(site, jobs)
    assert all(update.failure.startswith("the job is of run bbbbbbbbbbbb, but") for update in updates)
    assert all(update.payload == {} for update in updates)


def test_a_users_mistake_fails_all_who_are_trained_at_once() -> None:
    """This file stands for the user's."""

    def broken(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        raise ValueError("a bug")

    @dataclass(frozen=True)
    class Broken(Method):
        def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
            return [Phase(broken)]

    site = site_of(mlp, Broken())
    updates = performed(site, jobs_of(site))
    assert [update.client.id for update in updates] == [0, 1, 2, 3]
    for update in updates:
        assert update.failure.startswith(f"broken in {__file__}:")
        assert update.failure.endswith("raised ValueError: a bug")


def test_a_mistake_of_ours_ends_the_run_and_says_whose_training_it_was() -> None:
    site = site_of(lambda width: nn.Sequential(nn.Flatten(), nn.Linear(9, CLASSES)))  # fits no example
    with pytest.raises(RuntimeError, match=r"client 0 of level 'wide' in round 1 broke down: RuntimeError: "):
        performed(site, jobs_of(site))


def test_a_single_job_is_trained_like_any_other() -> None:
    site = site_of(mlp)
    (update,) = performed(site, jobs_of(site)[:1])
    assert same(update.payload, one_by_one(site, jobs_of(site)[:1])[0][0])


def test_clients_without_examples_say_so_and_keep_what_they_had() -> None:
    site = site_of(mlp)
    jobs = [replace(job, client=replace(job.client, size=0)) for job in jobs_of(site)[:3]]
    kept = [{"own": torch.full((1,), float(number))} for number in range(3)]
    found = list(perform(site, jobs, kept))
    assert [update.failure for update, _ in found] == ["the client holds no examples"] * 3
    assert [update.client.id for update, _ in found] == [0, 1, 2]
    assert all(update.payload == {} for update, _ in found)
    assert all(stays == {} for _, stays in found)  # what stayed there stays
    assert [float(own["own"]) for own in kept] == [0.0, 1.0, 2.0]


@dataclass(frozen=True)
class Reluctant(Method):
    """Client 2 cannot take part, which turns out at one moment or another."""

    moment: str = "localize"
    broken: bool = False  # by a bug of the method's, which is the user's

    def refuse(self, job: Job, moment: str) -> None:
        if job.client.id == 2 and moment == self.moment:
            raise ValueError("a bug") if self.broken else UpdateError("flat battery")

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        self.refuse(job, "localize")
        return super().localize(job, ctx, personal)

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        self.refuse(job, "phases")
        return super().phases(job, ctx, personal)

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        self.refuse(job, "collect")
        return super().collect(net, job, ctx)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("moment", ["localize", "phases", "collect"])
def test_one_client_that_cannot_take_part_does_not_keep_the_others_from_it(moment: str, broken: bool) -> None:
    site = site_of(mlp, Reluctant(moment, broken))
    updates = performed(site, jobs_of(site))
    assert [update.client.id for update in updates] == [0, 1, 2, 3]
    assert [bool(update.failure) for update in updates] == [False, False, True, False]
    assert updates[2].failure.endswith("raised ValueError: a bug" if broken else "flat battery")
    for update, job in zip(updates, jobs_of(site), strict=True):
        if not update.failure:
            assert apart(update.payload, one_by_one(site, [job])[0][0]) < 1e-5


def test_sizes_are_what_a_client_holds() -> None:
    """What all of the above rests on."""
    site = site_of(mlp)
    assert [site.holder.size(number) for number in range(CLIENTS)] == [EACH] * CLIENTS

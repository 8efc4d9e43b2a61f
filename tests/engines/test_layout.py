"""What is handed over is laid out alike in every engine: kernels may choose by strides and address, and show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from odd import like, oddities, oddly_laid, place_of, plain_place
from torch import nn
from toys import INPUTS, WIDE, Remembering, bundles, clients, make_site, open_with, opened, same

from potluck.core.client import Site
from potluck.core.data import Arrays, Pool
from potluck.core.engine import Engine
from potluck.core.method import Method
from potluck.core.names import inside, under
from potluck.core.networks import ByName
from potluck.core.server import Server, first_state
from potluck.core.store import Folder, Memory, Store
from potluck.core.types import Client, Context, Job, Tensors, Update
from potluck.engines.local import Local
from potluck.engines.serial import Serial

KINDS = sorted(oddly_laid())


def told(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers with where everything lies that it was handed, and keeps what it was sent, oddly laid."""
    handed = {**under("payload", job.payload), **under("personal", personal)}
    return {name: place_of(tensor) for name, tensor in handed.items()}, oddly_laid(job.client.id)


def sent_back(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers with what it was handed."""
    return {**under("payload", job.payload), **under("personal", personal)}, oddly_laid(job.client.id)


def odd_answer(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers with tensors that are laid out oddly."""
    return oddly_laid(job.client.id), {}


def telling() -> Site:
    return make_site(Remembering(), works={"tell": told, "send back": sent_back, "answer oddly": odd_answer})


def odd_jobs() -> Iterator[Job]:
    """Two that are sent the same, so that it is on the board, and others that are not."""
    alike = oddly_laid()
    for id in range(7):
        yield Job(Client(id, WIDE, 20, (0,)), 0, alike if id in (2, 3, 4) else oddly_laid(id))


def expected_places(personal: bool) -> Tensors:
    plain = {name: plain_place(tensor) for name, tensor in oddly_laid().items()}
    return {**under("payload", plain), **(under("personal", plain) if personal else {})}


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Memory() if request.param == "memory" else Folder(tmp_path / "personal", 0)


def test_there_is_something_odd_about_each() -> None:
    """Otherwise nothing is shown here."""
    assert set(KINDS) - set(oddities(oddly_laid())) <= {"nothing", "conjugated", "no rows", "odd bytes"}


@pytest.mark.parametrize("size", [1, 3])
def test_what_a_client_is_handed_is_laid_out_plainly(engine: Engine, store: Store, size: int) -> None:
    open_with(engine, telling(), store)
    for personal in (False, True):
        places = [update.payload for update in engine.map(bundles("tell", odd_jobs(), size))]
        assert len(places) == 7
        assert all(same(found, expected_places(personal)) for found in places)
        if personal:
            store.commit()


@pytest.mark.parametrize("size", [1, 3])
def test_what_a_client_is_handed_has_the_right_values(engine: Engine, store: Store, size: int) -> None:
    open_with(engine, telling(), store)
    for personal in (False, True):
        for job, update in zip(odd_jobs(), engine.map(bundles("send back", odd_jobs(), size)), strict=True):
            assert same(inside("payload", update.payload), job.payload)
            assert same(inside("personal", update.payload), oddly_laid(update.client.id) if personal else {})


@pytest.mark.parametrize("keeping", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_the_server_sees_updates_that_are_laid_out_plainly(engine: Engine, size: int, keeping: bool) -> None:
    opened(engine, telling())
    kept = []
    for update in engine.map(bundles("answer oddly", odd_jobs(), size)):
        assert oddities(update.payload) == []
        assert same(update.payload, oddly_laid(update.client.id))
        assert not any(tensor.requires_grad or tensor.is_conj() for tensor in update.payload.values())
        kept.extend([update] * keeping)  # those that are kept may have to be copied out of the way
    assert all(same(update.payload, oddly_laid(update.client.id)) for update in kept)
    assert all(oddities(update.payload) == [] for update in kept)


def test_what_stays_on_a_client_is_laid_out_plainly(engine: Engine, store: Store) -> None:
    open_with(engine, telling(), store)
    for update in engine.map(bundles("tell", odd_jobs())):
        kept = store.get(update.client.id)
        assert oddities(kept) == []
        assert same(kept, oddly_laid(update.client.id))


def test_any_store_will_do(engine: Engine) -> None:
    """Also one that does not lay out plainly what it gives back."""

    class Loose(Memory):
        def get(self, client: int) -> Tensors:
            return oddly_laid(client)

    open_with(engine, telling(), Loose())
    assert all(same(update.payload, expected_places(True)) for update in engine.map(bundles("tell", odd_jobs())))


# ---- in rounds ----


def mlp(width: float) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


@dataclass(frozen=True)
class Odd(Method):
    """FedAvg with a bias for every client; if it is odd, whatever it hands over is laid out oddly."""

    odd: bool = True

    def laid(self, tensors: Tensors) -> Tensors:
        return {name: like(tensor) if self.odd else tensor for name, tensor in tensors.items()}

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return self.laid(state)

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        return self.laid(super().aggregate(state, updates, ctx))

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        net = super().localize(job, ctx, personal)
        if personal:
            net.get_parameter("0.bias").data.copy_(personal["own"])
        return net

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        sent, _ = super().collect(net, job, ctx)
        return self.laid(sent), self.laid({"own": sent["0.bias"] + 0.1})


@dataclass(frozen=True)
class Strict(Odd):
    """A client that will not have what is laid out oddly."""

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        if odd := oddities(job.payload) + oddities(personal):
            raise ValueError(f"laid out oddly: {odd}")
        return super().localize(job, ctx, personal)


@pytest.mark.parametrize("size", [1, 3])
def test_clients_that_train_are_handed_what_is_laid_out_plainly(engine: Engine, size: int) -> None:
    site = make_site(Strict(), mlp)
    store = opened(engine, site)
    state = first_state(site.method, site.context(0))
    assert oddities(site.method.distribute(state, clients()[0], site.context(0))) != []
    for round in range(2):
        given = (Job(client, round, like_all(state)) for client in clients([WIDE]))
        updates = list(engine.map(bundles("train", given, size)))
        assert [update.failure for update in updates] == [""] * 7
        assert not any(oddities(update.payload) for update in updates)
        assert not any(oddities(kept) for kept in store.kept.values())


def like_all(tensors: Tensors) -> Tensors:
    return {name: like(tensor) for name, tensor in tensors.items()}


def rounds(engine: Engine, method: Method, size: int) -> tuple[Tensors, dict[int, Tensors]]:
    """The state and what stayed on clients after two rounds; the state is laid out plainly after each."""
    site = make_site(method, mlp)
    store = opened(engine, site)
    server = Server(site.recipe, engine, stacks={"wide": size})
    state = first_state(method, site.context(0))
    for round in range(2):
        assert oddities(state) == []
        state, ledger = server.play(state, clients([WIDE]), site.context(round))
        assert not ledger.failures
    assert oddities(state) == []
    return state, store.kept


@pytest.mark.parametrize("size", [1, 3])
def test_how_a_method_lays_out_its_tensors_shows_in_no_bit(engine: Engine, size: int) -> None:
    plain, kept = rounds(Serial(), Odd(odd=False), size)
    odd, kept_odd = rounds(engine, Odd(), size)
    assert same(plain, odd)
    assert set(kept) == set(kept_odd) == set(range(7))
    assert all(same(kept[id], kept_odd[id]) for id in kept)


# ---- what a site brings along ----


def images(odd: bool) -> Arrays:
    """Images whose channels come last in memory, as image files have them, or not."""
    pixels = torch.randn(140, 12, 12, 3, generator=torch.Generator().manual_seed(0)).permute(0, 3, 1, 2)
    return Arrays(pixels if odd else pixels.contiguous(), torch.arange(140) % 3)


def where_batches_lie(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Where a batch of a client's examples lies."""
    inputs, targets = site.holder.examples(job.client.id).take(torch.arange(5))
    return {"inputs": place_of(inputs), "targets": place_of(targets)}, {}


def where_networks_lie(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Where the parameters of a client's network lie."""
    return {name: place_of(tensor) for name, tensor in site.context(0).build(WIDE).named_parameters()}, {}


def both(local: Local, site: Site, work: str) -> list[Tensors]:
    """The answers of one client to the same job in both engines."""
    answers = []
    for engine in (Serial(), local):
        opened(engine, site)
        (update,) = engine.map([[Job(Client(0, WIDE, 20, (0,)), 0, {}, work)]])
        answers.append(update.payload)
    return answers


@pytest.mark.parametrize("odd", [False, True])
def test_a_clients_examples_are_laid_out_alike(local: Local, odd: bool) -> None:
    site = make_site(Remembering(), works={"look": where_batches_lie})
    assert isinstance(site.holder, Pool)
    serial, ours = both(local, replace(site, holder=replace(site.holder, train=images(odd))), "look")
    assert same(serial, ours)


@pytest.mark.parametrize(
    "form",
    [torch.contiguous_format, torch.channels_last],
)
def test_ready_made_networks_are_laid_out_alike(local: Local, form: torch.memory_format) -> None:
    net = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(64, 3)).to(memory_format=form)
    site = make_site(Remembering(), works={"look": where_networks_lie})
    task = replace(site.task, model=ByName({"wide": net}))
    serial, ours = both(local, replace(site, recipe=replace(site.recipe, task=task)), "look")
    assert same(serial, ours)

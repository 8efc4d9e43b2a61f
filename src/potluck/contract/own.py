"""Checks of what clients keep: models of their own, and networks of their level's own."""

from __future__ import annotations

import torch

from potluck.contract.bench import OWN_NETWORKS, make_bench
from potluck.contract.playing import difference, require, serially
from potluck.core.blame import described
from potluck.core.clock import Clock
from potluck.core.method import Method
from potluck.core.server import first_state
from potluck.core.store import Memory
from potluck.engines import make_engine


def nothing_learned_is_lost(method: Method) -> None:
    bench = make_bench(method)
    state = first_state(method, bench.context())
    experiment, store = bench.experiment, Memory()
    engine = make_engine("serial")
    engine.open(experiment.site, experiment.desk, store, Clock())
    clients = bench.clients()
    jobs = [bench.job(state, client) for client in clients]
    for job, update in zip(jobs, engine.map([job] for job in jobs), strict=True):
        fresh = bench.context()
        sent, kept = method.collect(method.localize(job, fresh, {}), job, fresh)
        learned = difference(sent, update.payload) or difference(kept, store.get(job.client.id))
        require(bool(learned), f"{described(job)} trains, but neither sends what it learned nor keeps it")


def own_models_are_used(method: Method) -> None:
    bench = make_bench(method)
    after = serially(bench)
    images = bench.experiment.test.take(torch.arange(8))[0]
    for client in (client for client in bench.clients() if client.id in after.kept):
        job, ctx = bench.job(after.state, client, round=1), bench.context(1)
        without = method.localize(job, ctx, {}).eval()(images).detach()
        own = method.localize(job, ctx, after.kept[client.id]).eval()(images).detach()
        matters, kept = not torch.equal(without, own), ", ".join(f"'{name}'" for name in sorted(after.kept[client.id]))
        require(
            matters or method.shares_model,
            f"it says that every client has a model of its own, but what stays on a client ({kept}) does not change it",
        )
        require(
            not matters or not method.shares_model,
            f"what stays on a client ({kept}) changes its model, but the method says that clients share one: set "
            "shares_model = False, or it is scored with a model that nobody has",
        )


def levels_may_have_their_own(method: Method) -> None:
    if not method.takes_any_networks:
        return
    bench = make_bench(method, {"one": 0.5, "other": 0.5}, OWN_NETWORKS)
    state, after = method.init(bench.context()), serially(bench)
    require(not after.failures, f"with two networks of one size, {after.failures[0] if after.failures else ''}")
    images, learned = bench.experiment.test.take(torch.arange(8))[0], []
    for client in bench.clients():
        job, ctx = bench.job(after.state, client, round=1), bench.context(1)
        net = method.localize(job, ctx, after.kept.get(client.id, {})).eval()
        own = {name: tuple(tensor.shape) for name, tensor in OWN_NETWORKS[client.level.name]().state_dict().items()}
        shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
        require(shapes == own, f"a client of level '{client.level.name}' does not train the network of its level")
        before = method.localize(bench.job(state, client), bench.context(), {}).eval()
        learned.append((client.level.name, not torch.equal(net(images), before(images))))
    still = sorted({level for level, moved in learned if not moved} - {level for level, moved in learned if moved})
    require(not still, f"with two networks of one size, those of level {still} learn nothing")

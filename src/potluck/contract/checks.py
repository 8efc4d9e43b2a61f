"""The checks. Each raises `ContractError` with a sentence, and is called with nothing but the method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from potluck.contract.bench import Small, copy, make_bench, make_even_bench
from potluck.contract.layout import layout_does_not_show
from potluck.contract.own import levels_may_have_their_own, nothing_learned_is_lost, own_models_are_used
from potluck.contract.playing import difference, played, require, serially
from potluck.core.method import Method
from potluck.core.types import Update
from potluck.engines import make_engine
from potluck.parts.cost.level import count_parameters
from potluck.study.run import execute
from potluck.study.schema import Origin, as_table, read_table
from potluck.study.watchers import Nobody, Record

ORDER_TOLERANCE = 1e-6  # sums in another order differ in the last bits only

Check = Callable[[Method], None]


def settings_are_a_config(method: Method) -> None:
    own = vars(type(method))
    require("__dataclass_params__" in own, "it is not a dataclass: put @dataclass(frozen=True) above it")
    require(own["__dataclass_params__"].frozen, "it is not frozen: a method holds no state")
    again = read_table(type(method), as_table(method), "method", type(method).__name__, Origin())
    require(again == method, f"its settings do not survive a config file: {method} became {again}")
    generated = f"{type(method).__name__}("  # what a dataclass without a docstring says of itself
    documented = bool(own["__doc__"]) and not own["__doc__"].startswith(generated)
    require(documented, "it has no docstring to say what it does")


def payload_survives_the_wire(method: Method) -> None:
    bench = make_bench(method)
    state = method.init(bench.context())
    for client in bench.clients():
        payload = bench.job(state, client).payload
        for name, tensor in payload.items():
            require(
                isinstance(name, str) and isinstance(tensor, Tensor), f"payload entry {name!r} is not a named tensor"
            )
            require(tensor.device.type == "cpu", f"'{name}' is on {tensor.device}")
            require(not tensor.requires_grad, f"'{name}' carries a gradient graph")
            require(bool(torch.isfinite(tensor.double()).all()), f"'{name}' is not finite")
        wire = safetensors.torch.save({name: tensor.contiguous().clone() for name, tensor in payload.items()})
        lost = difference(payload, safetensors.torch.load(wire))
        require(not lost, f"over the wire, {lost}")


def inputs_are_left_alone(method: Method) -> None:
    bench = make_bench(method)
    state = method.init(bench.context())
    before = copy(state)
    client = bench.clients()[0]
    job = bench.job(state, client)
    sent = copy(job.payload)
    ctx = bench.context()
    net = method.localize(job, ctx, {})
    method.phases(job, ctx, {})
    collected = method.collect(net, job, ctx)[0]
    update = Update(client, {name: jitter(tensor, seed=0) for name, tensor in collected.items()})
    given = copy(update.payload)
    method.aggregate(state, [update], ctx)
    for what, now, then in (
        ("state", state, before),
        ("payload", job.payload, sent),
        ("update", update.payload, given),
    ):
        changed = difference(now, then)
        require(not changed, f"it changes its {what} in place: {changed}")


def nobody_trains_nothing_changes(method: Method) -> None:
    bench = make_bench(method)
    state = method.init(bench.context())
    same = method.aggregate(state, iter([]), bench.context())
    require(not difference(state, same), f"with no updates at all, {difference(state, same)}")
    if not method.lossless:
        return
    updates = (bench.untouched(state, client) for client in bench.clients())
    after = method.aggregate(state, updates, bench.context())
    require(not difference(state, after), f"though nobody trained, {difference(state, after)}")


def training_changes_the_state(method: Method) -> None:
    bench = make_bench(method)
    state, after = method.init(bench.context()), serially(bench)
    require(not after.failures, f"in a real round, {after.failures[0] if after.failures else ''}")
    moved = bool(difference(state, after.state)) or (not method.shares_model and bool(after.kept))
    require(moved, "after a real round the state is what it was")


def one_level_is_fedavg(method: Method) -> None:
    if not method.reduces_to_fedavg:
        return
    ours, theirs = (serially(make_even_bench(m), rounds=2).state for m in (method, Method()))
    require(
        not difference(ours, theirs), f"with one level and equal clients it is not FedAvg: {difference(ours, theirs)}"
    )


def order_does_not_matter(method: Method) -> None:
    bench = make_bench(method)
    state = method.init(bench.context())
    updates = [bench.untouched(state, client) for client in bench.clients()]
    noisy = [replace(u, payload={k: jitter(t, i) for k, t in u.payload.items()}) for i, u in enumerate(updates)]
    forward, backward = (method.aggregate(state, iter(order), bench.context()) for order in (noisy, noisy[::-1]))
    for name in forward:
        apart = float((forward[name].double() - backward[name].double()).abs().max()) if forward[name].numel() else 0.0
        require(apart <= ORDER_TOLERANCE, f"'{name}' differs by {apart:.1e} when updates come in another order")


def jitter(tensor: Tensor, seed: int) -> Tensor:
    """The tensor with a little noise, as if somebody had trained it."""
    if not tensor.is_floating_point():
        return tensor
    return tensor + 0.01 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))


def what_nobody_sends_survives(method: Method) -> None:
    bench = make_bench(method)
    state = method.init(bench.context())
    updates = [bench.untouched(state, client) for client in bench.clients()]
    if not updates[0].payload:
        return
    missing = sorted(updates[0].payload)[0]
    without = [replace(u, payload={k: t for k, t in u.payload.items() if k != missing}) for u in updates]
    after = method.aggregate(state, iter(without), bench.context())
    require(
        set(after) == set(state), f"when nobody sends '{missing}', the state loses {sorted(set(state) - set(after))}"
    )
    if missing in state:
        require(torch.equal(after[missing], state[missing]), f"when nobody sends '{missing}', it changes all the same")


def client_needs_only_its_payload(method: Method) -> None:
    bench = make_bench(method)
    state = serially(bench).state
    images = bench.experiment.test.take(torch.arange(8))[0]
    for client in bench.clients():
        job, used = bench.job(state, client, round=1), bench.experiment.site.context(1)
        there = method.localize(job, bench.context(1), {}).eval()(images)
        here = method.localize(job, used, {}).eval()(images)
        require(torch.equal(here, there), f"a client of level '{client.level.name}' depends on more than its payload")


def export_is_plain(method: Method) -> None:
    if not method.shares_model:
        return
    bench = make_bench(method)
    state = serially(bench).state
    sizes = []
    for level in sorted(bench.experiment.admitted(), key=lambda level: level.ratio):
        net = method.export(state, level, bench.context(1))
        hooked = [name for name, module in net.named_modules() if module._forward_hooks or module._forward_pre_hooks]
        require(not hooked, f"the model exported for '{level.name}' still has hooks on {hooked}")
        require(not net.training, f"the model exported for '{level.name}' is in training mode")
        output = net(bench.experiment.test.take(torch.tensor([0]))[0])
        require(
            output.shape == (1, 4), f"the model exported for '{level.name}' gives {tuple(output.shape)} for one example"
        )
        allowed = count_parameters(Small(level.ratio if method.ratio_is_width else 1.0))
        sizes.append(count_parameters(net))
        require(
            sizes[-1] <= allowed,
            f"the model exported for '{level.name}' has {sizes[-1]} parameters, more than {allowed}",
        )
    require(sizes == sorted(sizes), f"exported models do not grow with their level: {sizes}")


def engines_agree(method: Method) -> None:
    found = []
    for name, workers in (("serial", 0), ("local", 2)):
        engine = make_engine(name, workers)
        try:
            found.append(played(make_bench(method), engine, rounds=2).tensors())
        finally:
            engine.close()
    require(not difference(*found), f"engines 'serial' and 'local' disagree: {difference(*found)}")


class Interrupt(Nobody):
    """Ends a run after its first round."""

    def round_done(self, record: Record) -> None:
        raise KeyboardInterrupt


def resume_gives_the_same(method: Method) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for name, cut in (("whole", False), ("resumed", True)):
            bench, path = make_bench(method), Path(folder) / name
            if cut:
                try:
                    execute(bench.experiment, make_engine("serial"), {}, path, watcher=Interrupt())
                except KeyboardInterrupt:
                    bench = make_bench(method)
            results.append(execute(bench.experiment, make_engine("serial"), {}, path, resume=cut))
    whole, resumed = results
    require(not difference(whole.state, resumed.state), f"after a resume, {difference(whole.state, resumed.state)}")
    for one, other in zip(whole.metrics, resumed.metrics, strict=True):
        apart = [key for key in one if not key.startswith("seconds") and one[key] != other[key]]
        require(not apart, f"after a resume, the metrics of round {one['round']} differ in {apart}")


def length_does_not_show(method: Method) -> None:
    short, long = (serially(make_bench(method, rounds=rounds), 2).tensors() for rounds in (2, 5))
    differ = "" if method.looks_ahead else difference(short, long)
    require(not differ, f"the first rounds of a longer run are others ({differ}): set looks_ahead = True")


CHECKS: dict[str, Check] = {
    "its settings are a config": settings_are_a_config,
    "its payload survives the wire": payload_survives_the_wire,
    "it leaves its inputs alone": inputs_are_left_alone,
    "nobody trains, nothing changes": nobody_trains_nothing_changes,
    "training changes the state": training_changes_the_state,
    "nothing learned is lost": nothing_learned_is_lost,
    "a client's own model is used": own_models_are_used,
    "levels may have networks of their own": levels_may_have_their_own,
    "the layout of tensors does not show": layout_does_not_show,
    "one level is FedAvg": one_level_is_fedavg,
    "the order of updates does not matter": order_does_not_matter,
    "what nobody sends survives": what_nobody_sends_survives,
    "a client needs only its payload": client_needs_only_its_payload,
    "an exported model is plain": export_is_plain,
    "engines agree": engines_agree,
    "a resumed run is the same run": resume_gives_the_same,
    "a longer run begins the same": length_does_not_show,
}

"""Every check can fail: for each there is a method with that fault and no other. And a stranger's can hold them all."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from broken_methods import FAULTS, SettingNoFileCanHold

from potluck.contract import CHECKS, check_method
from potluck.core.tensors import load
from potluck.methods.fedavg import FedAvg


@pytest.mark.whole
@pytest.mark.parametrize(("method", "title", "says"), FAULTS, ids=[cls.__name__ for cls, _, _ in FAULTS])
def test_a_fault_is_found_by_its_check_and_by_no_other(method, title, says):
    found = {check: problem for check, problem in check_method(method()) if problem}
    assert list(found) == [title], found
    assert says in found[title]


def test_a_setting_that_no_file_can_hold_is_found_though_nothing_else_can_be_tried():
    """Without its settings a run has no recipe."""
    title, problem = next(check_method(SettingNoFileCanHold()))
    assert title == "its settings are a config"
    assert "device" in problem


@dataclass(frozen=True)
class KeepsItsHead(FedAvg):
    """Every client has a last layer of its own, which never leaves it."""

    reduces_to_fedavg: ClassVar[bool] = False
    shares_model: ClassVar[bool] = False

    def init(self, ctx):
        return without_head(super().init(ctx), ctx)

    def localize(self, job, ctx, personal):
        net = ctx.build(self.trains(job.client.level, ctx))
        load(net, {**job.payload, **personal}, optional=head(ctx))
        return net

    def collect(self, net, job, ctx):
        sent, _ = super().collect(net, job, ctx)
        return without_head(sent, ctx), {name: sent[name] for name in head(ctx)}

    def export(self, state, level, ctx):
        raise AssertionError("no client has such a model, so nobody asks for it")


def head(ctx):
    return ctx.task.head(ctx.task.largest)


def without_head(tensors, ctx):
    return {name: tensor for name, tensor in tensors.items() if name not in head(ctx)}


def test_a_method_that_keeps_a_part_on_its_clients_holds_everything():
    assert dict(check_method(KeepsItsHead())) == dict.fromkeys(CHECKS)


def test_every_check_has_a_method_that_fails_it():
    assert {title for _, title, _ in FAULTS} == set(CHECKS)


def test_a_method_that_raises_is_reported_not_raised(monkeypatch):
    def fail(self, ctx):
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(FedAvg, "init", fail)
    problems = dict(check_method(FedAvg()))
    assert "ZeroDivisionError: no such thing" in problems["its payload survives the wire"]
    assert problems["its settings are a config"] is None

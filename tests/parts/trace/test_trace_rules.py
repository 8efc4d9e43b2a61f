"""Calls that no rule foresees keep what they meet; a rule that fails is a fault, and is told as one."""

from __future__ import annotations

import pytest
import torch
from hand_made import Net, floats, see, shrunk
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.trace.findings import study
from potluck.parts.trace.rules import RULES
from potluck.parts.trace.tracer import RuleError


def rectified() -> nn.Sequential:
    return nn.Sequential(Linear(3, 8), nn.ReLU(), Linear(8, 2))


@pytest.mark.parametrize("error", [IndexError, KeyError, RuntimeError, TypeError, ValueError, AttributeError])
def test_a_bug_in_a_rule_is_not_taken_for_an_unknown_operation(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(call):
        raise error("a slip")

    monkeypatch.setitem(RULES, "relu", buggy)
    with pytest.raises(RuleError, match=rf"the rule for relu in '1' failed: {error.__name__}: .*a slip") as caught:
        study(rectified(), [floats(1, 3)])
    assert isinstance(caught.value.__cause__, error)


def test_an_argument_that_an_overload_lacks_makes_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "relu", lambda call: call.given["slope"])
    seen = see(rectified(), floats(1, 3))
    assert seen.why("0.weight") == "nothing is known about relu in '1'"


def test_a_dimension_that_is_no_number_makes_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(call):
        call.given["dim"] = "channels"
        return [() for _ in range(call.dim(call.tensors[0]))]

    monkeypatch.setitem(RULES, "relu", rule)
    assert see(rectified(), floats(1, 3)).why("0.weight") == "nothing is known about relu in '1'"


@torch.library.custom_op("potluck_tests::mm", mutates_args=())
def rows_and_columns(left: Tensor, right: Tensor, turned: bool) -> Tensor:
    return (left.double() @ right.double()).float()


def test_an_operation_of_another_library_has_no_rule_of_ours_even_by_the_same_name() -> None:
    net = Net(lambda m, x: rows_and_columns(m.a(x), m.out.weight.t(), False), a=Linear(3, 8), out=Linear(8, 2))
    seen = see(net, floats(1, 3))
    assert seen.why("a.weight") == "nothing is known about mm in the network"


def test_numbers_seen_as_others_of_fewer_bytes_keep_their_channels() -> None:
    net = Net(lambda m, x: m.out(m.a(x).view(torch.int16).float()), a=Linear(3, 8), out=Linear(16, 2))
    assert see(net, floats(1, 3)).why("a.weight") == "nothing is known about view in the network"


def test_a_slice_from_before_the_beginning_is_one_from_the_beginning() -> None:
    def run(m, x):
        hidden = m.a(x)
        half = hidden.shape[1] // 2
        return m.out(hidden[:, -100:half] + hidden[:, half:])

    net = Net(run, a=Linear(3, 8), out=Linear(4, 2))
    assert shrunk(net, floats(1, 3)).cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 2)}


def test_patches_of_one_picture_without_a_batch() -> None:
    def run(m, x):
        return m.out(nn.functional.unfold(m.a(x)[0], 2).sum(1))

    net = Net(run, a=nn.Conv2d(3, 8, 1), out=Linear(32, 2))
    assert shrunk(net, floats(1, 3, 4, 4)).cut["out.weight"] == (2, 16)

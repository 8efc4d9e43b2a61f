"""Running a network once: every call is heard, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from potluck.core.observe import observe


class Noisy(nn.Module):
    """Calls one layer twice, the second time by keyword, and draws random numbers in every mode."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(4)
        self.mix = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.mix(input=self.mix(self.norm(inputs)))
        logits: Tensor = self.last(self.drop(hidden + torch.randn_like(hidden)))
        return logits


EXAMPLE = [torch.ones(2, 4)]


def test_calls_are_heard_in_the_order_of_running_with_what_was_given_and_what_came_out() -> None:
    net = Noisy()
    heard: list[tuple[str, str, tuple[int, ...]]] = []
    output = observe(
        net,
        EXAMPLE,
        {name: getattr(net, name) for name in ("last", "mix")},
        before=lambda name, layer, given: heard.append(("before", name, given[0].shape)),
        after=lambda name, layer, given, made: heard.append(("after", name, made.shape)),
    )
    calls = [("mix", (2, 4)), ("mix", (2, 4)), ("last", (2, 2))]
    assert [(name, shape) for when, name, shape in heard if when == "after"] == calls
    assert heard[:2] == [("before", "mix", (2, 4)), ("after", "mix", (2, 4))]
    assert output.shape == (2, 2)
    assert not output.requires_grad


def test_what_a_listener_returns_changes_nothing() -> None:
    net = nn.Linear(4, 2)
    seen: list[Any] = []
    output = observe(net, EXAMPLE, {"": net}, lambda *_: (torch.zeros(2, 4),), lambda *call: seen.append(call) or 0)  # type: ignore[func-returns-value, arg-type, return-value]
    assert torch.equal(output, net(*EXAMPLE))
    assert seen[0][0] == ""


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_modes_random_numbers_and_hooks_are_as_before(training: bool, fails: bool) -> None:
    net = Noisy().train()
    net.norm.eval()  # somebody froze it
    modes = [module.training for module in net.modules()]
    state = torch.get_rng_state()
    during: set[bool] = set()

    def note(name: str, layer: nn.Module, given: object, output: object) -> None:
        during.update(module.training for module in net.modules())
        if fails:
            raise ArithmeticError

    try:
        observe(net, EXAMPLE, dict(net.named_modules()), after=note, training=training)
    except ArithmeticError:
        assert fails
    assert during == {training}
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert net.norm.num_batches_tracked == int(training)


class Collects(nn.Module):
    """Puts a hook on its layer when it first runs, notes what came, and makes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.hooked = nn.Linear(4, 2), False
        self.history: list[Tensor] = []
        self.seen: set[int] = {7}
        self.by_name: dict[str, int] = {"runs": 0}

    def forward(self, x: Tensor) -> Tensor:
        if not self.hooked:
            self.layer.register_forward_hook(lambda layer, given, output: self.history.append(output))
            self.hooked = True
        self.seen.clear()
        self.by_name["runs"] += 1
        self.register_buffer("last", x)
        result: Tensor = self.layer(x)
        return result


def test_what_modules_gather_in_a_run_is_as_before() -> None:
    """Or a network that is watched twice would have its hook twice."""
    net = Collects()
    for _ in range(2):
        observe(net, EXAMPLE)
    assert (net.hooked, net.history, net.seen, net.by_name) == (False, [], {7}, {"runs": 0})
    assert not net.layer._forward_hooks
    assert not list(net.buffers())


@pytest.mark.parametrize("mode", [True, False])
def test_a_layer_that_gets_its_sizes_in_the_run_keeps_its_mode(mode: bool) -> None:
    net = nn.Sequential(nn.LazyLinear(2)).train(mode)
    observe(net, [torch.zeros(1, 3)], training=not mode)
    assert [module.training for module in net.modules()] == [mode, mode]

"""Optimisers by name and by class: the steps are PyTorch's, the settings mean for each what they say."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.fit import descends_plainly, fit, optimizer_of
from potluck.core.optimizers import NAMED, Rule, rule_of
from potluck.core.types import Batch, Phase, Tensors, Train, everything

OTHERS = [torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.ASGD, torch.optim.Adadelta]
KINDS = [*NAMED.values(), *OTHERS]


def made(train: Train, parameters: list[Tensor], decays: Callable[[str], bool] = everything) -> torch.optim.Optimizer:
    named = [(str(number), each) for number, each in enumerate(parameters)]
    optimizer = optimizer_of(named, decays, train)
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


def late_gradients(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    """Three steps; the last parameter has its first gradient later than others."""
    rng = torch.Generator().manual_seed(1)
    for number in range(3):
        for parameter in parameters:
            gradient = torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
            parameter.grad = None if number == 0 and parameter is parameters[-1] else gradient
        optimizer.step()


def two_of(*shapes: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    rng = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes]
    return tuple([value.clone().requires_grad_() for value in values] for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("momentum", [None, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_steps_are_those_of_the_class(kind: Any, weight_decay: float, momentum: float | None) -> None:
    ours, theirs = two_of((3, 4), (5,), ())
    train = Train(optimizer=kind, lr=0.1, weight_decay=weight_decay, momentum=momentum)
    late_gradients(made(train, ours), ours)
    options: dict[str, Any] = {"lr": 0.1, "weight_decay": weight_decay}
    if kind is torch.optim.SGD:
        options["momentum"] = 0.9 if momentum is None else momentum
    if kind is torch.optim.RMSprop:
        options["momentum"] = momentum or 0.0
    late_gradients(kind(theirs, **options), theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_means_the_class(name: str) -> None:
    assert rule_of(name) == rule_of(NAMED[name]) == rule_of({"name": name}) == Rule(NAMED[name])
    assert rule_of(name).name == name
    assert rule_of(name).elementwise
    assert rule_of(rule_of(name)) == rule_of(name)


def test_options_reach_the_optimiser_whichever_way_they_are_given() -> None:
    ours, _ = two_of((2,))
    for given_as in (partial(torch.optim.AdamW, betas=[0.5, 0.6]), {"name": "adamw", "betas": (0.5, 0.6)}):
        assert made(Train(optimizer=given_as), ours).param_groups[0]["betas"] == (0.5, 0.6)
    slow = made(Train(optimizer=partial(partial(torch.optim.NAdam, eps=1e-3), momentum_decay=0.1)), ours)
    assert (slow.param_groups[0]["eps"], slow.param_groups[0]["momentum_decay"]) == (1e-3, 0.1)
    assert made(Train(optimizer=partial(torch.optim.SGD, nesterov=True)), ours).param_groups[0]["nesterov"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_does_not_decay_is_a_group_of_its_own(kind: Any) -> None:
    ours, _ = two_of((2,), (3,))
    groups = made(Train(optimizer=kind, weight_decay=0.25), ours, lambda name: name == "0").param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.25, 1), (0.0, 1)]


def still(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    return 0 * net(batch[0]).sum()


def test_adamw_decays_beside_its_step_and_adam_in_it() -> None:
    found = []
    for name in ("adamw", "adam"):
        net = nn.Linear(1, 1, bias=False)
        nn.init.ones_(net.weight)
        fit(net, Phase(still), [(torch.zeros(1, 1), torch.zeros(1))], Train(name, lr=0.5, weight_decay=0.25, clip=0.0))
        found.append(net.weight.item())
    assert found == pytest.approx([1 - 0.5 * 0.25, 1 - 0.5])


def test_only_bare_descent_is_plain() -> None:
    bare = {"momentum": 0.0, "weight_decay": 0.0}
    assert descends_plainly(Train(**bare))  # type: ignore[arg-type]
    assert descends_plainly(Train(partial(torch.optim.SGD, nesterov=False), **bare))  # type: ignore[arg-type]
    assert not descends_plainly(Train(partial(torch.optim.SGD, maximize=True), **bare))  # type: ignore[arg-type]
    assert not descends_plainly(Train(torch.optim.ASGD, **bare))  # type: ignore[arg-type]
    assert not descends_plainly(Train(weight_decay=0.0))  # SGD has a momentum unless told otherwise
    for name in NAMED:
        assert descends_plainly(Train(name, **bare)) == (name == "sgd")  # type: ignore[arg-type]


class Mine(torch.optim.SGD):
    """A class of a user's; what it inherits from says nothing of how it steps."""


def test_a_class_that_is_not_known_is_not_taken_for_one_that_steps_each_number_by_itself() -> None:
    assert not rule_of(Mine).elementwise
    assert rule_of(Mine).name == f"{__name__}:Mine"
    assert not descends_plainly(Train(Mine, momentum=0.0, weight_decay=0.0))


def test_settings_can_be_sent_to_another_process() -> None:
    train = Train(optimizer=partial(torch.optim.NAdam, eps=1e-3))
    assert train.rule.kind is torch.optim.NAdam
    again = pickle.loads(pickle.dumps(train))
    assert again.rule == train.rule


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda parameters: None, r"optimizer is <function .*should be a name \(sgd, adam, adamw, adagrad, rmsprop\)"),
        (partial(torch.optim.Adam, []), "should be a name"),
        (partial(print, end=""), "should be a name"),
        (nn.Linear, "optimizer is <class .*Linear.*should be a name"),
        ({"eps": 1.0}, "should be a name.*a table of a name and options"),
        (3, "optimizer is 3"),
        (
            torch.optim.SGD([torch.zeros(1)], lr=0.1),
            "is one that is made already.*: give the class SGD instead",
        ),
        ("adm", "there is no optimizer 'adm'; did you mean 'adam'"),
        ("torch.optim:NAdam", "optimizer is 'torch.optim:NAdam', a path.*should be the class itself"),
        (partial(torch.optim.Adam, lr=0.1), "has an option 'lr', but lr is a setting beside optimizer"),
        ({"name": "rmsprop", "momentum": 0.1}, "has an option 'momentum'"),
        (partial(torch.optim.Adam, weight_decay=0.1), "has an option 'weight_decay'"),
        (
            partial(torch.optim.NAdam, eps=torch.ones(1)),
            r"eps = tensor.*should be a number, text, True, False or a list",
        ),
        (partial(torch.optim.NAdam, betas=(0.9, None)), "betas = None"),
    ],
)
def test_what_is_no_optimiser(wrong: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _ = Train(optimizer=wrong).rule


@given(
    st.sampled_from(sorted(NAMED)),
    st.floats(1e-4, 0.1),
    st.integers(1, 4),
    st.integers(0, 1000),
)
def test_every_row_steps_as_it_would_alone(name: str, lr: float, rows: int, seed: int) -> None:
    """What makes it right to train clients stacked."""
    rng = torch.Generator().manual_seed(seed)
    start = torch.randn(rows, 3, generator=rng, dtype=torch.float64)
    gradients = torch.randn(4, rows, 3, generator=rng, dtype=torch.float64)
    train = Train(name, lr=lr, weight_decay=0.1)
    together, alone = start.clone().requires_grad_(), [row.clone().requires_grad_() for row in start]
    optimizers = [(made(train, [together]), together, slice(None))]
    optimizers += [(made(train, [row]), row, number) for number, row in enumerate(alone)]  # type: ignore[misc]
    for gradient in gradients:
        for optimizer, weight, row in optimizers:
            weight.grad = gradient[row].clone()
            optimizer.step()
    assert torch.allclose(together, torch.stack(alone), rtol=1e-12, atol=0)

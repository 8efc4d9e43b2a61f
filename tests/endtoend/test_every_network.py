"""Every network with every method, from a plain module to exported models: it runs, or a true sentence says why not."""

from __future__ import annotations

import math

import pytest
import torch
from small_networks import CASES
from torch import Tensor, nn

import potluck
from potluck import methods
from potluck.core.errors import PotluckError
from potluck.core.logits import logits_of
from potluck.core.random import seeded
from potluck.parts.cost.level import count_parameters
from potluck.parts.one_network import OneNetwork
from potluck.study.result import Result

LEVELS = {"server": 1.0, "phone": 0.5, "watch": 0.25}
METHODS = methods.names()
EVERY_METHOD = ("rotary", "output object")  # networks that the usual tests try with all of them
REFUSED = {
    ("depthwise", "flanc"): "no layer of the network is left to compose",
    ("lstm", "fedhm"): "no layer of it can be put into factors (head: it makes the logits)",
}


def pairs() -> list[object]:
    """All pairs of a network and a method; those that are not in the usual tests are slow."""
    found = []
    for place, name in enumerate(CASES):
        for method in METHODS:
            usual = name in EVERY_METHOD or method == METHODS[place % len(METHODS)] or (name, method) in REFUSED
            found.append(pytest.param(name, method, marks=[] if usual else [pytest.mark.slow]))
    return found


def run(name: str, method: str, data: object = None) -> Result:
    """One round of four clients."""
    plainly = {"momentum": 0.0, "clip": 0.0} if methods.find(method).steps_plainly else {}
    return potluck.run(
        model=CASES[name].build(),
        data=CASES[name].data() if data is None else data,
        method=method,
        levels=LEVELS,
        clients=4,
        rounds=1,
        train=potluck.Train(lr=0.05, epochs=1, batch_size=8, **plainly),
        engine="serial",
        watcher=None,
    )


def answer(net: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad(), seeded(0, "answer"):
        return logits_of(net(inputs))


@pytest.mark.parametrize(("name", "method"), pairs())
def test_it_runs_is_exported_and_scored(name: str, method: str) -> None:
    if (name, method) in REFUSED:
        with pytest.raises(PotluckError) as caught:
            run(name, method)
        assert REFUSED[name, method] in str(caught.value)
        return
    result, case = run(name, method), CASES[name]
    assert not result.metrics[-1]["failed"]
    data = case.data()
    inputs, targets = data.test.take(torch.arange(len(data.test)))
    sizes = []
    for level in (each for each in LEVELS if each in result.models):
        net = result.export(level)
        assert not net.training
        assert math.isfinite(result.metrics[-1]["levels"][level]["loss"])
        logits = answer(net, inputs)
        assert logits.shape == (*targets.shape, data.classes)
        right = (logits.argmax(-1) == targets).double().mean()
        assert result.accuracy[level] == pytest.approx(float(right))
        sizes.append(count_parameters(net))
        if method != "splitmix":  # whose models are several networks
            assert type(net) is case.make
            assert type(net(inputs)) is type(case.build()(inputs))
    assert sizes == sorted(sizes, reverse=True)
    assert issubclass(methods.find(method), OneNetwork) or sizes[-1] < sizes[0]


def test_a_pair_of_tensors_may_have_a_label_for_every_position() -> None:
    inputs, targets = CASES["tied"].data().train.take(torch.arange(32))
    result = run("tied", "heterofl", (inputs, targets))
    assert not result.metrics[-1]["failed"]
    assert result.export("watch")(inputs[:1]).shape == (1, 6, 12)

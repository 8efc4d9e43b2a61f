"""Exported models are plain enough for other tools: torch.export and ONNX take them as they are."""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch
from clouds import heads
from torch import Tensor, nn

from potluck import methods
from potluck.contract.bench import make_bench, patterns
from potluck.contract.checks import played
from potluck.core.desk import ready_model
from potluck.core.networks import ByWidth
from potluck.core.server import Ledger, Server
from potluck.core.types import Context, Level, Task
from potluck.engines import make_engine
from potluck.methods.heterofl import HeteroFL
from potluck.models.cnn import heterofl_cnn
from potluck.models.norms import Norm
from potluck.study.scoring import measured

TRACED, FRESH = (patterns(1, seed).take(torch.tensor([0]))[0] for seed in (4, 5))


@cache
def models(name: str) -> dict[str, nn.Module]:
    """What a method exports after a round, by level, with its statistics measured; largest first."""
    bench, engine = make_bench(methods.find(name)()), make_engine("serial")
    experiment, state, ledger = bench.experiment, played(bench, engine).state, Ledger()
    server, found = Server(experiment.recipe, engine), dict[str, nn.Module]()
    for level in experiment.admitted():
        statistics = measured(experiment, server, state, level, 1, ledger)
        found[level.name] = ready_model(experiment.recipe, state, level, 1, statistics, experiment.site.memo)
    assert not ledger.failures
    return found


def through_torch_export(net: nn.Module, traced: Tensor, fresh: Tensor) -> Tensor:
    """What the program that torch.export makes of a network computes for another input."""
    program = torch.export.export(net, (traced,))
    out: Tensor = program.module()(fresh)
    return out


def through_onnx(net: nn.Module, traced: Tensor, fresh: Tensor) -> Tensor:
    """What the network as an ONNX graph computes for another input, by ONNX's own reference."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from onnx.checker import check_model
    from onnx.reference import ReferenceEvaluator

    program = torch.onnx.export(net, (traced,), dynamo=True, verbose=False)
    graph = program.model_proto
    check_model(graph)
    evaluator = ReferenceEvaluator(graph)
    (given,) = evaluator.input_names
    (out,) = evaluator.run(None, {given: fresh.numpy()})
    return torch.from_numpy(out)


def agree(out: Tensor, net: nn.Module, fresh: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(out.detach(), net(fresh), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", methods.names())
def test_torch_export_takes_every_level(name: str) -> None:
    assert models(name)
    for net in models(name).values():
        agree(through_torch_export(net, TRACED, FRESH), net, FRESH)


@pytest.mark.slow
@pytest.mark.parametrize("name", methods.names())
def test_onnx_takes_the_largest_and_the_smallest_level(name: str) -> None:
    exported = list(models(name).values())
    for net in {exported[0], exported[-1]}:
        agree(through_onnx(net, TRACED, FRESH), net, FRESH)


@pytest.mark.parametrize("norm", ["in", "gn", "ln"])
def test_networks_with_group_norms_are_taken(norm: Norm) -> None:
    example = (torch.zeros(1, 1, 8, 8), torch.zeros(1, dtype=torch.long))
    levels = (Level("wide", 1.0), Level("narrow", 0.5))
    model = ByWidth(partial(heterofl_cnn, shape=(1, 8, 8), hidden=(8, 16), norm=norm))
    head = heads(levels, ("head.weight", "head.bias"))
    ctx = Context(Task(model, levels, 10, head, example), round=0, seed=1)
    net = HeteroFL().export(HeteroFL().init(ctx), levels[1], ctx)
    traced, fresh = torch.randn(2, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    agree(through_torch_export(net, traced, fresh), net, fresh)
    agree(through_onnx(net, traced, fresh), net, fresh)

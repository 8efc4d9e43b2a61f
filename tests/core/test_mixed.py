"""Mixed precision: the network computes in bfloat16, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_sites import BRISK, WIDE, apart, at_once, batch_normed, client_of, job_for, jobs_of, mlp, one_by_one, site_of
from torch import Tensor, nn

from potluck.core.client import train_in
from potluck.core.errors import ConfigError
from potluck.core.fit import fit
from potluck.core.goals.classes import Classes
from potluck.core.mixed import lowered
from potluck.core.types import Batch, Phase, Tensors, Train
from potluck.core.ways.agree import agrees
from potluck.core.ways.way import Way

MIXED = replace(BRISK, precision="bfloat16")


class Told(nn.Module):
    """Notes what it computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(6, 3), list[torch.dtype]()

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        found = self.layer(inputs)
        self.seen.append(found.dtype)
        if inputs.isnan().any():
            raise ValueError("no number")
        return {"logits": found, "mask": inputs > 0}


def test_the_network_alone_computes_in_less() -> None:
    net, losses = Told(), list[torch.dtype]()

    def loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        found = net(batch[0])
        assert found["mask"].dtype == torch.bool
        losses.append((found["logits"] @ found["logits"].t()).dtype)
        return nn.functional.cross_entropy(found["logits"], batch[1])

    batch = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    for precision in ("bfloat16", "float32"):
        fit(net, Phase(loss), [batch], Train(precision=precision))  # type: ignore[arg-type]
        assert {p.dtype for p in net.parameters()} == {p.grad.dtype for p in net.parameters() if p.grad is not None}
        assert net.layer.weight.dtype == torch.float32
    assert net.seen == [torch.bfloat16, torch.float32]
    assert losses == [torch.float32, torch.float32]
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def test_a_network_that_fails_leaves_the_precision_as_it_was() -> None:
    net = Told()
    with lowered(net):
        with pytest.raises(ValueError, match="no number"):
            net(torch.full((1, 6), torch.nan))
        assert not torch.is_autocast_enabled("cpu")
        assert net(torch.ones(1, 6))["logits"].dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")
    net(torch.ones(1, 6))
    assert net.seen == [torch.bfloat16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("model", [mlp, batch_normed])
def test_a_client_learns_what_it_learns_in_float32_but_for_rounding(model: object) -> None:
    sites = [site_of(model, settings=settings) for settings in (BRISK, MIXED)]  # type: ignore[arg-type]
    full, less = (one_by_one(site, jobs_of(site))[0][0] for site in sites)
    assert 1e-6 < apart(less, full) < 0.2  # 0.002 and 0.06 were seen


def test_only_the_plain_way_has_it() -> None:
    site = site_of(mlp, settings=MIXED)
    job = job_for(site, client_of(0, WIDE))
    for name in ("swift", "channels-last", "stacked-2"):
        assert not agrees(Way.called(name), site, job, {})
        assert agrees(Way.called(name), site_of(mlp), job, {})
    refused = r"train\.precision is 'bfloat16', but only the plain way .* choose engine\.step = 'counted' or 'plain'"
    with pytest.raises(ConfigError, match=refused):
        at_once(site, jobs_of(site))
    with pytest.raises(ConfigError, match=refused):
        train_in(Way.called("swift"), site, job, {})
    with pytest.raises(ConfigError, match=refused):
        fit(mlp(1.0), Way(swift=True).phase(Phase(Classes()), MIXED), [], MIXED)

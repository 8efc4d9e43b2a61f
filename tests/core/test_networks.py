"""Where networks come from, which weights came with them, and what frozen weights share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from potluck.core.copying import plain_tensors
from potluck.core.errors import ModelError
from potluck.core.memo import Memo
from potluck.core.networks import ByName, ByWidth, Networks, share_frozen
from potluck.core.recipe import table_digest, weights_digest
from potluck.core.tensors import copied, load, same_tensors, state_of
from potluck.core.types import Context, Level, Task

WIDE, NARROW = Level("wide", 1.0), Level("narrow", 0.5)


def context(networks: Networks, memo: Memo | None = None, seed: int = 0) -> Context:
    example = (torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    return Context(Task(networks, (WIDE, NARROW), 2, {}, example), 0, seed, memo or Memo())


def mlp(width: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, round(8 * width)), nn.Linear(round(8 * width), 2))


# ---- by width, by name ----


def test_by_width_a_level_has_the_network_of_its_ratio() -> None:
    networks = ByWidth(mlp)
    assert [networks(level)[0].out_features for level in (WIDE, NARROW, Level("new", 0.25))] == [8, 4, 2]  # type: ignore[index]


def test_by_name_a_level_has_the_network_of_its_name_whatever_its_ratio() -> None:
    networks = ByName({"wide": lambda: nn.Linear(3, 2), "narrow": lambda: nn.Bilinear(3, 3, 2)})
    assert isinstance(networks(Level("wide", 0.1)), nn.Linear)
    assert isinstance(networks(NARROW), nn.Bilinear)
    with pytest.raises(ModelError, match=r"there is no network for level 'narow'; did you mean 'narrow'\?"):
        networks(Level("narow", 0.5))


@pytest.mark.parametrize("networks", [ByWidth(mlp), ByName({"wide": lambda: mlp(1.0), "narrow": lambda: mlp(0.5)})])
def test_weights_that_are_drawn_are_the_seeds(networks: Networks) -> None:
    first, again, other = (state_of(context(networks, seed=seed).build(NARROW)) for seed in (1, 1, 2))
    assert same_tensors(first, again)
    assert not same_tensors(first, other)


def test_a_ready_made_network_is_copied_with_its_weights() -> None:
    ready = mlp(1.0)
    networks = ByName({"wide": ready})
    before = copied(state_of(ready))
    first = context(networks, seed=1).build(WIDE)
    assert same_tensors(state_of(first), before)
    nn.init.zeros_(first[0].weight)  # type: ignore[index, arg-type]
    assert same_tensors(state_of(ready), before)
    assert same_tensors(state_of(context(networks, seed=2).build(WIDE)), before)


# ---- weights that came with them ----


class Shrinking:
    """Makes a network at any width from a ready-made one."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def __call__(self, width: float) -> nn.Module:
        return mlp(width)


def test_given_are_the_weights_that_no_seed_could_draw() -> None:
    ready = mlp(1.0)
    assert ByWidth(mlp).given() == {}
    assert same_tensors(ByWidth(Shrinking(ready)).given(), state_of(ready))
    networks = ByName({"wide": ready, "narrow": lambda: mlp(0.5)})
    assert set(networks.given()) == {f"wide/{name}" for name in ready.state_dict()}
    assert torch.equal(networks.given()["wide/0.weight"], ready[0].weight)


def test_the_digest_is_of_every_given_weight_and_of_nothing_else() -> None:
    def digest(change: Callable[[nn.Module], object] = lambda net: None, level: str = "wide") -> str:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        change(net)
        return weights_digest(ByName({level: net}))

    assert weights_digest(ByWidth(mlp)) == ""
    assert weights_digest(ByName({"wide": lambda: mlp(1.0)})) == ""
    torch.manual_seed(99)
    assert digest() == digest()
    assert len(digest()) == 64
    others = [
        digest(lambda net: net[0].bias.data[1:].add_(1e-6)),  # type: ignore[index]
        digest(lambda net: net[1].running_var.mul_(2)),  # type: ignore[index, operator]
        digest(lambda net: net.double()),
        digest(lambda net: net.append(nn.Linear(2, 2))),  # type: ignore[operator]
        digest(level="narrow"),
    ]
    assert len({digest(), *others}) == 1 + len(others)


def test_the_digest_of_a_table_does_not_depend_on_its_order() -> None:
    one, other = {"a": 1, "b": {"c": 2.0, "d": [1, 2]}}, {"b": {"d": [1, 2], "c": 2.0}, "a": 1}
    assert table_digest(one) == table_digest(other)
    assert table_digest(one) != table_digest({**one, "a": 2})


# ---- frozen parameters ----


def frozen_first(width: float = 1.0) -> nn.Module:
    """A frozen layer that is the same at every width, and one that is trained."""
    return nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, round(8 * width)))


def frozen(net: nn.Module) -> nn.Parameter:
    return net.get_parameter("0.weight")


def test_equal_frozen_parameters_are_one_object_in_all_networks() -> None:
    ctx = context(ByWidth(frozen_first))
    nets = [ctx.build(level) for level in (WIDE, WIDE, NARROW)]
    assert all(frozen(net) is frozen(nets[0]) for net in nets)
    assert nets[0].get_parameter("0.bias") is nets[1].get_parameter("0.bias")
    assert nets[0].get_parameter("1.weight") is not nets[1].get_parameter("1.weight")  # that one is trained
    assert not frozen(nets[0]).requires_grad


def test_networks_by_name_share_them_too_also_where_names_meet() -> None:
    """Both levels call a parameter 0.weight, but it is not of one shape."""
    body = nn.Linear(5, 4).requires_grad_(False)
    networks = ByName({"wide": frozen_first, "narrow": nn.Sequential(body, nn.Linear(4, 2))})
    ctx = context(networks)
    wide, narrow = ([ctx.build(level) for _ in range(2)] for level in (WIDE, NARROW))
    assert frozen(wide[0]) is frozen(wide[1])
    assert frozen(narrow[0]) is frozen(narrow[1])
    assert torch.equal(frozen(narrow[0]), body.weight)


def test_only_what_is_equal_is_shared() -> None:
    memo, nets = Memo(), []
    for seed in (0, 1, 0, 1):
        nets.append(context(ByWidth(frozen_first), memo, seed).build(WIDE))
    values = [state_of(context(ByWidth(frozen_first), Memo(), seed).build(WIDE)) for seed in (0, 1, 0, 1)]
    assert all(same_tensors(state_of(net), value) for net, value in zip(nets, values, strict=True))
    assert frozen(nets[0]) is frozen(nets[2])
    assert frozen(nets[0]) is not frozen(nets[1])


def test_other_memos_share_nothing_and_a_memo_may_be_told_not_to() -> None:
    networks = ByWidth(frozen_first)
    assert frozen(context(networks).build(WIDE)) is not frozen(context(networks).build(WIDE))
    alone = context(networks, Memo(frozen=None))
    assert frozen(alone.build(WIDE)) is not frozen(alone.build(WIDE))


def test_loading_equal_values_keeps_what_is_shared() -> None:
    ctx = context(ByWidth(frozen_first))
    one, other = ctx.build(WIDE), ctx.build(WIDE)
    load(one, copied(state_of(other)))
    assert frozen(one).data_ptr() == frozen(other).data_ptr()


def test_other_values_loaded_into_one_network_do_not_show_in_another() -> None:
    ctx = context(ByWidth(frozen_first))
    one, other = ctx.build(WIDE), ctx.build(WIDE)
    before = copied(state_of(other))
    changed = {**before, "0.weight": before["0.weight"] + 1}
    load(one, changed)
    assert same_tensors(state_of(one), changed)
    assert same_tensors(state_of(other), before)
    later = ctx.build(WIDE)
    assert same_tensors(state_of(later), before)
    assert frozen(later) is frozen(other)  # what was shared is shared with whoever comes
    load(other, {**before, "0.weight": before["0.weight"] - 1})
    assert same_tensors(state_of(one), changed)
    assert same_tensors(state_of(later), before)
    assert not any(frozen(net).requires_grad for net in (one, other, later))


def test_a_frozen_parameter_with_two_names_keeps_both() -> None:
    def tied() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4))
        net[1].weight = net[0].weight
        return net

    ctx = context(ByName({"wide": tied}))
    one, other = ctx.build(WIDE), ctx.build(WIDE)
    assert one.get_parameter("1.weight") is frozen(one) is frozen(other)
    load(one, {**copied(state_of(other)), "0.weight": torch.ones(4, 4), "1.weight": torch.ones(4, 4)})
    assert one.get_parameter("1.weight") is frozen(one)
    assert frozen(one).tolist() == torch.ones(4, 4).tolist()
    assert other.get_parameter("1.weight") is frozen(other)
    assert frozen(other).tolist() != frozen(one).tolist()


def test_weights_of_another_type_are_other_weights() -> None:
    known: dict[str, nn.Parameter] = {}
    one, other = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2).requires_grad_(False)
    load(other, copied(state_of(one)))
    share_frozen(one, known)
    share_frozen(other.double(), known)
    assert other.weight is not one.weight


def test_parameters_and_buffers_are_no_plain_tensors_wherever_else_they_are() -> None:
    net = nn.BatchNorm1d(3)
    net.known = [net.weight, net.running_mean, nn.Parameter(torch.zeros(2)), torch.ones(1)]  # type: ignore[assignment]
    assert list(plain_tensors(net)) == ["known.3"]

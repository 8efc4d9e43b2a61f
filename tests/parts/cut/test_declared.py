"""Heads and gates: a narrow network holds the first channels of every one of them."""

import torch
from plan_by_size import prefix_plan
from torch import nn

from potluck.core.networks import ByWidth
from potluck.core.types import Client, Context, Level, Task
from potluck.methods.heterofl import HeteroFL
from potluck.models.transformer import transformer
from potluck.models.vit import vit_small
from potluck.parts.cut.declared import blocks_per_dimension
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import shapes_of


def taken(wide, narrow):
    """The positions of the wide network's tensors that the narrow one takes."""
    plan = prefix_plan(shapes_of(wide.state_dict()), shapes_of(narrow.state_dict()), blocks_per_dimension(wide))
    numbered = {name: torch.arange(t.numel()).view(t.shape) for name, t in wide.state_dict().items()}
    return plan, plan.take(numbered)


def test_an_lstm_keeps_the_first_units_of_every_gate():
    _, parts = taken(nn.LSTM(3, 4), nn.LSTM(3, 2))
    rows = parts["weight_hh_l0"][:, 0] // 4
    assert rows.tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert (parts["bias_ih_l0"]).tolist() == [0, 1, 4, 5, 8, 9, 12, 13]


def test_a_second_layer_reads_the_first_units_of_both_directions():
    wide, narrow = (nn.GRU(3, units, num_layers=2, bidirectional=True) for units in (4, 2))
    _, parts = taken(wide, narrow)
    assert (parts["weight_ih_l1"][0] % 8).tolist() == [0, 1, 4, 5]
    assert (parts["weight_ih_l1"][:, 0] // 8).tolist() == [0, 1, 4, 5, 8, 9]


def test_attention_keeps_the_first_channels_of_every_head_in_query_key_and_value():
    wide, narrow = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(4, 2)
    _, parts = taken(wide, narrow)
    assert (parts["in_proj_weight"][:, 0] // 8).tolist() == [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21]
    assert parts["out_proj.weight"][0].tolist() == [0, 1, 4, 5]
    assert parts["out_proj.bias"].tolist() == [0, 1, 2, 3]


def test_heterofls_transformer_keeps_all_eight_heads():
    wide, narrow = transformer(1.0, shape=(8,), classes=11), transformer(1 / 16, shape=(8,), classes=11)
    _, parts = taken(wide, narrow)
    rows = next(parts[name][:, 0] // 256 for name in parts if name.endswith("query.weight"))
    assert rows.tolist() == [32 * head + unit for head in range(8) for unit in range(2)]


def test_a_fused_projection_is_cut_inside_every_head():
    wide, narrow = (vit_small(width, shape=(3, 32, 32), depth=1) for width in (1.0, 0.5))
    _, parts = taken(wide, narrow)
    rows = next(parts[name][:, 0] // 384 for name in parts if name.endswith("qkv.weight"))
    assert rows[:33].tolist() == [*range(32), 64]
    assert rows[-1] == 3 * 384 - 33


def test_what_was_taken_goes_back_to_where_it_was():
    wide, narrow = nn.LSTM(3, 4), nn.LSTM(3, 2)
    plan, parts = taken(wide, narrow)
    state = {name: torch.zeros(t.shape) for name, t in wide.state_dict().items()}
    mean = HolderMean(state)
    mean.add({name: part.float() + 1 for name, part in parts.items()}, plan=plan)
    for name, tensor in mean.result().items():
        held = torch.zeros(tensor.numel(), dtype=torch.bool)
        held[parts[name].flatten()] = True
        expected = torch.where(held, torch.arange(tensor.numel()) + 1, 0).view(tensor.shape)
        assert torch.equal(tensor, expected.float())


def test_heterofl_uses_them():
    levels = (Level("a", 1.0), Level("b", 0.5))
    example = (torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 8, dtype=torch.long))
    heads = {"a": (), "b": ()}
    task = Task(ByWidth(lambda width: transformer(width, shape=(8,), classes=11)), levels, 11, heads, example)
    method, ctx = HeteroFL(), Context(task, round=0, seed=0)
    state = {name: torch.arange(t.numel()).view(t.shape) for name, t in method.init(ctx).items()}
    payload = method.distribute(state, Client(0, levels[1], 1, (0,)), ctx)
    rows = next(payload[name][:, 0] // 256 for name in payload if name.endswith("key.weight"))
    assert rows[:17].tolist() == [*range(16), 32]

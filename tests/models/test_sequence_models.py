"""Attention, the two transformers and the character model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from potluck.core.errors import ModelError
from potluck.models.attention import attend
from potluck.models.rnn import rnn
from potluck.models.transformer import transformer
from potluck.models.vit import vit_small


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_attention_equals_pytorchs(batch: int, tokens: int, heads: int, width: int) -> None:
    rng = torch.Generator().manual_seed(batch + 10 * tokens + 100 * heads + 1000 * width)
    q, k, v = torch.randn(3, batch, tokens, heads * width, generator=rng, dtype=torch.float64)
    split = [x.view(batch, tokens, heads, width).transpose(1, 2) for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*split).transpose(1, 2).reshape(batch, tokens, heads * width)
    torch.testing.assert_close(attend(q, k, v, heads), expected)


def test_transformer_has_a_row_for_the_mask_and_none_to_predict_it() -> None:
    net = transformer(1 / 16, shape=(4,), classes=7).eval()
    assert net.tokens.num_embeddings == 8
    assert net(torch.full((2, 4), 7)).shape == (2, 4, 7)


def test_transformer_keeps_all_heads_at_any_width() -> None:
    assert transformer(1 / 16, classes=7).tokens.embedding_dim == 16
    assert transformer(0.3, classes=7).tokens.embedding_dim == 8 * 10
    assert transformer(0.3, classes=7).layers[0].linear1.out_features == 154


def test_transformer_takes_shorter_sequences() -> None:
    assert transformer(1 / 16, shape=(9,), classes=7)(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 7)


def test_transformer_sees_both_sides_and_knows_positions() -> None:
    torch.manual_seed(0)
    net = transformer(0.25, shape=(3,), classes=7).eval()
    first = net(torch.tensor([[0, 1, 2]]))[0, 0]
    assert not torch.allclose(first, net(torch.tensor([[0, 1, 3]]))[0, 0])
    assert not torch.allclose(first, net(torch.tensor([[0, 2, 1]]))[0, 0])


def test_transformer_initialisation() -> None:
    torch.manual_seed(0)
    net = transformer(classes=7)
    assert all(module.bias.eq(0).all() for module in net.modules() if isinstance(module, nn.Linear))
    assert net.layers[0].linear1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.layers[3].linear2.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_transformer_dropout_is_an_option() -> None:
    net = transformer(1 / 16, shape=(4,), classes=7, dropout=0.0).train()
    ids = torch.tensor([[1, 2, 3, 4]])
    assert torch.equal(net(ids), net(ids))
    assert {m.p for m in transformer(1 / 16, classes=7).modules() if isinstance(m, nn.Dropout)} == {0.2}


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_rnn_cells(cell: str, gates: int) -> None:
    net = rnn(0.25, cell=cell)
    assert sum(p.numel() for p in net.recurrent.parameters()) == gates * 96 * (32 + 96)
    assert net(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 80)


def test_rnn_reads_from_left_to_right() -> None:
    torch.manual_seed(0)
    net = rnn(0.25)
    outputs = [net(torch.tensor([ids])) for ids in ([1, 2, 3], [1, 2, 4], [5, 2, 3])]
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


def test_unknown_cells_are_refused() -> None:
    with pytest.raises(ModelError, match="cell is 'qrnn', but rnn has the cells lstm, gru, rnn"):
        rnn(cell="qrnn")


def test_vit_keeps_all_heads_at_any_width() -> None:
    net = vit_small(0.3, shape=(3, 32, 32))
    assert net.blocks[0].attention.qkv.weight.shape == (3 * 6 * 20, 6 * 20)
    assert len(net.blocks) == 12


def test_vit_on_small_images() -> None:
    net = vit_small(1 / 16, shape=(1, 8, 12), patch=4, depth=2)
    assert net.positions.shape == (1, 1 + 2 * 3, 24)
    assert len(net.blocks) == 2
    assert net(torch.zeros(2, 1, 8, 12)).shape == (2, 10)


def test_vit_sees_where_a_patch_is() -> None:
    torch.manual_seed(0)
    net = vit_small(0.25, shape=(1, 8, 8), patch=4, depth=1)
    image = torch.zeros(1, 1, 8, 8)
    image[..., :4, :4] = 1
    assert not torch.equal(net(image), net(image.flip(-1)))


def test_vit_refuses_images_that_patches_do_not_tile() -> None:
    with pytest.raises(
        ModelError, match=r"shape is \(3, 32, 30\), but vit-small cuts images into whole patches of 16x16"
    ):
        vit_small(shape=(3, 32, 30))

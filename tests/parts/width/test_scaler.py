"""Scaling in training, and folding it into the weights of an export."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from potluck.parts.width.scaler import fold_scaling, scale_outputs

NARROWED = {"0.weight", "0.bias", "2.weight", "2.bias", "5.weight"}
HEAD = ("5.weight", "5.bias")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))


INPUTS = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def test_the_output_is_divided_in_training_only() -> None:
    plain = nn.Sequential(nn.Linear(4, 2))
    inputs = torch.randn(3, 4)
    expected = plain(inputs)
    scale_outputs(plain, 0.25, {"0.weight"}, ())
    assert torch.equal(plain.train()(inputs), expected / 0.25)
    assert torch.equal(plain.eval()(inputs), expected)


def test_every_narrowed_layer_is_scaled_but_the_head() -> None:
    plain, scaled = net(), scale_outputs(net(), 0.5, NARROWED, HEAD)
    features = plain[3](plain[2](plain[1](plain[0](INPUTS) / 0.5)) / 0.5)
    torch.testing.assert_close(scaled.train()(INPUTS), plain[5](plain[4](features)))
    assert [bool(module._forward_hooks) for module in scaled] == [True, False, True, False, False, False]


def test_a_layer_that_is_not_narrowed_is_left_alone() -> None:
    scaled = scale_outputs(net(), 0.5, {"0.weight", "0.bias"}, HEAD)
    assert [bool(module._forward_hooks) for module in scaled] == [True, False, False, False, False, False]
    norm = nn.Sequential(nn.BatchNorm1d(2))
    assert not scale_outputs(norm, 0.5, {"0.weight", "0.bias"}, ())[0]._forward_hooks


@pytest.mark.parametrize("ratio", [0.5, 0.3, 1.0])
def test_folding_makes_a_plain_network_of_the_same_function(ratio: float) -> None:
    hooked = scale_outputs(net(), ratio, NARROWED, HEAD).train()
    folded = fold_scaling(net(), ratio, NARROWED, HEAD).eval()
    torch.testing.assert_close(folded(INPUTS), hooked(INPUTS), rtol=1e-6, atol=1e-6)
    assert not any(module._forward_hooks for module in folded.modules())
    assert torch.equal(folded[5].weight, net()[5].weight)
    torch.testing.assert_close(folded[0].bias, net()[0].bias / ratio)


def test_embeddings_and_transposed_convolutions_fold_too() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Embedding(7, 3), nn.ConvTranspose1d(4, 2, 2), nn.Flatten(), nn.Linear(8, 2))
    narrowed = {"0.weight", "1.weight", "1.bias", "3.weight"}
    tokens = torch.arange(8).view(2, 4) % 7
    hooked = scale_outputs(copy.deepcopy(plain), 0.25, narrowed, ("3.weight",)).train()
    folded = fold_scaling(copy.deepcopy(plain), 0.25, narrowed, ("3.weight",)).eval()
    torch.testing.assert_close(folded(tokens), hooked(tokens), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(folded(tokens), plain(tokens))


def test_layers_that_share_a_weight_fold_to_the_same_function() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    plain[1].weight = plain[0].weight
    narrowed = {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight"}
    inputs = torch.randn(2, 3)
    hooked = scale_outputs(copy.deepcopy(plain), 0.5, narrowed, ("2.weight", "2.bias")).train()
    folded = fold_scaling(copy.deepcopy(plain), 0.5, narrowed, ("2.weight", "2.bias")).eval()
    torch.testing.assert_close(folded(inputs), hooked(inputs), rtol=1e-5, atol=1e-6)


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(7, 3), nn.Linear(3, 3), nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.mix(self.embed(tokens)))
        return logits


def test_a_head_that_shares_its_weight_folds_to_the_same_function() -> None:
    torch.manual_seed(0)
    plain, tokens = Tied(), torch.arange(6).view(2, 3)
    narrowed = {"embed.weight", "mix.weight", "mix.bias", "head.weight"}
    hooked = scale_outputs(copy.deepcopy(plain), 0.5, narrowed, ("head.weight",)).train()
    folded = fold_scaling(copy.deepcopy(plain), 0.5, narrowed, ("head.weight",)).eval()
    torch.testing.assert_close(folded(tokens), hooked(tokens), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(folded(tokens), plain(tokens))
    assert not hooked.head._forward_hooks


class Attending(nn.Module):
    """PyTorch's own attention, which uses its output layer's weights without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.attention(inputs, inputs, inputs, need_weights=False)[0]
        return found


def test_a_layer_whose_weights_are_used_without_calling_it_folds_to_the_same_function() -> None:
    torch.manual_seed(0)
    plain, inputs = Attending(), torch.randn(2, 3, 4)
    nn.init.ones_(plain.attention.out_proj.bias)
    narrowed = {name for name, _ in plain.named_parameters()}
    hooked = scale_outputs(copy.deepcopy(plain), 0.5, narrowed, ()).train()
    folded = fold_scaling(copy.deepcopy(plain), 0.5, narrowed, ()).eval()
    torch.testing.assert_close(folded(inputs), hooked(inputs), rtol=1e-5, atol=1e-6)

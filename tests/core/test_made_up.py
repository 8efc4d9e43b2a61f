"""Examples that nobody's data are in, for networks that cannot take any."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from potluck.core.made_up import gives_numbers, runnable
from potluck.parts.shrink.shrinkable import Shrinkable

ZEROS = torch.zeros(1, 6, dtype=torch.long)


class Padded(nn.Module):
    """Takes 0 for padding, and has only so many tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        padding = x == 0
        hidden = self.encoder(self.tokens(x), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).float()
        return self.out((hidden * kept).sum(1) / kept.sum(1))


def test_padding_alone_is_replaced_by_tokens() -> None:
    (found,) = runnable(Padded(20), (ZEROS,))
    assert found.tolist() == [[1, 2, 3, 4, 5, 6]]


def test_tokens_that_a_network_lacks_are_left_out() -> None:
    assert runnable(Padded(4), (ZEROS,))[0].max() == 3
    assert runnable(Padded(2), (ZEROS,))[0].max() == 1


def test_an_example_that_runs_stays() -> None:
    example = torch.tensor([[5, 0, 0]])
    assert runnable(Padded(20), (example,))[0] is example


def test_a_network_that_takes_nothing_gets_what_was_given() -> None:
    assert runnable(nn.Linear(3, 2), (torch.zeros(1, 4),))[0].shape == (1, 4)
    assert not gives_numbers(nn.Linear(3, 2), (torch.zeros(1, 4),))


def test_fractions_for_floats_that_may_not_be_zero() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / x.norm()

    assert runnable(Scaled(), (torch.zeros(1, 4),))[0].tolist() == [[0.25, 0.5, 0.75, 1.0]]


def test_a_network_with_padding_is_made_narrower() -> None:
    narrow = Shrinkable(Padded(20), (ZEROS,))(0.5)
    assert narrow.tokens.weight.shape == (20, 8)
    assert narrow(torch.tensor([[4, 2, 0, 0]])).isfinite().all()


class Diary(nn.Module):
    """Writes down how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.pages.append(len(inputs))
        return inputs


def test_trying_leaves_the_network_alone() -> None:
    net = Diary()
    runnable(net, [torch.zeros(1, 2)])
    assert net.pages == []

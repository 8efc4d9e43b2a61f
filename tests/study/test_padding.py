"""Sequences with padding, from Python: planned, run, and refused with a sentence where tokens are unknown."""

import pytest
import torch
from torch import nn

import potluck
from potluck.core.errors import DataError
from potluck.core.made_up import KINDS, made_up, runnable

TOKENS, LENGTH = 20, 6
LENGTHS = torch.arange(48) % 5 + 2
WORDS = torch.randint(1, TOKENS, (48, LENGTH), generator=torch.Generator().manual_seed(0))
IDS = torch.where(torch.arange(LENGTH) < LENGTHS[:, None], WORDS, 0)
LABELS = IDS[:, 0] % 3


class Padded(nn.Module):
    """Takes 0 for padding, so that an example of zeros alone has nothing to attend to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(TOKENS, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        padding = x == 0
        hidden = self.encoder(self.tokens(x), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).float()
        return self.out((hidden * kept).sum(1) / kept.sum(1))


def run(**changes):
    settings = {
        "model": Padded(),
        "data": (IDS, LABELS),
        "levels": {"big": 1.0, "small": 0.5},
        "clients": 4,
        "rounds": 1,
        "train": {"lr": 0.05, "epochs": 1},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.mark.parametrize("method", ["fedavg", "heterofl", "splitmix", "fjord"])
def test_a_network_with_a_padding_mask_runs(method):
    result = run(method=method)
    assert result.metrics[0]["failures"] == 0
    assert result.export("big")(IDS[:2]).isfinite().all()


def test_a_network_with_a_padding_mask_is_planned():
    example = torch.zeros(1, LENGTH, dtype=torch.long)
    rows = potluck.costs(Padded(), {"big": 1.0, "small": 0.5}, example, measure=False)
    assert rows[0]["parameters"] > rows[1]["parameters"] > 0


def test_several_examples_are_tried_before_a_network_is_refused():
    tried = []

    class Picky(nn.Module):
        def forward(self, x):
            tried.append(x.tolist())
            raise ValueError("never")

    example = torch.zeros(1, 4, dtype=torch.long)
    assert runnable(Picky(), example) is example
    assert tried == [[[0, 0, 0, 0]], *(made_up(example, most).tolist() for most in KINDS)]


def test_tokens_that_a_network_does_not_have_are_told_where_it_is_scored():
    with pytest.raises(DataError, match=r"^test: an input is a number for which the network's embedding has no row"):
        run(test=(IDS + 10, LABELS))


@pytest.mark.parametrize("network", [Padded, nn.Sequential])
def test_tokens_that_a_network_does_not_have_leave_their_client_out_with_a_reason(network):
    model = Padded() if network is Padded else nn.Sequential(nn.Embedding(TOKENS, 8), nn.Flatten(), nn.Linear(48, 3))
    result = run(model=model, method="fedavg", levels={"big": 1.0}, data=(IDS + 10, LABELS), test=(IDS, LABELS))
    assert result.metrics[0]["failures"] == 4
    assert "the network's embedding has no row" in result.metrics[0]["failed"][0]["reason"]

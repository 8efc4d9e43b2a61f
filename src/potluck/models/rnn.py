"""A character model in the place of FLANC's network for Shakespeare.

Departures: which cell and widths FLANC used cannot be told from its paper, and no code of it is
public. An LSTM without biases, 128 features embedded and 384 hidden, comes closest: its recurrent
layer has 49, 197, 442 and 786 thousand parameters at widths 1/4 to 1 where the paper prints 49,
214, 443 and 787 (the 214 fits no network that grows with the square of its width).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import sequence_length

CELLS: dict[str, type[nn.LSTM | nn.GRU | nn.RNN]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
EMBEDDED = 128
HIDDEN = 384
# (R1, R2) with which FLANC's own column comes closest too: 49, 187, 417 and 740 thousand, all four as printed but the
# first, 48.
BASES = {"recurrent.weight_ih_l0": (16, 12), "recurrent.weight_hh_l0": (48, 48)}


class NextCharacter(nn.Module):
    """Logits of the character that follows (batch, tokens)."""

    neural_basis: dict[str, tuple[int, int]]

    def __init__(self, cell: type[nn.LSTM | nn.GRU | nn.RNN], embedded: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedded)
        self.recurrent = cell(embedded, hidden, bias=False, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(ids))
        logits: Tensor = self.head(states[:, -1])
        return logits


def rnn(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (80,),
    classes: Size = 80,
    cell: Literal["lstm", "gru", "rnn"] = "lstm",
    rounding: Rounding = "round",
) -> nn.Module:
    """One recurrent layer over embedded characters; `shape` is (sequence length,), `classes` the vocabulary.

    >>> sum(p.numel() for p in rnn().recurrent.parameters())
    786432
    """
    sequence_length("rnn", shape)
    if cell not in CELLS:
        raise ModelError(f"cell is '{cell}', but rnn has the cells {', '.join(CELLS)}")
    embedded, hidden = widths(width, (EMBEDDED, HIDDEN), rounding)
    net = NextCharacter(CELLS[cell], embedded, hidden, classes)
    if cell == "lstm":
        net.neural_basis = BASES
    return net

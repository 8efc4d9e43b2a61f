"""Recurrent networks: LSTM, GRU and plain, two layers, one or both directions; and a cell in a loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMTagger(nn.Module):
    """A tag per token from both directions."""

    def __init__(self, vocab_size: int, embedding_dim: int, hidden_dim: int, tagset_size: int) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.dropout = nn.Dropout(0.2)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.hidden2tag = nn.Linear(2 * hidden_dim, tagset_size)

    def forward(self, sentence: Tensor) -> Tensor:
        embeds = self.dropout(self.word_embeddings(sentence))
        out, _ = self.lstm(embeds)
        out = out.contiguous().view(-1, 2 * self.hidden_dim)
        return self.hidden2tag(out).view(sentence.shape[0], sentence.shape[1], -1)


class GRUClassifier(nn.Module):
    """Time first; classifies by the last hidden states of both directions of the last layer."""

    def __init__(self, n_features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gru = nn.GRU(n_features, hidden, num_layers=2, bidirectional=True)
        self.fc1 = nn.Linear(2 * hidden, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        h0 = torch.zeros(4, x.size(0), self.hidden, device=x.device)
        _, h_n = self.gru(x.permute(1, 0, 2), h0)
        last = torch.cat((h_n[-2], h_n[-1]), dim=1)
        return self.fc2(torch.relu(self.fc1(last)))


class PlainRNN(nn.Module):
    """All time steps are flattened into one linear layer: every step has the channels once more."""

    def __init__(self, n_features: int, hidden: int, steps: int, classes: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(n_features, hidden, num_layers=2, batch_first=True, nonlinearity="tanh")
        self.fc = nn.Linear(hidden * steps, classes)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x)
        return self.fc(out.reshape(out.size(0), -1))


class CellLoop(nn.Module):
    """An nn.LSTMCell stepped by hand, with attention over the states it went through."""

    def __init__(self, vocab: int, dim: int, classes: int) -> None:
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.LSTMCell(dim, dim)
        self.score = nn.Linear(dim, 1)
        self.out = nn.Linear(2 * dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        h = x.new_zeros(x.size(0), self.dim)
        c = x.new_zeros(x.size(0), self.dim)
        states = []
        for step in range(x.size(1)):
            h, c = self.cell(x[:, step], (h, c))
            states.append(h)
        seen = torch.stack(states, dim=1)
        weights = torch.softmax(self.score(torch.tanh(seen)).squeeze(-1), dim=1)
        context = torch.bmm(weights.unsqueeze(1), seen).squeeze(1)
        return self.out(torch.cat([h, context], dim=-1))


def lstm_tagger(width: float = 1.0) -> LSTMTagger:
    return LSTMTagger(80, int(32 * width), int(32 * width), tagset_size=7)


def gru_classifier(width: float = 1.0) -> GRUClassifier:
    return GRUClassifier(12, int(48 * width), classes=5)


def plain_rnn(width: float = 1.0) -> PlainRNN:
    return PlainRNN(12, int(64 * width), steps=10, classes=5)


def cell_loop(width: float = 1.0) -> CellLoop:
    return CellLoop(60, int(48 * width), classes=4)

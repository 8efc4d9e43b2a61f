"""HeteroFL's transformer, heads and masked tokens included, beside a slow version."""

from __future__ import annotations

from functools import partial

import by_hand
import torch
from by_hand import Batch, Places, Recipe, Weights
from played import Federation, Played, compared, play
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.types import Level
from potluck.methods.heterofl import HeteroFL
from potluck.models.transformer import transformer

WORDS, LENGTH, HEADS, LAYERS = 9, 5, 8, 4
MASK = WORDS  # the token after the last word
LEVELS = (Level("wide", 1 / 8), Level("middle", 3 / 32), Level("narrow", 1 / 16))
PER_HEAD = {1 / 8: 4, 3 / 32: 3, 1 / 16: 2}  # of 32 at full width
HIDDEN = {1 / 8: 64, 3 / 32: 48, 1 / 16: 32}  # of 512
COHORTS = (((0, 0), (1, 1), (2, 2)), ((2, 1), (0, 2)))


def texts() -> tuple[Arrays, list[Tensor]]:
    """Texts of three clients with few words each, in which some words are hidden."""
    rng = torch.Generator().manual_seed(0)
    vocabularies = ([0, 1, 2, 3], [2, 3, 4, 5, 6], [0, 4, 7])
    texts = [torch.tensor(words)[torch.randint(len(words), (4, LENGTH), generator=rng)] for words in vocabularies]
    targets = torch.cat(texts)
    hidden = torch.rand(targets.shape, generator=rng) < 0.3
    return Arrays(targets.masked_fill(hidden, MASK), targets), list(torch.arange(12).split(4))


def places(state: Weights, ratio: float) -> Places:
    """The first features of every position, and of every head the first of its features."""
    features, hidden = list(range(HEADS * PER_HEAD[ratio])), list(range(HIDDEN[ratio]))
    wide = PER_HEAD[LEVELS[0].ratio]
    in_heads = [head * wide + feature for head in range(HEADS) for feature in range(PER_HEAD[ratio])]
    found = by_hand.everywhere(state)
    for name, (rows, *_) in found.items():
        if name in ("head.weight", "tokens.weight", "positions.weight"):
            found[name] = (rows, features)
        elif any(f".{each}." in name for each in ("query", "key", "value")):
            found[name] = (in_heads, features) if name.endswith("weight") else (in_heads,)
        elif name.endswith("attention.out.weight"):
            found[name] = (features, in_heads)
        elif name.endswith("linear1.weight"):
            found[name] = (hidden, features)
        elif name.endswith("linear1.bias"):
            found[name] = (hidden,)
        elif name.endswith("linear2.weight"):
            found[name] = (features, hidden)
        elif name == "decoder.0.weight":
            found[name] = (features, features)
        elif name != "head.bias":  # the norms, and the biases of what puts out features
            found[name] = (features,)
    return found


def norm(w: Weights, name: str, x: Tensor) -> Tensor:
    """Layer norm: over the features of every position."""
    apart = x - x.mean(-1, keepdim=True)
    return w[f"{name}.weight"] * apart / ((apart**2).mean(-1, keepdim=True) + 1e-5).sqrt() + w[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def linear(w: Weights, name: str, x: Tensor, ratio: float) -> Tensor:
    """A linear layer and the Scaler after it."""
    return (x @ w[f"{name}.weight"].T + w[f"{name}.bias"]) / ratio


def attention(w: Weights, name: str, x: Tensor, ratio: float) -> Tensor:
    """One text: each head by itself, with the square root of its own width."""
    query, key, value = (linear(w, f"{name}.{each}", x, ratio) for each in ("query", "key", "value"))
    size = query.shape[1] // HEADS
    heads = []
    for head in range(HEADS):
        q, k, v = (each[:, head * size : (head + 1) * size] for each in (query, key, value))
        scores = (q @ k.T / size**0.5).exp()
        heads.append(scores / scores.sum(1, keepdim=True) @ v)
    return linear(w, f"{name}.out", torch.cat(heads, dim=1), ratio)


def logits_of(w: Weights, text: Tensor, ratio: float) -> Tensor:
    """What the network says of every position of one text."""
    x = norm(w, "norm", w["tokens.weight"][text] / ratio + w["positions.weight"][: len(text)] / ratio)
    for layer in range(LAYERS):
        at = f"layers.{layer}"
        x = norm(w, f"{at}.norm1", x + attention(w, f"{at}.attention", x, ratio))
        fed = linear(w, f"{at}.linear2", gelu(linear(w, f"{at}.linear1", x, ratio)), ratio)
        x = norm(w, f"{at}.norm2", x + fed)
    x = norm(w, "decoder.2", gelu(linear(w, "decoder.0", x, ratio)))
    return x @ w["head.weight"].T + w["head.bias"]


def loss(labels: tuple[int, ...], ratio: float, weights: Weights, batch: Batch) -> Tensor:
    """Over all positions, hidden or not; words that a client does not have are masked."""
    logits = torch.cat([logits_of(weights, text, ratio) for text in batch[0]])
    return by_hand.cross_entropy(by_hand.masked(logits, labels), batch[1].flatten())


def next_state(recipe: Recipe, state: Weights, played: Played) -> Weights:
    """Rows of the head and of tokens by the client's words; the mask's row is everybody's."""
    sent = []
    for client in played.cohort:
        ratio = client.level.ratio
        where = places(state, ratio)
        goal = partial(loss, client.labels, ratio / LEVELS[0].ratio)
        trained = by_hand.descend(by_hand.taken(state, where), played.batches[client.id], goal, recipe)
        update = by_hand.only_rows(by_hand.Sent(trained, where), ("head.weight", "head.bias"), client.labels)
        sent.append(by_hand.only_rows(update, ["tokens.weight"], [*client.labels, MASK]))
    return by_hand.mean_over_holders(state, sent)


def network(width: float) -> torch.nn.Module:
    return transformer(width, shape=(LENGTH,), classes=WORDS, dropout=0.0)


def test_rounds_are_those_of_the_paper() -> None:
    recipe = Recipe(lr=0.1, clip=1.0, weight_decay=5e-4)
    rows = {"tokens.weight": WORDS + 1}
    federation = Federation(network, LEVELS, *texts(), recipe, WORDS, rows, epochs=1, batch_size=2)
    rounds = list(play(HeteroFL(), federation, COHORTS))
    compared(rounds, partial(next_state, recipe))
    for played in rounds:
        moved = (played.after["tokens.weight"] != played.before["tokens.weight"]).any(1)
        assert bool(moved[MASK])
        assert not bool(moved[8])  # a word that nobody has

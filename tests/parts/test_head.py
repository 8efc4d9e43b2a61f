"""The layer that makes the logits, and outputs that do not fit the labels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from outputs import Output
from potluck.core.errors import ModelError
from potluck.core.goals.classes import Classes
from potluck.core.types import Level
from potluck.parts.head import check_outputs, find_head

HALF = Level("phone", 0.5)
CLASSES = Classes()
LABEL = torch.zeros(1, dtype=torch.long)


class Custom(nn.Module):
    """Its head is defined first and used last; a parameter of its own is no head."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(6, 3)
        self.gain = nn.Parameter(torch.ones(6))
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.classifier(self.body(inputs) * self.gain).log_softmax(-1)


class Language(nn.Module):
    """Tokens to (batch, tokens, vocabulary)."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.mix = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.out = nn.Identity() if tied else nn.Linear(4, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed = self.mix(self.embed(tokens))
        return self.out(mixed) if isinstance(self.out, nn.Linear) else mixed @ self.embed.weight.T


class Named(nn.Module):
    """Returns an output object; `own`: its head is a parameter of the network itself."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.out = nn.Identity() if own else nn.Linear(6, 3)
        if own:
            self.rows = nn.Parameter(torch.randn(3, 6))

    def forward(self, inputs: Tensor) -> Output:
        hidden = self.out(self.body(inputs))
        return Output(logits=hidden @ self.rows.T if hasattr(self, "rows") else hidden, hidden_states=(hidden,))


class Cosine(nn.Module):
    """A head with a temperature: one row per class, and one number that belongs to no class."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6))
        self.temperature = nn.Parameter(torch.tensor(10.0))

    def forward(self, features: Tensor) -> Tensor:
        return self.temperature * features @ self.weight.T


FOUR = torch.zeros(1, 4)


@pytest.mark.parametrize(
    ("net", "example", "head"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), FOUR, ("2.weight", "2.bias")),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)), FOUR, ("2.weight", "2.bias")),
        (nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(-1)), FOUR, ("0.weight", "0.bias")),
        (nn.Sequential(nn.Linear(4, 3, bias=False)), FOUR, ("0.weight",)),
        (nn.Linear(4, 3), FOUR, ("weight", "bias")),
        (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), FOUR, ("2.weight", "2.bias")),
        (Custom(), FOUR, ("classifier.weight", "classifier.bias")),
        (Language(tied=False), torch.zeros(1, 5, dtype=torch.long), ("out.weight", "out.bias")),
        (Language(tied=True), torch.zeros(1, 5, dtype=torch.long), ()),
        (nn.Sequential(nn.Linear(4, 5), nn.AdaptiveAvgPool1d(3)), FOUR, ()),
        (nn.Sequential(nn.Linear(4, 6), Cosine()), FOUR, ("1.weight",)),
        (Named(own=False), FOUR, ("out.weight", "out.bias")),
        (Named(own=True), FOUR, ("rows",)),
    ],
    ids=[
        "last of two",
        "not a hidden layer as wide as the classes",
        "before a layer without weights",
        "no bias",
        "the network itself",
        "after batch norm",
        "custom",
        "tokens",
        "tied",
        "none",
        "only what has a row per class",
        "an output object",
        "a parameter of a network with an output object",
    ],
)
def test_the_head_is_the_last_layer_with_a_row_per_class(
    net: nn.Module, example: Tensor, head: tuple[str, ...]
) -> None:
    assert find_head(net, example, CLASSES) == head
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("training", [True, False])
def test_looking_for_the_head_changes_nothing(training: bool) -> None:
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).train(training)
    find_head(net, torch.ones(1, 4), CLASSES)
    assert net.training == training
    assert net[0].num_batches_tracked.item() == 0
    with pytest.raises(RuntimeError):
        find_head(net, torch.ones(1, 5), CLASSES)
    assert net.training == training
    assert not any(module._forward_hooks for module in net.modules())


def test_a_fitting_network_is_let_through() -> None:
    check_outputs(Custom(), (FOUR, LABEL), CLASSES, 3, HALF)


@pytest.mark.parametrize("outputs", [2, 4])
def test_outputs_that_do_not_fit_the_labels_are_refused(outputs: int) -> None:
    with pytest.raises(ModelError) as caught:
        check_outputs(nn.Linear(4, outputs), (FOUR, LABEL), CLASSES, 3, HALF)
    assert str(caught.value) == (
        f"the network of level 'phone' (ratio 0.5) has {outputs} outputs, but classes are numbered from 0 and the last "
        "is 2: it needs 3"
    )


@pytest.mark.parametrize(
    ("net", "example"),
    [
        (nn.Linear(7, 3), FOUR),
        (nn.Embedding(7, 3), FOUR),
        (nn.Sequential(nn.Linear(4, 3), nn.Flatten(0), nn.BatchNorm1d(3)), FOUR),
    ],
    ids=["wrong size", "floats for tokens", "wrong dimensions"],
)
def test_a_network_that_cannot_run_on_the_data_is_refused(net: nn.Module, example: Tensor) -> None:
    with pytest.raises(ModelError, match=r"level 'phone' \(ratio 0\.5\) cannot run on an input of shape \(4,\): \S"):
        check_outputs(net, (example, LABEL), CLASSES, 3, HALF)


def test_a_network_whose_logits_are_not_clear_is_refused() -> None:
    class Pair(nn.Module):
        def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
            return inputs, inputs

    with pytest.raises(ModelError, match=r"returns tuple \(0: a tensor of shape \(1, 4\), 1: .* is not clear"):
        check_outputs(Pair(), (FOUR, LABEL), CLASSES, 4, HALF)

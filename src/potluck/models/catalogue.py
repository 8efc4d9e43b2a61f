"""The networks by the names a user writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.models.cnn import heterofl_cnn
from potluck.models.flanc import flanc_cnn, flanc_resnet18
from potluck.models.lg import lg_cnn, lg_mlp
from potluck.models.preresnet import preresnet18
from potluck.models.resnet import resnet18, resnet34
from potluck.models.rnn import rnn
from potluck.models.transformer import transformer
from potluck.models.vit import vit_small

Factory = Callable[..., nn.Module]
"""`factory(width, *, shape, classes, ...)` makes a plain network."""


def catalogue() -> dict[str, Factory]:
    """Every network Potluck brings along, by name.

    >>> net = catalogue()["heterofl-cnn"](0.5, shape=(1, 8, 8), classes=10)
    """
    return {
        "heterofl-cnn": heterofl_cnn,
        "preresnet18": preresnet18,
        "transformer": transformer,
        "resnet18": resnet18,
        "resnet34": resnet34,
        "flanc-cnn": flanc_cnn,
        "flanc-resnet18": flanc_resnet18,
        "rnn": rnn,
        "vit-small": vit_small,
        "lg-mlp": lg_mlp,
        "lg-cnn": lg_cnn,
    }


def find_model(name: str) -> Factory:
    """The factory of this name, or an error that says which names there are."""
    known = catalogue()
    if name not in known:
        raise ConfigError(unknown("model", name, known))
    return known[name]


def input_for(name: str) -> tuple[int, ...]:
    """The input shape, without the batch, that a network expects if it is told nothing else.

    >>> input_for("resnet18")
    (3, 32, 32)
    """
    shape: tuple[int, ...] = inspect.signature(find_model(name)).parameters["shape"].default
    return shape

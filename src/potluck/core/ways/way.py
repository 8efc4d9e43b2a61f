"""Ways to run a client's training steps: the same result but for rounding, at different speeds.

`plain` is PyTorch's own. `swift` replaces some operations by faster ones with equal results. `channels-last` is swift,
and keeps the channels of images next to each other in memory. `stacked-8` trains up to eight clients of one level and
size at once, each with weights of its own, in single operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.fit import descends_plainly
from potluck.core.inputs import mapped
from potluck.core.mixed import require_precise
from potluck.core.types import Batch, Phase, Train
from potluck.core.ways.swift import SwiftLoss

PLAIN, SWIFT, CHANNELS_LAST = "plain", "swift", "channels-last"


@dataclass(frozen=True)
class Way:
    """How training steps are run."""

    swift: bool = False
    channels_last: bool = False
    stack: int = 1  # how many clients at most are trained at once

    @classmethod
    @cache
    def called(cls, name: str) -> Way:
        """The way that a configuration calls by this name.

        >>> Way.called("stacked-8")
        Way(swift=False, channels_last=False, stack=8)
        """
        stacked = re.fullmatch(r"stacked-([1-9][0-9]{0,3})", name)
        if stacked:
            return cls(stack=int(stacked[1]))
        if name not in (PLAIN, SWIFT, CHANNELS_LAST):
            raise ConfigError(
                f"[engine] step is {name!r}, but it should be 'counted', 'auto', 'plain', 'swift', 'channels-last' or "
                "such as 'stacked-8'"
            )
        return cls(swift=name != PLAIN, channels_last=name == CHANNELS_LAST)

    @contextmanager
    def arranged(self, net: nn.Module) -> Iterator[None]:
        """Have a network laid out like this for a while; what comes after it finds the plain layout."""
        if not self.channels_last:
            yield
            return
        lay_out(net, torch.channels_last)
        try:
            yield
        finally:
            lay_out(net, torch.contiguous_format)

    def phase(self, phase: Phase, train: Train) -> Phase:
        """A phase whose loss is computed like this, before steps with these settings."""
        if not self.swift:
            return phase
        require_precise(train)
        each_by_itself = descends_plainly(train) and not train.clip and train.accumulate == 1
        return replace(phase, loss=SwiftLoss(phase.loss, train.lr if each_by_itself else None))

    def batch(self, batch: Batch) -> Batch:
        """A batch as this way keeps it in memory."""
        inputs, targets = batch
        return mapped(images_last, inputs) if self.channels_last else inputs, targets


def images_last(tensor: Tensor) -> Tensor:
    """Images whose channels are next to each other; anything else as it is."""
    return with_channels_last(tensor) if tensor.dim() == 4 else tensor


def with_channels_last(images: Tensor) -> Tensor:
    """Images whose channels are next to each other; a single channel lies like that anyway, but must say so."""
    _, channels, high, wide = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    return images.contiguous().as_strided(images.shape, (high * wide, 1, wide, 1))


def lay_out(net: nn.Module, form: torch.memory_format) -> None:
    """Have all kernels of a network in this layout; `net.to` would look at everything else, too, for every client."""
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=form)

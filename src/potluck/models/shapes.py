"""What a network's input may look like, checked before it is built."""

from __future__ import annotations

from potluck.core.errors import ModelError


def image_shape(model: str, shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """(channels, height, width), or a refusal that says what the model needs."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ModelError(
            f"shape is {tuple(shape)}, but {model} takes images: (channels, height, width) "
            f"of at least {smallest}x{smallest} pixels"
        )
    channels, height, width = shape
    return channels, height, width


def sequence_length(model: str, shape: tuple[int, ...]) -> int:
    """The number of tokens, or a refusal that says what the model needs."""
    if len(shape) != 1 or shape[0] < 1:
        raise ModelError(f"shape is {tuple(shape)}, but {model} takes token sequences: (number of tokens,)")
    return shape[0]

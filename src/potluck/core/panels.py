"""Pictures as data: what a method has to show, without a word on how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Heatmap:
    """A matrix, each entry a colour."""

    title: str
    values: Tensor  # 2-D


@dataclass(frozen=True)
class Histogram:
    """How often values occur."""

    title: str
    values: Tensor  # 1-D


@dataclass(frozen=True)
class Lines:
    """Numbers along a common axis, a line each; a value that is not finite is a gap."""

    title: str
    x: tuple[float, ...]
    series: Mapping[str, tuple[float, ...]]  # each as long as x
    x_name: str
    y_name: str
    logarithmic: bool = False  # of y; values that are not positive are gaps then


Panel = Heatmap | Histogram | Lines

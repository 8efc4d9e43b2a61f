"""The bundled digits: 1,797 images of 8x8, so that everything can be tried without a download.

One example in five, counted within each class in file order, is for testing: a fixed split,
the same for every seed, with each class in the same proportion (1,442 train, 355 test).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from potluck.core.data import Arrays
from potluck.data.dataset import Dataset
from potluck.data.preprocess import Normalise, Recipe
from potluck.data.readers.idx import read_pair
from potluck.data.sources.source import About, Layout, Source

CLASSES = 10
IMAGES, LABELS = "digits-images-idx3-ubyte", "digits-labels-idx1-ubyte"


def read(folder: Path) -> Dataset:
    """The digits, split."""
    inputs, targets = read_pair(folder, IMAGES, LABELS, CLASSES)
    test = every_fifth(targets, CLASSES)
    return Dataset(Arrays(inputs[~test], targets[~test]), Arrays(inputs[test], targets[test]), CLASSES)


def every_fifth(targets: Tensor, classes: int) -> Tensor:
    """True for the 5th, 10th, 15th … example of every class."""
    of_class = torch.nn.functional.one_hot(targets, classes)
    rank = (of_class.cumsum(0) * of_class).sum(1)
    return rank % 5 == 0


DIGITS = Source(
    about=About(
        name="digits",
        title="Optical Recognition of Handwritten Digits (8x8), bundled",
        licence="CC BY 4.0 (E. Alpaydin, C. Kaynak; UCI Machine Learning Repository)",
        homepage="https://doi.org/10.24432/C50P49",
        examples=(1442, 355),
        inputs="float32:1x8x8",
        classes=CLASSES,
        note="install the package again: the digits come with it",
    ),
    layouts=(
        Layout(
            folder="",
            files={
                IMAGES: "sha256:359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96",
                LABELS: "sha256:ce71631c1f31ce56fa54f31d1d498fafacff59b001e6c30c4a5e29508aa277ad",
            },
            read=read,
        ),
    ),
    recipes={"plain": Recipe(Normalise(mean=(0.3053,), std=(0.3760,), scale=16.0))},
    home=Path(__file__).resolve().parents[1] / "bundled",
)

"""CIFAR-10 and CIFAR-100, from the authors' Python or binary version, unpacked or still in the archive.

Recipes: "heterofl" (crops of 32 after padding by 4, mirrored at random; the deviations of that paper's
code), "flanc" (the same augmentation, its own constants), "plain" (own mean and deviation, no augmentation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.preprocess import CropFlip, Normalise, Recipe
from potluck.data.readers.cifar import read_batch, read_records
from potluck.data.readers.files import packed_or_not, read_bytes, read_members
from potluck.data.sources.source import About, Download, Layout, Source

SITE = "https://www.cs.toronto.edu/~kriz/"
LICENCE = "none stated by the authors; research use, cite Krizhevsky 2009"
FLANC = Recipe(
    Normalise(mean=(125.3 / 255, 123.0 / 255, 113.9 / 255), std=(63.0 / 255, 62.1 / 255, 66.7 / 255)), CropFlip()
)


@dataclass(frozen=True)
class Version:
    """One of the formats in which the authors give a set away."""

    folder: str
    train: dict[str, str]  # file name to published checksum
    test: dict[str, str]
    archive: str
    archive_checksum: str
    parse: Callable[[bytes | bytearray, Path], tuple[Tensor, Tensor]]
    classes: int

    def layouts(self) -> tuple[Layout, Layout]:
        """Unpacked, and as the archive."""
        return (
            Layout(self.folder, {**self.train, **self.test}, partial(read, version=self)),
            Layout("", {self.archive: self.archive_checksum}, partial(read_packed, version=self)),
        )


def read(folder: Path, version: Version) -> Dataset:
    """The batches of a folder."""
    files = [packed_or_not(folder / name) for name in (*version.train, *version.test)]
    return assemble([version.parse(read_bytes(path), path) for path in files], files, version)


def read_packed(root: Path, version: Version) -> Dataset:
    """The batches inside the archive."""
    archive = root / version.archive
    names = [f"{version.folder}/{name}" for name in (*version.train, *version.test)]
    files = [archive / name for name in names]
    contents = read_members(archive, names)
    return assemble(
        [version.parse(content, path) for content, path in zip(contents, files, strict=True)], files, version
    )


def assemble(parts: list[tuple[Tensor, Tensor]], files: list[Path], version: Version) -> Dataset:
    """Training batches joined; the last part is the test set. Batches of one set are all of one size."""
    *train, test = parts
    sizes = [len(labels) for _, labels in train]
    for size, file in zip(sizes, files, strict=False):
        if size != max(sizes):
            raise DataError(f"{file} is truncated: {size} images, but another batch has {max(sizes)}")
    images, labels = (torch.cat(tensors) for tensors in zip(*train, strict=True))
    return Dataset(Arrays(images, labels), Arrays(*test), version.classes)


CIFAR10_PYTHON = Version(
    folder="cifar-10-batches-py",
    train={
        "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
        "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
        "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "md5:40351d587109b95175f43aff81a1287e"},
    archive="cifar-10-python.tar.gz",
    archive_checksum="md5:c58f30108f718f92721af3b95e74349a",
    parse=partial(read_batch, key="labels", classes=10),
    classes=10,
)
CIFAR10_BINARY = Version(
    folder="cifar-10-batches-bin",
    train={
        "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    },
    test={"test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
    archive="cifar-10-binary.tar.gz",
    archive_checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
    parse=partial(read_records, label_bytes=1, classes=10),
    classes=10,
)
CIFAR100_PYTHON = Version(
    folder="cifar-100-python",
    train={"train": "md5:16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"},
    archive="cifar-100-python.tar.gz",
    archive_checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
    parse=partial(read_batch, key="fine_labels", classes=100),
    classes=100,
)
CIFAR100_BINARY = Version(
    folder="cifar-100-binary",
    train={"train.bin": "md5:6172c7755cfe09b2fe270c85cebc1b15"},
    test={"test.bin": "md5:4499cfba6c016c1be1438163640a0898"},
    archive="cifar-100-binary.tar.gz",
    archive_checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
    parse=partial(read_records, label_bytes=2, classes=100),
    classes=100,
)

CIFAR10 = Source(
    about=About(
        name="cifar10",
        title="CIFAR-10 photographs, 32x32",
        licence=LICENCE,
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        examples=(50_000, 10_000),
        inputs="float32:3x32x32",
        classes=CIFAR10_PYTHON.classes,
        downloads=(
            Download(
                SITE + CIFAR10_PYTHON.archive, CIFAR10_PYTHON.archive, CIFAR10_PYTHON.archive_checksum, unpack=True
            ),
        ),
    ),
    layouts=(*CIFAR10_PYTHON.layouts(), *CIFAR10_BINARY.layouts()),
    recipes={
        "heterofl": Recipe(Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)), CropFlip()),
        "flanc": FLANC,
        "plain": Recipe(Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))),
    },
)

CIFAR100 = Source(
    about=About(
        name="cifar100",
        title="CIFAR-100 photographs, 32x32",
        licence=LICENCE,
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        examples=(50_000, 10_000),
        inputs="float32:3x32x32",
        classes=CIFAR100_PYTHON.classes,
        downloads=(
            Download(
                SITE + CIFAR100_PYTHON.archive, CIFAR100_PYTHON.archive, CIFAR100_PYTHON.archive_checksum, unpack=True
            ),
        ),
    ),
    layouts=(*CIFAR100_PYTHON.layouts(), *CIFAR100_BINARY.layouts()),
    recipes={
        "crop-flip": Recipe(Normalise(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)), CropFlip()),
        "flanc": FLANC,
        "plain": Recipe(Normalise(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))),
    },
)

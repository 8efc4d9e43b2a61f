"""Tiny-ImageNet-200: folders of 64x64 JPEG files, decoded once and then kept beside them if that can be written.

The test examples are the 10,000 validation images: the test labels were never published.
Classes are numbered in order of their WordNet identifiers.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.preprocess import CropFlip, Normalise, Recipe
from potluck.data.readers.files import read_text
from potluck.data.readers.images import images_in, stack_files
from potluck.data.sources.source import About, Download, Layout, Source

CACHE = "potluck-decoded.safetensors"
CONSTANTS = Normalise(mean=(0.4802, 0.4481, 0.3975), std=(0.2770, 0.2691, 0.2821))
Labelled = list[tuple[Path, int]]


def read(folder: Path) -> Dataset:
    """The images of a folder, from the cache if it is of the same files."""
    classes = sorted(place.name for place in (folder / "train").iterdir() if place.is_dir())
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folders")
    train, test = training_files(folder, classes), validation_files(folder, classes)
    names = "\n".join(f"{path.relative_to(folder)} {label}" for path, label in train + test)
    key = hashlib.sha256(names.encode()).hexdigest()
    tensors = read_cache(folder / CACHE, key)
    if tensors is None:
        tensors = {**decoded("train", train), **decoded("test", test)}
        write_cache(folder / CACHE, tensors, key)
    return Dataset(
        train=Arrays(tensors["train_images"], tensors["train_labels"]),
        test=Arrays(tensors["test_images"], tensors["test_labels"]),
        classes=len(classes),
    )


def training_files(folder: Path, classes: list[str]) -> Labelled:
    """train/<class>/images/*.JPEG."""
    files = [(path, label) for label, name in enumerate(classes) for path in class_images(folder / "train" / name)]
    if not files:
        raise DataError(f"{folder / 'train'} has no images")
    return files


def class_images(place: Path) -> list[Path]:
    """The images of one class."""
    inner = place / "images"
    if not inner.is_dir():
        raise DataError(f"{inner} is missing: train must hold one folder per class with 'images' in it")
    return images_in(inner)


def validation_files(folder: Path, classes: list[str]) -> Labelled:
    """val/images, labelled by val/val_annotations.txt: file, class, and a box that is not used."""
    annotations = folder / "val" / "val_annotations.txt"
    labels = {name: label for label, name in enumerate(classes)}
    files = []
    for line in read_text(annotations).splitlines():
        name, _, rest = line.partition("\t")
        wordnet = rest.partition("\t")[0]
        if wordnet not in labels:
            raise DataError(f"{annotations} gives {name} the class '{wordnet}', which train does not have")
        files.append((folder / "val" / "images" / name, labels[wordnet]))
    if not files:
        raise DataError(f"{annotations} is empty")
    return files


def decoded(part: str, files: Labelled) -> dict[str, Tensor]:
    """Images and labels by the names they have in the cache."""
    return {
        f"{part}_images": stack_files([path for path, _ in files], colour=True),
        f"{part}_labels": torch.tensor([label for _, label in files]),
    }


def read_cache(path: Path, key: str) -> dict[str, Tensor] | None:
    """The decoded images, unless there are none yet, of other files, or damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as cache:
            if (cache.metadata() or {}).get("files") != key:
                return None
            return {name: cache.get_tensor(name) for name in cache.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        return None


def write_cache(path: Path, tensors: dict[str, Tensor], key: str) -> None:
    """Keep the decoded images, if the folder can be written."""
    if not os.access(path.parent, os.W_OK):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, temporary, {"files": key})
        temporary.replace(path)
    except (OSError, SafetensorError):  # a full disk costs the cache, not the data
        temporary.unlink(missing_ok=True)


TINY_IMAGENET = Source(
    about=About(
        name="tiny-imagenet",
        title="Tiny-ImageNet-200 photographs, 64x64",
        licence="ImageNet's terms: non-commercial research and education",
        homepage="http://cs231n.stanford.edu/",
        examples=(100_000, 10_000),
        downloads=(
            Download(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                unpack=True,
            ),
        ),
        note="reading it needs Pillow: pip install 'potluck[images]'",
    ),
    layouts=(Layout("tiny-imagenet-200", {"train": "", "val/val_annotations.txt": ""}, read),),
    recipes={"crop-flip": Recipe(CONSTANTS, CropFlip()), "plain": Recipe(CONSTANTS)},
)

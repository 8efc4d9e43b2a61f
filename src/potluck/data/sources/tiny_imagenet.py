"""Tiny-ImageNet-200: folders of 64x64 JPEG files, decoded once and then kept beside them if that can be written.

The test examples are the 10,000 validation images: the test labels were never published.
Classes are numbered in order of their WordNet identifiers.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.preprocess import CropFlip, Normalise, Recipe
from potluck.data.readers.files import read_text
from potluck.data.readers.images import MOST_PIXELS, images_in, stack_files
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
    key = hashlib.sha256(os.fsencode(names)).hexdigest()
    images = read_cache(folder / CACHE, key, {"train": len(train), "test": len(test)})
    if images is None:
        images = {part: stack_files(paths_of(files), colour=True) for part, files in (("train", train), ("test", test))}
        write_cache(folder / CACHE, images, key)
    return Dataset(
        train=Arrays(images["train"], labels_of(train)),
        test=Arrays(images["test"], labels_of(test)),
        classes=len(classes),
    )


def paths_of(files: Labelled) -> list[Path]:
    """The files without their labels."""
    return [path for path, _ in files]


def labels_of(files: Labelled) -> Tensor:
    """The labels without their files."""
    return torch.tensor([label for _, label in files])


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
        if name in ("", ".", "..") or Path(name).name != name or "\0" in name:
            raise DataError(f"{annotations} has a line that does not begin with the name of a file: {line[:80]!r}")
        if wordnet not in labels:
            raise DataError(f"{annotations} gives {name[:80]} the class '{wordnet[:80]}', which train does not have")
        files.append((folder / "val" / "images" / name, labels[wordnet]))
    if not files:
        raise DataError(f"{annotations} is empty")
    return files


def read_cache(path: Path, key: str, counts: dict[str, int]) -> dict[str, Tensor] | None:
    """The decoded images, unless there are none yet, of other files, or damaged."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as cache:
            if (cache.metadata() or {}).get("files") != key or not fits(cache, counts):
                return None
            return {name: cache.get_tensor(name) for name in cache.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        return None


def fits(cache: Any, counts: dict[str, int]) -> bool:
    """Whether a cache has as many images as there are files; nothing is read yet."""
    if set(cache.keys()) != set(counts):
        return False
    for part, count in counts.items():
        shape = cache.get_slice(part).get_shape()
        if cache.get_slice(part).get_dtype() != "U8" or len(shape) != 4 or shape[:2] != [count, 3]:
            return False
        if shape[2] * shape[3] > MOST_PIXELS:
            return False
    return True


def write_cache(path: Path, images: dict[str, Tensor], key: str) -> None:
    """Keep the decoded images, if the folder can be written."""
    if not os.access(path.parent, os.W_OK):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(images, temporary, {"files": key})
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
        inputs="float32:3x64x64",
        classes=200,
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

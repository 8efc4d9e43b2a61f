"""Folders with one sub-folder of images per class."""

from __future__ import annotations

from pathlib import Path

import torch

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.columns.checked import arrays_of
from potluck.data.columns.pictures import Pictures
from potluck.data.items import collect
from potluck.data.readers.images import images_in, look, stack_files


def from_folder(folder: Path) -> Arrays:
    """The images of a folder; classes are numbered in the order of their names.

    They are decoded once, or when a batch asks for them if their pixels would not fit in memory.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    classes = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    files = [(path, label) for label, place in enumerate(classes) for path in images_in(place)]
    if not files:
        raise DataError(f"{folder} holds no images: it needs one sub-folder per class with image files in it")
    labels = torch.tensor([label for _, label in files])
    paths, names = [path for path, _ in files], tuple(place.name for place in classes)
    (width, height), coloured = look(paths[0])
    if len(paths) * width * height * (3 if coloured else 1) <= collect.MOST_BYTES:
        return arrays_of(stack_files(paths), labels, str(folder), names)
    first = paths[0], (width, height)
    looks = [look(path, first) for path in paths]  # all of them: another size should be found now
    coloured = any(has_colour for _, has_colour in looks)
    return arrays_of(Pictures(tuple(paths), (width, height), coloured), labels, str(folder), names)

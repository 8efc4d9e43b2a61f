"""Tiny-ImageNet's folders of JPEG files, and what is kept of them once decoded."""

import os
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.readers import images
from potluck.data.sources.tiny_imagenet import CACHE

pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* of the")


@pytest.fixture
def tree(tmp_path):
    """Two classes of two images each, one of them grey, and three validation images."""
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    root = tmp_path / "tiny-imagenet-200"
    save = lambda path, value: image.fromarray(np.full((64, 64, *value), 40, np.uint8)).save(path)  # noqa: E731
    for wordnet in ("n02", "n01"):
        folder = root / "train" / wordnet / "images"
        folder.mkdir(parents=True)
        save(folder / f"{wordnet}_0.JPEG", (3,))
        save(folder / f"{wordnet}_1.JPEG", ())
    (root / "val" / "images").mkdir(parents=True)
    for number in range(3):
        image.fromarray(np.full((64, 64, 3), 100 * number, np.uint8)).save(
            root / "val" / "images" / f"val_{number}.JPEG"
        )
    rows = [f"val_{number}.JPEG\t{wordnet}\t0\t0\t62\t62\n" for number, wordnet in enumerate(("n02", "n01", "n02"))]
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    return root


def test_folders_are_read(tree):
    data = sources.load("tiny-imagenet", tree.parent)
    assert data.classes == 2
    assert data.train.inputs.shape == (4, 3, 64, 64)
    assert data.train.targets.tolist() == [0, 0, 1, 1]
    assert data.test.targets.tolist() == [1, 0, 1]
    assert (data.test.inputs.float().mean((1, 2, 3)) - torch.tensor([0.0, 100, 200])).abs().max() < 2


def test_decoded_images_are_kept_and_used(tree, monkeypatch):
    first = sources.load("tiny-imagenet", tree.parent)
    assert (tree / CACHE).exists()
    monkeypatch.setattr(images, "decode", lambda path, colour: pytest.fail("decoded again"))
    second = sources.load("tiny-imagenet", tree.parent)
    assert torch.equal(first.train.inputs, second.train.inputs)


def test_other_files_or_a_damaged_cache_are_decoded_again(tree):
    sources.load("tiny-imagenet", tree.parent)
    (tree / "train" / "n01" / "images" / "n01_1.JPEG").unlink()
    assert len(sources.load("tiny-imagenet", tree.parent).train) == 3
    (tree / CACHE).write_bytes(b"damaged")
    assert len(sources.load("tiny-imagenet", tree.parent).train) == 3


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tree, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert len(sources.load("tiny-imagenet", tree.parent).train) == 4
    assert not (tree / CACHE).exists()


def test_damaged_image_is_named(tree):
    path = tree / "train" / "n01" / "images" / "n01_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match=r"n01_0\.JPEG is truncated or no image"):
        sources.load("tiny-imagenet", tree.parent)


def test_unknown_class_is_named(tree):
    (tree / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\t0\t0\t1\t1\n")
    with pytest.raises(DataError, match=r"gives val_0\.JPEG the class 'n99', which train does not have"):
        sources.load("tiny-imagenet", tree.parent)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"pip install 'potluck\[images\]'"):
        images.decode(tmp_path / "a.png")


def other_cache(tree, change):
    """Load from a cache that has the right key and something else inside."""
    first = sources.load("tiny-imagenet", tree.parent)
    with safe_open(tree / CACHE, framework="pt") as cache:
        metadata, tensors = cache.metadata(), {name: cache.get_tensor(name) for name in cache.keys()}  # noqa: SIM118
    save_file(change(tensors), tree / CACHE, metadata)
    return first, sources.load("tiny-imagenet", tree.parent)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {},
        lambda tensors: {"train": tensors["train"]},
        lambda tensors: {**tensors, "more": torch.zeros(1)},
        lambda tensors: {**tensors, "train": tensors["train"][1:]},
        lambda tensors: {**tensors, "train": tensors["train"].float()},
        lambda tensors: {**tensors, "test": tensors["test"][:, :1].contiguous()},
        lambda tensors: {**tensors, "test": torch.zeros(3, dtype=torch.uint8)},
    ],
)
def test_a_cache_with_other_things_inside_is_not_used(tree, change):
    first, second = other_cache(tree, change)
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.test.inputs, second.test.inputs)


def test_labels_come_from_the_files_not_from_the_cache(tree):
    first, second = other_cache(tree, lambda tensors: tensors)
    assert first.train.targets.tolist() == second.train.targets.tolist() == [0, 0, 1, 1]

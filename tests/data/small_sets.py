"""Small data sets of every kind, as they lie on disk."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Rng = np.random.Generator
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "tis", "nobler", "in", "mind"]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist(root: Path, rng: Rng, packed: bool) -> None:
    folder = root / "MNIST/raw"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        images, labels = rng.integers(0, 256, (20, 28, 28), np.uint8), rng.integers(0, 10, 20, np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            content = idx(array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)


def cifar(root: Path, rng: Rng, packed: bool) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name in BATCHES:
        batch = {
            b"data": rng.integers(0, 256, (8, 3072), np.uint8),
            b"labels": rng.integers(0, 10, 8).tolist(),
            b"filenames": [b"cat_%d.png" % number for number in range(8)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=4 if name == "data_batch_1" else 2))
    if packed:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            tar.add(folder, folder.name)
        (root / "cifar-10-python.tar.gz").write_bytes(content.getvalue())
        for name in BATCHES:
            (folder / name).unlink()


def cifar_records(root: Path, rng: Rng) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    for name in ("train.bin", "test.bin"):
        records = rng.integers(0, 256, (8, 3074), np.uint8)
        records[:, :2] %= 20
        (folder / name).write_bytes(records.tobytes())


def tiny_imagenet(root: Path, rng: Rng) -> None:
    from PIL import Image

    folder = root / "tiny-imagenet-200"
    (folder / "val/images").mkdir(parents=True)
    lines = []
    for kind, suffix in (("n01", "JPEG"), ("n02", "png")):
        (folder / "train" / kind / "images").mkdir(parents=True)
        for number in range(3):
            pixels = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
            pixels.save(folder / "train" / kind / "images" / f"{number}.{suffix}")
        pixels.save(folder / "val/images" / f"{kind}.{suffix}")
        lines.append(f"{kind}.{suffix}\t{kind}\t0\t0\t62\t62\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))


def speech(rng: Rng, words: int) -> str:
    return " ".join(rng.choice(WORDS, words))


def roles(root: Path, rng: Rng) -> None:
    (root / "shakespeare").mkdir()
    texts = {f"ROLE_{number}": {"text": speech(rng, 200) + " "} for number in range(3)}
    (root / "shakespeare/roles.json").write_text(json.dumps(texts))


def leaf(root: Path, rng: Rng) -> None:
    for part in ("train", "test"):
        folder = root / "shakespeare/data" / part
        folder.mkdir(parents=True)
        text = speech(rng, 100)
        windows = {"x": [text[at : at + 80] for at in range(50)], "y": [text[at + 80] for at in range(50)]}
        (folder / "all.json").write_text(json.dumps({"user_data": {"ROMEO": windows}}))


def plays(root: Path, rng: Rng) -> None:
    (root / "shakespeare").mkdir()
    lines = ["HAMLET", "", "by William Shakespeare", ""]
    for role in ("HAMLET", "GHOST"):
        lines += [f"  {role}. {speech(rng, 5)}", *(f"    {speech(rng, 8)}" for _ in range(30))]
    (root / "shakespeare/pg100.txt").write_text("\n".join(lines))


def wikitext(root: Path, rng: Rng) -> None:
    (root / "wikitext-2").mkdir()
    for name, words in (("train.txt", 6500), ("test.txt", 700)):
        (root / "wikitext-2" / name).write_text(speech(rng, words).replace("question", "question \n"))


KINDS: dict[str, tuple[str, Callable[[Path, Rng], None]]] = {
    "idx": ("mnist", lambda root, rng: mnist(root, rng, packed=False)),
    "idx.gz": ("mnist", lambda root, rng: mnist(root, rng, packed=True)),
    "pickles": ("cifar10", lambda root, rng: cifar(root, rng, packed=False)),
    "tar.gz": ("cifar10", lambda root, rng: cifar(root, rng, packed=True)),
    "records": ("cifar100", cifar_records),
    "images": ("tiny-imagenet", tiny_imagenet),
    "roles": ("shakespeare", roles),
    "leaf": ("shakespeare", leaf),
    "plays": ("shakespeare", plays),
    "tokens": ("wikitext2", wikitext),
}
"""What lies on disk: the source that reads it, and how it is made."""

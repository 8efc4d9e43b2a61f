"""MNIST and Fashion-MNIST, in the idx files of their authors, as torchvision keeps them.

Recipes: "plain" is the set's own mean and deviation without augmentation (for MNIST also HeteroFL's);
"flanc" normalises Fashion-MNIST with MNIST's constants and mirrors, as that paper's code does.
"""

from __future__ import annotations

from pathlib import Path

from potluck.core.data import Arrays
from potluck.data.dataset import Dataset
from potluck.data.preprocess import Flip, Normalise, Recipe
from potluck.data.readers.idx import read_pair
from potluck.data.sources.source import About, Download, Layout, Source

CLASSES = 10
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_CONSTANTS = Normalise(mean=(0.1307,), std=(0.3081,))


def read(folder: Path) -> Dataset:
    """The four idx files of a folder."""
    train = read_pair(folder, FILES[0], FILES[1], CLASSES)
    test = read_pair(folder, FILES[2], FILES[3], CLASSES)
    return Dataset(Arrays(*train), Arrays(*test), CLASSES)


def layouts(folders: tuple[str, ...], sha256: tuple[str, ...]) -> tuple[Layout, ...]:
    """The same four files in any of these folders; the checksums are those of the unpacked files."""
    files = {name: f"sha256:{digits}" for name, digits in zip(FILES, sha256, strict=True)}
    return tuple(Layout(folder, files, read) for folder in folders)


def downloads(site: str, folder: str, md5: tuple[str, ...]) -> tuple[Download, ...]:
    """The four packed files, with the checksums that torchvision publishes."""
    return tuple(
        Download(f"{site}{name}.gz", f"{folder}/{name}.gz", f"md5:{digits}")
        for name, digits in zip(FILES, md5, strict=True)
    )


MNIST = Source(
    about=About(
        name="mnist",
        title="MNIST handwritten digits, 28x28",
        licence="copyright Yann LeCun and Corinna Cortes; commonly given as CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        examples=(60_000, 10_000),
        inputs="float32:1x28x28",
        classes=CLASSES,
        downloads=downloads(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "MNIST/raw",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
    ),
    layouts=layouts(
        ("MNIST/raw", "mnist"),
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    recipes={"plain": Recipe(MNIST_CONSTANTS), "heterofl": Recipe(MNIST_CONSTANTS)},
)

FASHION_MNIST = Source(
    about=About(
        name="fashion-mnist",
        title="Fashion-MNIST articles of clothing, 28x28",
        licence="MIT (Zalando SE, 2017)",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        examples=(60_000, 10_000),
        inputs="float32:1x28x28",
        classes=CLASSES,
        downloads=downloads(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "FashionMNIST/raw",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    ),
    layouts=layouts(
        ("FashionMNIST/raw", "fashion-mnist"),
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    recipes={
        "plain": Recipe(Normalise(mean=(0.2860,), std=(0.3530,))),
        "flanc": Recipe(MNIST_CONSTANTS, Flip()),
    },
)

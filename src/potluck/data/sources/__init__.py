"""Where data sets come from: find them on disk, check them, load them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.core.plug import unknown
from potluck.data.dataset import Dataset
from potluck.data.preprocess import Recipe
from potluck.data.sources.cifar import CIFAR10, CIFAR100
from potluck.data.sources.digits import DIGITS
from potluck.data.sources.find import locate
from potluck.data.sources.mnist import FASHION_MNIST, MNIST
from potluck.data.sources.shakespeare import SHAKESPEARE
from potluck.data.sources.source import About, Download, Layout, Source
from potluck.data.sources.survey import Found, survey_of
from potluck.data.sources.tiny_imagenet import TINY_IMAGENET
from potluck.data.sources.wikitext2 import WIKITEXT2

__all__ = ["About", "Download", "Found", "about", "catalogue", "find", "load", "recipes", "survey"]

SOURCES = {
    source.about.name: source
    for source in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, TINY_IMAGENET, SHAKESPEARE, WIKITEXT2)
}


def load(name: str, root: Path | str | None = None, *, recipe: str | None = None) -> Dataset:
    """A data set by name, from `root` or the folder that POTLUCK_DATA names.

    A recipe says how images are normalised and augmented (`recipes` lists a source's; the first is the default).

    >>> digits = load("digits")
    >>> len(digits.train), len(digits.test), digits.classes
    (1442, 355, 10)
    """
    source = source_of(name)
    chosen = recipe_of(source, recipe)
    layout, place = locate(source, root)
    dataset = read_from(layout, place)
    warn_if_incomplete(dataset, source.about, place)
    if chosen is None or not isinstance(dataset.train, Arrays) or not isinstance(dataset.test, Arrays):
        return dataset
    return replace(
        dataset,
        train=replace(dataset.train, prepare=chosen.prepare, augment=chosen.augment),
        test=replace(dataset.test, prepare=chosen.prepare),
    )


def read_from(layout: Layout, place: Path) -> Dataset:
    """A data set from its place, if that can be read at all."""
    try:
        return layout.read(place)
    except OSError as error:
        raise DataError(f"cannot read {error.filename or place}: {error.strerror or error}") from error
    except MemoryError as error:
        raise DataError(f"{place} does not fit in memory") from error


def find(name: str, root: Path | str | None = None) -> Path:
    """The folder a data set lies in."""
    return locate(source_of(name), root)[1]


def about(name: str) -> About:
    """What a data set is, by name."""
    return source_of(name).about


def recipes(name: str) -> tuple[str, ...]:
    """The recipes a source has, the default one first.

    >>> recipes("cifar10")
    ('heterofl', 'flanc', 'plain')
    """
    return tuple(source_of(name).recipes)


def catalogue() -> list[About]:
    """Every data set there is."""
    return [source.about for source in SOURCES.values()]


def survey(root: Path | str | None = None) -> list[Found]:
    """Of every data set: where it is, how big, whether it is what was published, how to get it if missing."""
    return survey_of(SOURCES.values(), root)


def source_of(name: str) -> Source:
    """A source by name."""
    if name not in SOURCES:
        raise DataError(unknown("data set", name, SOURCES))
    return SOURCES[name]


def recipe_of(source: Source, name: str | None) -> Recipe | None:
    """The recipe of that name, or the default one; texts have none."""
    if name is None:
        return next(iter(source.recipes.values()), None)
    if name not in source.recipes:
        known = f"it has {', '.join(source.recipes)}" if source.recipes else "it has none"
        raise DataError(f"{source.about.name} has no recipe '{name}'; {known}")
    return source.recipes[name]


def warn_if_incomplete(dataset: Dataset, about: About, place: Path) -> None:
    """A part of a data set can be used, but nobody should do so unknowingly."""
    sizes = (len(dataset.train), len(dataset.test))
    for part, size, complete in zip(("training", "test"), sizes, about.examples or sizes, strict=True):
        if size < complete:
            warnings.warn(f"{place} holds {size:,} of the {complete:,} {part} examples of {about.name}", stacklevel=3)

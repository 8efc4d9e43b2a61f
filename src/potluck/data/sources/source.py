"""What a source of data says of itself: what it is, where it may lie on disk, how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from potluck.data.dataset import Dataset
from potluck.data.preprocess import Recipe


@dataclass(frozen=True)
class Download:
    """A file to get from the web."""

    url: str
    path: str  # below the data folder
    checksum: str = ""  # as published, "md5:…" or "sha256:…"; empty if nobody published one
    unpack: bool = False


@dataclass(frozen=True)
class About:
    """A data set in words and numbers."""

    name: str
    title: str
    licence: str
    homepage: str
    examples: tuple[int, int] | None = None  # training and test examples of the complete set, if that is fixed
    downloads: tuple[Download, ...] = ()
    note: str = ""
    inputs: str = ""  # the type and shape of an input, such as "float32:3x32x32"
    classes: int = 0
    owners: int = 0  # how many the training examples came from
    usual: int = 0  # training examples, where the complete set is not the same everywhere

    @property
    def training(self) -> int:
        """How many training examples there are, or there usually are."""
        return self.usual if self.examples is None else self.examples[0]

    @property
    def how_to_get(self) -> str:
        """What to do when it is missing."""
        if not self.downloads:
            return self.note
        places = ", ".join(dict.fromkeys(download.url.rpartition("/")[0] + "/" for download in self.downloads))
        how = f"run `potluck data fetch {self.name}` (from {places})"
        return f"{how}; {self.note}" if self.note else how


@dataclass(frozen=True)
class Layout:
    """One way in which the data lies on disk. A file may also be there with `.gz` added to its name."""

    folder: str  # below the data folder
    files: Mapping[str, str]  # every one must be there; name to the checksum of its content, empty if unknown
    read: Callable[[Path], Dataset]  # from the folder to examples as they are, without a recipe


@dataclass(frozen=True)
class Source:
    """A data set that can be found and read; its first recipe is the default one."""

    about: About
    layouts: tuple[Layout, ...]
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    home: Path | None = None  # where it is if it comes with the package

"""Shakespeare by speaking role: 80 characters in, the next one out; every role is somebody's data.

Read from a text of Project Gutenberg's EBook 100 (1994 edition) by LEAF's rules, from the text files or the
JSON that LEAF's scripts leave, or from one JSON of all roles. LEAF's default is taken for the split: the
first 80 % of a role's windows, in time, are for training; the next 79 overlap them and are left out;
the rest is for testing.

Departures: LEAF drops a role that is too short to have test windows; here it keeps its training windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.readers.files import read_json, read_text
from potluck.data.readers.leaf import join_windows, read_users
from potluck.data.readers.roles import one_line, split_by_role
from potluck.data.sources.source import About, Download, Layout, Source
from potluck.data.sources.windows import Windows

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80
TRAIN_SHARE = 0.8
UNKNOWN = 255

CODES = np.full(256, UNKNOWN, np.uint8)
CODES[np.frombuffer(LETTERS.encode("latin-1"), np.uint8)] = np.arange(len(LETTERS))


def encode(text: str, role: str, path: Path) -> Tensor:
    """Every character as its number in `LETTERS`."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = CODES[np.minimum(points, UNKNOWN)]
    strange = codes == UNKNOWN
    if strange.any():
        symbol = text[int(strange.argmax())]
        raise DataError(f"{path}: role {role[:80]} has {symbol!r}, which is not one of LEAF's {len(LETTERS)} symbols")
    return torch.from_numpy(codes)


@dataclass(frozen=True)
class Role:
    """What one role says, and where in it the windows begin."""

    text: Tensor
    train: Tensor
    test: Tensor


def roles_of(texts: Mapping[str, str], path: Path) -> Iterator[Role]:
    """Roles from their texts, with LEAF's split; one too short for a window is none."""
    for name, text in texts.items():
        windows = len(text) - LENGTH
        if windows > 0:
            train = max(1, int(TRAIN_SHARE * windows))
            clear = min(train + LENGTH - 1, windows)
            yield Role(encode(text, name, path), torch.arange(train), torch.arange(clear, windows))


def assemble(roles: Iterator[Role], path: Path) -> Dataset:
    """All roles in one text, each the owner of its windows."""
    held = list(roles)
    if not held:
        raise DataError(f"{path} has no role with more than {LENGTH} characters")
    begins = np.cumsum([0, *(len(role.text) for role in held[:-1])]).tolist()
    text = torch.cat([role.text for role in held])
    train = [role.train + begin for role, begin in zip(held, begins, strict=True)]
    test = [role.test + begin for role, begin in zip(held, begins, strict=True)]
    if not any(len(starts) for starts in test):
        raise DataError(f"{path} has no role long enough to be tested on after its first {TRAIN_SHARE:.0%}")
    return Dataset(
        train=Windows(text, torch.cat(train), LENGTH),
        test=Windows(text, torch.cat(test), LENGTH),
        classes=len(LETTERS),
        goal="next-token",
        owners=torch.arange(len(held)).repeat_interleave(torch.tensor([len(starts) for starts in train])),
    )


def read_roles(folder: Path) -> Dataset:
    """One JSON object of roles, each with its "text"."""
    path = folder / "roles.json"
    content = read_json(path)
    try:
        texts = {name: one_line([role["text"]]) for name, role in content.items()}  # type: ignore[attr-defined]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not an object of roles with a 'text' each") from error
    return assemble(roles_of(texts, path), path)


def read_plays(path: Path) -> Dataset:
    """The whole of EBook 100."""
    return assemble(roles_of(split_by_role(read_text(path)), path), path)


def read_role_files(folder: Path) -> Dataset:
    """One text file per role, as LEAF's first script leaves them."""
    place = folder / "by_play_and_character"
    texts = {
        path.stem: one_line(read_text(path).removesuffix("\n").split("\n")) for path in sorted(place.glob("*.txt"))
    }
    return assemble(roles_of(texts, place), place)


def read_leaf(folder: Path) -> Dataset:
    """LEAF's own train and test windows."""
    return assemble(leaf_roles(folder), folder)


def leaf_roles(folder: Path) -> Iterator[Role]:
    """The users of LEAF's training files, each with what the test files have of it."""
    test_users = read_users(folder / "test")
    for name, samples in read_users(folder / "train").items():
        tested = test_users.get(name, [])
        if not samples:
            continue
        if any(len(window) != LENGTH or len(following) != 1 for window, following in samples + tested):
            raise DataError(f"{folder}: {name[:80]} has a window that is not {LENGTH} characters and the next one")
        train_text, train = join_windows(samples)
        test_text, test = join_windows(tested)
        text = encode(train_text + test_text, name, folder)
        yield Role(text, torch.tensor(train), torch.tensor(test, dtype=torch.long) + len(train_text))


SHAKESPEARE = Source(
    about=About(
        name="shakespeare",
        title="Shakespeare's plays by speaking role, windows of 80 characters",
        licence="plays in the public domain; this 1994 edition copyright World Library, Inc., for personal use only",
        homepage="https://github.com/TalwalkarLab/leaf",
        inputs=f"int64:{LENGTH}",
        classes=len(LETTERS),
        owners=1129,
        usual=3_380_481,
        downloads=(
            Download(
                "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
                "shakespeare/1994-01-100.zip",
                unpack=True,
            ),
        ),
        note="or run LEAF's data/shakespeare/preprocess.sh and copy its data folder to shakespeare/data",
    ),
    layouts=(
        Layout("shakespeare/data", {"train": "", "test": ""}, read_leaf),
        Layout("shakespeare", {"roles.json": ""}, read_roles),
        Layout("shakespeare/data/raw_data", {"by_play_and_character": ""}, read_role_files),
        Layout("shakespeare", {"pg100.txt": ""}, lambda folder: read_plays(folder / "pg100.txt")),
        Layout("shakespeare", {"100.txt": ""}, lambda folder: read_plays(folder / "100.txt")),
    ),
)

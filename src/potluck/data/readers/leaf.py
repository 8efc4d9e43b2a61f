"""LEAF's JSON: per user a list of 80-character windows and of the characters that follow."""

from __future__ import annotations

from pathlib import Path

from potluck.core.errors import DataError
from potluck.data.readers.files import read_json

Samples = list[tuple[str, str]]


def read_users(folder: Path) -> dict[str, Samples]:
    """The (window, next character) pairs of every user in the folder's JSON files, in order of name."""
    users: dict[str, Samples] = {}
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder} holds no .json file")
    for path in files:
        content = read_json(path)
        try:
            for user, data in content["user_data"].items():  # type: ignore[index]
                samples = list(zip(data["x"], data["y"], strict=True))
                if not all(isinstance(text, str) for sample in samples for text in sample):
                    raise TypeError("a window that is no text")
                users.setdefault(user, []).extend(samples)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(
                f"{path} is not what LEAF writes: no matching lists of texts 'x' and 'y' in 'user_data'"
            ) from error
    return dict(sorted(users.items()))


def join_windows(samples: Samples) -> tuple[str, list[int]]:
    """One text that holds every window, and where each begins: one that follows on from the last adds one character."""
    pieces: list[str] = []
    starts: list[int] = []
    length, tail = 0, ""
    for window, following in samples:
        if window == tail:
            pieces.append(following)
            starts.append(length - len(window))
            length += 1
        else:
            pieces += [window, following]
            starts.append(length)
            length += len(window) + 1
        tail = window[1:] + following
    return "".join(pieces), starts

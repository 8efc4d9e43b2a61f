"""A grid of settings: every combination of values is one run."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from potluck.core.errors import ConfigError
from potluck.series.entry import Entry
from potluck.study.config import LONGEST_NAME, apply_override, parse_toml, read_text, value_of
from potluck.study.schema import shown

RANGE = re.compile(r"(\d+)-(\d+)")
MOST = 100_000  # runs in a grid
OPENING, CLOSING, QUOTES = "[{", "]}", "\"'"


def entries_of_grid(path: Path, overrides: Sequence[str], grid: Sequence[str]) -> list[Entry]:
    """The runs of a config at every point of a grid of settings, such as `train.lr=0.01,0.03` and `seed=0-4`."""
    axes = [axis_of(text) for text in grid]
    keys = [key for key, _ in axes]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"--grid has the same setting twice ({', '.join(keys)}); give all of its values at once")
    if math.prod(len(values) for _, values in axes) > MOST:
        raise ConfigError(f"--grid has more than {MOST:,} points; leave some out")
    base = parse_toml(read_text(path), f"{path} is not valid TOML")
    for override in overrides:
        apply_override(base, override)
    base.setdefault("name", path.stem)
    found = []
    for values in itertools.product(*(values for _, values in axes)):
        table = deepcopy(base)
        for key, value in zip(keys, values, strict=True):
            apply_override(table, f"{key}={value}")
        found.append(Entry(point_name(keys, values), table))
    require_names([entry.name for entry in found])
    return found


def require_names(names: Sequence[str]) -> None:
    """Refuse names that two points would share, or that no folder can have."""
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ConfigError(f"two points of the grid would be saved as {name}; sweep them one after the other")
    if too_long := [name for name in names if len(name.encode()) > LONGEST_NAME]:
        raise ConfigError(
            f"a point of the grid would be saved as {shown(too_long[0])}, but a folder's name should have at most "
            f"{LONGEST_NAME} bytes; put what is long into the config, and sweep the rest"
        )


def axis_of(text: str) -> tuple[str, list[str]]:
    """A setting and its values.

    >>> axis_of("seed=0-3"), axis_of("train.milestones=[1,2],[3]")
    (('seed', ['0', '1', '2', '3']), ('train.milestones', ['[1,2]', '[3]']))
    """
    key, separator, values = text.partition("=")
    if not separator or not key.strip() or not values.strip():
        raise ConfigError(
            f"--grid is {shown(text)}, but it should be a setting with values, such as train.lr=0.01,0.03"
        )
    key, parts = key.strip(), [part.strip() for part in parts_of(values)]
    if not all(parts):
        raise ConfigError(f"--grid {key} has a comma too many: {shown(values)}")
    found = [each for part in parts for each in spread(part)]
    if len({compared(value_of(key, each)) for each in found}) < len(found):
        raise ConfigError(f"--grid {key} has a value twice: {shown(values)}")
    return key, found


def compared(value: Any) -> str:
    """A value as text that is the same for 1 and 1.0."""
    return repr(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def parts_of(text: str) -> Iterator[str]:
    """Text cut at commas that are not inside brackets or quotes."""
    part, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter == "," and not depth:
            yield part
            part = ""
            continue
        depth += (letter in OPENING) - (letter in CLOSING) if not quote else 0
        part += letter
    yield part


def spread(text: str) -> Iterable[str]:
    """A range of whole numbers, such as `0-4`, number by number; any other value as it is."""
    if not (found := RANGE.fullmatch(text)):
        return [text]
    first, last = map(int, found.groups())
    if last < first or last - first >= MOST:
        raise ConfigError(f"--grid has the range {text}, but it should go up, and by fewer than {MOST:,}")
    return map(str, range(first, last + 1))


def point_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """What a point of a grid is called; a folder gets this name.

    >>> point_name(["train.lr", "seed"], ["0.01", "3"])
    'lr=0.01,seed=3'
    """
    lasts = [key.rpartition(".")[2] for key in keys]
    short = [last if lasts.count(last) == 1 else key for key, last in zip(keys, lasts, strict=True)]
    pairs = ((re.sub(r"[^\w.+-]+", "_", text) for text in pair) for pair in zip(short, values, strict=True))
    return ",".join("=".join(pair) for pair in pairs)


def seeds_of(text: str) -> list[int]:
    """Seeds from `0`, `0-2` or `0,3,5`.

    >>> seeds_of("0-2"), seeds_of("3,5")
    ([0, 1, 2], [3, 5])
    """
    should = f"--seeds is {shown(text)}, but it should be different whole numbers, such as 0-2 or 0,3,5"
    try:
        found = [int(each) for each in axis_of(f"seed={text}")[1]]
    except (ConfigError, ValueError) as error:
        raise ConfigError(should) from error
    if len(set(found)) < len(found):
        raise ConfigError(should)
    return found

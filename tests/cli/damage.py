"""Damage to the files of a run, drawn from a seed."""

import os
import random
import shutil
from pathlib import Path

INSTEAD = [
    b"",
    b"null",
    b"{}",
    b"[]",
    b"[{}]\n{}\nnull\n",
    b"\xff\xfe\x00",
    b"[" * 3000,
    b'{"round": 1, "levels":' + b"[" * 5000,
    b"a" + b".a" * 5000 + b" = 1",
    b"9" * 5001,
    b"\0" * 4096,
]
HUGE = 1 << 36  # bytes of a file that takes no room on disk


def flipped(data, chance):
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice([1, 1, 1, 3])):
        place = chance.randrange(8 * len(changed))
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def cut(data, chance):
    return data[: chance.randrange(len(data) + 1)]


def lengthened(data, chance):
    return data + chance.randbytes(chance.randrange(1, 200))


def blanked(data, chance):
    start = chance.randrange(len(data) + 1)
    return data[:start] + bytes(len(data[start : start + 64])) + data[start + 64 :]


def shuffled(data, chance):
    """Its lines in another order, or some of them twice."""
    lines = data.split(b"\n")
    return b"\n".join(chance.choices(lines, k=len(lines)))


def replaced(data, chance):
    return chance.choice(INSTEAD)


CONTENT = [flipped, flipped, flipped, cut, lengthened, blanked, shuffled, replaced]


def damage(directory: Path, other: Path, seed: int) -> tuple[str, str]:
    """Damage one file of a run; its name, and what was done to it."""
    chance = random.Random(seed)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    path = chance.choice(files)
    name = str(path.relative_to(directory))
    kind = chance.choice([*CONTENT, "gone", "folder", "pipe", "huge", "another file", "another run"])
    if callable(kind):
        path.write_bytes(kind(path.read_bytes(), chance))
        return name, kind.__name__
    if kind == "huge":
        os.truncate(path, HUGE)
    elif kind == "another file":
        path.write_bytes(chance.choice(files).read_bytes())
    elif kind == "another run":
        if (other / name).is_file():
            shutil.copy(other / name, path)
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
    return name, kind

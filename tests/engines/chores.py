"""The server's own work, as tests have it: chores, and the pieces they are done with."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from odd import oddly_laid, place_of
from toys import NARROW, WIDE, Remembering

from potluck.core.desk import Desk, Piece
from potluck.core.errors import ConfigError
from potluck.core.types import Tensors

LIVE = torch.zeros(4)  # memory that a chore uses again and again


def pieces(count: int, payload: Tensors | None = None) -> Iterator[Piece]:
    """So many pieces, each with a tensor of its own; if a payload is given, all with that one."""
    for number in range(count):
        own = {"w": torch.full((1000,), float(number))}
        yield Piece(NARROW if number % 3 == 1 else WIDE, 4, number, count, 9, own if payload is None else payload)


def weigh(desk: Desk, piece: Piece) -> Tensors:
    """What a piece is, and the sum of what it and the desk hold: nothing that can be told in advance is left out."""
    part = torch.arange(len(desk.test))[piece.number :: piece.count]
    inputs, targets = desk.test.take(part)
    told = torch.tensor([piece.number, piece.count, piece.round, piece.occasion])
    sums = torch.stack([piece.payload["w"].sum(), inputs.sum(), targets.sum().float()])
    return {"told": told, "sums": sums, piece.level.name: part}


def weigh_slowly_first(desk: Desk, piece: Piece) -> Tensors:
    """The first piece takes its time."""
    if piece.number == 0:
        time.sleep(1.0)
    return weigh(desk, piece)


def weigh_but_die_once(desk: Desk, piece: Piece) -> Tensors:
    """Piece 2 takes its process down the first time, when all is done."""
    found, mark = weigh(desk, piece), mark_of(desk, piece)
    if piece.number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def mark_of(desk: Desk, piece: Piece) -> Path:
    """What a piece leaves behind when it dies."""
    assert isinstance(desk.recipe.method, Remembering)
    return Path(desk.recipe.method.folder) / f"piece-{piece.number}"


def die(desk: Desk, piece: Piece) -> Tensors:
    """Piece 1 takes its process down, always."""
    if piece.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return weigh(desk, piece)


def break_down(desk: Desk, piece: Piece) -> Tensors:
    """Piece 1 runs into a bug."""
    if piece.number == 1:
        raise ValueError("the scales are upside down")
    return weigh(desk, piece)


def refuse(desk: Desk, piece: Piece) -> Tensors:
    """Piece 1 shows a mistake of the user's."""
    if piece.number == 1:
        raise ConfigError("the scales are not set up; set them up")
    return weigh(desk, piece)


def tell_places(desk: Desk, piece: Piece) -> Tensors:
    """Where everything lies that a piece brings along."""
    return {name: place_of(tensor) for name, tensor in piece.payload.items()}


def answer_oddly(desk: Desk, piece: Piece) -> Tensors:
    """Tensors that are laid out oddly."""
    return oddly_laid(piece.number)


def answer_live(desk: Desk, piece: Piece) -> Tensors:
    """The same memory for every piece."""
    return {"live": LIVE.fill_(piece.number)}


def answer_empty(desk: Desk, piece: Piece) -> Tensors:
    """A tensor with nothing in it."""
    return {"nothing": torch.empty(0, 3)}


def count_threads(desk: Desk, piece: Piece) -> Tensors:
    """How many threads compute."""
    return {"threads": torch.tensor(torch.get_num_threads())}

"""Pickles of byte arrays and plain containers, and of nothing else: a pickle may otherwise run any code.

Python's own unpickler is not asked. The few instructions that such pickles consist of are followed here, with plain
values on a stack; a call that numpy would be needed for is only noted, and the array is made, and checked, afterwards.
A pickle of many instructions for its size is refused, so that memory is bounded by the size of the file.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError

Bytes = NDArray[np.uint8]

FEW = 1000  # instructions that any pickle may have
BYTES_EACH = 256  # of the file for each further one: an image of 3,072 bytes comes with about five
ARRAYS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
TYPE = "numpy dtype"
ENCODE = "_codecs encode"  # with which Python 3 writes bytes into old pickles
ADMITTED = (*ARRAYS, "numpy ndarray", TYPE, ENCODE)


@dataclass(frozen=True)
class Name:
    """What the pickle wants to be imported."""

    full: str


@dataclass
class Noted:
    """A call that the pickle wants to be made, and the state that it gives to what comes of it."""

    of: str
    arguments: tuple[Any, ...]
    state: object = None


class Reader:
    """Follows the instructions of one pickle."""

    def __init__(self, content: bytes | bytearray) -> None:
        self.content = content
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.room = len(content)  # bytes of text that may still be encoded: one text again and again would fill memory

    def read(self) -> object:
        """What the pickle holds."""
        left = FEW + len(self.content) // BYTES_EACH
        for instruction, argument, _ in pickletools.genops(self.content):
            left -= 1
            if left < 0:
                raise ValueError("it has more instructions than images need")
            self.follow(instruction.name, argument)
        return self.stack.pop()

    def follow(self, instruction: str, argument: Any) -> None:
        """Follow one instruction."""
        stack = self.stack
        match instruction:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "INT" | "BININT" | "BININT1" | "BININT2" | "LONG" | "LONG1" | "LONG4" | "FLOAT" | "BINFLOAT":
                stack.append(argument)
            case "UNICODE" | "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
                stack.append(argument)
            case "BINBYTES" | "SHORT_BINBYTES" | "BINBYTES8":
                stack.append(argument)
            case "STRING" | "BINSTRING" | "SHORT_BINSTRING":  # Python 2's
                stack.append(argument.encode("latin-1"))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction])
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "GLOBAL":
                stack.append(admitted(argument))
            case "STACK_GLOBAL":
                stack.append(admitted(" ".join(self.top(2))))
            case "REDUCE":
                stack.append(self.called(*self.top(2)))
            case "BUILD":
                (state,) = self.top(1)
                give_state(stack[-1], state)
            case _:
                self.contain(instruction)

    def contain(self, instruction: str) -> None:
        """Follow an instruction about containers."""
        stack = self.stack
        match instruction:
            case "MARK":
                self.marks.append(len(stack))
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self.top({"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}[instruction])))
            case "TUPLE":
                stack.append(tuple(self.marked()))
            case "EMPTY_LIST":
                stack.append([])
            case "LIST":
                stack.append(self.marked())
            case "APPEND" | "APPENDS":
                items = self.top(1) if instruction == "APPEND" else self.marked()
                extend(stack[-1], items)
            case "EMPTY_DICT":
                stack.append({})
            case "DICT":
                stack.append(entered({}, self.marked()))
            case "SETITEM" | "SETITEMS":
                items = self.top(2) if instruction == "SETITEM" else self.marked()
                entered(stack[-1], items)
            case _:
                raise ValueError(f"it has the instruction {instruction}")

    def top(self, count: int) -> list[Any]:
        """The last values, taken from the stack."""
        if len(self.stack) < count:
            raise ValueError("it takes what was not there")
        start = len(self.stack) - count
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def marked(self) -> list[Any]:
        """The values since the last mark, taken from the stack."""
        return self.top(len(self.stack) - self.marks.pop())

    def called(self, function: object, arguments: object) -> bytes | Noted:
        """What comes of a call: bytes, or a note."""
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise ValueError("it calls what cannot be called")
        if function.full != ENCODE:
            return Noted(function.full, arguments)
        text = arguments[0]
        self.room -= len(text)
        if self.room < 0:
            raise ValueError("it says the same again and again")
        return bytes(text.encode("latin-1"))


def admitted(full: str) -> Name:
    """A name, if it is one of those that arrays need."""
    if full not in ADMITTED:
        raise ValueError(f"it asks for {ascii(full[:80].replace(' ', '.'))[1:-1]}")
    return Name(full)


def give_state(target: object, state: object) -> None:
    """Note what a call is to be given afterwards."""
    if not isinstance(target, Noted):
        raise ValueError("it gives a state to what has none")
    target.state = state


def extend(target: object, items: list[Any]) -> None:
    """Add to a list."""
    if not isinstance(target, list):
        raise ValueError("it adds to what is no list")
    target += items


def entered(target: object, items: list[Any]) -> object:
    """A dictionary with more entries, keys and values by turns; only names are keys: tuples may take hours to hash."""
    keys, values = items[::2], items[1::2]
    if not isinstance(target, dict) or not all(isinstance(key, str | bytes) for key in keys):
        raise ValueError("it has a dictionary whose keys are no names")
    target.update(zip(keys, values, strict=True))
    return target


def array_of(noted: Noted) -> Bytes:
    """The array that was to be made, if it is one of bytes and complete."""
    if not isinstance(noted.state, tuple) or len(noted.state) != 5:
        raise ValueError("its array is incomplete")
    _, shape, kind, by_columns, content = noted.state
    if not isinstance(kind, Noted) or kind.of != TYPE or kind.arguments[:1] not in (("u1",), (b"u1",)):
        raise ValueError("its array is not one of unsigned bytes")
    if not isinstance(content, bytes) or not isinstance(shape, tuple) or len(shape) > 4:
        raise ValueError("its array is not one of unsigned bytes")
    if not all(type(size) is int and 0 <= size < 1 << 32 for size in shape):
        raise ValueError("its array has a shape that is none")
    if len(content) != math.prod(shape):
        raise ValueError(f"its array has {len(content)} bytes, not the {shape} announced")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


def read_pickle(content: bytes | bytearray, path: Path) -> dict[str, object]:
    """A pickled dictionary whose values are byte arrays and plain containers; Python 2 strings become bytes."""
    try:
        found = Reader(content).read()
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, not a dictionary")
        return {
            key.decode("ascii") if isinstance(key, bytes) else key: (
                array_of(value) if isinstance(value, Noted) and value.of in ARRAYS else value
            )
            for key, value in found.items()
        }
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is no pickle of byte arrays and plain containers, or damaged: {error}") from error

"""What a user says of data that does not say it itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from potluck.core.data import Examples
from potluck.core.errors import ConfigError


@dataclass(frozen=True)
class How:
    """Which columns or keys are what, and how examples become batches."""

    target: Any = None  # the column or key of the target; a list of columns: several numbers
    inputs: Any = None  # those of the inputs, or a dictionary from the network's arguments to them
    owners: Any = None  # the column that says whose each row is
    pad: Any = None  # what sequences are filled up with: a number, or numbers by input
    collate: Callable[[list[Any]], Any] | None = None  # items to a batch
    tokenizer: Callable[..., Any] | None = None  # texts to numbers by argument

    def __post_init__(self) -> None:
        for name in ("collate", "tokenizer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, but it should be a function")

        fills = self.pad.values() if isinstance(self.pad, Mapping) else [] if self.pad is None else [self.pad]
        if any(isinstance(fill, bool) or not isinstance(fill, int | float) for fill in fills):
            raise ConfigError(
                f"pad is {self.pad!r}, but it should be the number that short sequences are filled up with, such as 0, "
                "or a dictionary of such numbers by input"
            )

    def only(self, what: str, *known: str) -> None:
        """Refuse options that this kind of data has no use for."""
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None and option.name not in known:
                can = f"takes {', '.join(f'{name}=' for name in known)}" if known else "takes no options"
                raise ConfigError(f"{option.name} is {short(value)}, but {what} has no use for it: it {can}")


def short(value: Any) -> str:
    """A value in an error message."""
    return repr(value) if isinstance(value, str | int | float | list | tuple) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Given:
    """Examples of a user's, read and ready, and perhaps whose each of them is."""

    examples: Examples
    owners: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.examples)

"""What of an item is given to the network, and what it should learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import ConfigError, DataError
from potluck.core.plug import enumerated, hint
from potluck.data.columns.tensors import described, plain

LABEL_COLUMNS = ("label", "labels", "target", "targets", "y")


@dataclass(frozen=True)
class Form:
    """How an item, or a batch, is divided: the last entry of a tuple is the target, a dictionary has it by name."""

    target: Any = None  # the target's name; one of LABEL_COLUMNS if not given
    inputs: Any = None  # the names of inputs, or a dictionary from arguments to names; all the others if not given
    alone: bool = False  # whether an input that is the only one is given as it is, not by name

    def divided(self, item: Any, what: str) -> tuple[Any, Any]:
        """Inputs and targets of an item."""
        if isinstance(item, Mapping):
            target = target_name(list(item), self.target, what)
            return self.picked(item, target, what), plain(item[target])
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(f"{what} is a {described(item)}, not an (input, label) pair or a dictionary")
        if self.target is not None or self.inputs is not None:
            name = "target" if self.target is not None else "inputs"
            raise DataError(
                f"{name} is {getattr(self, name)!r}, but {what} is a {type(item).__name__}, which has no names: leave "
                f"{name} out, and its last entry is the target"
            )
        *inputs, last = item
        return plain(inputs[0] if len(inputs) == 1 else tuple(inputs)), plain(last)

    def picked(self, item: Mapping[str, Any], target: str, what: str) -> Any:
        """The inputs of a dictionary."""
        names = self.inputs if self.inputs is not None else [name for name in item if name != target]
        wanted = {str(name): name for name in ([names] if isinstance(names, str) else names)}
        if isinstance(names, Mapping):
            wanted = dict(names)
        if not wanted:
            raise DataError(f"{what} has nothing but the target {target!r}; it needs an input, too")
        for name in wanted.values():
            if name not in item:
                raise DataError(f"inputs has {name!r}, but {what} has no such key; {hint(str(name), map(str, item))}")
        found = {key: plain(item[name]) for key, name in wanted.items()}
        if isinstance(names, str) or (self.alone and len(found) == 1 and not isinstance(names, Mapping)):
            return next(iter(found.values()))
        return found


def target_name(names: list[Any], target: Any, what: str) -> str:
    """Which of the names is the target's."""
    shown = enumerated(map(str, names))
    if target is not None:
        if not isinstance(target, str):
            raise ConfigError(f"target is {target!r}, but for {what} it should be one name, such as {names[0]!r}")
        if target not in names:
            raise DataError(f"target is {target!r}, but {what} has {shown}; {hint(target, map(str, names))}")
        return target
    found = [name for name in names if name in LABEL_COLUMNS]
    if len(found) != 1:
        how_many = "none of them is called" if not found else f"{len(found)} of them are called"
        names_known = f"{', '.join(LABEL_COLUMNS[:-1])} or {LABEL_COLUMNS[-1]}"
        raise DataError(f"{what} has {shown}, and {how_many} {names_known}; say with target= which is the target")
    return str(found[0])

"""Which columns of a table are inputs, which are targets, and whose the rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.errors import ConfigError, DataError
from potluck.core.plug import enumerated, hint
from potluck.data.columns.checked import arrays_of
from potluck.data.how import How
from potluck.data.items.batching import fill_of, require_pad
from potluck.data.items.form import target_name
from potluck.data.owners import is_owner
from potluck.data.tables.cells import Cells, arrays, features, is_gap, kind_of, numbered, numbers, texts
from potluck.data.tables.read import Columns
from potluck.data.tables.tokens import tokenised


@dataclass(frozen=True)
class Table:
    """A table and what its columns are for."""

    columns: Columns
    how: How
    what: str = "the table"
    alone: bool = False  # whether a column of inputs that is the only one is given as it is, not as one feature

    def examples(self) -> Arrays:
        """The rows as examples."""
        if not self.columns or not len(next(iter(self.columns.values()))):
            raise DataError(f"{self.what} has no rows")
        targets, names = self.targets()
        inputs = self.inputs()
        plain = self.how.inputs is None and self.how.tokenizer is None and isinstance(inputs, Tensor)
        found = arrays_of(inputs, targets, self.what, names)
        return replace(found, features=tuple(self.left()) if plain else ())

    def owners(self) -> list[Any] | None:
        """Whose each row is."""
        name = self.how.owners
        if name is None:
            return None
        cells = self.cells(name, "owners")
        column = cells.tolist() if isinstance(cells, np.ndarray | Tensor) else list(cells)
        for row, owner in enumerate(column):
            if is_gap(owner) or not is_owner(owner):
                raise DataError(
                    f"column '{name}' has {owner!r} in row {row} (rows count from 0), but each row needs an owner, by "
                    "name or by whole number"
                )
        return column

    def target_names(self) -> list[str]:
        """The columns that are targets."""
        if isinstance(self.how.target, list | tuple):
            for name in self.how.target:
                self.cells(name, "target")
            return [str(name) for name in self.how.target]
        owner = self.how.owners
        left = [name for name in self.columns if name != owner] if self.how.target is None else list(self.columns)
        return [target_name(left, self.how.target, self.what)]

    def targets(self) -> tuple[Any, tuple[str, ...]]:
        """The targets, and the names of classes if they are names."""
        chosen = self.target_names()
        if isinstance(self.how.target, list | tuple):
            return features([(name, self.number_cells(name, "target")) for name in chosen]), ()
        name = chosen[0]
        cells = self.columns[name]
        kind = kind_of(cells)
        if kind == "text":
            return numbered(cells, name)
        if kind == "other":
            raise DataError(f"column '{name}' is {type_of(cells)}, which cannot be a target; make numbers of it")
        return (numbers(cells, name) if kind == "number" else arrays(cells, name, None, target=True)), ()

    def inputs(self) -> Any:
        """The inputs: a tensor of features, a column as it is, or several by name."""
        if self.how.tokenizer is not None:
            return self.tokens()
        asked = self.how.inputs
        if isinstance(asked, Mapping):
            found = {str(argument): self.one(names, str(argument)) for argument, names in asked.items()}
            require_pad(self.how.pad, list(found))
            return found
        if isinstance(asked, str):
            return self.one(asked)
        names = list(self.left() if asked is None else asked)
        if not names:
            raise DataError(f"{self.what} has no column that could be an input beside {', '.join(self.target_names())}")
        if self.alone and asked is None and len(names) == 1:
            return self.one(names[0])
        if all(kind_of(self.cells(name, "inputs")) == "number" for name in names):
            require_pad(self.how.pad, [])
            return self.one(names)
        found = {name: self.one(name) for name in names}
        require_pad(self.how.pad, list(found))
        return next(iter(found.values())) if len(found) == 1 and asked is None else found

    def left(self) -> list[str]:
        """The columns that are neither targets nor owners."""
        others = {*self.target_names(), self.how.owners}
        return [name for name in self.columns if name not in others]

    def one(self, names: Any, argument: str = "") -> Any:
        """One input: a column as it is, or several columns of numbers as one tensor."""
        if not isinstance(names, str):
            return features([(name, self.number_cells(name, "inputs")) for name in names])
        cells = self.cells(names, "inputs")
        kind = kind_of(cells)
        if kind == "number":
            return numbers(cells, names)
        if kind == "array":
            return arrays(cells, names, fill_of(self.how.pad, f"['{argument or names}']"))
        raise self.not_numbers(names, kind)

    def tokens(self) -> Any:
        """What a tokenizer makes of the column of text, or of a pair of them."""
        asked = self.how.inputs
        if isinstance(asked, Mapping):
            raise ConfigError("inputs is a dictionary, but with tokenizer= it should be the name of the column of text")
        names = [asked] if isinstance(asked, str) else list(asked or self.text_columns())
        assert self.how.tokenizer is not None
        found = tokenised([texts(self.cells(name, "inputs"), name) for name in names], self.how.tokenizer, self.how.pad)
        require_pad(self.how.pad, list(found))
        return found

    def text_columns(self) -> list[str]:
        """The only column of text."""
        found = [name for name in self.left() if kind_of(self.columns[name]) == "text"]
        if len(found) != 1:
            many = f"the columns {enumerated(found)} are text" if found else "no column is text"
            known = enumerated(self.columns)
            raise DataError(f"{self.what} has {known}, and {many}; say with inputs= what to tokenise")
        return found

    def number_cells(self, name: str, option: str) -> Cells:
        """A column that has a number in each row."""
        cells = self.cells(name, option)
        if (kind := kind_of(cells)) != "number":
            raise self.not_numbers(name, kind)
        return cells

    def cells(self, name: Any, option: str) -> Cells:
        """A column that an option names."""
        if name not in self.columns:
            known = list(self.columns)
            raise DataError(f"{option} has {name!r}, but {self.what} has no such column; {hint(str(name), known)}")
        return self.columns[name]

    def not_numbers(self, name: str, kind: str) -> DataError:
        """Why a column cannot be an input, and what to do."""
        found = "text" if kind == "text" else type_of(self.columns[name])
        rather = "give a tokenizer with tokenizer=, " if kind == "text" else ""
        return DataError(
            f"column '{name}' is {found}, not numbers; {rather}leave it out with inputs=, or make numbers of it, as "
            "pandas.get_dummies does"
        )


def type_of(cells: Cells) -> str:
    """What the cells are, in an error."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind != "O":
        return str(cells.dtype)
    if isinstance(cells, torch.Tensor):
        return str(cells.dtype)
    return f"of type {type(next((cell for cell in cells if not is_gap(cell)), None)).__name__}"

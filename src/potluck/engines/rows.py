"""Where the tensors of clients that were trained at once lie in a slot: a client per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from potluck.core.form import Form, form_of
from potluck.core.rows import in_rows, row_length
from potluck.core.types import Tensors
from potluck.engines.slot import Layout, Slot, planned


@dataclass(frozen=True)
class RowLayout:
    """Where the tensors of several clients lie: tables with a client per row, and what is in a row."""

    tables: Layout = field(default_factory=list)
    form: Form = field(default_factory=dict)

    def stack(self, tables: Mapping[str, Tensor]) -> Tensors:
        """Tensors with a client per row, in such tables."""
        return {name: in_rows(tables[name], spec) for name, spec in self.form.items()}


class Rows:
    """Room in a slot for the tensors of several clients, a client per row: as many as look like the first."""

    def __init__(self, slot: Slot, most: int) -> None:
        self.slot, self.most = slot, most
        self.form: Form = {}
        self.tables: Layout = []
        self.room: Tensors = {}
        self.count = 0

    def add(self, tensors: Mapping[str, Tensor], end: int) -> int | None:
        """Write the next row, if this looks like the first; the first free byte of the slot then."""
        if not tensors or (self.form and form_of(tensors) != self.form):
            return None
        if not self.form:
            self.form = form_of(tensors)
            shapes = {name: ((self.most, row_length(spec)), spec.dtype) for name, spec in self.form.items()}
            self.tables, end = planned(shapes, end)
            self.slot.reserve(end)
            self.room = RowLayout(self.tables, self.form).stack(self.slot.views(self.tables))
        for name, tensor in tensors.items():
            self.room[name][self.count].copy_(tensor.detach())
        self.count += 1
        return end

    def written(self) -> RowLayout:
        """Where the rows lie that were written."""
        tables: Layout = [(name, kind, (self.count, *row), offset) for name, kind, (_, *row), offset in self.tables]
        return RowLayout(tables, self.form)

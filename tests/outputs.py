"""Outputs such as packages of networks return in the place of a tensor."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class Output(OrderedDict[str, Any]):
    """Like an output of transformers: a dictionary whose entries are attributes too, without those that are None."""

    def __init__(self, **entries: Any) -> None:
        super().__init__((name, value) for name, value in entries.items() if value is not None)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: str | int) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)

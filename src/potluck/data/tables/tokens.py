"""Text to tokens, by a tokenizer of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from potluck.core.errors import DataError
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import described
from potluck.data.items.asked import blamed
from potluck.data.tables.cells import array_of

CHUNK = 1000  # texts that are tokenised at once


def tokenised(texts: Sequence[Sequence[str]], tokenizer: Callable[..., Any], pad: Any) -> dict[str, Ragged]:
    """What a tokenizer makes of texts, or of pairs of them: columns by the names of the network's arguments."""
    found: dict[str, list[torch.Tensor]] = {}
    for start in range(0, len(texts[0]), CHUNK):
        chunk = [list(column[start : start + CHUNK]) for column in texts]
        told = asked(tokenizer, chunk)
        if not isinstance(told, Mapping) or not told:
            raise DataError(
                f"tokenizer returns a {described(told)}, but it should return lists of numbers by name, such as "
                "'input_ids', as those of transformers do"
            )
        for name, rows in told.items():
            if len(rows) != len(chunk[0]):
                raise DataError(
                    f"tokenizer gives {len(rows)} {name!r} for {len(chunk[0])} texts, but it should give one each"
                )
            found.setdefault(str(name), []).extend(sequence(row, str(name)) for row in rows)
    return {name: Ragged.of(rows, fill_for(name, tokenizer, pad)) for name, rows in found.items()}


def asked(tokenizer: Callable[..., Any], texts: Sequence[Sequence[str]]) -> Any:
    """What a tokenizer returns for some texts; one that fails is named."""
    with blamed("tokenizer fails on a list of texts and truncation=True, as those of transformers take"):
        return tokenizer(*texts, truncation=True)


def sequence(row: Any, name: str) -> torch.Tensor:
    """What a tokenizer made of one text, as numbers in order."""
    found = array_of(row, f"what tokenizer returns as {name!r}")
    if found.dim() == 0:
        raise DataError(f"tokenizer returns one number as {name!r} for a text, but it should return a list of numbers")
    return found


def fill_for(name: str, tokenizer: Any, pad: Any) -> float:
    """What a column is filled up with: what the user says, else what the tokenizer has for it, else 0."""
    own = {"input_ids": "pad_token_id", "token_type_ids": "pad_token_type_id"}.get(name, "")
    said = pad.get(name) if isinstance(pad, Mapping) else pad if name == "input_ids" else None
    found = said if said is not None else getattr(tokenizer, own, None) if own else None
    return found if isinstance(found, int | float) else 0

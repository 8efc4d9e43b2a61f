"""The best round of a run: chosen on some of the test examples, scored on all the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from potluck.core.errors import RunError
from potluck.study.headline import headline
from potluck.study.watchers import Record

LESS_IS_BETTER = ("loss", "perplexity", "mae", "rmse")
"""How the names of measures end of which small ones are good; of all other measures, large ones are."""

Scores = Mapping[str, Mapping[str, float | None]]
"""By level and measure."""


@dataclass(frozen=True)
class Best:
    """The best round, and how good its models are on examples that did not choose it."""

    round: int  # counted from 1
    scores: dict[str, dict[str, float]]  # by level and measure


def best_round(records: Sequence[Record], measure: str = "", level: str | None = None) -> Best:
    """The round whose models are the best on the validation examples; of equally good rounds the first.

    What counts is a measure of a level: if none is given, the most telling measure, and its mean over the levels.
    """
    chosen = [record["validation"] for record in records if record.get("validation")]
    if not chosen:
        raise RunError(
            "the run has no validation examples, so no round can be called the best; give a share of the test examples "
            "to choose it, such as validation = 0.2"
        )
    measure = measure or headline(name for score in chosen[0].values() for name in score)
    found = best_record(records, measure, level)
    if found is None:
        raise RunError(f"the validation examples have no {measure} of {level or 'any level'}, so it chooses no round")
    return Best(found["round"], found["rest"])


def best_record(records: Iterable[Record], measure: str, level: str | None = None) -> Record | None:
    """The record of the best round by a measure of a level, or by its mean over the levels; None if none has it."""
    values = ((record, score_in(record.get("validation") or {}, measure, level)) for record in records)
    found = [(record, sign(measure) * value) for record, value in values if value is not None]
    return min(found, key=lambda each: each[1])[0] if found else None


def score_in(scores: Scores, measure: str, level: str | None = None) -> float | None:
    """A measure of a level, or its mean over the levels that have it.

    >>> score_in({"a": {"accuracy": 0.5}, "b": {"accuracy": 1.0}}, "accuracy")
    0.75
    """
    asked = scores.values() if level is None else [scores.get(level, {})]
    values = [value for own in asked if (value := own.get(measure)) is not None]
    return float(sum(values)) / len(values) if values else None


def sign(measure: str) -> int:
    """1 if small values of a measure are good, -1 if large ones are.

    >>> sign("paper_perplexity"), sign("accuracy")
    (1, -1)
    """
    return 1 if measure.endswith(LESS_IS_BETTER) else -1

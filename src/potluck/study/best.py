"""The best round of a run: chosen on some of the test examples, scored on all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.core.errors import RunError
from potluck.study.headline import headline
from potluck.study.watchers import Record

LESS_IS_BETTER = ("loss", "perplexity", "mae", "rmse")
"""How the names of measures end of which small ones are good; of all other measures, large ones are."""


@dataclass(frozen=True)
class Best:
    """The best round, and how good its models are on examples that did not choose it."""

    round: int  # counted from 1
    scores: dict[str, dict[str, float]]  # by level and measure


def best_round(records: Sequence[Record]) -> Best:
    """The round whose models are the best on the validation examples; of equally good rounds the first.

    What counts is the mean over the levels of the most telling measure.
    """
    chosen = [record for record in records if record.get("validation")]
    if not chosen:
        raise RunError(
            "the run has no validation examples, so no round can be called the best; give a share of the test examples "
            "to choose it, such as validation = 0.2"
        )
    names = [name for score in chosen[0]["validation"].values() for name in score]
    measure = headline(names)
    found = min(chosen, key=lambda record: worth(record, measure))
    return Best(found["round"], found["rest"])


def worth(record: Record, measure: str) -> float:
    """How good the models of a round are on the validation examples: the smaller, the better."""
    values = [score[measure] for score in record["validation"].values()]
    return sign(measure) * float(sum(values)) / len(values)


def sign(measure: str) -> int:
    """1 if small values of a measure are good, -1 if large ones are.

    >>> sign("paper_perplexity"), sign("accuracy")
    (1, -1)
    """
    return 1 if measure.endswith(LESS_IS_BETTER) else -1

"""Which measure of a score is shown where there is room for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from potluck.core.errors import RunError
from potluck.study.files import is_number

ACCURACY, LOSS, COUNT = "accuracy", "loss", "clients"


def headline(names: Iterable[str]) -> str:
    """The most telling of these measures: accuracy, or else the first that is not the loss.

    >>> headline(["loss", "mae", "r2"]), headline(["accuracy", "loss"]), headline(["loss", "clients"])
    ('mae', 'accuracy', 'loss')
    """
    names = [name for name in names if name != COUNT]
    return ACCURACY if ACCURACY in names else next((name for name in names if name != LOSS), LOSS)


def headline_of(record: Mapping[str, Any]) -> str:
    """The most telling measure of a round."""
    return headline(name for found in record["levels"].values() for name in found)


def has_scores(levels: object) -> bool:
    """Whether every level has numbers, and the most telling measure among them."""
    if not isinstance(levels, dict) or not all(isinstance(found, dict) for found in levels.values()):
        return False
    measure = headline(name for found in levels.values() for name in found)
    return all(measure in found and all(map(is_score, found.values())) for found in levels.values())


def is_score(value: object) -> bool:
    """Whether this is a measure, or what stands in its place in rounds that were not evaluated."""
    return value is None or is_number(value)


def shown_scores(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The most telling measure of every level in a round."""
    name = headline_of(record)
    return {level: found[name] for level, found in record["levels"].items()}


def scores_in(record: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Every measure of every level in a round."""
    return {
        level: {name: value for name, value in found.items() if name != COUNT}
        for level, found in record["levels"].items()
    }


def accuracies(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The accuracy of every level in a round; a task without accuracy says what it has instead."""
    if headline_of(record) != ACCURACY:
        names = dict.fromkeys(name for found in scores_in(record).values() for name in found)
        raise RunError(f"this task has no accuracy, but {', '.join(names)}: see scores")
    return {level: found[ACCURACY] for level, found in record["levels"].items()}


def figure(name: str, value: float | None) -> str:
    """A measure for people.

    >>> figure("accuracy", 0.9312), figure("mae", 0.123456), figure("accuracy", None)
    ('93.1 %', '0.1235', '-')
    """
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if name.endswith(ACCURACY) else f"{value:.4g}"

"""Settings that work, but hardly do what they were written for."""

from __future__ import annotations

from collections.abc import Sequence

from potluck.study.schema import NOWHERE, Origin
from potluck.study.settings import FleetSection, Settings


def notes_on(settings: Settings, origin: Origin = NOWHERE) -> list[str]:
    """A sentence for each setting that has no effect or another one than it says."""
    found, fleet = [], settings.fleet
    if isinstance(fleet.cohort, int) and fleet.cohort > fleet.clients and fleet.cohort != FleetSection.cohort:
        found.append(
            f"{origin.about('fleet')}cohort is {fleet.cohort}, but there are only {fleet.clients} clients: all that "
            "are able take part in every round"
        )
    return found


def notes_on_names(names: Sequence[str]) -> list[str]:
    """A sentence if clients are called by numbers, but by others than their own."""
    if not names or not all(name.isdecimal() for name in names):
        return []
    numbers = {int(name) for name in names}
    missing = next(number for number in range(len(numbers) + 1) if number not in numbers)
    if missing == len(numbers):
        return []
    return [f"clients are called by their owners' numbers, which have gaps: there is no client '{missing}'"]

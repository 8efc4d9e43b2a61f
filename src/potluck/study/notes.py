"""Settings that work, but hardly do what they were written for."""

from __future__ import annotations

from potluck.study.settings import FleetSection, Settings


def notes_on(settings: Settings) -> list[str]:
    """A sentence for each setting that has no effect or another one than it says."""
    found, fleet, train = [], settings.fleet, settings.train
    if isinstance(fleet.cohort, int) and fleet.cohort > fleet.clients and fleet.cohort != FleetSection.cohort:
        found.append(
            f"[fleet] cohort is {fleet.cohort}, but there are only {fleet.clients} clients: all that are able take "
            "part in every round"
        )
    if train.schedule == "multistep" and not train.milestones:
        found.append(
            "[train] schedule is 'multistep', but there are no milestones: the rate stays the same; set milestones to "
            "the rounds at which it falls, such as [10, 20]"
        )
    return found

"""Where a run's time went, as a table."""

from __future__ import annotations

from rich.table import Table

from potluck.cli.show import table_of
from potluck.study.result import Profile

PARTS = {
    "tuning": "choosing how to train",
    "planning": "drawing cohorts",
    "extraction": "cutting out what each client is sent",
    "transport": "moving tensors and headers to and from workers",
    "training": "training clients in this process",
    "guard": "checking updates against what was issued",
    "aggregation": "averaging updates",
    "evaluation": "scoring models, in workers too",
    "records": "diagnostics, metrics and checkpoints",
    "waiting": "waiting for clients that train",
}


def profile_table(profile: Profile) -> Table:
    """The seconds of this process by part, then how busy the places were in which clients train."""
    named = [(part, profile.seconds[part], what) for part, what in PARTS.items() if part in profile.seconds]
    rest = max(0.0, profile.total + profile.seconds.get("tuning", 0.0) - sum(seconds for _, seconds, _ in named))
    named.append(("other", rest, "everything else"))
    whole = sum(seconds for _, seconds, _ in named)
    rows = [(part, f"{seconds:.2f}", f"{seconds / whole:.1%}", what) for part, seconds, what in named]
    training = whole - sum(profile.seconds.get(part, 0.0) for part in ("tuning", "evaluation", "records"))
    share = profile.busy / (profile.places * training) if training > 0 else 0.0
    rows.append(("in all", f"{whole:.2f}", "", ""))
    workers = "one place" if profile.places == 1 else f"{profile.places} places"
    rows.append(
        ("clients", f"{profile.busy:.2f}", f"{share:.1%}", f"training in {workers}, of the time that rounds took")
    )
    columns = dict(zip(("part", "seconds", "share", "what it is"), map(list, zip(*rows, strict=True)), strict=True))
    return table_of("Where the time went", columns)

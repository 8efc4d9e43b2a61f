"""Runs that were never played: settings and scores as a test wants them."""

from pathlib import Path

from potluck.series.played import Played


def record(round, scores, spent=(10, 5, 100, 1.0), **more):
    """A round's record: scores by level, and bytes down, bytes up, MACs and seconds."""
    down, up, macs, seconds = spent
    levels = {level: {"accuracy": score, "loss": None} for level, score in scores.items()}
    figures = {"bytes_down": down, "bytes_up": up, "macs": macs, "seconds_training": seconds}
    figures["seconds"] = seconds + 100  # with scoring
    return {"round": round, "levels": levels, **figures, **more}


def run(scores, path="run", spent=(10, 5, 100, 1.0), **settings):
    """A run with one level, which was scored so in its rounds; settings by dotted key, with __ for a dot."""
    records = [record(round, {"all": score}, spent) for round, score in enumerate(scores, start=1)]
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    return Played(Path(path), {"name": "made", "seed": 0, **dotted}, records)

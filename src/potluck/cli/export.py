"""`potluck export`: a model of a run as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import DataDir, Trust
from potluck.cli.show import say
from potluck.core.errors import RunError


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a run")],
    out: Annotated[Path, typer.Option(help="the file to write: .safetensors, .pt2 or .onnx")],
    level: Annotated[str | None, typer.Option(help="the device class")] = None,
    ratio: Annotated[float | None, typer.Option(help="or any size, as a share of the full network")] = None,
    client: Annotated[str | None, typer.Option(help="or a client, by number or name, if each has its own")] = None,
    data_dir: DataDir = None,
    trust: Trust = False,
) -> None:
    """Write a level's model, one of any size, or a client's own, in the format that the file's name asks for.

    .safetensors has the plain weights, .pt2 a program for torch.export.load, .onnx a graph for other programs (needs
    pip install 'potluck\\[onnx]'). An unfinished run gives its latest.
    """
    from potluck.core.checkpoint import save
    from potluck.study.formats import WEIGHTS, require_format
    from potluck.study.recorded import load

    require_format(out)
    recorded = load(run, data_dir=data_dir, trust=trust)
    asked = {"--level": level, "--ratio": ratio, "--client": client}
    given = [option for option, which in asked.items() if which is not None]
    if len(given) > 1:
        raise RunError(f"export takes one of --level, --ratio and --client, but there are {' and '.join(given)}")
    if not given:
        levels = ", ".join(recorded.levels)
        raise RunError(f"export needs a --level ({levels}), a --ratio, such as 0.4, or a --client")
    of = recorded.client(client) if client is not None else recorded.level(level if level is not None else ratio or 0.0)
    if level is not None and out.suffix == WEIGHTS and recorded.run.model(level).exists():
        weights, rounds = recorded.run.finished_model(level)  # without its network, which only Python may have
        about = {"level": level, "rounds_done": rounds}
        save(out, weights, about)
    else:
        found = recorded.written(of, out)
        about = {"level": found.level.name, "rounds_done": recorded.latest[1]}
    say(f"Wrote {out}: level {about['level']} after {about['rounds_done']} rounds.")

"""Where on disk a data set is."""

from __future__ import annotations

import os
from pathlib import Path

from potluck.core.errors import DataError
from potluck.data.readers.files import packed_or_not
from potluck.data.sources.source import Layout, Source

VARIABLE = "POTLUCK_DATA"


def data_folder(root: Path | str | None, wanted: str = "NAME") -> Path:
    """The folder to look in: the one given, else the one the environment names."""
    chosen = root if root is not None else os.environ.get(VARIABLE)
    if not chosen:
        raise DataError(
            f"no data folder is given: set {VARIABLE} to the folder that holds your data sets, or give it with "
            f"--data-dir; `potluck data fetch {wanted} --data-dir FOLDER` downloads into it"
        )
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DataError(f"the data folder {folder} does not exist")
    return folder


def missing(layout: Layout, root: Path) -> list[str]:
    """The files of a layout that are not there."""
    return [name for name in layout.files if not packed_or_not(root / layout.folder / name).exists()]


def locate(source: Source, root: Path | str | None) -> tuple[Layout, Path]:
    """The first layout that is complete, and the folder it is in."""
    folder = source.home or data_folder(root, source.about.name)
    for layout in source.layouts:
        if not missing(layout, folder):
            return layout, folder / layout.folder
    places = "; ".join(looked_for(layout, folder) for layout in source.layouts)
    raise DataError(f"{source.about.name} was not found: looked for {places}. To get it, {source.about.how_to_get}")


def looked_for(layout: Layout, root: Path) -> str:
    """One place in words, and what it lacks if something of it is there."""
    place, lacking = root / layout.folder, missing(layout, root)
    if len(layout.files) == 1:
        return str(place / lacking[0])
    if not layout.folder or not place.is_dir() or len(lacking) == len(layout.files):
        return f"{place}{os.sep} with {lacking[0]} and others"
    return f"{place}{os.sep}, which lacks {', '.join(lacking)}"

"""Keep records of the papers' experiments in results/, and write their tables into docs/results.md.

python benchmarks/records.py [FOLDER]

FOLDER is one that `potluck reproduce --out FOLDER` wrote: the config and metrics of its finished runs are copied, their
weights are not. Without it the tables alone are written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from potluck.series.records import keep, page_with, tables

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"


def main(folders: list[str]) -> None:
    for folder in folders:
        copied, left_out = keep(Path(folder), RESULTS)
        print(*[f"kept {path.relative_to(ROOT)}" for path in copied], *left_out, sep="\n")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), tables(RESULTS)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The code in the README and in docs runs as it is printed, in small."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from potluck.study.config import parse_config
from potluck.study.schema import Origin

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    pytest.param("docs/data.md", marks=pytest.mark.whole),
    pytest.param("docs/python.md", marks=pytest.mark.whole),
    "docs/tasks.md",
    "docs/writing-a-method.md",
)
NEEDED = {"docs/data.md": ("datasets", "pandas", "pyarrow"), "docs/python.md": ("onnxscript", "pandas")}
SECTIONS = {"task", "data", "fleet", "method"}  # a whole config has all of these

BEGIN = """
import warnings

import torch

import potluck

torch.set_num_threads(1)
as_printed = potluck.run


def smaller(**settings):
    settings["rounds"] = min(settings["rounds"], 1 + settings.get("resume", False))
    return as_printed(**{"engine": "serial", "watcher": None, **settings})


potluck.run = smaller
"""
MADE = {  # what a page takes for granted
    "README.md": """
net = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
my_dataset = [(torch.rand(6), number % 2) for number in range(200)]
""",
    "docs/python.md": """
potluck.run(
    model={"name": "heterofl-cnn", "hidden": [4, 8]}, data="digits", levels={"server": 1.0, "watch": 0.5}, clients=10,
    cohort=2, rounds=1, train={"epochs": 1}, out="runs/digits-heterofl",
)
""",
}


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """The blocks of code on a page, each with the number of its first line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)) + 1, block[1]) for block in found]


def files_in(page: str) -> dict[str, str]:
    """The blocks of a page that begin with the name of a file."""
    named = ((re.match(r"# (\w+\.py)\n", code), code) for _, code in blocks(page, "python"))
    return {name[1]: code for name, code in named if name}


@pytest.mark.parametrize("page", PAGES)
def test_python_runs(page: str, tmp_path: Path) -> None:
    for package in NEEDED.get(page, ()):
        pytest.importorskip(package)
    for name, code in files_in("docs/writing-a-method.md").items():
        (tmp_path / name).write_text(code)
    compiled = [
        f"exec(compile({code!r}, {f'{page} from line {line}'!r}, 'exec'))" for line, code in blocks(page, "python")
    ]
    assert compiled
    (tmp_path / "page.py").write_text("\n".join([BEGIN, MADE.get(page, ""), *compiled]))
    ran = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("page", sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))
def test_toml_is_understood(page: str) -> None:
    for line, text in blocks(page, "toml"):
        table = tomllib.loads(text)
        if set(table) >= SECTIONS:
            parse_config({"name": "page", **table}, Origin(Path(f"{page}:{line}"), text, trusted=True))

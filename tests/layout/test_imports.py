"""Imports point one way, and what is dangerous stays in its one place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

import potluck

ROOT = Path(potluck.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MAY_USE = {
    "core": {"core"},
    "parts": {"core", "parts"},
    "methods": {"core", "parts"},
    "engines": {"core", "engines"},
    "models": {"core", "models"},
    "data": {"core", "data"},
    "report": {"core", "report", "study"},
    "study": {"core", "data", "engines", "methods", "models", "parts", "study"},
    "contract": {"contract", "core", "data", "engines", "parts", "study"},
    "presets": set(),
    "series": {"core", "data", "models", "parts", "series", "study"},
}
MAY_USE_IN_PARTS = {
    "cut": {"cut"},
    "trace": {"cut", "trace"},
    "shrink": {"cut", "match", "shrink", "trace"},
    "width": {"batchnorm", "cut", "labels", "server_optimizer", "trace", "width"},
    "lowrank": {"cost", "labels", "lowrank", "match"},
    "compose": {"compose", "head", "match"},
    "cost": {"cost"},
}
LONGEST_FILE, LONGEST_FUNCTION = 300, 60
LONG_FUNCTIONS = {"study/api.py:run"}  # the one call with everything a user can say
ONLY_IN = {
    "typer": ["cli"],
    "rich": ["cli"],
    "click": ["cli"],
    "pickle": ["engines/luggage.py"],
    "cloudpickle": ["engines/luggage.py"],
    "marshal": [],
    "shelve": [],
    "dill": [],
    "joblib": [],
}
SEEDS_OTHERS = "data/items/generators.py"  # for a data set of the user's, which may draw from any of them
FORBIDDEN_CALLS = {"eval", "exec", "compile", "torch.load", "pickle.load", "pickle.loads", "cloudpickle.load"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(module: ast.Module, package: tuple[str, ...] = ()) -> Iterator[str]:
    """Every module or attribute that is imported anywhere in a file, by its full dotted name."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported(path: Path) -> set[str]:
    return set(imports(tree(path), ("potluck", *path.relative_to(ROOT).parent.parts)))


def calls(module: ast.Module) -> set[str]:
    """What is called or handed on, with local names spelled out as what they were imported as."""
    known: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            known |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {dotted(node, known) for node in ast.walk(module) if isinstance(node, ast.Name | ast.Attribute)}


def dotted(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, known)}.{node.attr}"
    return "?"


def test_the_checks_see_through_aliases_and_are_not_fooled_by_namesakes() -> None:
    source = """
        import torch as t
        import safetensors.torch
        t.load(path)
        safetensors.torch.load(content)
        net.eval()
    """
    found = calls(ast.parse(dedent(source)))
    assert "torch.load" in found
    assert "safetensors.torch.load" in found
    assert "eval" not in found
    assert calls(ast.parse("from torch import load as read\nread(x)")) & FORBIDDEN_CALLS == {"torch.load"}
    assert calls(ast.parse("eval('1')")) & FORBIDDEN_CALLS == {"eval"}
    assert set(imports(ast.parse("from ..core import types"), ("potluck", "parts"))) == {"potluck.core.types"}
    assert len(FILES) > 50


@pytest.mark.parametrize("path", [path for path in FILES if path.relative_to(ROOT).parts[0] in MAY_USE], ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("potluck.")}
    assert ours <= MAY_USE[package]
    assert "potluck" not in imported(path)


@pytest.mark.parametrize("room", sorted(path.name for path in (ROOT / "parts").iterdir() if path.is_dir()))
def test_rooms_in_parts_depend_on_each_other_one_way(room: str) -> None:
    if room == "__pycache__":
        return
    for path in sorted((ROOT / "parts" / room).glob("*.py")):
        used = {name.split(".")[2] for name in imported(path) if name.startswith("potluck.parts.")}
        assert used <= MAY_USE_IN_PARTS[room], path


def test_a_worker_starts_without_what_only_configs_need() -> None:
    look = "import sys, potluck.engines.worker; print('pydantic' in sys.modules, 'potluck.study' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_fit_a_few_screens(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)]
    long = {f"{name_of(path)}:{node.name}" for node in functions if length(node) > LONGEST_FUNCTION}
    assert long <= LONG_FUNCTIONS


def length(node: ast.FunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", sorted((ROOT / "methods").glob("*.py")), ids=name_of)
def test_no_method_imports_another(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith("potluck.methods")]


def test_nobody_imports_the_command_line() -> None:
    others = [path for path in FILES if path.relative_to(ROOT).parts[0] not in ("cli", "__main__.py")]
    assert not [name_of(path) for path in others if any(name.startswith("potluck.cli") for name in imported(path))]


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_is_imported_only_where_it_belongs(package: str) -> None:
    users = [name_of(path) for path in FILES if package in {name.split(".")[0] for name in imported(path)}]
    assert not [user for user in users if not user.startswith(tuple(ONLY_IN[package]) or ("nowhere",))]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_runs_code_it_has_read(path: Path) -> None:
    assert not calls(tree(path)) & FORBIDDEN_CALLS


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) != SEEDS_OTHERS], ids=name_of)
def test_no_draw_is_from_an_unseeded_generator_of_another_library(path: Path) -> None:
    assert "random" not in {name.split(".")[0] for name in imported(path)}
    assert not {name for name in calls(tree(path)) if name.startswith("numpy.random")}


def test_a_name_becomes_code_in_one_place() -> None:
    """Of what a text names; the two others import files of ours by their own names."""
    users = {name_of(path) for path in FILES if imports_by_name(tree(path))}
    assert users == {"__init__.py", "core/plug.py", "methods/__init__.py"}


def imports_by_name(module: ast.Module) -> bool:
    """Whether something is imported whose name is not written there."""
    functions = {"import_module", "__import__"}
    made = [node for node in ast.walk(module) if isinstance(node, ast.Call) and node.args]
    return any(
        dotted(node.func, {}).rpartition(".")[2] in functions and not isinstance(node.args[0], ast.Constant)
        for node in made
    )

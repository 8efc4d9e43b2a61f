"""Things found by name."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from potluck.core.errors import ConfigError
from potluck.core.plug import import_attribute, is_path, unknown


def test_the_likely_name_is_suggested_or_all_are_listed() -> None:
    assert unknown("method", "heterfl", ["fedavg", "heterofl"]) == (
        "there is no method 'heterfl'; did you mean 'heterofl'?"
    )
    assert unknown("data set", "MNIST", ["mnist", "digits"]).endswith("did you mean 'mnist'?")
    listed = unknown("engine", "xyz", ["serial", "local"])
    assert "there is no engine 'xyz'" in listed
    assert listed.index("local") < listed.index("serial")


def test_anything_importable_is_found() -> None:
    assert import_attribute("math:sin", "function", trusted=True) is math.sin
    assert import_attribute("pathlib:Path.cwd", "function", trusted=True) == Path.cwd
    assert import_attribute("math.sin", "function", trusted=True) is math.sin


def test_what_has_a_dot_or_a_colon_is_a_path() -> None:
    assert is_path("math.sin")
    assert is_path("math:sin")
    assert not is_path("heterofl-cnn")


def test_a_module_beside_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_users_own_module.py").write_text("THING = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert import_attribute("a_users_own_module:THING", "thing", trusted=True) == 42


@pytest.mark.parametrize("path", ["math:nothing", "no_such_module:thing", ":thing", "math:"])
def test_what_cannot_be_found_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot load model '{path}'"):
        import_attribute(path, "model", trusted=True)


def test_nothing_is_imported_or_looked_for_unless_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_strangers_module.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    with pytest.raises(ConfigError, match=r"add --trust to the same command \(in Python: trust=True\)"):
        import_attribute("a_strangers_module:THING", "model", trusted=False)
    assert sys.path == ["/nowhere"]
    with pytest.raises(ConfigError, match="cannot load model 'a_strangers_module:THING': SystemExit"):
        import_attribute("a_strangers_module:THING", "model", trusted=True)

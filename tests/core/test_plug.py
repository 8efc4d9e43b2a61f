"""Things found by name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from potluck.core.errors import ConfigError
from potluck.core.plug import import_attribute, unknown


def test_the_likely_name_is_suggested_or_all_are_listed() -> None:
    assert unknown("method", "heterfl", ["fedavg", "heterofl"]) == (
        "there is no method 'heterfl'; did you mean 'heterofl'?"
    )
    listed = unknown("engine", "xyz", ["serial", "local"])
    assert "there is no engine 'xyz'" in listed
    assert listed.index("local") < listed.index("serial")


def test_anything_importable_is_found() -> None:
    assert import_attribute("math:sin", "function") is math.sin
    assert import_attribute("pathlib:Path.cwd", "function") == Path.cwd


def test_a_module_beside_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_users_own_module.py").write_text("THING = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert import_attribute("a_users_own_module:THING", "thing") == 42


@pytest.mark.parametrize("path", ["math:nothing", "no_such_module:thing", ":thing", "math:"])
def test_what_cannot_be_found_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot load model '{path}'"):
        import_attribute(path, "model")

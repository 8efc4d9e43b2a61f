"""Whose code failed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import potluck
from potluck.core import blame, works
from potluck.core.blame import foreign_failure, is_foreign


@pytest.mark.parametrize(
    ("file", "foreign"),
    [
        (works.__file__, False),
        (str(Path(potluck.__file__).parent / "methods" / "fedavg.py"), False),
        (nn.__file__, False),
        (json.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        ("<__array_function__ internals>", False),
        (np.__file__, True),  # somebody's package, which we did not call
        (__file__, True),
        ("/home/somebody/my_method.py", True),
        ("/tmp/ipykernel_17/1234.py", True),
        ("<stdin>", True),
        ("<string>", True),
        ("<ipython-input-3-abc>", True),
        (str(Path(potluck.__file__).parents[1] / "potluck_extras.py"), True),  # beside ours, not ours
    ],
)
def test_a_file_is_ours_or_somebodys(file: str, foreign: bool) -> None:
    assert is_foreign(file) is foreign


def failure_of(call: Callable[[], object]) -> str:
    """The blame for what a call raises, as if we had called it: without the lines of this function."""
    try:
        call()
    except Exception as error:
        traceback = error.__traceback__
        assert traceback is not None
        return foreign_failure(error.with_traceback(traceback.tb_next))
    raise AssertionError("it did not fail")


def broken(*arguments: object) -> None:
    raise ValueError("a bug")


class Broken(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ torch.ones(7, 7)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_a_users_function_is_named_with_its_file_and_line() -> None:
    line = line_of('raise ValueError("a' + ' bug")')
    assert failure_of(broken) == f"broken in {__file__}:{line} raised ValueError: a bug"


def test_of_a_users_network_inside_of_pytorch_the_users_line_is_named() -> None:
    net = nn.Sequential(nn.Linear(3, 3), Broken())
    found = failure_of(lambda: net(torch.ones(2, 3)))
    line = line_of("return inputs @ torch.ones" + "(7, 7)")
    assert found.startswith(f"forward in {__file__}:{line} raised RuntimeError: ")


def test_what_pythons_own_code_calls_is_the_users_too() -> None:
    found = failure_of(lambda: json.dumps(object(), default=broken))
    assert found.startswith(f"broken in {__file__}:")


def test_the_innermost_of_the_users_lines_is_named() -> None:
    def outer() -> None:
        broken()

    assert failure_of(outer).startswith("broken in ")


def test_code_that_was_typed_in_is_the_users() -> None:
    space: dict[str, object] = {}
    exec("def typed():\n    raise KeyError('x')", space)
    assert failure_of(space["typed"]) == "typed in <string>:2 raised KeyError: 'x'"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        torch.nn.functional.linear,  # a TypeError of its own
        nn.Linear(2, 2).get_parameter,
        json.JSONDecoder().decode,
        blame.described,
    ],
)
def test_a_call_into_our_code_or_pytorchs_alone_is_nobodys(call: Callable[..., object]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever it is)
        call("nonsense")
    error = caught.value
    assert error.__traceback__ is not None
    assert foreign_failure(error.with_traceback(error.__traceback__.tb_next)) == ""
    assert foreign_failure(error.with_traceback(None)) == ""


def test_this_very_test_runs_outside_of_the_standard_library() -> None:
    """What the tests above rest on."""
    assert is_foreign(__file__)
    assert not is_foreign(json.__file__)
    assert sys.modules["json"] is json

"""A target that does not fit its task is named by the number that the user knows, however examples are divided."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_tasks import ANSWERS, CLASSES, INPUTS, NUMBERS, net, run
from torch import Tensor
from torch.utils.data import TensorDataset

import potluck
from potluck.core.errors import DataError
from potluck.data.items import collect

BAD = 37  # neither among the first nor the last


def spoilt(targets: Tensor, value: float) -> Tensor:
    return torch.where(torch.arange(len(targets)) >= BAD, torch.full_like(targets, value), targets)


WRONG: dict[str, tuple[Tensor, str]] = {
    "regression": (spoilt(NUMBERS, torch.inf), "a target is not finite; remove that example, or replace it"),
    "binary": (spoilt(ANSWERS, 3), "a target is 3, but for the task 'binary' it should be 0 or 1"),
    "classes": (spoilt(CLASSES, -2), "label -2 is negative; number the classes from 0"),
}


@pytest.mark.parametrize("task", WRONG)
@pytest.mark.parametrize("kind", ["held out", "test", "items", "listed", "owned"])
def test_the_first_example_that_does_not_fit_is_named(task: str, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    targets, says = WRONG[task]
    good = {"regression": NUMBERS, "binary": ANSWERS, "classes": CLASSES}[task]
    data: dict[str, Any] = {
        "held out": {"data": (INPUTS, targets)},
        "test": {"data": (INPUTS, good), "test": (INPUTS, targets)},
        "items": {"data": TensorDataset(INPUTS, targets)},
        "listed": {"data": (INPUTS, targets), "partition": [range(32, 64), range(32)], "clients": None},
        "owned": {"data": (INPUTS, targets), "owners": ["a", "b"] * 32, "clients": None},
    }[kind]
    what = "test" if kind == "test" else "data"
    with pytest.raises(DataError, match=f"^{what}, example {BAD}: {says}"):
        run(model=net(3 if task == "classes" else 1), task=task, **data)


@pytest.mark.parametrize("task", WRONG)
def test_an_example_of_a_client_is_named_with_the_client(task: str) -> None:
    targets, says = WRONG[task]
    good = {"regression": NUMBERS, "binary": ANSWERS, "classes": CLASSES}[task]
    settings: dict[str, Any] = {"model": net(3 if task == "classes" else 1), "task": task, "data": None}
    own, wrong = (INPUTS, good), (INPUTS, targets)
    with pytest.raises(DataError, match=f"^client 'bob', example {BAD}: {says}"):
        run(**settings, clients={"ann": own, "bob": wrong})
    with pytest.raises(DataError, match=f"^test of client 'bob', example {BAD}: {says}"):
        run(**settings, clients={"ann": own, "bob": own}, test={"bob": wrong})
    with pytest.raises(DataError, match=f"^test, example {BAD}: {says}"):
        run(**settings, clients={"ann": own, "bob": own}, test=wrong)


def test_sequences_of_unequal_length_have_numbers_too() -> None:
    rows = [torch.full((1 + at % 3,), -2 if at == BAD else at % 3) for at in range(64)]
    with pytest.raises(DataError, match=f"^data, example {BAD}: label -2 is negative"):
        run(data=potluck.examples((rows, rows), pad=0), task="next-token")


def test_what_is_wrong_with_all_targets_names_no_example() -> None:
    with pytest.raises(DataError, match=r"^data: labels are float32, not whole numbers"):
        run(data=(INPUTS, NUMBERS), task="classes")
    with pytest.raises(DataError, match=r"^data: each example has several targets"):
        run(data=(INPUTS, {"a": NUMBERS, "b": NUMBERS}), task="regression")

"""What methods need of a task: a part that needs classes is left out with a note, or the task is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from small_tasks import KINDS, of_kind, run, shown, with_method
from torch import nn

from potluck import methods
from potluck.core.errors import ConfigError

NO_CLASSES = [kind for kind in KINDS if kind != "classes"]
ROWS = "rows of the head are averaged by label"
NOTES = {  # what is left out by default, and instead
    "fedhm": (f"masking is 'zero' and {ROWS}", "nothing is masked and all rows are everybody's"),
    "heterofl": (f"masking is 'zero' and {ROWS}", "nothing is masked and all rows are everybody's"),
    "fedrolex": (f"masking is 'zero' and {ROWS}", "nothing is masked and all rows are everybody's"),
    "splitmix": ("masking is 'zero'", "nothing is masked"),
}
REFUSED = {"fjord": "set distill to false, and the drawn width learns alone"}


def noted(**settings: Any) -> tuple[Any, list[str]]:
    """What comes out of a run, and what is said before it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(rounds=1, **settings)
    return result, [str(each.message) for each in caught if each.category is UserWarning]


@pytest.mark.parametrize("method", methods.names())
def test_classes_are_what_every_method_takes_without_a_word(method: str) -> None:
    result, notes = noted(**of_kind("classes"), **with_method(method))
    assert notes == []
    assert result.metrics[0]["failures"] == 0
    assert shown(result)[0] == "accuracy"


@pytest.mark.parametrize("kind", NO_CLASSES)
@pytest.mark.parametrize("method", [name for name in methods.names() if name not in REFUSED])
def test_other_goals_do_without_and_a_note_says_so_once(method: str, kind: str) -> None:
    result, notes = noted(**of_kind(kind), **with_method(method))
    assert result.metrics[0]["failures"] == 0
    assert result.metrics[0]["levels"]["big"]["loss"] > 0
    if method not in NOTES:
        assert notes == []
        return
    does, instead = NOTES[method]
    way_out = "; if it does, let the task be 'classes'" if kind == "own" else ""
    assert notes == [f"{does}, but the task '{kind}' does not choose among classes: {instead}{way_out}"]


@pytest.mark.parametrize("kind", NO_CLASSES)
@pytest.mark.parametrize("method", REFUSED)
def test_a_method_that_cannot_do_without_is_refused_with_the_way_out(method: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"the task '{kind}' has none; {REFUSED[method]}"):
        run(**of_kind(kind), **with_method(method))


@pytest.mark.parametrize("kind", NO_CLASSES)
def test_the_way_out_works(kind: str) -> None:
    result, notes = noted(**of_kind(kind), **with_method("fjord", distill=False))
    assert notes == []
    assert result.metrics[0]["failures"] == 0


def test_self_distillation_needs_classes() -> None:
    assert noted(**of_kind("classes"), **with_method("fedhm", self_distill=0.1))[1] == []
    with pytest.raises(
        ConfigError, match="self_distill compares probabilities of classes, and the task 'regression' has none; set it"
    ):
        run(**of_kind("regression"), **with_method("fedhm", self_distill=0.1))


@pytest.mark.parametrize("kind", ["regression", "own"])
@pytest.mark.parametrize("method", NOTES)
def test_masking_that_is_off_keeps_the_note_away(method: str, kind: str) -> None:
    assert noted(**of_kind(kind), **with_method(method, masking="off"))[1] == []


@pytest.mark.parametrize("method", ["heterofl", "fedhm", "splitmix"])
def test_statistics_of_batch_norm_are_measured_whatever_is_learned(method: str) -> None:
    settings = {**of_kind("regression"), **with_method(method)}
    settings["model"].insert(1, nn.BatchNorm1d(8))
    result, _ = noted(**settings)
    norms = [each for each in result.export("small").modules() if isinstance(each, nn.BatchNorm1d)]
    assert norms
    assert all(each.running_mean is not None and each.running_mean.any() for each in norms)

"""What models are scored by: means, functions of everything, metrics of torchmetrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from measured import ECHO, at_once, drawn, in_pieces, task_of, whole
from torch import Tensor, nn
from torchmetrics import classification

from potluck.core.data import Arrays
from potluck.core.errors import ConfigError
from potluck.core.goals.classes import Classes, NextToken
from potluck.core.goals.goal import Goal
from potluck.core.goals.named import GOALS
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.goals.own import Own
from potluck.core.measures import Mean, Whole, attempt
from potluck.study.metrics import METRICS, as_metrics, measures_of

COUNT, KINDS = 40, 7
CLASSES = Arrays(drawn(COUNT, KINDS, seed=0), whole(KINDS, COUNT, seed=1))
NUMBERS = Arrays(drawn(COUNT, seed=2), drawn(COUNT, seed=3))
ANSWERS = Arrays(drawn(COUNT, seed=4), whole(2, COUNT, seed=5).float())
LABELS = Arrays(drawn(COUNT, 3, seed=6), whole(2, COUNT, 3, seed=7).float())


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).float()


def kinds_chosen(outputs: Tensor, targets: Tensor) -> float:
    return float(len(outputs.argmax(-1).unique()))


# ---- by name ----


def by_hand(name: str) -> Callable[[Tensor, Tensor], float]:
    """The metric as a book has it."""

    def counts(outputs: Tensor, targets: Tensor) -> list[list[int]]:
        """Of every class: rightly said, wrongly said, not said."""
        said, kinds = outputs.argmax(-1) == torch.arange(KINDS)[:, None], targets == torch.arange(KINDS)[:, None]
        return torch.stack([(said & kinds).sum(1), (said & ~kinds).sum(1), (~said & kinds).sum(1)], 1).tolist()

    def averaged(share: Callable[[int, int, int], float]) -> Callable[[Tensor, Tensor], float]:
        return lambda outputs, targets: sum(share(*each) for each in counts(outputs, targets)) / KINDS

    def auroc(outputs: Tensor, targets: Tensor) -> float:
        """The chance that an example of a class has more of its probability than one of another class."""
        found = []
        for c in range(KINDS):
            odds = outputs.softmax(-1)[:, c]
            own, other = odds[targets == c], odds[targets != c]
            found.append(float((own[:, None] > other[None]).double().mean()))
        return sum(found) / KINDS

    return {
        "macro-f1": averaged(lambda tp, fp, fn: 2 * tp / max(1, 2 * tp + fp + fn)),
        "precision": averaged(lambda tp, fp, fn: tp / max(1, tp + fp)),
        "recall": averaged(lambda tp, fp, fn: tp / max(1, tp + fn)),
        "balanced-accuracy": averaged(lambda tp, fp, fn: tp / max(1, tp + fn)),
        "iou": averaged(lambda tp, fp, fn: tp / max(1, tp + fp + fn)),
        "auroc": auroc,
        "top-5": lambda outputs, targets: float((outputs.topk(5).indices == targets[:, None]).any(1).double().mean()),
        "mae": lambda outputs, targets: float((outputs - targets).double().abs().mean()),
        "rmse": lambda outputs, targets: float((outputs - targets).double().square().mean().sqrt()),
        "r2": lambda outputs, targets: float(
            1
            - (outputs - targets).double().square().sum() / (targets.double() - targets.double().mean()).square().sum()
        ),
    }[name]


@pytest.mark.parametrize("name", METRICS)
def test_metrics_by_name_are_what_books_say(name: str) -> None:
    goal, examples = (Regression(), NUMBERS) if Regression in METRICS[name][0] else (Classes(), CLASSES)
    task = task_of(goal, examples, {name: None}, KINDS if goal.softmax else 0)
    expected = by_hand(name)(examples.inputs, examples.targets)
    assert at_once(task, examples)[name] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", [name for name, (kinds, _) in METRICS.items() if Binary in kinds])
def test_metrics_of_yes_and_no_have_a_form_for_several_labels(name: str) -> None:
    one = at_once(task_of(Binary(), ANSWERS, {name: None}), ANSWERS)[name]
    assert 0 < one < 1
    several = at_once(task_of(MultiLabel(), LABELS, {name: None}), LABELS)[name]
    columns = [Arrays(LABELS.inputs[:, at], LABELS.targets[:, at]) for at in range(3)]
    each = [at_once(task_of(Binary(), column, {name: None}), column)[name] for column in columns]
    assert several == pytest.approx(sum(each) / 3, rel=1e-5)


def test_what_does_not_count_is_not_in_a_metric() -> None:
    holed = Arrays(CLASSES.inputs, torch.where(torch.arange(COUNT) % 3 == 0, -100, CLASSES.targets))
    kept = holed.targets >= 0
    rest = Arrays(CLASSES.inputs[kept], CLASSES.targets[kept])
    names = dict.fromkeys(name for name, (kinds, _) in METRICS.items() if Classes in kinds)
    scores = [at_once(task_of(Classes(gaps=True), each, names, KINDS), each) for each in (holed, rest)]
    assert scores[0] == scores[1]


def test_a_batch_in_which_nothing_counts_adds_nothing_to_a_metric() -> None:
    holed = Arrays(CLASSES.inputs, torch.where(torch.arange(COUNT) < 10, -100, CLASSES.targets))
    task = task_of(Classes(gaps=True), holed, {"macro-f1": None, "auroc": None}, KINDS)
    assert in_pieces(task, holed, [(9, 0), (20, 3)]) == pytest.approx(at_once(task, holed))


@pytest.mark.parametrize("name", GOALS)
def test_a_goal_is_scored_by_its_own_metrics_unless_others_are_asked_for(name: str) -> None:
    goal = GOALS[name]()
    examples = {"regression": NUMBERS, "binary": ANSWERS, "multi-label": LABELS}.get(name, CLASSES)
    assert tuple(task_of(goal, examples, None, KINDS).measures) == goal.metrics
    assert not task_of(goal, examples, {}, KINDS).measures


def test_several_numbers_each_have_their_r2_and_images_have_one() -> None:
    outputs, targets = drawn(COUNT, 6, seed=0), drawn(COUNT, 6, seed=1)
    flat = Arrays(outputs, targets)
    each = [by_hand("r2")(outputs[:, at], targets[:, at]) for at in range(6)]
    assert at_once(task_of(Regression(), flat, None), flat)["r2"] == pytest.approx(sum(each) / 6)
    images = Arrays(outputs.view(COUNT, 2, 3), targets.view(COUNT, 2, 3))
    score = at_once(task_of(Regression(), images, None), images)
    assert score["r2"] == pytest.approx(by_hand("r2")(outputs.flatten(), targets.flatten()))
    assert score["mae"] == pytest.approx(by_hand("mae")(outputs, targets))


def test_a_metric_by_name_may_have_another_name() -> None:
    task = task_of(Regression(), NUMBERS, {"error": "mae", "explained": "r2", "mae": None, "r2": None})
    score = at_once(task, NUMBERS)
    assert list(score) == ["loss", "error", "explained", "mae", "r2"]
    assert (score["error"], score["explained"]) == (score["mae"], score["r2"])
    one = Arrays(NUMBERS.inputs[:1], NUMBERS.targets[:1])
    assert math.isnan(at_once(task, one)["explained"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("accuracy", "^the metric 'mine' is 'accuracy', which a record has anyway; leave it out$"),
        ("perplexity", "^the metric 'mine' is 'perplexity', which a record has anyway; leave it out$"),
        ("rmse", "^the metric 'rmse' makes no sense for the task 'next-token'"),
        ("recal", "^there is no metric 'recal'; did you mean 'recall'"),
        ("", "^there is no metric ''"),
    ],
)
def test_another_name_for_what_is_no_metric_is_refused(given: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        task_of(NextToken(), CLASSES, {"mine": given}, KINDS)


def test_one_example_has_no_r2() -> None:
    one = Arrays(NUMBERS.inputs[:1], NUMBERS.targets[:1])
    assert math.isnan(at_once(task_of(Regression(), one, None), one)["r2"])


def test_numbers_are_added_in_double_precision() -> None:
    """A float32 cannot tell 16777217 from 16777216."""
    many = Arrays(torch.full((3,), 2.0**24), torch.tensor([0.0, 2.0**24 - 1, 2.0**24 - 1]))
    assert in_pieces(task_of(Regression(), many, None), many, [(1, 0), (2, 0)])["mae"] == (2**24 + 2) / 3


@pytest.mark.parametrize(
    ("asked", "goal", "says"),
    [
        ("r2", Classes(), "'r2' makes no sense for the task 'classes'; it has accuracy, loss, macro-f1,"),
        ("accuracy", Regression(), "'accuracy' makes no sense for the task 'regression'; it has loss, mae, rmse, r2$"),
        ("perplexity", Classes(), "'perplexity' makes no sense for the task 'classes'"),
        ("balanced-accuracy", Binary(), "'balanced-accuracy' makes no sense for the task 'binary'"),
        ("mae", Own(nn.MSELoss()), "'mae' makes no sense for the task 'own'; it has loss$"),
        ("top-5", Classes(), "'top-5' is always 1 with 4 classes; leave it out"),
    ],
)
def test_metrics_that_make_no_sense_are_refused(asked: str, goal: Goal, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^the metric {says}"):
        measures_of({asked: None}, goal, 4, CLASSES.take(torch.tensor([0])), ECHO)


def test_an_unknown_metric_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"^there is no metric 'macrof1'; did you mean 'macro-f1'\?$"):
        task_of(Classes(), CLASSES, {"macrof1": None}, KINDS)


def test_what_a_goal_measures_anyway_may_be_asked_for() -> None:
    names = dict.fromkeys(("accuracy", "loss", "perplexity"))
    assert not task_of(NextToken(), CLASSES, names, KINDS).measures
    assert not task_of(Classes(), CLASSES, {"local_accuracy": None}, KINDS).measures


@pytest.mark.parametrize("name", ["accuracy", "loss", "local_accuracy", "clients"])
def test_an_own_metric_takes_no_name_that_a_record_has(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^metrics has '{name}', which a record has anyway; give yours another name"):
        task_of(Classes(), CLASSES, {name: right}, KINDS)


# ---- how they are given ----


def test_metrics_are_names_or_a_dictionary() -> None:
    f1 = classification.MulticlassF1Score(KINDS)
    assert as_metrics(None) is None
    assert as_metrics(["mae", "r2"]) == as_metrics(("mae", "r2")) == {"mae": None, "r2": None}
    assert as_metrics({"mae": "mae", "own": right}) == {"mae": None, "own": right}
    assert as_metrics({"own": f1})["own"] is f1  # type: ignore[index]  # f1 == "own" is a metric, which is true
    for wrong in ("mae", 5, [right], {right}):
        with pytest.raises(ConfigError, match="but it should be a list of names, such as"):
            as_metrics(wrong)
    for name in ("", "a/b"):
        with pytest.raises(ConfigError, match="but a name has at least one letter and no '/'"):
            as_metrics({name: right})


@pytest.mark.parametrize("wrong", [5, None.__class__])
def test_what_cannot_be_a_metric_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="the metric 'own' "):
        at_once(task_of(Classes(), CLASSES, {"own": wrong}, KINDS), CLASSES)


# ---- functions of one's own ----


def test_a_function_that_gives_a_number_for_every_example_is_averaged() -> None:
    for function in (right, lambda o, t: right(o, t).numpy(), lambda o, t: right(o, t).bool()):
        task = task_of(Classes(), CLASSES, {"own": function}, KINDS)
        assert isinstance(task.measures["own"], Mean)
        assert at_once(task, CLASSES)["own"] == pytest.approx(float(right(*CLASSES.take(torch.arange(COUNT))).mean()))


@pytest.mark.parametrize("numbers", [2, 3])
def test_a_number_for_every_output_is_none_for_every_example(numbers: int) -> None:
    """As many outputs as examples that it is tried on must not be mistaken for examples."""
    examples = Arrays(drawn(COUNT, numbers, seed=0), drawn(COUNT, numbers, seed=1))
    with pytest.raises(ConfigError, match=rf"the metric 'own' gives a tensor of shape \({numbers},\), but it should"):
        task_of(Regression(), examples, {"own": lambda o, t: (o - t).abs().mean(0)})


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (lambda o, t: o, r"a tensor of shape \(2, 7\)"),
        (lambda o, t: [1.0], "a list"),
        (lambda o, t: None, "a NoneType"),
    ],
)
def test_a_function_that_gives_something_else_is_refused(gives: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"the metric 'own' gives {told}, but it should give one number, or one for"):
        task_of(Classes(), CLASSES, {"own": gives}, KINDS)


@pytest.mark.parametrize("number", [kinds_chosen, lambda o, t: torch.tensor(kinds_chosen(o, t))])
def test_a_function_that_gives_one_number_is_shown_everything(number: Any) -> None:
    task = task_of(Classes(), CLASSES, {"own": number}, KINDS)
    assert isinstance(task.measures["own"], Whole)
    everything = kinds_chosen(CLASSES.inputs, CLASSES.targets)
    assert in_pieces(task, CLASSES, [(5, 1), (17, 2), (30, 0)])["own"] == everything


def test_a_function_that_fails_on_made_up_examples_is_shown_everything() -> None:
    def picky(outputs: Tensor, targets: Tensor) -> float:
        if len(targets.unique()) < KINDS:
            raise ValueError("I need all classes")
        return 0.5

    task = task_of(Classes(), CLASSES, {"own": picky}, KINDS)
    assert in_pieces(task, CLASSES, [(20, 3)])["own"] == 0.5


def test_outputs_that_are_several_tensors_are_put_together_each() -> None:
    def spread(outputs: dict[str, Any], targets: Tensor) -> float:
        assert len(outputs["a"]) == len(outputs["b"][0]) == len(targets)
        return float(outputs["a"].max() - outputs["b"][0].min())

    class Two(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"a": x, "b": (x * 2,)}

    inputs, targets = torch.zeros(1, 3), torch.zeros(1)
    measure = measures_of({"own": spread}, Own(nn.MSELoss()), 0, (inputs, targets), Two())["own"]
    pieces = [measure.of(Two()(torch.full((2, 3), float(at))), torch.zeros(2)) for at in (1, 5, 3)]
    assert measure.value(measure.added(measure.added(pieces[0], pieces[1]), pieces[2])) == 5 - 2


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda o, t: 1 / 0 if len(o) > 3 else 1.0, "fails: .* raised ZeroDivisionError: division by zero"),
        (lambda o, t: o if len(o) > 3 else 1.0, r"gives a tensor of shape \(40, 7\) for all examples, but it should"),
    ],
)
def test_a_function_that_fails_on_everything_is_named(function: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^the metric 'own' {says}"):
        at_once(task_of(Classes(), CLASSES, {"own": function}, KINDS), CLASSES)


def test_batches_of_unequal_length_are_filled_up_for_a_function_of_everything() -> None:
    measure = Whole(lambda o, t: 1.0, (0, 1))
    pieces = [measure.of(torch.ones(2, length), torch.ones(2, length, dtype=torch.long)) for length in (2, 3)]
    joined = measure.added(*pieces)
    assert joined["0"].tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert joined["1"].tolist() == [[1, 1, -100], [1, 1, -100], [1, 1, 1], [1, 1, 1]]


def test_outputs_of_another_form_in_another_batch_have_no_function_of_everything() -> None:
    measure = Whole(lambda o, t: 1.0, (0, 1))
    pieces = [measure.of(torch.zeros(2, *shape), torch.zeros(2)) for shape in ((3,), (3, 1))]
    with pytest.raises(ConfigError, match=r"'own' is given everything at once, but batches of shapes \(2, 3\) and"):
        attempt("own", measure.added, *pieces)

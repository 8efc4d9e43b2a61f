"""Losses, metrics, inputs and targets that are wrong: one clear sentence each, before anything is trained."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_experiment import SMALL, write_config
from small_tasks import ANSWERS, CLASSES, INPUTS, LABELS, NUMBERS, net, of_kind, run, squared
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import potluck
from potluck.cli import outcome
from potluck.core.errors import ConfigError, DataError, ModelError
from potluck.data.items import collect


class Needy(nn.Module):
    """A loss that asks for something nobody tells it."""

    def __init__(self, strength: float) -> None:
        super().__init__()


class Nameless(potluck.goals.Own):
    name = None  # type: ignore[assignment]


class Hopeless(potluck.goals.Classes):
    """A goal of the user's whose loss is no number."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) * float("nan")


def vector(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten() - targets).square()


def failing(outputs: Tensor, targets: Tensor) -> Tensor:
    raise KeyError("a slip")


def of_one(outputs: Tensor) -> Tensor:
    return outputs.sum()


def not_a_number(outputs: Tensor, targets: Tensor) -> Tensor:
    return squared(outputs, targets) * float("nan")


def without_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    return squared(outputs.detach(), targets)


def a_float(outputs: Tensor, targets: Tensor) -> float:
    return float(squared(outputs, targets).detach())


LOSSES: dict[Any, str] = {
    vector: r"^loss gives a tensor of shape \(2,\), but it should give one number, such as its mean$",
    failing: r"^loss fails: failing in .*test_bad_tasks\.py:\d+ raised KeyError: 'a slip'$",
    of_one: "^loss fails: TypeError: of_one.* takes 1 positional argument but 2 were given$",
    not_a_number: "^loss gives nan with the network's first weights; nothing can be learned from that$",
    without_gradient: "^loss gives a number that has no gradient; compute it from the outputs without detach",
    a_float: "^loss gives a float, but it should give a tensor of one number, from which gradients are computed$",
    Needy: "^loss Needy fails: .* missing 1 required positional argument: 'strength'$",
    5: r"^loss is 5, but it should be a function of \(outputs, targets\)$",
    "mse": "^loss is 'mse', but it should be a function of",
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: getattr(loss, "__name__", str(loss)))
def test_bad_losses(loss: Any) -> None:
    with pytest.raises(ConfigError, match=LOSSES[loss]):
        run(**{**of_kind("own"), "loss": loss})


def of_large_batches(outputs: Tensor, targets: Tensor) -> Tensor:
    """One number for the two examples that a loss is tried on, and several for more."""
    each = (outputs.flatten() - targets).square()
    return each if len(each) > 2 else each.mean()


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"step": "plain"}, 8),
        ({"step": "stacked-2"}, 8),
        ({"engine": "local", "workers": 2}, 8),
        ({"train": {"batch_size": 4, "accumulate": 2, "epochs": 1}}, 4),
        ({"test": 0.2}, 13),
    ],
    ids=["alone", "stacked", "in workers", "accumulated", "scored"],
)
@pytest.mark.parametrize("task", [None, "regression"])
def test_a_loss_that_gives_several_numbers_for_larger_batches(task: str | None, settings: Any, shape: Any) -> None:
    few = {"train": {"batch_size": 8, "epochs": 1}, "test": (INPUTS[:2], NUMBERS[:2])}
    says = rf"^loss gives a tensor of shape \({shape},\), but it should give one number, such as its mean$"
    with pytest.raises(ConfigError, match=says):
        run(**{**of_kind("own"), **few, **settings, "loss": of_large_batches, "task": task, "rounds": 1})


def of_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that works for the two examples on which it is tried, and for no other number."""
    return squared(outputs.view(2, 1), targets)


@pytest.mark.parametrize("task", [None, "regression"])
@pytest.mark.parametrize("metrics", [None, []])
def test_a_loss_that_fails_for_larger_batches(task: str | None, metrics: Any) -> None:
    says = r"^loss fails as a model is scored: of_pairs in .*test_bad_tasks\.py:\d+ raised RuntimeError: shape"
    with pytest.raises(ConfigError, match=says):
        run(**{**of_kind("own"), "loss": of_pairs, "task": task, "metrics": metrics})


def test_a_loss_of_pytorch_that_fails_for_larger_batches() -> None:
    weighted = nn.BCEWithLogitsLoss(weight=torch.ones(2))
    with pytest.raises(ConfigError, match=r"^loss fails as a model is scored: RuntimeError: The size of"):
        run(**{**of_kind("binary"), "loss": weighted})


class Later:
    """A loss that fails once models are scored in pieces: it was tried on all test examples."""

    def __init__(self) -> None:
        self.tried = False

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not outputs.requires_grad:
            if self.tried:
                raise KeyError("a slip")
            self.tried = True
        return squared(outputs, targets)


def test_a_loss_that_fails_in_the_middle_of_a_run() -> None:
    with pytest.raises(ConfigError, match=r"^loss fails as a model is scored: __call__ in .* raised KeyError"):
        run(**{**of_kind("own"), "loss": Later()})


class Picky(nn.Sequential):
    """A network that fails on some inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        if bool((inputs > 100).any()):
            raise ValueError("too large")
        return super().forward(inputs)  # type: ignore[no-any-return]


def test_a_network_that_fails_on_test_examples() -> None:
    with pytest.raises(DataError, match=r"^test: the network fails: forward in .* raised ValueError: too large$"):
        run(model=Picky(*net()), test=(INPUTS + 1000, CLASSES), rounds=1)


@pytest.mark.parametrize("loss", ["vector", "failing", "not_a_number", "without_gradient"])
def test_a_config_with_a_bad_loss_ends_with_exit_code_2(
    loss: str, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    text = SMALL.replace("rounds = 3\n", f'rounds = 1\nloss = "{__name__}:of_digits_{loss}"\n')
    monkeypatch.setattr(sys, "argv", ["potluck", "run", str(write_config(tmp_path, text)), "--trust"])
    assert outcome() == 2
    told = capsys.readouterr().err
    assert "loss gives" in told or "loss fails" in told
    assert "Traceback" not in told


def of_digits_vector(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def of_digits_failing(outputs: Tensor, targets: Tensor) -> Tensor:
    raise KeyError("a slip")


def of_digits_not_a_number(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) * float("nan")


def of_digits_without_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.detach(), targets)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('goal = "regresion"', "there is no task 'regresion'; did you mean 'regression'?"),
        ('metrics = ["macrof1"]', "there is no metric 'macrof1'; did you mean 'macro-f1'?"),
        ('metrics = ["mae"]', "the metric 'mae' makes no sense for the task 'classes'"),
        ('metrics = "mae"', "metrics"),
        ('loss = "builtins:len"', "loss 'builtins:len' is no function or class that makes a Tensor"),
        ('goal = "builtins:len"', "goal 'builtins:len' is no function or class that makes a Goal"),
        ('goal = "regression"', "gives outputs of shape (1, 10), but the targets have shape (1,)"),
    ],
)
def test_configs_that_say_it_wrongly_end_with_exit_code_2(
    line: str, says: str, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    path = write_config(tmp_path, SMALL.replace("rounds = 3\n", f"rounds = 1\n{line}\n"))
    monkeypatch.setattr(sys, "argv", ["potluck", "run", str(path), "--trust"])
    assert outcome() == 2
    told = capsys.readouterr().err
    assert says in " ".join(told.split())
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (5, "^task is 5, but it should be a name, such as 'regression', or a goal of potluck.goals$"),
        (nn.MSELoss(), "^task is .*, but it should be a name, such as 'regression', or a goal of potluck.goals$"),
        (Nameless(squared), "^task is a Nameless without a name; give its class one, such as name = 'mine'$"),
        (Hopeless(), "^loss gives nan with the network's first weights"),
    ],
)
def test_bad_tasks(task: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(task=task)


class Slips(potluck.goals.Regression):
    """A goal of the user's that fails in one of its methods."""

    name = "slips"

    def __init__(self, where: str) -> None:
        super().__init__()
        object.__setattr__(self, where, failing_in(where))


def failing_in(where: str) -> Any:
    def slip(*_: Any, **__: Any) -> Any:
        raise KeyError(f"a slip in {where}")

    return slip


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("targets", "^the task 'slips' fails on the targets of data: slip in .* raised KeyError: 'a slip in targets'$"),
        ("outputs", "^the task 'slips' fails on what the network returns: slip in .* 'a slip in outputs'$"),
        ("obstacle", "^the task 'slips' fails on the network's outputs: slip in .* 'a slip in obstacle'$"),
        ("loss", "^loss fails: slip in .* raised KeyError: 'a slip in loss'$"),
        ("sums", "^the task 'slips' fails as a model is scored: slip in .* 'a slip in sums'$"),
        ("scored", "^the task 'slips' fails as a model is scored: slip in .* 'a slip in scored'$"),
        ("derived", "^the task 'slips' fails as a model is scored: slip in .* 'a slip in derived'$"),
    ],
)
def test_a_task_that_fails(where: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(**{**of_kind("regression"), "task": Slips(where)})


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"mine": failing}, r"^the metric 'mine' fails: failing in .* raised KeyError: 'a slip'$"),
        (
            {"mine": lambda o, t: o},
            r"^the metric 'mine' gives a tensor of shape \(2, 3\), but it should give one",
        ),
        ({"mine": 5}, r"^the metric 'mine' is a int, but it should be a function of \(outputs, targets\) or"),
        ({"accuracy": squared}, "^metrics has 'accuracy', which a record has anyway; give yours another name$"),
        (["perplexity"], "^the metric 'perplexity' makes no sense for the task 'classes'"),
        (5, "^metrics is 5, but it should be a list of names"),
    ],
)
def test_bad_metrics(metrics: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(metrics=metrics)


# ---- targets ----


@pytest.mark.parametrize(
    ("kind", "targets", "says"),
    [
        ("classes", NUMBERS, "^data: labels are float32, not whole numbers; number the classes from 0, or say what"),
        ("classes", CLASSES - 1, r"^data, example \d+: label -1 is negative"),
        ("classes", torch.full((64,), -100), "^data: every label is -100, which stands for what does not count"),
        ("binary", ANSWERS + 1, r"^data, example \d+: a target is 2, but for the task 'binary' it should be 0 or 1$"),
        ("multi-label", ANSWERS, "^data: targets have shape .*, but for the task 'multi-label' each example needs"),
        (
            "pixels",
            CLASSES,
            "^data: each example has one target, but the task 'pixels' needs one for each pixel; if",
        ),
        ("masked-tokens", CLASSES, "^data: each example has one target, but the .* needs one for each position; if an"),
        (
            "multi-label",
            LABELS + 1,
            r"^data, example \d+: a target is 2, but for the task 'multi-label' it should be 0 or 1$",
        ),
    ],
)
def test_targets_of_the_wrong_kind(kind: str, targets: Tensor, says: str) -> None:
    with pytest.raises(DataError, match=says):
        run(model=net(), data=(INPUTS, targets), task=kind)


@pytest.mark.parametrize("kind", ["pixels", "masked-tokens"])
def test_one_target_per_example_where_there_should_be_several_also_in_lazy_items(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    with pytest.raises(DataError, match=f"^data: each example has one target, but the task '{kind}'"):
        run(data=TensorDataset(INPUTS, CLASSES), task=kind)


@pytest.mark.parametrize(
    ("kind", "outputs", "says"),
    [
        ("classes", 2, "has 2 outputs, but classes are numbered from 0 and the last is 2: it needs 3"),
        ("binary", 2, r"gives outputs of shape \(1, 2\), but the targets have shape \(1,\)"),
        ("regression", 2, r"gives outputs of shape \(1, 2\), but the targets have shape \(1,\)"),
        ("multi-label", 2, r"gives outputs of shape \(1, 2\), but the targets have shape \(1, 3\)"),
    ],
)
def test_networks_that_do_not_fit_the_targets(kind: str, outputs: int, says: str) -> None:
    with pytest.raises(ModelError, match=rf"the network of level 'big' \(ratio 1\) {says}"):
        run(**{**of_kind(kind), "model": net(outputs)})


def test_several_targets_need_a_loss_of_ones_own() -> None:
    both = {"a": NUMBERS, "b": NUMBERS}
    with pytest.raises(DataError, match="each example has several targets, but the task 'regression' has one; give a"):
        run(model=net(1), data=(INPUTS, both), task="regression")
    run(model=net(1), data=(INPUTS, both), loss=lambda o, t: squared(o, t["a"]) + squared(o, t["b"]), rounds=1)


# ---- inputs ----


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.cat([left, right], 1))


LEFT, RIGHT = INPUTS[:, :2], INPUTS[:, 2:]


def test_inputs_by_names_that_the_network_does_not_have() -> None:
    with pytest.raises(ModelError, match=r"an input 'middle', but the network's forward\(left, right\) does not"):
        run(model=Two(), data=({"left": LEFT, "right": RIGHT, "middle": LEFT}, CLASSES))


def test_an_input_that_is_missing_is_named() -> None:
    with pytest.raises(ModelError, match="missing 1 required positional argument: 'right'"):
        run(model=Two(), data=({"left": INPUTS}, CLASSES))


def test_test_examples_with_other_keys() -> None:
    with pytest.raises(DataError, match=r"the test examples are {'left': .*, 'write': .*}, but the clients' are "):
        run(
            model=Two(),
            data=({"left": LEFT, "right": RIGHT}, CLASSES),
            test=({"left": LEFT, "write": RIGHT}, CLASSES),
        )


def test_unequal_lengths_without_padding() -> None:
    rows = [np.arange(1 + at % 3) for at in range(64)]
    with pytest.raises(DataError, match="pad"):
        run(data=(rows, CLASSES))


def test_an_owner_column_with_gaps() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(INPUTS.numpy(), columns=list("abcd")).assign(
        y=NUMBERS.numpy(), shop=["x", "y", None, "z"] * 16
    )
    with pytest.raises(DataError, match="shop"):
        run(model=net(1), data=potluck.examples(frame, target="y", owners="shop"), clients=None, task="regression")


class Spoilt(Dataset[tuple[Tensor, int]]):
    """Items of which one has a number that is none."""

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return (INPUTS[at].log() if at == 7 else INPUTS[at]), int(CLASSES[at])


def spoilt(tensor: Tensor) -> Tensor:
    return torch.where(torch.arange(len(tensor))[:, None] == 7, torch.nan, tensor)


@pytest.mark.parametrize("kind", ["tensor", "dictionary", "items", "table"])
def test_inputs_that_are_no_numbers(kind: str) -> None:
    data: Any = {
        "tensor": (spoilt(INPUTS), CLASSES),
        "dictionary": ({"left": LEFT, "right": spoilt(RIGHT)}, CLASSES),
        "items": Spoilt(),
    }.get(kind)
    if kind == "table":
        pandas = pytest.importorskip("pandas")
        data = pandas.DataFrame(spoilt(INPUTS).numpy(), columns=list("abcd")).assign(label=CLASSES.numpy())
    with pytest.raises(DataError, match=r"not finite|empty|missing|NaN|no value"):
        run(model=Two() if kind == "dictionary" else net(), data=data)


def test_lazy_inputs_that_are_no_numbers_are_named_when_they_are_read(monkeypatch: Any) -> None:
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    with pytest.raises(
        DataError, match=r"^the data set: input 7 has values that are not finite; remove it, or replace"
    ):
        run(data=Spoilt(), cohort=1.0, test=(INPUTS, CLASSES), rounds=1)

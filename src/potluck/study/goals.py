"""What is learned, from what a user says of it: a task by name or ready-made, and a loss of one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.goals.goal import Criterion, Goal
from potluck.core.goals.named import GOALS, goal_named
from potluck.core.goals.own import Own
from potluck.core.plug import is_path
from potluck.core.tensors import raw_bytes
from potluck.study.makers import called, imported
from potluck.study.schema import Origin, Table, shown
from potluck.study.settings import TaskSection

RECORDED_ELSEWHERE = ("criterion", "gaps")


def read_goal(task: TaskSection, origin: Origin) -> Goal | None:
    """The goal that a config asks for: by name, or by path to a goal or to a loss of the user's own."""
    goal: Any = task.goal
    if isinstance(goal, str) and is_path(goal):
        goal = imported(goal, "task", "goal", Goal, origin)
        goal = goal if isinstance(goal, Goal) else called(goal, {}, ConfigError, f"[task] goal '{task.goal}'")
    loss = None if task.loss is None else imported(task.loss, "task", "loss", Tensor, origin)
    try:
        return as_goal(goal, loss)
    except ConfigError as error:
        raise ConfigError(f"{origin.about('task')}{error}{origin.place('task', 'goal')}") from error


def as_goal(task: Any, loss: Any) -> Goal | None:
    """The goal that a user asks for; None if it is for the data set to say."""
    if isinstance(task, type) and issubclass(task, Goal):
        task = called(task, {}, ConfigError, f"task {task.__name__}")
    if task is not None and not isinstance(task, str | Goal):
        raise ConfigError(
            f"task is {shown(task)}, but it should be a name, such as 'regression', or a goal of potluck.goals"
        )
    goal = goal_named(task) if isinstance(task, str) else task
    if goal is not None and not isinstance(getattr(goal, "name", None), str):
        raise ConfigError(f"task is a {type(goal).__name__} without a name; give its class one, such as name = 'mine'")
    if loss is None:
        return goal
    return replace(Own() if goal is None else goal, criterion=as_criterion(loss))


def as_criterion(loss: Any) -> Criterion:
    """A loss: a function of (outputs, targets), a module such as nn.HuberLoss(), or the class of one."""
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        loss = called(loss, {}, ConfigError, f"loss {loss.__name__}")
    if not callable(loss):
        raise ConfigError(f"loss is {shown(loss)}, but it should be a function of (outputs, targets)")
    given: Callable[..., Any] = loss
    return given


def goal_table(goal: Goal | None, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a record has of what was asked for in Python."""
    if goal is None:
        found: dict[str, Any] = {}
    else:
        found = {"goal": goal.name if type(goal) is GOALS.get(goal.name) else goal_class(goal)}
    own = {} if goal is None or goal.criterion is None else {"loss": criterion_name(goal)}
    return {**found, **own, **({} if metrics is None else {"metrics": tuple(metrics)})}


def goal_class(goal: Goal) -> str:
    """`module:name` of a goal's class."""
    return f"{type(goal).__module__}:{type(goal).__qualname__}"


def goal_digest(goal: Goal) -> dict[str, str]:
    """What a recipe's digest has of a goal of the user's, which may be called like one of Potluck's."""
    return {} if type(goal) in (*GOALS.values(), Own) else {"goal": goal_class(goal)}


def goal_options(goal: Goal) -> Table:
    """How a goal of the user's is set, beyond its loss."""
    names = dict.fromkeys([*(field.name for field in fields(goal)), *vars(goal)])
    given = {name: getattr(goal, name) for name in names if name not in RECORDED_ELSEWHERE}
    return {name: told(value) for name, value in given.items() if value is not None}


def with_options(goal: Goal, options: Mapping[str, Any]) -> Goal:
    """A goal set as a record tells, as far as plain values do."""
    known: Table = {}
    for field in fields(goal):
        value, now = options.get(field.name), getattr(goal, field.name)
        value = tuple(value) if isinstance(value, list) and isinstance(now, tuple) else value
        if field.init and field.name not in RECORDED_ELSEWHERE and type(value) is type(now):
            known[field.name] = value
    return replace(goal, **known)


def told(value: Any) -> Any:
    """A setting as a record can have it: the same in every process."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): told(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [told(each) for each in value]
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw_bytes(value.detach())).hexdigest()}"
    return object_told(value)


def criterion_name(goal: Goal) -> str:
    """What a record has of a loss of the user's own."""
    return "" if goal.criterion is None else object_told(goal.criterion)


def object_told(thing: Any) -> str:
    """`module:name` of a function or class; of another object that of its class, and how it is set."""
    if name := getattr(thing, "__qualname__", ""):
        return f"{thing.__module__}:{name}"
    return f"{type(thing).__module__}:{type(thing).__qualname__}({options_told(thing)})"


def options_told(thing: Any) -> str:
    """How an object is set, as far as that is plain: the same in every process."""
    if isinstance(thing, partial):
        numbered = {str(number): value for number, value in enumerate(thing.args)}
        given = {"of": getattr(thing.func, "__qualname__", ""), **numbered, **thing.keywords}
    else:
        known = getattr(thing, "__dict__", {})
        given = {name: value for name, value in known.items() if not name.startswith("_") and name != "training"}
    return ", ".join(f"{name}={value}" for name, value in given.items() if isinstance(value, str | int | float))

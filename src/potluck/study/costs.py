"""What a network costs at every level, with or without an experiment around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from potluck import methods
from potluck.core.errors import ConfigError
from potluck.core.goals.classes import Classes
from potluck.core.inputs import Inputs, tensors_of
from potluck.core.made_up import runnable
from potluck.core.method import Method
from potluck.core.plug import is_path
from potluck.core.types import Context, Level, Task, Train
from potluck.models.catalogue import input_for
from potluck.parts.cost.level import level_cost, measure_step
from potluck.parts.head import try_once
from potluck.study.given import as_levels
from potluck.study.levels import build, built_by, check_model, make_levels
from potluck.study.networks import model_factory
from potluck.study.recipes import Model, find_heads, networks_of, require_networks
from potluck.study.schema import TYPED, shown

Row = dict[str, Any]


def costs(
    model: Model,
    levels: Mapping[str, float],
    example: Inputs,
    method: str | Method = "heterofl",
    train: Train | None = None,
    measure: bool = True,
) -> list[Row]:
    """What each level costs a device: counted, and measured on this machine unless told not to.

    `example` is a batch of one input, whose values do not matter.

    >>> import torch
    >>> from potluck.models.cnn import heterofl_cnn
    >>> rows = costs(heterofl_cnn, {"server": 1.0, "watch": 1 / 16}, torch.zeros(1, 1, 28, 28), measure=False)
    >>> [(row["level"], row["parameters"], row["macs"]) for row in rows]
    [('server', 1556874, 39974912), ('watch', 6594, 182912)]
    """
    chosen = method if isinstance(method, Method) else methods.find(method, trusted=True)()
    if not callable(model) and not isinstance(model, Mapping):
        raise ConfigError(
            f"model is {shown(model)}, but it should be a network, or a function of the width that makes one"
        )
    if not tensors_of(example):
        raise ConfigError(
            f"example is {shown(example)}, but it should be a tensor with a batch of one input, such as "
            "torch.zeros(1, 3, 32, 32), or several in a tuple or, by name, in a dictionary"
        )
    return cost_rows(chosen, context_for(model, as_levels(levels), example, chosen, train), measure)


def context_for(
    model: Model,
    levels: Mapping[str, float],
    example: Inputs,
    method: Method,
    train: Train | None = None,
) -> Context:
    """A network and a method without data: what can be known of them before there is any."""
    ranked, networks = make_levels(levels), networks_of(model, example)
    require_networks(method, networks, ranked)
    sizes = built_by(method, networks, ranked)
    largest = build(networks, sizes[0])
    example = runnable(largest, example)
    goal = Classes()
    outputs = try_once(largest, example, goal, sizes[0])
    batch = example, torch.zeros(outputs.shape[:-1], dtype=torch.long)
    nets = check_model(networks, sizes, batch, goal, outputs.shape[-1])
    task = Task(
        model=networks,
        levels=ranked,
        classes=outputs.shape[-1],
        heads=find_heads(networks, nets, ranked, example, goal),
        example=batch,
        train=train or Train(),
    )
    return Context(task, round=0, seed=0)


def cost_rows(method: Method, ctx: Context, measure: bool) -> list[Row]:
    """One row per level that the method admits, in the order of the levels."""
    state = method.init(ctx)
    admitted = [level for level in ctx.task.levels if method.admits(level, ctx)]
    return [cost_row(method, state, level, ctx, measure) for level in admitted]


def cost_row(method: Method, state: dict[str, Tensor], level: Level, ctx: Context, measure: bool) -> Row:
    """What one level costs."""
    row = asdict(level_cost(method, state, level, ctx))
    return {**row, **asdict(measure_step(method, state, level, ctx))} if measure else row


def parse_input(text: str) -> Tensor:
    """A made-up input from words: `3x32x32` for floats, `int:64` for token ids.

    >>> parse_input("int:64").dtype, tuple(parse_input("3x32x32").shape)
    (torch.int64, (1, 3, 32, 32))
    """
    kind, _, sizes = text.rpartition(":")
    try:
        shape = [int(size) for size in sizes.split("x")]
    except ValueError as error:
        raise ConfigError(
            f"--input is '{text}', but it should be sizes such as 3x32x32, or int:64 for tokens"
        ) from error
    if kind not in ("", "int") or min(shape) < 1:
        raise ConfigError(f"--input is '{text}', but it should be sizes such as 3x32x32, or int:64 for tokens")
    return torch.zeros(1, *shape, dtype=torch.long if kind == "int" else torch.float)


def named_model(
    name: str, text: str | None, classes: int | None, options: Row
) -> tuple[Callable[[float], nn.Module], Tensor]:
    """A network by name or path with an input for it."""
    (example,) = named_inputs(name, [] if text is None else [text])
    return model_factory(name, options, example, classes, TYPED), example


def named_inputs(name: str, texts: Sequence[str]) -> tuple[Tensor, ...]:
    """Made-up inputs for a network; one of ours knows its usual input."""
    usual = None if is_path(name) else input_for(name)
    if not texts and usual is None:
        raise ConfigError(f"{name} needs --input, such as 3x32x32, or int:64 for tokens")
    examples = tuple(parse_input(part) for text in texts for part in text.split(","))
    examples = examples or (torch.zeros(1, *usual or ()),)
    if usual is not None and len(usual) == 1:
        return tuple(example.long() for example in examples)  # our networks that read a sequence read tokens
    return examples

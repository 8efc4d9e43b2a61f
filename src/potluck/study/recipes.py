"""From settings and a network to the public recipe, and from a run's config back to it on another machine.

The recipe depends on the data only through facts that are no secret: how many classes there are, and the shape and
type of an example. They are written into the run's config, so that a machine that has none of the data, or only its
own, builds the same recipe. A digest says whether it did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace

import torch
from torch import nn

from potluck.core.data import Examples
from potluck.core.errors import ConfigError, DataError
from potluck.core.fit import MOMENTUM, descends_plainly
from potluck.core.form import form_of
from potluck.core.goals.classes import MaskedTokens, NextToken
from potluck.core.goals.goal import Goal
from potluck.core.inputs import Inputs, tensors_of
from potluck.core.insight import left_out
from potluck.core.made_up import runnable
from potluck.core.method import Method
from potluck.core.networks import ByName, ByWidth, Networks
from potluck.core.random import seeded
from potluck.core.recipe import Recipe, run_digest, table_digest, weights_digest
from potluck.core.tensors import raw_bytes, state_of
from potluck.core.types import Level, Task, Train
from potluck.core.ways.step import TO_BE_CHOSEN, ways_of
from potluck.data.dataset import label_pieces
from potluck.parts.head import find_embeddings, find_head, require_taken
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.study.config import Config, name_of, options_of
from potluck.study.facts import Facts, require_alike
from potluck.study.goals import criterion_name, goal_digest
from potluck.study.levels import build, built_by, check_model, make_levels
from potluck.study.metrics import measures_of, require_sendable
from potluck.study.networks import load_source, model_factory
from potluck.study.schema import Table
from potluck.study.settings import Settings
from potluck.study.training import require_steps, train_table

TOKENS = (NextToken, MaskedTokens)
SAMPLED = 256  # public examples that a digest looks at
Model = Networks | Callable[[float], nn.Module] | nn.Module | Mapping[str, nn.Module | Callable[[], nn.Module]]
"""What a user calls a model: a network, a function of the width, or a network for every level."""


def networks_of(model: Model, example: Inputs) -> Networks:
    """Where the networks of levels come from."""
    if isinstance(model, Mapping):
        return ByName(model)
    if isinstance(model, nn.Module):
        return ByWidth(Shrinkable(model, example))
    return model if isinstance(model, ByName | ByWidth) else ByWidth(model)  # type: ignore[arg-type]


def make_recipe(settings: Settings, model: Model, facts: Facts, proxy: Examples | None = None) -> Recipe:
    """The recipe of an experiment; what could only fail later is refused at once."""
    require_hashable(settings.method)
    levels, networks = make_levels(settings.fleet.levels), networks_of(model, facts.example[0])
    require_networks(settings.method, networks, levels)
    require_plain_steps(settings.method, settings.train)
    left_out(settings.method, facts.goal)  # refuses what the method cannot do without
    if proxy is not None:
        require_alike("proxy", proxy, facts)
        require_classes(proxy, facts)
    sizes = built_by(settings.method, networks, levels)
    largest = build(networks, sizes[0])
    require_taken(largest, facts.example[0])
    example = runnable(largest, facts.example[0]), facts.example[1]
    nets = check_model(networks, sizes, example, facts.goal, facts.classes)
    largest = nets[sizes[0]]
    require_steps(settings.train, largest)
    measures = measures_of(settings.metrics, facts.goal, facts.classes, example, largest)
    require_sendable(measures, settings.method)
    task = Task(
        model=networks,
        levels=levels,
        classes=facts.classes,
        heads=find_heads(networks, nets, levels, example[0], facts.goal),
        example=example,
        train=settings.train,
        rounds=settings.task.rounds,
        goal=facts.goal,
        measures=measures,
        embeddings=find_embeddings(largest, facts.classes) if isinstance(facts.goal, TOKENS) else {},
        proxy=proxy,
        clients=settings.fleet.clients,
    )
    recipe = Recipe(settings.method, task, settings.seed)
    kind = kind_of(recipe, nets)
    return replace(recipe, kind=kind, run=run_digest(kind, task.rounds))


def find_heads(
    networks: Networks, nets: Mapping[Level, nn.Module], levels: Iterable[Level], inputs: Inputs, goal: Goal
) -> dict[str, tuple[str, ...]]:
    """The parameters that make the outputs of every level; sizes of one network call them the same."""
    head = find_head(next(iter(nets.values())), inputs, goal)
    own = nets if isinstance(networks, ByName) else {}
    return {each.name: find_head(own[each], inputs, goal) if each in own else head for each in levels}


def require_hashable(method: Method) -> None:
    """Refuse a method whose settings cannot be the key of what is made once."""
    try:
        hash(method)
    except TypeError as error:
        raise ConfigError(
            f"{type(method).__name__} has a setting that can change ({error}): use tuples instead of lists and "
            "dictionaries"
        ) from error


def require_networks(method: Method, networks: Networks, levels: tuple[Level, ...]) -> None:
    """Refuse networks by name for a method that needs sizes of one network, and levels without one."""
    if not isinstance(networks, ByName):
        return
    if not method.takes_any_networks:
        raise ConfigError(
            f"every level has a network of its own, but {type(method).__name__} trains sizes of one network; "
            "give one network, or choose a method that takes any"
        )
    missing = [level.name for level in levels if level.name not in networks.networks]
    if missing:
        raise ConfigError(f"model has no network for level '{missing[0]}'; it has {', '.join(networks.networks)}")


def require_plain_steps(method: Method, train: Train) -> None:
    """Refuse settings with which a step is not w - η·g if the method needs it to be; weight decay is part of g."""
    if not method.steps_plainly or (descends_plainly(replace(train, weight_decay=0.0)) and not train.clip):
        return
    plain = train.rule.kind is torch.optim.SGD and not any(value for _, value in train.rule.options)
    name = "optimizer" if not plain else "clip" if train.momentum == 0 else "momentum"
    momentum = MOMENTUM if train.momentum is None else train.momentum
    value = {"optimizer": train.rule.name, "momentum": momentum, "clip": train.clip}[name]
    raise ConfigError(
        f"[train] {name} is {value!r}, but {type(method).__name__} needs plain steps w - lr * g: let "
        "optimizer be 'sgd', and momentum and clip be 0"
    )


def require_classes(proxy: Examples, facts: Facts) -> None:
    """Refuse public examples of other classes than the clients'."""
    if not facts.goal.softmax:
        return
    highest = max(int(labels.max()) for labels in label_pieces(proxy) if labels.numel())
    if highest >= facts.classes:
        raise DataError(
            f"a proxy example has the label {highest}, but there are {facts.classes} classes; if the labels mean "
            "something else, give them all the label 0"
        )


def kind_of(recipe: Recipe, nets: Mapping[Level, nn.Module]) -> str:
    """A digest of everything that two machines must agree on, but for the number of rounds."""
    task, method = recipe.task, recipe.method
    forms = {
        level.name: {name: str(spec) for name, spec in form_of(state_of(net)).items()} for level, net in nets.items()
    }
    return table_digest(
        {
            "method": [f"{type(method).__module__}:{type(method).__qualname__}", asdict(method)],
            "levels": {level.name: level.ratio for level in task.levels},
            "data": Facts(task.classes, task.goal, task.example).table(),
            "loss": criterion_name(task.goal),
            **goal_digest(task.goal),
            "train": train_table(task.train),
            "networks": forms,
            "weights": weights_digest(task.model),
            "proxy": fingerprint(task.proxy) if task.proxy is not None else "",
            "seed": recipe.seed,
        }
    )


def fingerprint(examples: Examples) -> str:
    """What tells these public examples from others: how many there are, and a digest of some of them."""
    some = torch.arange(min(SAMPLED, len(examples))) * len(examples) // min(SAMPLED, len(examples))
    digest = hashlib.sha256()
    for tensor in tensors_of(examples.take(some)):
        digest.update(raw_bytes(tensor))
    return f"{len(examples)} {digest.hexdigest()}"


def recipe_table(recipe: Recipe) -> Table:
    """What a run's config tells of its recipe: facts, and digests that a resume and a client must match."""
    task = recipe.task
    weights = weights_digest(task.model)
    known = {"weights": weights} if weights else {}
    return {"run": recipe.run, "kind": recipe.kind, **known, **Facts(task.classes, task.goal, task.example).table()}


def named_networks(config: Config, example: Inputs, classes: int) -> Networks:
    """The networks that a config names."""
    with seeded(config.seed, "model"):  # a ready-made network's first weights are drawn as it is imported
        name, options = name_of(config.task.model), options_of(config.task.model)
        return ByWidth(model_factory(name, options, example, classes, config.origin))


def rebuilt(config: Config) -> Recipe:
    """The recipe of a recorded run, on a machine that need not have any of its data."""
    facts = Facts.of_table(config.recipe, config.goal)
    proxy = None
    if config.data.proxy is not None:
        proxy = load_source(config.data.proxy, None, "proxy", config.origin).train
    recipe = make_recipe(config, named_networks(config, facts.example[0], facts.classes), facts, proxy)
    if recipe.run != config.recipe.get("run"):
        raise ConfigError(
            f"this machine builds the recipe {recipe.run[:12]}, but the run has {str(config.recipe.get('run'))[:12]}: "
            "the network, its weights or a setting differ"
        )
    if config.engine.step in TO_BE_CHOSEN:
        return recipe
    return replace(recipe, ways=ways_of(config.engine.step, [level.name for level in recipe.task.levels]))

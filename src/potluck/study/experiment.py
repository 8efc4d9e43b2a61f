"""Everything a run needs, as objects: put together from a config, or from what a user has in hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.blame import foreign_failure
from potluck.core.client import Site
from potluck.core.data import AnyHoldings, Examples, Holdings, Pool, is_even
from potluck.core.desk import Desk
from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.core.evaluate import LocalTest
from potluck.core.fleet import Fleet
from potluck.core.goals.classes import Classes
from potluck.core.goals.named import GOALS
from potluck.core.method import Method
from potluck.core.random import seeded, stream
from potluck.core.recipe import Recipe
from potluck.core.server import cohort_size, first_state
from potluck.core.types import Level, Task
from potluck.data.dataset import Dataset, all_labels, classes_to_divide_by, fitted, has_one_label
from potluck.data.local_test import local_share, local_test
from potluck.data.owners import clients_of
from potluck.data.partitions import PARTITIONS
from potluck.data.partitions.cover import as_holdings, holdings_by_client
from potluck.parts.cost.level import LevelCost, level_cost
from potluck.study.config import Config
from potluck.study.facts import Facts, example_of, require_alike
from potluck.study.levels import build
from potluck.study.networks import load_source
from potluck.study.recipes import Model, make_recipe, named_networks
from potluck.study.roster import names_of, owners_called
from potluck.study.settings import Settings
from potluck.study.trying import try_loss, try_metrics


@dataclass(frozen=True)
class Experiment:
    """A federation ready to run."""

    settings: Settings
    site: Site
    desk: Desk
    fleet: Fleet
    names: tuple[str, ...] = ()  # of the clients, if they have some

    @property
    def recipe(self) -> Recipe:
        return self.site.recipe

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def task(self) -> Task:
        return self.recipe.task

    @property
    def data(self) -> Examples:
        """Everybody's training examples."""
        assert isinstance(self.site.holder, Pool)
        return self.site.holder.train

    @property
    def holdings(self) -> AnyHoldings:
        """Who holds which of them."""
        assert isinstance(self.site.holder, Pool)
        return self.site.holder.holdings

    @property
    def test(self) -> Examples:
        return self.desk.test

    def admitted(self) -> list[Level]:
        """The levels whose devices take part."""
        ctx = self.site.context(0)
        return [level for level in self.task.levels if self.method.admits(level, ctx)]

    def costs(self) -> list[LevelCost]:
        """What each admitted level costs."""
        ctx = self.site.context(0)
        state = first_state(self.method, ctx)
        return [level_cost(self.method, state, level, ctx) for level in self.admitted()]

    def trained_in(self, ways: dict[str, str]) -> Experiment:
        """The experiment, its clients trained in these ways."""
        recipe = replace(self.recipe, ways=ways)
        return replace(self, site=replace(self.site, recipe=recipe), desk=replace(self.desk, recipe=recipe))


def assemble(settings: Settings, model: Model, data: Dataset, proxy: Examples | None = None) -> Experiment:
    """Put an experiment together, and refuse at once what could only fail later."""
    data = data.aimed_at(settings.goal or data.aim)
    clients, seed, facts = settings.fleet.clients, settings.seed, facts_of(data)
    require_alike("test", data.test, facts)
    public = None if proxy is None else fitted(proxy, facts.goal, "proxy")
    recipe = make_recipe(settings, model, facts, public)
    try_once(recipe.task, data)
    ours = type(settings.partition) in PARTITIONS.values()
    targets, owners = (classes_to_divide_by if ours else all_labels)(data.train), data.owner_numbers()
    targets = targets.long() if facts.goal.labelled else targets
    holdings = as_holdings(dealt(settings, targets, owners), clients, len(targets))
    called = owners_called(data, owners, settings.partition, holdings)
    scored_by, local = local_part(data, holdings, called)
    pool = Pool(data.train, holdings, data.test, scored_by, facts.goal.softmax)
    fleet = Fleet(recipe.task.levels, settings.assignment, pool, seed)
    dealt_to = cohort_size(settings.fleet.cohort, clients) if settings.assignment.per_cohort else clients
    fleet.deal(dealt_to, round=0)  # a mix that does not fit the levels is refused here
    device = usable(settings.engine.device)
    desk = Desk(recipe, data.test, local, device, choosing(settings, len(data.test)))
    experiment = Experiment(settings, Site(recipe, pool, device), desk, fleet, names_of(data, called))
    if not experiment.admitted():
        known = ", ".join(f"{level.name} ({level.ratio:g})" for level in recipe.task.levels)
        raise ConfigError(
            f"the method admits none of the levels {known}: its network is wider than every device; lower its width or "
            "raise a level"
        )
    return experiment


def try_once(task: Task, data: Dataset) -> None:
    """Try what the user brought along on some examples of the data."""
    if task.goal.criterion is None and type(task.goal) in GOALS.values() and not task.measures:
        return
    net = build(task.model, task.largest)
    try_loss(task.goal, net, data.train)
    try_metrics(task, net, data.test)


def from_config(config: Config, data_dir: Path | None = None) -> Experiment:
    """The experiment that a config describes, on data from this folder or the one POTLUCK_DATA names."""
    with seeded(config.seed, "model"):  # its file may make a network as well, as it is imported
        data = load_source(config.data.source, data_dir, origin=config.origin)
    if config.data.test_examples is not None:
        data = data.scored_on(config.data.test_examples)
    proxy = None
    if config.data.proxy is not None:
        with seeded(config.seed, "model"):
            proxy = load_source(config.data.proxy, data_dir, "proxy", config.origin).train
    data = data.aimed_at(config.goal or data.aim)
    facts = facts_of(data)
    return assemble(config, named_networks(config, facts.example[0], facts.classes), data, proxy)


def facts_of(data: Dataset) -> Facts:
    """What everybody may know of the data: nothing of their content."""
    return Facts(data.classes, data.aim, example_of(data.train), is_even(data.train))


def dealt(settings: Settings, targets: Tensor, owners: Tensor | None) -> object:
    """What the partition gives; one of the user's that fails is named."""
    rng = stream(settings.seed, "partition")
    try:
        return settings.partition(targets, settings.fleet.clients, rng, owners)
    except PotluckError:
        raise
    except Exception as error:
        if not (failure := foreign_failure(error)):
            raise  # a fault of ours
        raise DataError(f"the partition fails: {failure}") from error


def local_part(data: Dataset, holdings: AnyHoldings, called: Sequence[str]) -> tuple[Holdings | None, LocalTest | None]:
    """Which client every test example belongs to, and what that client knows.

    Test examples that came with their clients stay theirs. Where holdings are drawn when asked for, clients share
    examples, and none is one client's; an example with a label for every position is of no class.
    """
    owner = clients_of(data.test_owners, called) if called and data.test_owners is not None else None
    own = None if owner is None else holdings_by_client(owner, len(holdings))
    if type(data.aim) is not Classes or data.aim.gaps or not isinstance(holdings, Holdings):
        return own, None
    if not has_one_label(data.train):
        return own, None
    train, test = all_labels(data.train), all_labels(data.test)
    if owner is not None:
        return own, local_test(train, holdings, owner, data.classes)
    share = local_share(train, holdings, test, data.classes)
    return share.holdings, share.test


def choosing(settings: Settings, count: int) -> Tensor | None:
    """Which test examples choose the best round: the same ones for all seeds."""
    share = settings.validation
    if not share:
        return None
    if not settings.method.shares_model:
        raise ConfigError(
            f"validation is {share}, but with {type(settings.method).__name__} every client scores a model of its own; "
            "leave validation out"
        )
    chosen = round(count * share)
    if not 0 < chosen < count:
        raise ConfigError(
            f"validation is {share}, which would be {chosen} of {count} test examples, but some should be left on "
            "either side"
        )
    return torch.randperm(count, generator=stream(0, "validation"))[:chosen].sort().values


def usable(device: str) -> str:
    """The name of a device, if networks can be there."""
    if device == "cpu" or (device == "cuda" and torch.cuda.is_available()):
        return device
    why = "this machine has none" if device == "cuda" else "it should be 'cpu' or 'cuda'"
    raise ConfigError(f"[engine] device is {device!r}, but {why}")

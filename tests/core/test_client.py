"""A client's round, and what it says when it cannot take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from potluck.core import client
from potluck.core.client import Site, Work, require_trainable, train
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.errors import ConfigError, UpdateError
from potluck.core.goals.classes import Classes
from potluck.core.memo import Memo
from potluck.core.method import Method, recipient
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Task, Tensors, Train, Update
from potluck.core.ways.way import Way
from potluck.core.works import perform

LEVEL = Level("all", 1.0)
EXAMPLES = Arrays(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2)
HOLDINGS = Holdings.of_lists([torch.arange(6), torch.tensor([], dtype=torch.long), torch.tensor([6]), torch.arange(6)])


def net(width: float) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))


FEDAVG, BRISK = Method(), Train(lr=0.1, epochs=2, batch_size=3)
ALONE: Mapping[str, Work] = {}


def site(method: Method = FEDAVG, settings: Train = BRISK, run: str = "", works: Mapping[str, Work] = ALONE) -> Site:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    task = Task(ByWidth(net), (LEVEL,), 2, {}, example, settings, rounds=4)
    return Site(Recipe(method, task, 7, run=run), Pool(EXAMPLES, HOLDINGS), works=works)


def job(at: Site, client: int = 0, round: int = 0, work: str = "train") -> Job:
    state = at.method.init(at.context(0))
    return Job(Client(client, LEVEL, HOLDINGS.size(client), (0, 1)), round, state, work, at.recipe.run)


def performed(at: Site, asked: Job, personal: Tensors | None = None) -> tuple[Update, Tensors]:
    (found,) = perform(at, [asked], [personal or {}])
    return found


def same(one: Tensors, other: Tensors) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def trained(at: Site, *, client: int = 0, round: int = 0) -> Tensors:
    sent, _ = train(at, job(at, client, round), {})
    return {name: tensor.clone() for name, tensor in sent.items()}


def test_training_is_a_pure_function_of_the_job() -> None:
    first = trained(site())
    used = site()
    torch.manual_seed(3)
    trained(used, client=3)
    assert same(trained(used), first)


def test_rounds_and_clients_with_the_same_data_train_differently() -> None:
    first = trained(site())
    assert not same(trained(site(), client=3), first)
    assert not same(trained(site(), round=1), first)


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    trained(site())
    assert torch.rand(2).tolist() == expected


def test_the_rate_is_that_of_the_round() -> None:
    stopped = Train(lr=0.1, schedule="multistep", milestones=(1,), decay=1e-30, epochs=1)
    start = job(site()).payload
    assert not same(trained(site(settings=stopped), round=0), start)
    assert same(trained(site(settings=stopped), round=1), start)


@dataclass(frozen=True)
class TwoPhases(Method):
    """Trains the first layer, then the last."""

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(noted, {"number": torch.tensor(n)}) for n in range(2)]


SEEN: list[tuple[int, list[float]]] = []


def noted(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    SEEN.append((int(extra["number"]), batch[0][:, 0].tolist()))
    return Classes()(net, batch, extra)


@pytest.mark.parametrize(("level", "way"), [("all", Way(swift=True)), ("another", Way())])
def test_a_level_is_trained_in_its_way_and_plainly_if_it_has_none(
    level: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[Way] = []
    monkeypatch.setattr(client, "train_in", lambda way, *_: ways.append(way))
    there = site()
    there = replace(there, recipe=replace(there.recipe, ways={level: "swift"}))
    train(there, job(there), {})
    assert ways == [way]


def test_phases_follow_each_other_each_with_batches_of_its_own() -> None:
    SEEN.clear()
    train(site(TwoPhases()), job(site()), {})
    assert [number for number, _ in SEEN] == [0] * 4 + [1] * 4
    assert [values for _, values in SEEN[:4]] != [values for _, values in SEEN[4:]]


def test_a_client_without_examples_says_so_instead_of_ending_the_run() -> None:
    kept = {"own": torch.ones(1)}
    update, stays = performed(site(), job(site(), client=1), kept)
    assert update.failure == "the client holds no examples"
    assert update.payload == {}
    assert stays == {}  # what stayed there stays
    assert kept["own"].tolist() == [1.0]


def test_batch_norm_on_one_example_is_refused_and_nothing_else_is() -> None:
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UpdateError, match="one example, and batch norm needs two"):
        require_trainable(normed, 1)
    require_trainable(normed, 2)
    require_trainable(nn.Linear(2, 2), 1)


def test_an_answer_says_what_it_is_the_answer_to() -> None:
    at = site(run="abc")
    update, stays = performed(at, job(at, client=3, round=2))
    assert (update.client.id, update.round, update.run, update.failure) == (3, 2, "abc", "")
    assert update.seconds > 0
    assert stays == {}
    failed, _ = performed(at, job(at, client=1, round=2))
    assert (failed.client.id, failed.round, failed.run) == (1, 2, "abc")


def test_a_job_of_another_run_is_not_done() -> None:
    at = site(run="a" * 64)
    update, _ = performed(at, replace(job(at), run="b" * 64))
    assert update.failure == "the job is of run bbbbbbbbbbbb, but this machine is set up for aaaaaaaaaaaa"


def raising(error: Exception) -> Work:
    def work(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
        raise error

    return work


def test_a_users_mistake_is_the_clients_failure_and_says_where() -> None:
    """This file stands for the user's."""
    at = site(works={"own": raising(ValueError("a bug"))})
    update, stays = performed(at, job(at, work="own"), {"own": torch.ones(1)})
    assert update.failure.startswith(f"work in {__file__}:")
    assert update.failure.endswith(" raised ValueError: a bug")
    assert update.payload == {}
    assert stays == {}


def test_a_mistake_of_ours_is_not_taken_for_a_failed_client() -> None:
    """Examples that do not fit the network, which is PyTorch's from end to end: no line of a user's ran."""
    at = replace(site(), holder=Pool(Arrays(torch.zeros(6, 3), EXAMPLES.targets[:6]), HOLDINGS))
    with pytest.raises(RuntimeError, match=r"client 0 of level 'all' in round 3 broke down: RuntimeError: .*shapes"):
        performed(at, job(at, round=2))
    with pytest.raises(RuntimeError, match=r"client 3 of level 'all' in round 1 broke down: KeyError: 'dance'"):
        performed(at, job(at, client=3, work="dance"))


def test_a_mistake_in_the_settings_ends_the_run_in_its_own_words() -> None:
    at = site(works={"own": raising(ConfigError("no such step"))})
    with pytest.raises(ConfigError, match="no such step"):
        performed(at, job(at, work="own"))


def answering(sent: object, kept: object) -> Work:
    return lambda site, job, personal: (sent, kept)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sent", "kept", "reason"),
    [
        (None, {}, "it is a NoneType, but it should be a dictionary of named tensors"),
        ([torch.ones(1)], {}, "it is a list, but it should be a dictionary of named tensors"),
        ({"w": 3}, {}, "'w' is a int, but it should be a tensor"),
        ({0: torch.ones(1)}, {}, "it names a tensor 0, but names are text"),
        ({}, {"own": None}, "'own' is a NoneType, but it should be a tensor"),
    ],
)
def test_what_cannot_be_sent_or_kept_is_the_clients_failure(sent: object, kept: object, reason: str) -> None:
    at = site(works={"own": answering(sent, kept)})
    update, stays = performed(at, job(at, work="own"))
    assert update.failure == reason
    assert (update.payload, stays) == ({}, {})


def test_a_site_remembers_networks_but_does_not_take_them_along() -> None:
    at = site()
    trained(at)
    assert at.context(0).memo is at.context(1).memo
    assert at.memo.made
    assert at.__getstate__()["memo"] == Memo()
    assert set(at.__getstate__()) == set(replace(at).__dict__)


def test_an_exported_model_is_for_nobody_in_particular() -> None:
    assert recipient(LEVEL, site().context(0)) == Client(-1, LEVEL, BRISK.batch_size, (0, 1))

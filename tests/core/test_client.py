"""A client's round, and what it says when it cannot take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from potluck.core.client import Site, perform, require_trainable, train
from potluck.core.data import Arrays, Holdings
from potluck.core.errors import UpdateError
from potluck.core.method import Method, model_owner, plain_loss
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Task, Tensors, Train

LEVEL = Level("all", 1.0)
EXAMPLES = Arrays(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2)
HOLDINGS = Holdings.of_lists([torch.arange(6), torch.tensor([], dtype=torch.long), torch.tensor([6]), torch.arange(6)])


def net(width: float) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))


FEDAVG, BRISK = Method(), Train(lr=0.1, epochs=2, batch_size=3)


def site(method: Method = FEDAVG, settings: Train = BRISK) -> Site:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    return Site(method, Task(net, (LEVEL,), 2, (), example, settings, rounds=4), 7, EXAMPLES, HOLDINGS)


def job(at: Site, client: int = 0, round: int = 0) -> Job:
    state = at.method.init(at.context(0))
    return Job(Client(client, LEVEL, HOLDINGS.size(client), (0, 1)), round, state)


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

    def phases(self, job: Job, ctx: Context) -> Sequence[Phase]:
        return [Phase(noted, {"number": torch.tensor(n)}) for n in range(2)]


SEEN: list[tuple[int, list[float]]] = []


def noted(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    SEEN.append((int(extra["number"]), batch[0][:, 0].tolist()))
    return plain_loss(net, batch, extra)


def test_phases_follow_each_other_each_with_batches_of_its_own() -> None:
    SEEN.clear()
    train(site(TwoPhases()), job(site()), {})
    assert [number for number, _ in SEEN] == [0] * 4 + [1] * 4
    assert [values for _, values in SEEN[:4]] != [values for _, values in SEEN[4:]]


def test_a_client_without_examples_says_so_instead_of_ending_the_run() -> None:
    kept = {"own": torch.ones(1)}
    update, personal = perform(train, site(), job(site(), client=1), kept)
    assert update.failure == "the client holds no examples"
    assert update.payload == {}
    assert personal is kept


def test_batch_norm_on_one_example_is_refused_and_nothing_else_is() -> None:
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UpdateError, match="one example, and batch norm needs two"):
        require_trainable(normed, 1)
    require_trainable(normed, 2)
    require_trainable(nn.Linear(2, 2), 1)


def test_a_mistake_in_the_work_is_not_taken_for_a_failed_client() -> None:
    def broken(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        perform(broken, site(), job(site()), {})


def test_a_site_remembers_networks_but_does_not_take_them_along() -> None:
    at = site()
    trained(at)
    assert at.context(0).memo is at.context(1).memo
    assert at.memo
    assert at.__getstate__()["memo"] == {}
    assert set(at.__getstate__()) == set(replace(at).__dict__)


def test_an_exported_model_is_for_nobody_in_particular() -> None:
    assert model_owner(LEVEL, site().context(0)) == Client(-1, LEVEL, 0, (0, 1))

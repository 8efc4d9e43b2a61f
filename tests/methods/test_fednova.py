"""FedNova: how long a client's steps are together, the mean of ways, and that it learns."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from clouds import heads, learned
from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.networks import ByWidth
from potluck.core.types import Client, Context, Level, Task, Train, Update
from potluck.methods.fedavg import FedAvg
from potluck.methods.fednova import FedNova, path_length
from potluck.parts.server_optimizer import Momentum

LARGE = Level("large", 1.0)
PLAIN = Train(momentum=0.0, epochs=1, batch_size=10)


def context(train: Train = PLAIN) -> Context:
    example = (torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    network = ByWidth(lambda width: nn.Linear(1, 1, bias=False))
    return Context(Task(network, (LARGE,), 1, heads((LARGE,), ()), example, train), 0, seed=1)


def came(size: int, weight: float) -> Update:
    return Update(Client(size, LARGE, size, (0,)), {"weight": torch.tensor([[weight]])})


@pytest.mark.parametrize(
    ("size", "momentum", "length"),
    [
        (10, 0.0, 2.0),  # a batch in each of two epochs
        (25, 0.0, 6.0),
        (21, 0.0, 4.0),  # the last example is in the second batch
        (10, 0.5, 1 + 1.5),
        (25, 0.5, 1 + 1.5 + 1.75 + 1.875 + 1.9375 + 1.96875),
    ],
)
def test_the_length_of_all_steps(size: int, momentum: float, length: float) -> None:
    train = Train(momentum=momentum, epochs=2, batch_size=10)
    assert path_length(Client(0, LARGE, size, ()), train) == pytest.approx(length)


def test_who_takes_more_steps_does_not_count_twice() -> None:
    """One step to 1 and, with three times the weight, three to 6: for each step a mean of 1/4 · 1 + 3/4 · 2."""
    new = FedNova().aggregate({"weight": torch.zeros(1, 1)}, iter([came(10, 1.0), came(30, 6.0)]), context())
    assert float(new["weight"]) == pytest.approx((1 / 4 * 1 + 3 / 4 * 3) * (1 / 4 * 1 + 3 / 4 * 2))


def test_a_server_optimiser_goes_part_of_the_way() -> None:
    method = FedNova(server=Momentum(lr=0.5, beta=0.0))
    state = method.init(context())
    updates = [came(10, 1.0), came(30, 6.0)]
    plain = FedNova().aggregate({"weight": state["weight"]}, iter(updates), context())["weight"]
    new = method.aggregate(state, iter(updates), context())
    torch.testing.assert_close(new["weight"], (state["weight"] + plain) / 2)


def test_clients_with_equally_many_steps_are_averaged_as_in_fedavg_bit_for_bit() -> None:
    updates, state = [came(size, 1 / size) for size in (22, 23, 29)], {"weight": torch.ones(1, 1) / 7}
    ours, theirs = (method.aggregate(state, iter(updates), context()) for method in (FedNova(), FedAvg()))
    assert ours["weight"].equal(theirs["weight"])


def test_another_optimiser_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[train\] optimizer is 'adam', but FedNova knows"):
        FedNova().init(context(Train(optimizer="adam")))
    with pytest.raises(ConfigError, match=r"\[train\] optimizer is 'sgd' with nesterov = True, but FedNova knows"):
        FedNova().init(context(Train(optimizer=partial(torch.optim.SGD, nesterov=True))))


def test_it_learns() -> None:
    # Chance is 0.25, and no client has every class. Over five seeds the lowest was 0.9.
    assert learned(FedNova(width=0.125))["full"] > 0.8

"""Batch-norm statistics that clients measure, against numbers by hand and PyTorch's own cumulative average."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from potluck.core.batches import batches
from potluck.core.calibration import calibrate, combine, install, measure, norms, statistics_form
from potluck.core.client import Site
from potluck.core.data import Arrays, Holdings, Part, Pool
from potluck.core.form import form_of
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.types import Batch, Client, Job, Level, Task, Tensors, Train, Update
from potluck.core.works import perform
from potluck.parts.batchnorm import forget_statistics, statistic_names

CLIENT = Client(0, Level("all", 1.0), 4, (0,))


def only_inputs(*inputs: Tensor) -> list[Batch]:
    return [(tensor, torch.zeros(len(tensor))) for tensor in inputs]


def combined(*measured: Tensors) -> Tensors:
    return combine(Update(CLIENT, found) for found in measured)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(12, 2),
        nn.BatchNorm1d(2),
    )


def images(*sizes: int) -> list[Batch]:
    rng = torch.Generator().manual_seed(3)
    return only_inputs(*(torch.randn(size, 1, 3, 3, generator=rng) for size in sizes))


def test_statistics_by_hand() -> None:
    one = measure(nn.Sequential(nn.BatchNorm1d(2)), only_inputs(torch.tensor([[1.0, 10.0], [3.0, 10.0]])))
    two = measure(
        nn.Sequential(nn.BatchNorm1d(2)),
        only_inputs(torch.tensor([[0.0, 1.0], [6.0, 3.0], [0.0, 5.0]]), torch.tensor([[5.0, 0.0], [5.0, 4.0]])),
    )
    assert {name: value.tolist() for name, value in one.items()} == {
        "0.mean": [2.0, 10.0],
        "0.var": [2.0, 0.0],  # ((1-2)² + (3-2)²) / (2 - 1)
        "0.batches": [1.0],
    }
    found = combined(one, two)
    assert found["0.running_mean"].tolist() == pytest.approx([(2 + 2 + 5) / 3, (10 + 3 + 2) / 3])
    assert found["0.running_var"].tolist() == pytest.approx([(2 + 12 + 0) / 3, (0 + 4 + 8) / 3])
    assert found["0.num_batches_tracked"].item() == 3
    assert found["0.num_batches_tracked"].dtype == torch.int64
    assert found["0.running_mean"].dtype == torch.float32


def test_one_client_with_all_batches_measures_what_torch_accumulates() -> None:
    reference = network()
    for norm in norms(reference).values():
        norm.momentum = None  # the cumulative average
    reference.train()
    reference[4].eval()
    stream = images(4, 7, 2, 5)
    with torch.no_grad():
        for inputs, _ in stream:
            reference(inputs)
    installed = install(network(), combined(measure(forget_statistics(network()), stream)))
    for name in statistic_names(reference):
        torch.testing.assert_close(installed.state_dict()[name], reference.state_dict()[name])
    whole = images(9)[0][0]
    torch.testing.assert_close(installed.eval()(whole), reference.eval()(whole))


def test_batches_split_over_clients_measure_the_same_as_one_client() -> None:
    stream = images(4, 7, 2, 5)
    whole = combined(measure(network(), stream))
    split = combined(measure(network(), stream[:1]), measure(network(), stream[1:]), {})
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value)


def test_measuring_leaves_no_hooks_and_changes_no_weights_or_statistics() -> None:
    net = forget_statistics(network())
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    measure(net, images(4))
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_hooks_are_taken_off_when_a_batch_does_not_fit() -> None:
    net = network()
    with pytest.raises(RuntimeError):
        measure(net, only_inputs(torch.zeros(2, 5, 3, 3)))
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_dropout_is_off_and_norms_use_their_batch() -> None:
    first, again = (measure(forget_statistics(network()), images(4)) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    net, seen = network(), []
    net[4].register_forward_hook(lambda module, inputs, output: seen.append(torch.equal(inputs[0], output)))
    measure(net, images(4))
    assert seen == [True]


def test_a_batch_with_one_value_per_channel_is_passed_over() -> None:
    pair = torch.tensor([[1.0], [3.0]])
    found = measure(forget_statistics(nn.Sequential(nn.BatchNorm1d(1))), only_inputs(torch.tensor([[50.0]]), pair))
    assert found["0.batches"].tolist() == [1.0]
    assert found["0.mean"].tolist() == [2.0]


def test_a_norm_that_is_used_twice_in_a_network_counts_twice() -> None:
    norm = nn.BatchNorm1d(2, momentum=None)
    twice, inputs = nn.Sequential(norm, nn.ReLU(), norm), torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    twice.train()(inputs)
    other = nn.BatchNorm1d(2)
    found = combined(measure(forget_statistics(nn.Sequential(other, nn.ReLU(), other)), only_inputs(inputs)))
    assert found["0.num_batches_tracked"].item() == norm.num_batches_tracked.item() == 2
    torch.testing.assert_close(found["0.running_mean"], norm.running_mean)
    torch.testing.assert_close(found["0.running_var"], norm.running_var)


def test_one_image_has_many_values_per_channel() -> None:
    found = measure(nn.Sequential(nn.BatchNorm2d(1)), only_inputs(torch.tensor([[[[1.0, 3.0]]]])))
    assert found["0.mean"].tolist() == [2.0]
    assert found["0.var"].tolist() == [2.0]


def test_sums_are_float64_so_that_small_batches_late_in_a_long_run_count() -> None:
    assert {value.dtype for value in measure(network(), images(4)).values()} == {torch.float64}


def test_installing_respects_an_author_who_wants_batch_statistics() -> None:
    net = nn.Sequential(nn.BatchNorm1d(1, track_running_stats=False))
    install(net, {"0.running_mean": torch.ones(1), "0.running_var": torch.ones(1)})
    assert net[0].running_mean is None


def test_nothing_measured_is_nothing_installed() -> None:
    assert combined() == {}
    assert combined({}, {}) == {}


class Noisy(nn.Module):
    """Dropout by a function call, in front of a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(nn.functional.dropout(inputs, 0.5, self.training))


INPUTS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


def site(model: type[nn.Module], held: list[int], augmented: bool = False) -> Site:
    """A place with one client."""
    examples = Arrays(INPUTS, torch.zeros(12), augment=(lambda x, rng: x + 100) if augmented else None)
    heads: dict[str, tuple[str, ...]] = {CLIENT.level.name: ()}
    example = (INPUTS[:1], torch.zeros(1))
    task = Task(ByWidth(lambda width: model()), (CLIENT.level,), 3, heads, example, Train(batch_size=4))
    holdings = Holdings.of_lists([torch.tensor(held, dtype=torch.long)])
    return Site(Recipe(Method(), task, 5), Pool(examples, holdings))


def job(at: Site, round: int = 0) -> Job:
    return Job(CLIENT, round, at.method.init(at.context(0)), "calibrate")


def calibrated(at: Site, round: int = 0) -> Tensors:
    sent, kept = calibrate(at, job(at, round), {})
    assert kept == {}
    return sent


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(3))


def test_a_client_measures_one_pass_over_its_own_examples_as_augmented_in_training() -> None:
    held = [1, 3, 5, 7, 9, 11, 0, 2]
    at = site(Normed, held, augmented=True)
    found = calibrated(at)
    own = INPUTS[held] + 100
    assert found["0.batches"].tolist() == [2.0]
    torch.testing.assert_close(found["0.mean"] / 2, own.double().mean(0), rtol=1e-6, atol=1e-4)
    examples = Part(Arrays(INPUTS + 100, torch.zeros(12)), torch.tensor(held))
    again = measure(Normed(), batches(examples, 4, 1, at.context(0).rng("calibrate", 0)))
    assert torch.equal(found["0.var"], again["0.var"])


def test_measuring_does_not_depend_on_the_global_generator() -> None:
    at = site(Noisy, list(range(8)))
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        found.append(calibrated(at))
    assert torch.equal(found[0]["norm.mean"], found[1]["norm.mean"])


def performed(at: Site) -> Update:
    ((update, kept),) = perform(at, [job(at)], [{}])
    assert kept == {}
    return update


@pytest.mark.parametrize("own", [[], [4]], ids=["no example", "one example"])
def test_a_client_with_next_to_nothing_says_why_it_has_nothing_to_say(own: list[int]) -> None:
    update = performed(site(Normed, own))
    assert update.failure == "the client has no batch of two examples or more, on which batch norm could be measured"
    assert update.payload == {}
    assert combine([update]) == {}


@pytest.mark.parametrize("model", [Normed, Noisy])
def test_a_client_answers_in_the_form_that_is_expected_of_it(model: type[nn.Module]) -> None:
    at = site(model, list(range(8)))
    update = performed(at)
    assert update.failure == ""
    assert form_of(update.payload) == statistics_form(model(), at.task.example[0])


def test_a_stream_of_its_own_draws_the_batches() -> None:
    at = site(Normed, list(range(12)))
    assert torch.equal(calibrated(at, 0)["0.var"], calibrated(at, 0)["0.var"])
    assert not torch.equal(calibrated(at, 0)["0.var"], calibrated(at, 1)["0.var"])

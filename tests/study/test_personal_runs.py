"""Runs in which every client has a model of its own: scored with it, kept in files, handed out by client."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from heads_at_home import OwnHeads
from small_experiment import SMALL, StopAfter, content, interrupted, run_config, without_seconds, write_config
from torch import nn

import potluck
from potluck.core.checkpoint import read
from potluck.core.errors import ConfigError, RunError
from potluck.core.server import draw_cohort
from potluck.core.tensors import state_of
from potluck.engines import make_engine
from potluck.engines.serial import Serial
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.record import RunDirectory
from potluck.study.run import execute, model_so_far
from potluck.study.watchers import Nobody


@dataclass(frozen=True)
class Numbered(OwnHeads):
    """Keeps on a client what never changes."""

    def localize(self, job, ctx, personal):
        assert not personal or int(personal["id"]) == job.client.id
        return potluck.Method.localize(self, job, ctx, personal)

    def collect(self, net, job, ctx):
        return state_of(net), {"id": torch.tensor(job.client.id)}


@dataclass(frozen=True)
class Clumsy(OwnHeads):
    """Fails for client 5 in its second round, after it has trained."""

    def collect(self, net, job, ctx):
        if (job.client.id, job.round) == (5, 1):
            raise ValueError("a slip")
        return super().collect(net, job, ctx)


TEXT = SMALL.replace('name = "heterofl"', f'name = "{__name__}:OwnHeads"').replace("small = 0.5", "same = 1.0")
HEAD = {"head.weight", "head.bias"}


def lasting(directory):
    """Every file below a directory that does not tell of seconds, or of how many bytes it took to tell of them."""
    return {name: data for name, data in content(directory).items() if not name.startswith(("metrics", "checkpoint/"))}


def personal_files(directory):
    """What is kept of every client, by its number."""
    return {int(path.stem): path for path in (directory / "personal").rglob("*") if path.is_file()}


def trained_until(experiment, rounds):
    """How often every client trained in so many rounds."""
    macs, cohort = Counter(), experiment.settings.fleet.cohort
    contexts = map(experiment.site.context, range(rounds))
    drawn = (draw_cohort(experiment.method, experiment.fleet, cohort, macs, ctx) for ctx in contexts)
    return Counter(client.id for clients in drawn for client in clients)


# ---- scores ----


def net_for_digits():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def run_on_digits(**changes):
    """Clients with two digits each, all of them in every round."""
    settings = {
        "model": net_for_digits(),
        "data": "digits",
        "levels": {"phone": 1.0},
        "clients": 20,
        "rounds": 4,
        "method": OwnHeads(),
        "partition": {"name": "shards", "classes_per_client": 2},
        "cohort": 20,
        "train": potluck.Train(lr=0.05, epochs=2),
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.fixture(scope="module")
def digits():
    return run_on_digits()


def accuracy_on_own_examples(result, net_of, clients=range(20)):
    """The share of all clients' own test examples that their networks get right."""
    right, count = 0, 0
    for client in clients:
        examples = result.experiment.site.holder.test(client)
        inputs, targets = examples.take(torch.arange(len(examples)))
        with torch.no_grad():
            right += int((net_of(client)(inputs).argmax(1) == targets).sum())
        count += len(targets)
    return right / count


def test_clients_are_scored_with_the_heads_that_stayed_on_them(digits):
    assert digits.accuracy["phone"] == accuracy_on_own_examples(digits, digits.export_client)


def test_their_own_heads_are_far_better_than_one_that_nobody_trained(digits):
    def with_another_head(client):
        net = digits.export_client(client)
        net[3].load_state_dict(net_for_digits()[3].state_dict())
        return net

    untrained = accuracy_on_own_examples(digits, with_another_head)
    strangers = accuracy_on_own_examples(digits, lambda client: digits.export_client((client + 7) % 20))
    # seen: 0.99 with their own, 0.32 with one that nobody trained, 0.20 with a stranger's
    assert digits.accuracy["phone"] > 0.9
    assert digits.accuracy["phone"] > untrained + 0.5
    assert digits.accuracy["phone"] > strangers + 0.5


def test_no_head_reaches_the_server(digits):
    fresh = net_for_digits().state_dict()
    assert torch.equal(digits.state["3.weight"], fresh["3.weight"])
    assert torch.equal(digits.state["3.bias"], fresh["3.bias"])
    assert not torch.equal(digits.state["1.weight"], fresh["1.weight"])
    sent = sum(tensor.numel() * 4 for name, tensor in fresh.items() if not name.startswith("3."))
    assert digits.metrics[0]["bytes_up"] == 20 * sent


def test_at_most_so_many_clients_are_scored_the_same_in_every_round():
    class Scored(Nobody):
        def __init__(self):
            self.asked = [[]]

        def client_done(self, update):
            if "accuracy" in update.payload:
                self.asked[-1].append(update.client.id)

        def round_done(self, record):
            self.asked.append([])

    watcher = Scored()
    result = run_on_digits(rounds=2, scored_clients=3, watcher=watcher)
    first, second, after = watcher.asked
    assert len(first) == 3
    assert first == second
    assert not after
    assert result.accuracy["phone"] == accuracy_on_own_examples(result, result.export_client, first)


def test_a_client_that_never_trained_is_scored_with_a_fresh_head():
    result = run_on_digits(rounds=1, cohort=2)
    trained = trained_until(result.experiment, 1)
    assert len(trained) == 2
    for client in range(20):
        head = result.export_client(client)[3].weight
        assert torch.equal(head, net_for_digits()[3].weight) is (client not in trained)
    assert result.accuracy["phone"] == accuracy_on_own_examples(result, result.export_client)


def test_scores_are_by_level():
    result = run_on_digits(levels={"one": 1.0, "other": 1.0}, rounds=2)
    dealt = result.experiment.fleet.deal(20, 1)
    for number, level in enumerate(("one", "other")):
        clients = [client for client in range(20) if dealt[client] == number]
        assert len(clients) == 10
        assert result.accuracy[level] == accuracy_on_own_examples(result, result.export_client, clients)


def test_a_client_that_fails_keeps_what_it_had():
    one, two, failed = (
        run_on_digits(rounds=rounds, method=kind()) for rounds, kind in ((1, OwnHeads), (2, OwnHeads), (2, Clumsy))
    )
    assert [each["client"] for each in failed.metrics[1]["failed"]] == [5]
    for client in range(20):
        expected = (one if client == 5 else two).store.get(client)
        assert all(torch.equal(failed.store.get(client)[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("step", ["swift", "stacked-4"])
def test_every_way_to_train_keeps_heads_apart(step):
    """Equal but for rounding, whoever trains together."""
    plain, other = run_on_digits(rounds=2), run_on_digits(rounds=2, step=step)
    for client in range(20):
        one, two = plain.export_client(client), other.export_client(client)
        torch.testing.assert_close(one[3].weight, two[3].weight, atol=1e-4, rtol=1e-3)


# ---- models to take away ----


def test_a_clients_model_is_a_plain_network_of_its_own(digits):
    one, other = digits.export_client(3), digits.export_client(8)
    kept = one[3].weight.clone()
    assert type(one) is nn.Sequential
    assert not one.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in one.modules())
    assert torch.equal(one[1].weight, other[1].weight)
    assert not torch.equal(one[3].weight, other[3].weight)
    with torch.no_grad():
        other[3].weight.zero_()
        other[1].weight.zero_()
    assert torch.equal(one[3].weight, kept)
    assert torch.equal(digits.export_client(8)[1].weight, digits.state["1.weight"])
    assert torch.equal(digits.export_client(3)[3].weight, digits.store.get(3)["3.weight"])


def test_there_is_no_model_of_a_level(digits):
    assert dict(digits.models) == {}
    with pytest.raises(ConfigError) as refused:
        digits.export("phone")
    assert str(refused.value) == "every client has a model of its own: export_client(7) gives that of client 7"


@pytest.mark.parametrize("client", [-1, 20])
def test_nor_of_a_client_that_is_not_there(digits, client):
    with pytest.raises(ConfigError, match=f"there is no client {client}; they are numbered from 0 to 19"):
        digits.export_client(client)


def test_nor_of_a_client_where_all_share_one():
    with pytest.raises(ConfigError, match=r"clients of a level share a model: export\('phone'\) gives it"):
        run_on_digits(rounds=1, method="fedavg").export_client(3)


# ---- files ----


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(config, directory, result) of a recorded run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    config = write_config(folder, TEXT)
    return config, folder / "run", run_config(config, folder / "run")


def test_there_is_a_file_for_every_client_that_trained(finished):
    _, directory, result = finished
    trained = trained_until(result.experiment, 3)
    files = personal_files(directory)
    assert set(files) == set(trained)
    assert 3 < len(trained) < 14
    for client, path in files.items():
        assert path == directory / "personal" / "000" / f"{client}.safetensors"
        tensors, about = read(path)
        assert set(tensors) == HEAD
        assert about["client"] == client
        assert all(torch.equal(tensors[name], tensor) for name, tensor in result.store.get(client).items())
    names = set(content(directory))
    assert not any(name.startswith("models/") for name in names)
    assert "final.safetensors" in names


def test_files_of_clients_that_did_not_train_again_are_left_alone(finished, tmp_path):
    config, _, result = finished
    interrupted(config, tmp_path / "run")
    first = {client: (path.stat().st_mtime_ns, path.read_bytes()) for client, path in files_in(tmp_path)}
    assert set(first) == set(trained_until(result.experiment, 1))
    run_config(config, tmp_path / "run", resume=True)
    trained = trained_until(result.experiment, 3)
    assert {trained[client] > 1 for client in first} == {True, False}
    for client, path in files_in(tmp_path):
        if client in first:
            again = trained[client] > 1
            assert (path.stat().st_mtime_ns != first[client][0]) is again
            assert (path.read_bytes() != first[client][1]) is again


def files_in(folder):
    return personal_files(folder / "run").items()


def test_files_whose_content_did_not_change_are_left_alone(tmp_path):
    config = write_config(tmp_path, TEXT.replace("OwnHeads", "Numbered").replace("cohort = 3", "cohort = 14"))
    interrupted(config, tmp_path / "run")
    before = {client: (path.stat().st_mtime_ns, path.stat().st_ino) for client, path in files_in(tmp_path)}
    assert len(before) == 14
    run_config(config, tmp_path / "run", resume=True)
    assert {client: (path.stat().st_mtime_ns, path.stat().st_ino) for client, path in files_in(tmp_path)} == before


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_ends_as_if_it_had_not_been(finished, tmp_path, after):
    config, directory, _ = finished
    interrupted(config, tmp_path / "run", after)
    result = run_config(config, tmp_path / "run", resume=True)
    whole, resumed = lasting(directory), lasting(tmp_path / "run")
    assert set(whole) == set(resumed)
    assert not [name for name in whole if resumed[name] != whole[name]]
    assert without_seconds(result.metrics) == without_seconds(RunDirectory(directory).records())


def test_workers_leave_the_same_files(finished, tmp_path):
    _, directory, result = finished
    config = write_config(tmp_path, TEXT.replace('"serial"', '"local"'))
    engine = make_engine("local", 2)
    try:
        read = read_config(config, trust=True)
        found = execute(from_config(read), engine, read.resolved(), tmp_path / "run")
    finally:
        engine.close()
    assert without_seconds(found.metrics) == without_seconds(result.metrics)
    one, other = content(directory), content(tmp_path / "run")
    kept = {name for name in one if name.startswith(("personal/", "final"))}
    assert kept == {name for name in other if name.startswith(("personal/", "final"))}
    assert all(one[name] == other[name] for name in kept)


def test_a_run_that_is_not_recorded_keeps_the_same(finished):
    config, _, result = finished
    unrecorded = run_config(config, None)
    for client in range(14):
        one, other = result.store.get(client), unrecorded.store.get(client)
        assert set(one) == set(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert without_seconds(unrecorded.metrics) == without_seconds(result.metrics)


def test_what_is_left_of_a_run_without_a_checkpoint_is_not_taken_over(finished, tmp_path):
    """A run that ended in its first round begins anew, without what its clients had kept."""
    config, directory, _ = finished
    kept = tmp_path / "run" / "personal" / "next"
    kept.mkdir(parents=True)
    for path in personal_files(directory).values():
        (kept / path.name).write_bytes(path.read_bytes())
    run_config(config, tmp_path / "run")
    one, other = lasting(directory), lasting(tmp_path / "run")
    assert set(one) == set(other)
    assert not [name for name in one if one[name] != other[name]]


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"?"])
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    config = write_config(tmp_path, TEXT.replace("cohort = 3", "cohort = 14"))
    directory = interrupted(config, tmp_path / "run")
    path = personal_files(directory)[5]
    path.write_bytes(damage(path.read_bytes()))
    checkpoint = RunDirectory(directory).checkpoint.read_bytes()
    with pytest.raises(RunError, match=f"{path} is damaged"):
        run_config(config, directory, resume=True)
    assert RunDirectory(directory).checkpoint.read_bytes() == checkpoint


# ---- looking on while a run is going ----


class LookInside(Nobody):
    """Takes a client's model out of a run that is going, after every client of its second round."""

    def __init__(self, directory):
        self.run, self.experiment, self.rounds, self.looks = RunDirectory(directory), None, 0, 0

    def round_done(self, record):
        self.rounds = record["round"]

    def client_done(self, update):
        if self.rounds == 1:
            model_so_far(self.experiment, Serial(), self.run, update.client.id)
            self.looks += 1


def test_a_model_taken_out_of_a_run_that_is_going_does_not_disturb_it(finished, tmp_path):
    config, directory, _ = finished
    watcher = LookInside(tmp_path / "run")
    watcher.experiment = from_config(read_config(config, trust=True))
    run_config(config, tmp_path / "run", watcher=watcher)
    assert watcher.looks > 3
    whole, found = lasting(directory), lasting(tmp_path / "run")
    assert set(whole) == set(found)
    assert not [name for name in whole if found[name] != whole[name]]


def test_a_model_so_far_is_that_of_the_last_finished_round(finished, tmp_path):
    config, _, result = finished
    run = RunDirectory(interrupted(config, tmp_path / "run", 2))
    shorter = run_config(config, None, "task.rounds=2")
    for client in range(14):
        found = model_so_far(result.experiment, Serial(), run, client)
        assert found.level == result.experiment.task.levels[int(result.experiment.fleet.deal(14, 1)[client])]
        one, other = state_of(found.net), state_of(shorter.export_client(client))
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_stopping_from_python_and_going_on(tmp_path):
    whole = run_on_digits(out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_on_digits(out=tmp_path / "cut", watcher=StopAfter(2))
    resumed = run_on_digits(out=str(tmp_path / "cut"), resume=True)
    assert resumed.accuracy == whole.accuracy
    one, other = lasting(tmp_path / "whole"), lasting(tmp_path / "cut")
    assert set(one) == set(other)
    assert not [name for name in one if one[name] != other[name]]

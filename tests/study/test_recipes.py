"""A run's recipe, rebuilt from its config alone by a machine that has only its own data, or none."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from small_experiment import run_config, write_config

from potluck.core.client import Site
from potluck.core.data import Arrays
from potluck.core.errors import ConfigError
from potluck.core.goals.classes import MaskedTokens
from potluck.core.server import first_state
from potluck.core.threads import one_thread
from potluck.core.types import Job
from potluck.core.works import perform
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.facts import Facts
from potluck.study.recipes import rebuilt

DATA = """\
import torch, potluck

def data(*, folder):
    inputs, targets = torch.load(f"{folder}/examples.pt")
    return potluck.Dataset(potluck.Arrays(inputs[:96], targets[:96]), potluck.Arrays(inputs[96:], targets[96:]), 4)
"""
MODULE = """\
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, units=8):
        super().__init__(nn.Flatten(), nn.Linear(16, units), nn.BatchNorm1d(units), nn.ReLU(), nn.Linear(units, 4))

net = Net()
"""
CONFIG = """\
seed = 5

[task]
model = MODEL
rounds = 2
calibration_clients = 2

[data]
source = { name = "private_data:data", folder = "FOLDER" }
partition = { name = "shards", classes_per_client = 2 }

[fleet]
clients = 6
levels = { big = 1.0, small = 0.5 }
cohort = 3

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 2
batch_size = 5

[engine]
name = "serial"
"""
CNN = '{ name = "heterofl-cnn", hidden = [4, 8] }'
MODELS = {"by name": CNN, "ready-made": '"private_parts:net"', "a class": '{ name = "private_parts:Net", units = 12 }'}
METHODS = {name: [f"method.name={name}"] for name in ("fedavg", "heterofl", "fedrolex", "fjord", "fedhm", "splitmix")}
METHODS["flanc"] = ["method.name=flanc", "method.basis_size=0.25"]


@pytest.fixture
def private(tmp_path, monkeypatch):
    """A module and a folder of data that can be taken away; writes configs that use them."""
    (tmp_path / "private_data.py").write_text(DATA)
    (tmp_path / "private_parts.py").write_text(MODULE)
    (tmp_path / "data").mkdir()
    numbers = torch.randn(128, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    torch.save((numbers, torch.arange(128) % 4), tmp_path / "data" / "examples.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()

    def write(model=CNN):
        return write_config(tmp_path, CONFIG.replace("MODEL", model).replace("FOLDER", str(tmp_path / "data")))

    yield write
    forget()


def forget():
    """Have the modules imported anew, as a process that starts does."""
    for name in ("private_data", "private_parts"):
        sys.modules.pop(name, None)


def take_data_away(folder):
    """Remove the examples, and the module that reads them."""
    (folder / "data" / "examples.pt").unlink()
    (folder / "data").rmdir()
    (folder / "private_data.py").unlink()


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_recipe_is_rebuilt_without_any_data(private, tmp_path, model):
    recorded = run_config(private(model), tmp_path / "run").experiment.recipe
    take_data_away(tmp_path)
    forget()
    config = read_config(tmp_path / "run" / "config.toml", trust=True)
    with pytest.raises(ConfigError, match="cannot load source 'private_data:data'"):
        from_config(config)
    recipe = rebuilt(config)
    assert recipe.run == recorded.run == config.recipe["run"]
    assert (recipe.method, recipe.seed) == (recorded.method, recorded.seed)
    for name in ("levels", "classes", "heads", "train", "rounds", "goal", "embeddings", "proxy"):
        assert getattr(recipe.task, name) == getattr(recorded.task, name), name
    one, other = (first_state(each.method, each.context(0)) for each in (recipe, recorded))
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_made_up_example_tells_nothing_of_the_data(private):
    task = from_config(read_config(private(), trust=True)).task
    assert [each.count_nonzero() for each in task.example] == [0, 0]
    assert task.example[0].shape == (1, 1, 4, 4)


@pytest.mark.whole
def test_another_process_rebuilds_the_same_recipe(private, tmp_path):
    recorded = run_config(private('"private_parts:net"'), tmp_path / "run").experiment.recipe
    take_data_away(tmp_path)
    script = (
        "import sys, torch; from pathlib import Path; torch.manual_seed(77)\n"
        "from potluck.study.config import read_config; from potluck.study.recipes import rebuilt\n"
        "print(rebuilt(read_config(Path(sys.argv[1]), trust=True)).run)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run" / "config.toml")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == recorded.run


def test_one_file_may_hold_the_data_and_the_network(private, tmp_path):
    """Whatever a file is imported for first, the weights that its import draws are the seed's."""
    (tmp_path / "private_data.py").write_text(DATA + MODULE)
    config, runs = private('"private_data:net"'), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        forget()
        runs.append(from_config(read_config(config, trust=True)).recipe.run)
    assert runs[0] == runs[1]


# ---- a client that has its own examples and nobody else's ----


@dataclass(frozen=True)
class Mine:
    """The data of one client, as its own machine has them."""

    client: int
    own: Arrays
    scored: Arrays

    def __len__(self):
        return 1

    def examples(self, client):
        assert client == self.client
        return self.own

    def test(self, client):
        assert client == self.client
        return self.scored

    def size(self, client):
        return len(self.examples(client))

    def labels(self, client):
        return tuple(torch.unique(self.examples(client).targets).tolist())


def taken(examples):
    """Examples in memory of their own."""
    inputs, targets = examples.take(torch.arange(len(examples)))
    return Arrays(inputs.clone(), targets.clone())


def alone(experiment, recipe, client):
    """The site of one client, made of a rebuilt recipe."""
    holder = experiment.site.holder
    return Site(recipe, Mine(client, taken(holder.examples(client)), taken(holder.test(client))))


def job_of(experiment, id, level, work="train", round=1):
    """A job of a later round, in which nothing is as it was drawn."""
    ctx = experiment.site.context(round)
    state = {
        name: tensor + torch.randn(tensor.shape, generator=ctx.rng(name)) / 20 if tensor.is_floating_point() else tensor
        for name, tensor in first_state(experiment.method, ctx).items()
    }
    client = replace(experiment.fleet.client(id, level), turn=round * 3 + 1)
    return Job(client, round, experiment.method.distribute(state, client, ctx), work, experiment.recipe.run)


def answered(site, *jobs):
    """The updates to jobs that came together."""
    with one_thread():
        return [
            replace(update, payload={name: tensor.clone() for name, tensor in update.payload.items()}, seconds=0.0)
            for update, _ in perform(site, jobs, [{} for _ in jobs])
        ]


def require_same_answers(experiment, recipe, works=("train",)):
    for id, level in zip((1, 4), experiment.admitted(), strict=False):
        for work in works:
            job = job_of(experiment, id, level, work)
            (here,), (there,) = (answered(site, job) for site in (experiment.site, alone(experiment, recipe, id)))
            assert not here.failure
            assert here.payload
            assert set(here.payload) == set(there.payload)
            assert all(torch.equal(here.payload[name], there.payload[name]) for name in here.payload)
            assert replace(here, payload={}) == replace(there, payload={})


@pytest.mark.parametrize("overrides", METHODS.values(), ids=list(METHODS))
def test_one_clients_machine_gives_the_update_that_the_simulation_gives(private, tmp_path, overrides):
    run_config(private(), tmp_path / "run", *overrides)
    config = read_config(tmp_path / "run" / "config.toml", trust=True)
    experiment = from_config(config)
    take_data_away(tmp_path)
    require_same_answers(experiment, rebuilt(config))


def test_it_measures_and_scores_as_the_simulation_does(private, tmp_path):
    run_config(private('"private_parts:net"'), tmp_path / "run")
    config = read_config(tmp_path / "run" / "config.toml", trust=True)
    experiment = from_config(config)
    require_same_answers(experiment, rebuilt(config), ("train", "calibrate", "score"))


@pytest.mark.parametrize("step", ["swift", "channels-last"])
def test_it_trains_in_the_way_that_the_run_was_recorded_with(private, tmp_path, step):
    experiment = run_config(private(), tmp_path / "run", f"engine.step={step}").experiment
    assert experiment.recipe.ways == {"big": step, "small": step}
    recipe = rebuilt(read_config(tmp_path / "run" / "config.toml", trust=True))
    assert recipe.ways == experiment.recipe.ways
    require_same_answers(experiment, recipe)


# ---- another recipe ----

OTHER = [
    "seed=6",
    "train.lr=0.1",
    "train.epochs=1",
    "train.momentum=0.8",
    "train.schedule=cosine",
    "task.rounds=3",
    "task.model.hidden=[4, 12]",
    "method.scaler=false",
    "method.name=fedrolex",
    "fleet.levels.small=0.25",
    "fleet.levels.tiny=0.25",
]
FREE = ["name=other", "engine.name=local", "task.evaluate_every=2", "fleet.cohort=2", "guard.bound=10.0"]


def test_every_setting_that_clients_must_share_has_a_digest_of_its_own(private):
    config = private()
    runs = [
        from_config(read_config(config, [*overrides], trust=True)).recipe.run
        for overrides in ([], *([each] for each in OTHER))
    ]
    assert len(set(runs)) == len(runs)
    assert {from_config(read_config(config, [each], trust=True)).recipe.run for each in FREE} == {runs[0]}


@pytest.fixture
def recorded(private, tmp_path):
    """The config of a recorded run."""
    run_config(private(), tmp_path / "run")
    return tmp_path / "run" / "config.toml"


@pytest.mark.parametrize("override", OTHER)
def test_another_setting_is_refused(recorded, override):
    with pytest.raises(ConfigError, match=r"this machine builds the recipe \w{12}, but the run has \w{12}: ") as caught:
        rebuilt(read_config(recorded, [override], trust=True))
    assert "\n" not in str(caught.value)


def test_what_clients_need_not_share_is_not_refused(recorded):
    assert rebuilt(read_config(recorded, FREE, trust=True)).run == rebuilt(read_config(recorded, trust=True)).run


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("net = Net()", "net = Net()\nnn.init.ones_(net[1].bias)"),
        ("net = Net()", "net = Net()\nwith torch.no_grad(): net[4].weight[0, 0] += 1e-7"),
        ("nn.ReLU()", "nn.ReLU(), nn.Linear(units, units)"),
    ],
    ids=["weights", "one weight a little", "layers"],
)
def test_other_weights_and_other_networks_are_refused(private, tmp_path, line, other):
    run_config(private('"private_parts:net"'), tmp_path / "run")
    config = read_config(tmp_path / "run" / "config.toml", trust=True)
    forget()
    rebuilt(config)
    assert line in MODULE
    (tmp_path / "private_parts.py").write_text(MODULE.replace(line, other))
    forget()
    with pytest.raises(ConfigError, match="the network, its weights or a setting differ"):
        rebuilt(config)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("recipe.run=abc", "but the run has abc"),
        ("recipe.inputs=float32:1x8x8", "this machine builds the recipe"),
        ("recipe.targets=int32:", "this machine builds the recipe"),
        ("recipe.goal=next-token", "this machine builds the recipe"),
        ("recipe.inputs=float99:4", r"\[recipe\] does not tell what the data are like"),
        ("recipe.inputs=float32:4xq", r"\[recipe\] does not tell what the data are like"),
        pytest.param(
            "recipe.inputs=float32:-4",
            r"\[recipe\] does not tell what the data are like",
        ),
        ("recipe.inputs=5", r"\[recipe\] does not tell what the data are like"),
        ("recipe.classes=many", r"\[recipe\] does not tell what the data are like"),
        ("recipe.classes=5", "has 4 outputs|this machine builds the recipe"),
    ],
)
def test_facts_that_were_changed_are_refused(recorded, setting, says):
    with pytest.raises(ConfigError, match=says):
        rebuilt(read_config(recorded, [setting], trust=True))


def test_a_config_that_was_never_run_has_no_recipe(private):
    with pytest.raises(ConfigError, match=r"\[recipe\] does not tell what the data are like"):
        rebuilt(read_config(private(), trust=True))


@pytest.mark.parametrize(
    "example",
    [
        (torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.long)),
        (torch.zeros(1, 7, dtype=torch.long), torch.zeros(1, 7, dtype=torch.long)),
        (torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int32)),
    ],
)
def test_facts_read_back_as_themselves(example):
    facts = Facts(12, MaskedTokens(gaps=True), example)
    found = Facts.of_table(facts.table())
    assert (found.classes, found.goal) == (12, MaskedTokens(gaps=True))
    for one, other in zip(found.example, example, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)


# ---- jobs of another run ----


def test_a_job_of_another_run_is_refused_by_the_client(private):
    experiment = from_config(read_config(private(), trust=True))
    job = job_of(experiment, 1, experiment.task.levels[0])
    (update,) = answered(experiment.site, replace(job, run="f" * 64))
    assert update.payload == {}
    assert update.failure == f"the job is of run {'f' * 12}, but this machine is set up for {job.run[:12]}"
    assert not answered(experiment.site, job)[0].failure


def test_so_are_jobs_that_came_together(private):
    experiment = from_config(read_config(private(), trust=True))
    level = experiment.task.levels[0]
    jobs = [job_of(experiment, id, level) for id in (1, 2)]
    assert jobs[0].client.size == jobs[1].client.size
    good, bad = answered(experiment.site, jobs[0], replace(jobs[1], run="f" * 64))
    assert not good.failure
    assert bad.payload == {}
    assert "the job is of run ffffffffffff" in bad.failure

"""Optimisers and schedules as a user gives them, in a file or in Python: checked, used, written down."""

import inspect
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from small_experiment import SMALL, line_of, run_config, write_config
from torch import nn

import potluck
from potluck.core.errors import ConfigError
from potluck.core.optimizers import NAMED, Rule
from potluck.core.types import Train
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.files import read_toml
from potluck.study.notes import notes_on
from potluck.study.recipes import kind_of, rebuilt
from potluck.study.schema import PYTHON
from potluck.study.training import OPTIONS, read_train, train_table


def with_train(folder, *lines):
    return write_config(folder, SMALL.replace("lr = 0.05\n", "lr = 0.05\n" + "".join(f"{line}\n" for line in lines)))


def read(**settings):
    return read_train(settings, PYTHON, rounds=4)


def federation(**changes):
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    settings = {
        "model": lambda width: nn.Sequential(nn.Linear(4, int(8 * width)), nn.ReLU(), nn.Linear(int(8 * width), 2)),
        "data": (x, (x[:, 0] > 0).long()),
        "levels": {"server": 1.0, "watch": 0.5},
        "clients": 6,
        "rounds": 2,
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.mark.parametrize("name", NAMED)
def test_options_have_pytorchs_defaults(name):
    theirs = inspect.signature(NAMED[name]).parameters
    assert asdict(OPTIONS[name]()) == {key: theirs[key].default for key in asdict(OPTIONS[name]())}


@pytest.mark.parametrize("name", NAMED)
def test_every_optimiser_by_name_learns_and_is_written_down_with_its_options(tmp_path, name):
    config = with_train(tmp_path, f'optimizer = "{name}"')
    result = run_config(config, tmp_path / "run", "task.rounds=2", "train.lr=0.01", "train.batch_size=10")
    assert result.metrics[-1]["levels"]["big"]["accuracy"] > 0.25  # chance is 0.1, and 0.42 to 0.54 were seen
    written = read_toml(tmp_path / "run" / "config.toml")["train"]
    assert written["optimizer"]["name"] == name
    assert set(written["optimizer"]) == {"name", *asdict(OPTIONS[name]())}
    assert written.get("momentum") == (0.9 if name == "sgd" else None)


def test_an_option_of_ones_own(tmp_path):
    lines = ('optimizer = { name = "adamw", betas = [0.5, 0.25] }', "accumulate = 2", "warmup = 1")
    train = read_config(with_train(tmp_path, *lines)).train
    assert dict(train.rule.options) == {"betas": (0.5, 0.25), "eps": 1e-8, "amsgrad": False}
    assert (train.accumulate, train.warmup, train.momentum) == (2, 1, None)
    assert train == read(optimizer=partial(torch.optim.AdamW, betas=(0.5, 0.25)), lr=0.05, epochs=2, batch_size=52,
                         accumulate=2, warmup=1)  # fmt: skip


def test_another_name_on_the_command_line_drops_the_options_of_the_first(tmp_path):
    config = with_train(tmp_path, 'optimizer = { name = "adamw", betas = [0.5, 0.25] }')
    train = read_config(config, ["train.optimizer.name=rmsprop", "train.optimizer.alpha=0.5"]).train
    assert train.rule == read(optimizer={"name": "rmsprop", "alpha": 0.5}).rule


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            'optimizer = { name = "adamw", alpha = 1 }',
            "[train.optimizer] adamw has no 'alpha'; there are betas, eps, amsgrad",
        ),
        ('optimizer = { name = "sgd", eps = 1 }', "[train.optimizer] sgd has no 'eps'; there are nesterov"),
        ('optimizer = { name = "adam", eps = -1 }', "[train.optimizer] eps is -1, but it should be a number from 0"),
        ('optimizer = { name = "adam", eps = nan }', "[train.optimizer] eps is nan, but it should be a number from 0"),
        ('optimizer = { name = "adam", eps = "x" }', "[train.optimizer] eps is 'x', but it should be a number from 0"),
        (
            'optimizer = { name = "adam", amsgrad = 1 }',
            "[train.optimizer] amsgrad is 1, but it should be true or false",
        ),
        ('optimizer = { name = "adam", betas = [0.9] }', "betas is (0.9,), but it should be a list of two numbers"),
        (
            'optimizer = { name = "adam", betas = [0.9, 1] }',
            "betas is (0.9, 1), but it should be a list of two numbers",
        ),
        ('optimizer = { name = "adam", betas = 0.9 }', "betas is 0.9, but it should be a list of two numbers"),
        ('optimizer = { name = "rmsprop", alpha = 1.5 }', "alpha is 1.5, but it should be less than or equal to 1"),
        ('optimizer = { name = "adam", lr = 1 }', "optimizer has an option 'lr', but lr is a setting beside optimizer"),
        ("optimizer = { eps = 1 }", "[train] optimizer is {'eps': 1}, but it should be a name (sgd, adam, adamw"),
        ("optimizer = 5", "[train] optimizer is 5, but it should be a name (sgd, adam, adamw"),
        ('optimizer = "torch.optim:Nothing"', "[train] cannot load optimizer 'torch.optim:Nothing'"),
        ('optimizer = "torch.nn:Linear"', "'torch.nn:Linear' is no function or class that makes a Optimizer"),
        (
            'optimizer = { name = "torch.optim:NAdam", decay = 1 }',
            "NAdam has no 'decay'; there are betas, eps, momentum_decay",
        ),
        (
            'optimizer = { name = "torch.optim:NAdam", eps = -1 }',
            "NAdam cannot train this network: ValueError: Invalid",
        ),
        ('optimizer = "torch.optim:LBFGS"\nweight_decay = 0', "LBFGS cannot train this network: TypeError: "),
        (
            'optimizer = "torch.optim:Rprop"\nweight_decay = 0.1',
            "weight_decay is 0.1, but torch.optim.rprop:Rprop has none; set it to 0",
        ),
        ('optimizer = "adam"\nmomentum = 0.5', "[train] momentum is 0.5, but adam has none; leave it out"),
        ('optimizer = { name = "sgd", nesterov = true }\nmomentum = 0', "momentum is 0, but optimizer asks for Nest"),
        ('schedule = "cosin"', "[train] schedule is 'cosin', but it should be 'constant', 'multistep', 'cosine', "),
        ("schedule = []", "[train] schedule is [], but it should be 'constant', "),
        ("schedule = [1, -1]", "[train] schedule is [1, -1], but it should be 'constant', "),
        ("accumulate = 0", "[train] accumulate is 0, but it should be greater than or equal to 1"),
        ("warmup = -1", "[train] warmup is -1, but it should be greater than or equal to 0"),
    ],
)
def test_mistakes_in_a_file(tmp_path, line, says):
    path = with_train(tmp_path, line)
    with pytest.raises(ConfigError) as caught:
        from_config(read_config(path, trust=True))
    assert says in str(caught.value)
    if "cannot train this network" not in says:  # which is seen when the network is there
        assert f"({path}:{line_of(path.read_text(), line.splitlines()[-1].partition(' ')[0])})" in str(caught.value)


def test_a_class_in_a_file_needs_trust_unless_it_was_typed(tmp_path):
    path = with_train(tmp_path, 'optimizer = { name = "torch.optim:NAdam", momentum_decay = 0.01 }')
    with pytest.raises(ConfigError, match=r"optimizer 'torch\.optim:NAdam' names code.*--trust"):
        read_config(path)
    trusted = read_config(path, trust=True).train
    assert trusted.rule == Rule(torch.optim.NAdam, (("momentum_decay", 0.01),))
    assert train_table(trusted)["optimizer"] == {"name": "torch.optim.nadam:NAdam", "momentum_decay": 0.01}
    assert read_config(path, ["train.optimizer=torch.optim:RAdam"]).train.rule == Rule(torch.optim.RAdam)


def test_a_path_to_one_of_ours_is_ours(tmp_path):
    path = with_train(tmp_path, 'optimizer = "torch.optim:AdamW"')
    assert read_config(path, trust=True).train == read_config(path, ["train.optimizer=adamw"]).train


class Lazy(torch.optim.Adam):
    """A class of a user's, with an option and no setting for what it does not use."""

    def __init__(self, params, lr, pace=1.0):
        super().__init__(params, lr=lr * pace)


@pytest.mark.parametrize("engine", ["serial", pytest.param("local", marks=pytest.mark.slow)])
def test_any_class_trains_in_any_engine_and_is_written_down_by_its_path(tmp_path, engine):
    class Local(Lazy):
        """No file can name it, but workers get it all the same."""

    train = {"optimizer": Local, "lr": 0.05, "weight_decay": 0.0}
    found = federation(train=train, out=tmp_path / "run", engine=engine, workers=2)
    written = read_toml(tmp_path / "run" / "config.toml")
    assert written["train"]["optimizer"]["name"].endswith("<locals>.Local")
    adam = federation(train={**train, "optimizer": "adam"}, step="plain")
    assert written["engine"]["step"] == {"server": "plain", "watch": "plain"}  # it may mix clients
    for name, tensor in adam.state.items():
        assert torch.allclose(found.state[name], tensor, atol=1e-5)
    federation(train=train, out=tmp_path / "run", rounds=3, resume=True)


def test_a_partial_of_a_class_is_its_path_and_options(tmp_path):
    train = Train(optimizer=partial(Lazy, pace=0.5), lr=0.1, weight_decay=0.0)
    halved = federation(train=train, out=tmp_path / "run")
    assert read_toml(tmp_path / "run" / "config.toml")["train"]["optimizer"] == {
        "name": f"{__name__}:Lazy",
        "pace": 0.5,
    }
    plain = federation(train={"optimizer": Lazy, "lr": 0.05, "weight_decay": 0.0})
    assert all(torch.equal(halved.state[name], tensor) for name, tensor in plain.state.items())
    with pytest.raises(Exception, match="--trust"):
        potluck.load(tmp_path / "run", model=nn.Linear(4, 2)).config  # noqa: B018
    again = potluck.load(tmp_path / "run", trust=True).config.train
    assert again == read(optimizer=train.optimizer, lr=0.1, weight_decay=0.0)


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"optimizer": lambda parameters: None}, "train: optimizer is <function .*should be a name"),
        ({"optimizer": partial(torch.optim.Adam, lr=0.1)}, "train: optimizer has an option 'lr'"),
        ({"optimizer": partial(Lazy, pac=1)}, "optimizer: .*Lazy has no 'pac'; did you mean 'pace'"),
        ({"optimizer": partial(torch.optim.Adam, maximize=True)}, "optimizer: adam has no 'maximize'"),
        ({"optimizer": Lazy}, "train: weight_decay is 0.0005, but .*Lazy has none; set it to 0"),
        ({"optimizer": partial(Lazy, pace="x"), "weight_decay": 0}, "Lazy cannot train this network: .*TypeError"),
        ({"optimizer": torch.optim.LBFGS, "weight_decay": 0}, "LBFGS cannot train this network"),
        ({"optimizer": "adm"}, "train: there is no optimizer 'adm'"),
        (
            {"schedule": lambda round: 1 / (round - 1)},
            r"train: schedule\(0\) is -1.0, but it should be a number from 0",
        ),
        ({"schedule": lambda round: 1 / round}, r"train: schedule\(0\) fails: .*ZeroDivisionError"),
        ({"schedule": lambda round: float("nan")}, r"train: schedule\(0\) is nan"),
        ({"schedule": lambda round: "fast"}, r"train: schedule\(0\) fails: could not convert"),
    ],
)
def test_mistakes_in_python(train, says):
    with pytest.raises(ConfigError, match=says):
        federation(train=train)
    if callable(train.get("schedule")):
        return
    with pytest.raises(ConfigError, match=says):
        federation(train=Train(**train))


def test_a_schedule_of_ones_own_is_written_down_as_numbers(tmp_path):
    train = Train(lr=0.5, schedule=lambda round: 1.0 if round < 1 else 0.5)
    result = federation(train=train, rounds=4, out=tmp_path / "run")
    assert [record["learning_rate"] for record in result.metrics] == [0.5, 0.25, 0.25, 0.25]
    written = read_toml(tmp_path / "run" / "config.toml")["train"]
    assert written["schedule"] == [1.0, 0.5]  # and so on
    listed = federation(train={"lr": 0.5, "schedule": [1.0, 0.5]}, rounds=4)
    assert all(torch.equal(listed.state[name], tensor) for name, tensor in result.state.items())
    longer = federation(train=train, rounds=5, out=tmp_path / "run", resume=True)
    assert len(longer.metrics) == 5


def test_a_warm_up_shows_in_the_metrics():
    found = federation(train=Train(lr=0.4, warmup=3), rounds=5)
    assert [record["learning_rate"] for record in found.metrics] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


def test_a_rate_that_hardly_does_what_it_should_is_told(tmp_path):
    config = read_config(with_train(tmp_path, 'schedule = "exponential"', "warmup = 3"))
    steep, long = notes_on(config)
    assert "decay is 0.1: every round has a tenth of the rate before it" in steep
    assert "warmup is 3, but there are only 3 rounds" in long
    assert not notes_on(read_config(config.origin.file, ["train.decay=0.99", "train.warmup=2"]))


def test_a_recipe_is_another_if_the_optimiser_is(tmp_path):
    experiment = from_config(read_config(write_config(tmp_path)))
    kinds = set()
    for changes in ({}, {"optimizer": "adamw"}, {"optimizer": Lazy}, {"warmup": 1}, {"accumulate": 2}):
        task = replace(experiment.task, train=replace(Train(), **changes))
        kinds.add(kind_of(replace(experiment.recipe, task=task), {}))
    assert len(kinds) == 5


def test_a_run_is_rebuilt_elsewhere_with_its_optimiser(tmp_path):
    run_config(with_train(tmp_path, 'optimizer = "torch.optim:NAdam"'), tmp_path / "run", "task.rounds=1")
    again = read_config(tmp_path / "run" / "config.toml", trust=True)
    assert rebuilt(again).task.train.rule == Rule(torch.optim.NAdam)


def test_mixed_precision_learns_in_the_plain_way(tmp_path):
    config = with_train(tmp_path, 'precision = "bfloat16"')
    result = run_config(config, tmp_path / "run", "task.rounds=2", "train.lr=0.01", "train.batch_size=10")
    assert result.metrics[-1]["levels"]["big"]["accuracy"] > 0.25  # chance is 0.1
    written = read_toml(tmp_path / "run" / "config.toml")
    assert written["train"]["precision"] == "bfloat16"
    assert set(written["engine"]["step"].values()) == {"plain"}
    with pytest.raises(ConfigError, match="only the plain way to train has it"):
        run_config(config, tmp_path / "other", "engine.step=swift")
    with pytest.raises(ConfigError, match="precision is 'half', but it should be 'float32' or 'bfloat16'"):
        read_config(config, ["train.precision=half"])

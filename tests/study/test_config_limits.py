"""Settings that could only fail later, or do nothing that anybody meant: refused or remarked on at the door."""

import math
import warnings

import pytest
import torch
from small_experiment import SMALL, run_config, write_config
from torch import nn

import potluck
from potluck.core.errors import ConfigError, PotluckError
from potluck.study.config import parse_config, read_config
from potluck.study.experiment import from_config
from potluck.study.notes import notes_on
from potluck.study.schema import Origin


def refused(folder, *overrides, text=SMALL):
    """The sentence that a config is refused with."""
    with pytest.raises(PotluckError) as caught:
        from_config(read_config(write_config(folder, text), overrides))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.lr=1e300", "[train] lr is 1e+300, but it should be a finite number above 0, at most 1e30"),
        ("train.weight_decay=1e300", "[train] weight_decay is 1e+300, but it should be a number from 0 to 1e30"),
        ("train.weight_decay=inf", "[train] weight_decay is inf"),
        ("train.clip=1e300", "[train] clip is 1e+300"),
        ("train.batch_size=9223372036854775808", "train.batch_size has a whole number of more than 64 bits"),
        ("train.batch_size=9223372036854775807", "[train] batch_size is 9223372036854775807"),
        ("train.milestones=[-1]", "[train] milestones.0 is -1"),
        (f"train.epochs={'9' * 5001}", "--set train.epochs"),
        (f"train.epochs=0x{'f' * 5001}", "train.epochs has a whole number of more than 64 bits"),
        (f"train.epochs={'[' * 3000}", "train.epochs"),
        (f"train.epochs={'[' * 20}{']' * 20}", "train.epochs has more than 16 tables or arrays"),
        ("engine.workers=1000000", "[engine] workers is 1000000"),
        ("fleet.clients=1000000000000", "[fleet] clients is 1000000000000"),
        ("fleet.cohort=1e-300", "[fleet] cohort is 1e-300, but it should be a whole number of clients (10) or a share"),
        ("fleet.cohort=nan", "[fleet] cohort is nan"),
        ("task.rounds=9000000000000000000", "[task] rounds is 9000000000000000000"),
        ("name=../escape", "name is '../escape'"),
        ("name=..", "name is '..'"),
        ('name=""', "name is ''"),
        ('name="a\\u0000b"', "name has the text 'a\\x00b'"),
        ('name="a\\nb"', "name is 'a\\nb'"),
        (f"name={'n' * 300}", "name is 'nnn"),
        ("name=\udcff", "name has the text '\\udcff'"),
        (f"fleet.levels.{'l' * 300}=0.5", "[fleet] levels has 'lll"),
        ('fleet.levels={ "a/b" = 0.5 }', "[fleet] levels has 'a/b', but a level gives files their names"),
        ("fleet.levels={ mean = 0.5 }", "[fleet] levels has 'mean', but tables call the mean over all levels so"),
        ("fleet.assignment={ name = 'fixed', mix = { big = 1e308, small = 1e308 } }", "mix has the shares"),
        (f"fleet.assignment={{ name = 'fixed', mix = 'a{'9' * 5000}' }}", "mix is 'a999"),
        ("task.model.hidden=[0]", "[task.model] hidden.0 is 0, but it should be greater than or equal to 1"),
        ("task.model.hidden=[-1]", "[task.model] hidden.0 is -1"),
        ("task.model.hidden=[1.5]", "[task.model] hidden.0 is 1.5"),
        ("task.model.hidden=3", "[task.model] hidden is 3"),
        ("task.model.hidden=[1000000, 1000000]", "the weights of heterofl-cnn would take"),
        ("task.model.norm=7", "[task.model] norm is 7"),
        ("task.model.classes=0", "[task.model] classes is 0"),
        ("task.model={ name = 'vit-small', depth = 1000000000 }", "[task.model] depth is 1000000000"),
        ("task.model={ name = 'preresnet18', blocks = [1] }", "preresnet18 cannot be built"),
        ("data.source={ name = 'digits', recipe = [1] }", "[data.source] recipe is [1]"),
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_a_value_without_sense_is_refused(tmp_path, override, says):
    assert says in refused(tmp_path, override)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 3000, "a = " + "9" * 5001, "x." * 2000 + "x = 1", "a = {" * 3000, "x." * 200_000 + "x = 1"]
)
def test_a_text_that_python_cannot_take(tmp_path, text):
    assert str(tmp_path / "a.toml") in refused(tmp_path, text=text)


def test_a_file_without_an_end(tmp_path):
    (tmp_path / "large.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="is it a config"):
        read_config(tmp_path / "large.toml")


def test_a_short_value_in_an_error_of_a_long_one(tmp_path):
    assert len(refused(tmp_path, f"train.lr={'x' * 10_000}")) < 500


def test_the_line_of_an_option_in_an_inline_table(tmp_path):
    text = SMALL.replace("hidden = [4, 8, 8, 8]", "hidden = [0]")
    line = text.splitlines().index('model = { name = "heterofl-cnn", hidden = [0] }') + 1
    assert refused(tmp_path, text=text).endswith(f"({tmp_path / 'a.toml'}:{line})")


def test_nothing_is_refused_that_has_sense(tmp_path):
    sense = ["train.lr=1e30", "train.batch_size=1000000000", "fleet.cohort=0.000000001", "name=My run, the 2nd (é)"]
    config = read_config(write_config(tmp_path), sense)
    assert config.name == "My run, the 2nd (é)"


def note(folder, *overrides):
    return notes_on(read_config(write_config(folder), overrides))


def test_a_cohort_larger_than_the_fleet_is_said(tmp_path):
    (said,) = note(tmp_path, "fleet.cohort=100")
    assert said.startswith("[fleet] cohort is 100, but there are only 14 clients: ")
    assert note(tmp_path, "fleet.cohort=14") == []
    assert note(tmp_path, "fleet.clients=4", "fleet.cohort=10") == []  # the default, which nobody chose


def test_milestones_that_are_missing_are_refused(tmp_path):
    told = r"^\[train\] schedule is 'multistep', but milestones is empty; name the rounds .*\(--set train.schedule\)$"
    with pytest.raises(ConfigError, match=told):
        read_config(write_config(tmp_path), ["train.schedule=multistep"])
    read_config(write_config(tmp_path), ["train.schedule=multistep", "train.milestones=[1]"])


def run_from_python(**settings):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    usual = {"levels": {"server": 1.0}, "clients": 4, "rounds": 1, "engine": "serial", "watcher": None}
    return potluck.run(model=nn.Linear(4, 2), data=(inputs, (inputs[:, 0] > 0).long()), **{**usual, **settings})


def test_python_warns_of_the_same():
    with pytest.warns(UserWarning, match="^cohort is 100, but there are only 4 clients"):
        run_from_python(cohort=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_from_python()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"levels": {}}, r"levels is empty; name at least one device class"),
        ({"levels": {"x" * 300: 1.0}}, r"levels has 'xxx"),
        ({"cohort": 1e-300}, r"cohort is 1e-300"),
        ({"workers": 10**6}, r"workers is 1000000"),
        ({"train": potluck.Train(lr=math.nan)}, r"lr is nan, but it should be a finite number above 0"),
        ({"train": potluck.Train(batch_size=2**70)}, r"batch_size is"),
    ],
)
def test_python_refuses_the_same(settings, says):
    with pytest.raises(ConfigError, match=says):
        run_from_python(**settings)


def test_a_config_in_python_is_trusted_only_if_asked(tmp_path):
    text = SMALL.replace('source = "digits"', 'source = "potluck.data.sources:load"')
    with pytest.raises(ConfigError, match=r"add --trust to the same command \(in Python: trust=True\)"):
        from_config(read_config(write_config(tmp_path, text)))
    with pytest.raises(PotluckError, match="missing 1 required positional argument"):
        from_config(read_config(write_config(tmp_path, text), trust=True))
    table = {"task": {"model": "x", "rounds": 1}, "data": {"source": "digits"}, "method": {"name": "a.b:C"}}
    with pytest.raises(ConfigError, match="trust=True"):
        parse_config({**table, "fleet": {"clients": 1, "levels": {"a": 1.0}}}, Origin())


def test_a_batch_of_one_that_batch_norm_cannot_train_on_is_the_clients_failure(tmp_path):
    settings = ["task.rounds=1", "train.batch_size=1", "data.partition={ name = 'drawn', size = 2 }", "train.epochs=1"]
    result = run_config(write_config(tmp_path), None, *settings)
    assert {each["reason"] for each in result.metrics[0]["failed"]} == {
        "batch norm cannot train on a batch of one example; raise train.batch_size"
    }

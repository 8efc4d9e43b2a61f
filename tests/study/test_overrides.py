"""`--set key=value`: every kind of value, at any depth, and what is not one."""

import pytest
from small_experiment import SMALL, write_config

from potluck.core.errors import ConfigError
from potluck.study.config import read_config

ADAGRAD = {"name": "adagrad", "lr_decay": 0.0, "initial_accumulator_value": 0.0, "eps": 1e-10}


def resolved(folder, *overrides, text=SMALL):
    return read_config(write_config(folder, text), overrides).resolved()


def look_up(table, key):
    for part in key.split("."):
        table = table[part]
    return table


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.lr=0.5", 0.5),
        ("train.lr=1", 1.0),
        ("train.lr=1e-3", 0.001),
        ("train.epochs=7", 7),
        ("seed=42", 42),
        ("method.scaler=false", False),
        ("train.optimizer=adagrad", ADAGRAD),
        ('train.optimizer="adagrad"', ADAGRAD),
        ("train.optimizer='adagrad'", ADAGRAD),
        ("train.schedule=[1, 0.5]", [1.0, 0.5]),
        ("name=a run = of mine", "a run = of mine"),
        ("method.masking=-inf", "-inf"),
        ("train.milestones=[10, 20]", [10, 20]),
        ("task.model.hidden=[4, 8]", [4, 8]),
        ("fleet.cohort=0.5", 0.5),
        ("fleet.cohort=5", 5),
        ("fleet.levels.tiny=0.25", 0.25),
        ("fleet.levels={ only = 1.0 }", {"only": 1.0}),
        ("engine.workers=2", 2),
        ("guard.bound=100", 100.0),
        ("guard.bound=inf", float("inf")),
        ("task.scored_clients=7", 7),
        ("data.proxy=digits", {"name": "digits"}),
        (" train.lr =0.5", 0.5),
    ],
)
def test_a_value_of_every_kind(tmp_path, override, value):
    assert look_up(resolved(tmp_path, override), override.partition("=")[0].strip()) == value


def test_the_rest_stays_as_it_was(tmp_path):
    before, after = resolved(tmp_path), resolved(tmp_path, "train.lr=0.5")
    after["train"]["lr"] = before["train"]["lr"]
    assert after == before


def test_an_option_of_a_thing_given_by_name_alone(tmp_path):
    text = SMALL.replace('partition = "iid"', 'partition = "dirichlet"')
    found = resolved(tmp_path, "data.partition.alpha=0.1", text=text)["data"]["partition"]
    assert (found["name"], found["alpha"]) == ("dirichlet", 0.1)


def test_an_option_in_an_inline_table(tmp_path):
    text = SMALL.replace('partition = "iid"', 'partition = { name = "dirichlet", alpha = 0.3 }')
    assert resolved(tmp_path, "data.partition.alpha=0.1", text=text)["data"]["partition"]["alpha"] == 0.1


def test_another_thing_and_its_option(tmp_path):
    found = resolved(tmp_path, "data.partition.name=dirichlet", "data.partition.alpha=0.1")
    assert found["data"]["partition"]["alpha"] == 0.1


def test_tables_that_the_file_lacks_are_made(tmp_path):
    text = SMALL[: SMALL.index("[train]")]
    found = resolved(tmp_path, "train.lr=0.5", "engine.name=serial", "fleet.assignment.name=blocks", text=text)
    assert found["train"]["lr"] == 0.5
    assert found["engine"]["name"] == "serial"
    assert found["fleet"]["assignment"]["name"] == "blocks"


def test_the_last_one_wins(tmp_path):
    assert resolved(tmp_path, "train.lr=0.5", "train.lr=0.25")["train"]["lr"] == 0.25


@pytest.mark.parametrize("override", ["train.lr", "=3", "train.=3", "", "train.lr:0.5"])
def test_what_is_not_an_override(tmp_path, override):
    with pytest.raises(ConfigError, match=r"expected key=value, such as train\.lr=0\.05") as caught:
        resolved(tmp_path, override)
    assert f"--set {override}" in str(caught.value)


def test_a_value_has_no_settings_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match="'seed' is 3, which has no settings"):
        resolved(tmp_path, "seed.deeper=1")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "train.lr=fast",
            "[train] lr is 'fast', but it should be a finite number above 0, at most 1e30 (--set train.lr)",
        ),
        ("train.lr=", "[train] lr is '', but it should be a finite number above 0, at most 1e30 (--set train.lr)"),
        ("train.lr=2020-01-01", "(--set train.lr)"),
        ("train.lrr=0.5", "[train] has no 'lrr'; did you mean 'lr'? (--set train.lrr)"),
        ("fleet.levels.big=1.5", "levels.big is 1.5"),
        ("method.name=heterfl", "did you mean 'heterofl'? (--set method.name)"),
        ("trian.lr=0.5", "has no 'trian'; did you mean 'train'? (--set trian)"),
        ("a..b=1", "has no 'a'"),
    ],
)
def test_a_mistake_is_traced_to_the_command_line(tmp_path, override, expected):
    with pytest.raises(ConfigError) as caught:
        resolved(tmp_path, override)
    assert expected in str(caught.value)
    assert "a.toml:" not in str(caught.value)


DIRICHLET = SMALL.replace('partition = "iid"', 'partition = { name = "dirichlet", alpha = 0.3 }')


def test_another_name_drops_the_options_of_the_thing_before(tmp_path):
    assert resolved(tmp_path, "data.partition.name=iid", text=DIRICHLET)["data"]["partition"] == {"name": "iid"}
    found = resolved(tmp_path, "task.model.name=resnet18")
    assert found["task"]["model"] == {"name": "resnet18"}


def test_the_same_name_keeps_them(tmp_path):
    found = resolved(tmp_path, "data.partition.name=dirichlet", text=DIRICHLET)["data"]["partition"]
    assert found["alpha"] == 0.3


@pytest.mark.parametrize("first", [True, False])
def test_options_that_were_typed_stay_in_any_order(tmp_path, first):
    typed = ["data.partition.size=7", "data.partition.name=drawn"]
    found = resolved(tmp_path, *(typed if first else reversed(typed)), text=DIRICHLET)["data"]["partition"]
    assert found == {"name": "drawn", "size": 7}


def test_the_name_of_an_engine_or_of_a_level_drops_nothing(tmp_path):
    found = resolved(tmp_path, "engine.workers=3", "engine.name=local", "fleet.levels.name=0.5")
    assert found["engine"]["workers"] == 3
    assert set(found["fleet"]["levels"]) == {"big", "small", "name"}


def test_options_of_what_has_none(tmp_path):
    with pytest.raises(ConfigError) as caught:
        resolved(tmp_path, text=DIRICHLET.replace("dirichlet", "iid"))
    told = "[data.partition] iid takes no options; remove 'alpha', or use --set data.partition=iid"
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["data.partition.name=iid"], ("data.partition is 'iid' now: the options of 'dirichlet' are dropped (alpha)",)),
        (["data.partition.name=dirichlet"], ()),
        (["data.partition.name=balanced-dirichlet", "data.partition.alpha=2"], None),
        (["data.partition.alpha=2", "data.partition.name=balanced-dirichlet"], ()),
        (["data.partition=iid"], ()),
        (["train.lr=1"], ()),
    ],
)
def test_options_that_are_dropped_are_told(tmp_path, overrides, said):
    notes = read_config(write_config(tmp_path, DIRICHLET), overrides).origin.notes
    assert notes == said if said is not None else "of 'dirichlet' are dropped (alpha)" in notes[0]

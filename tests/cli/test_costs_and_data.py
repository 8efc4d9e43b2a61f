"""`potluck costs`, `potluck data` and `potluck partition` as a user calls them."""

import json
import sys

import pytest

from potluck.cli import outcome


@pytest.fixture
def potluck(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["potluck", *map(str, arguments)])
        code = outcome()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_costs_of_any_network_in_the_order_given(potluck):
    words = "costs --model resnet34 --input 3x64x64 --classes 200 --method heterofl --levels 0.5,1 --no-measure --json"
    code, out, _ = potluck(*words.split())
    rows = json.loads(out)
    assert code == 0
    assert [row["level"] for row in rows] == ["0.5", "1"]
    assert [round(row["parameters"] / 1e6, 2) for row in rows] == [5.38, 21.38]
    assert f"{rows[0]['paper_macs'] / 1e6:.2f}" == "1167.26"  # FedHM, width slimming on Tiny-ImageNet
    assert all(row["bytes_up"] == row["bytes_down"] == 4 * row["parameters"] for row in rows)


def test_costs_measures_memory_and_time(potluck):
    words = "costs --model lg-mlp --levels 1,0.25 --set train.batch_size=4 --json"
    code, out, _ = potluck(*words.split())
    large, small = json.loads(out)
    assert code == 0
    assert large["peak_training_memory"] > 3 * 4 * large["parameters"]  # weights, gradients, momentum
    assert small["peak_training_memory"] < large["peak_training_memory"]
    assert large["seconds_per_step"] > 0


def test_costs_of_a_method_that_admits_only_some(potluck):
    words = "costs --model heterofl-cnn --method fedavg --set method.width=0.5 --levels 1,0.5,0.25 --no-measure --json"
    code, out, _ = potluck(*words.split())
    assert code == 0
    assert [(row["level"], row["parameters"]) for row in json.loads(out)] == [("1", 391_370), ("0.5", 391_370)]


def test_costs_of_the_users_own_network(potluck, tmp_path, monkeypatch):
    (tmp_path / "mynets_for_costs.py").write_text(
        "from torch import nn\n"
        "def net(width):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(12, int(8 * width)), nn.Linear(int(8 * width), 3))\n"
        "ready = net(1.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    for path in ("mynets_for_costs:net", "mynets_for_costs.net", "mynets_for_costs:ready"):
        code, out, _ = potluck(
            "costs", "--model", path, "--input", "3x2x2", "--levels", "1,0.5", "--no-measure", "--json"
        )
        assert code == 0
        assert [row["parameters"] for row in json.loads(out)] == [131, 67]
    code, _, err = potluck("costs", "--model", "mynets_for_costs:net", "--input", "5x5", "--levels", "1")
    assert code == 2
    assert "cannot run on an input of shape (5, 5)" in err


def test_costs_tell_what_is_trained_where_weights_are_frozen(potluck, tmp_path, monkeypatch):
    (tmp_path / "frozen_for_costs.py").write_text(
        "from torch import nn\n"
        "def net(width):\n"
        "    body = nn.Linear(12, int(8 * width)).requires_grad_(False)\n"
        "    return nn.Sequential(nn.Flatten(), body, nn.Linear(int(8 * width), 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("costs", "--model", "frozen_for_costs:net", "--input", "3x2x2", "--levels", "1,0.5", "--no-measure")
    code, out, _ = potluck(*words, "--json")
    assert code == 0
    assert [(row["parameters"], row["trained"]) for row in json.loads(out)] == [(131, 27), (67, 15)]
    assert "parameters trained" in potluck(*words)[1]
    assert "trained" not in potluck("costs", "--model", "lg-mlp", "--levels", "1", "--no-measure")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("costs", "either a CONFIG or a --model"),
        ("costs --model resnet43", "did you mean 'resnet34'?"),
        ("costs --model resnet18 --input 3xq", "3x32x32"),
        ("costs --model resnet18 --levels 1,x", "ratios such as 1,0.5,0.25"),
        ("costs --model resnet18 --levels 2", "at most 1"),
        ("costs --model resnet18 --set method.scalar=true", "did you mean 'scaler'?"),
        ("costs --model resnet18 --set data.x=1", "there is no section 'data'"),
        ("costs --model resnet18 --set model.bloks=1", "resnet18 has no 'bloks'"),
        ("costs --model nowhere.to.be.found --input 3x2x2", "cannot load model"),
        ("data fetch cifar11 --data-dir .", "did you mean 'cifar10'?"),
        ("data fetch cifar11", "did you mean 'cifar10'?"),
        ("data fetch digits --data-dir .", "digits is not downloaded"),
    ],
)
def test_mistakes_get_a_sentence(potluck, words, said):
    code, out, err = potluck(*words.split())
    assert code == 2
    assert said in " ".join((out + err).split())
    assert "Traceback" not in out + err


def test_data_lists_what_is_here_and_how_to_get_the_rest(potluck, tmp_path):
    code, out, _ = potluck("data", "--data-dir", tmp_path)
    assert code == 0
    assert "digits         verified" in out
    assert "cifar10        missing" in out
    assert "potluck data fetch cifar10" in out
    assert "licence: MIT (Zalando SE, 2017)" in out


def test_partition_says_who_holds_what_and_draws_it(potluck, tmp_path, pytestconfig):
    config = pytestconfig.rootpath / "experiments" / "digits-heterofl.toml"
    code, out, _ = potluck("partition", config, "--picture", tmp_path / "who.svg")
    assert code == 0
    assert "40 clients hold 1,442 of 1,442 examples (0 left out)" in " ".join(out.split())
    assert (tmp_path / "who.svg").read_text().startswith("<svg")
    dropping = "data.partition={name='shards', keep_duplicates=false}"
    _, out, _ = potluck("partition", config, "--set", dropping)
    assert "(0 left out)" not in out
    many = ("--set", "data.partition={name='drawn', size=3, alpha=0.1}", "--set", "fleet.clients=1000000")
    code, out, _ = potluck("partition", config, *many, "--picture", tmp_path / "many.svg")
    assert code == 0
    assert "The first 1,000 of 1,000,000 clients hold" in " ".join(out.split())
    assert "3 to 3 each" in " ".join(out.split())
    assert "The first 100 of 1000000 clients" in (tmp_path / "many.svg").read_text()
    code, out, err = potluck("partition", config, "--picture", tmp_path / "no" / "who.svg")
    assert code == 2
    assert out == ""
    assert "cannot write" in err


@pytest.mark.parametrize("name", ["who.png", "who", "who.svg.pdf"])
def test_a_picture_in_another_format_is_refused_before_anything_is_printed(potluck, tmp_path, pytestconfig, name):
    config = pytestconfig.rootpath / "experiments" / "digits-heterofl.toml"
    code, out, err = potluck("partition", config, "--picture", tmp_path / name)
    assert (code, out) == (2, "")
    assert f"--picture is {tmp_path / name}" in err
    assert "should end in .svg" in err
    assert list(tmp_path.iterdir()) == []

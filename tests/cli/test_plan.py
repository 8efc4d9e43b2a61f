"""`potluck plan` on networks of one's own, as a user calls it."""

import json

import pytest

NETS = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.head = nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.hidden(x.flatten(1))).relu())

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.table, self.head = nn.Embedding(10, 8), nn.Linear(5, 6), nn.Linear(14, 3)

    def forward(self, ids, table):
        return self.head(torch.cat([self.tokens(ids).mean(1), self.table(table)], 1))

class Fixed(Net):
    def forward(self, x):
        return self.head(self.norm(self.hidden(x.flatten(1))).view(-1, 8))

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.heads = nn.Linear(5, 92), nn.MultiheadAttention(92, 4, batch_first=True)
        self.up, self.head = nn.Linear(92, 92), nn.Linear(92, 3)

    def forward(self, x):
        x = self.stem(x)
        return self.head(self.up(x + self.heads(x, x, x, need_weights=False)[0]))

def function(width):
    hidden = int(8 * width)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, hidden), nn.Linear(hidden, 3))

def broken(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), *([nn.Linear(8, 8)] if width == 1 else []), nn.Linear(8, 3))

ready = Net()
fixed = Fixed()
heads = Heads()
tokens = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 3))
number = 7
"""
# Linear(12, 8), BatchNorm1d(8), Linear(8, 3)
FULL, HALF = 12 * 8 + 8 + 2 * 8 + 8 * 3 + 3, 12 * 4 + 4 + 2 * 4 + 4 * 3 + 3


@pytest.fixture
def plan(potluck, tmp_path, monkeypatch):
    """The command beside a file with networks."""
    (tmp_path / "nets_to_plan.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)

    def call(net, *words):
        return potluck("plan", f"nets_to_plan:{net}", *words)

    return call


def table(told):
    assert told.code == 0, told.words
    return json.loads(told.out)


@pytest.mark.parametrize("net", ["ready", "Net"])
def test_an_instance_and_a_class_without_a_width(plan, net):
    found = table(plan(net, "--input", "3x2x2", "--json"))
    assert (found["parameters_full"], found["parameters"]) == (FULL, HALF)
    assert found["kept_whole"] == {"head.bias": "it is the network's output"}
    assert found["kept_sizes"] == {
        "hidden.weight": [4, 12],
        "hidden.bias": [4],
        "norm.weight": [4],
        "norm.bias": [4],
        "head.weight": [3, 4],
        "head.bias": [3],
    }


def test_a_function_of_the_width(plan):
    found = table(plan("function", "--input", "3x2x2", "--width", "0.25", "--json"))
    assert (found["parameters_full"], found["parameters"]) == (131, 12 * 2 + 2 + 2 * 3 + 3)
    assert found["kept_sizes"] == {"1.weight": [2, 12], "1.bias": [2], "2.weight": [3, 2], "2.bias": [3]}


def test_everything_that_other_programs_can_read(plan):
    found = table(plan("ready", "--input", "3x2x2", "--json"))
    assert found["model"] == "nets_to_plan:ready"
    assert found["width"] == 0.5
    assert found["full_sizes"]["hidden.weight"] == [8, 12]
    assert found["kept_indices"]["head.weight"] == [[[0, 3]], [[0, 4]]]
    assert list(found["groups"].values()) == [
        ["hidden.weight[0]", "hidden.bias[0]", "norm.weight[0]", "norm.bias[0]", "head.weight[1]"]
    ]
    assert found["whole_dimensions"]["head.weight[0]"] == "it is the network's output"


def test_several_inputs_of_several_kinds(plan):
    once = table(plan("Two", "--input", "int:4", "--input", "5", "--json"))
    assert once["kept_sizes"]["tokens.weight"] == [10, 4]
    assert once["kept_sizes"]["table.weight"] == [3, 5]
    assert once["kept_sizes"]["head.weight"] == [3, 7]
    assert table(plan("Two", "--input", "int:4,5", "--json")) == once


def test_tokens(plan):
    found = table(plan("tokens", "--input", "int:3", "--json"))
    assert found["kept_sizes"]["0.weight"] == [10, 4]
    assert found["kept_sizes"]["2.weight"] == [3, 12]


def test_what_the_user_keeps(plan):
    found = table(plan("ready", "--input", "3x2x2", "--keep", "hidden", "--json"))
    assert found["parameters"] == FULL
    assert found["kept_whole"]["hidden.weight"] == "it is named in keep"
    assert table(plan("fixed", "--input", "3x2x2", "--keep", "norm", "--json"))["parameters"] == FULL


def test_how_channels_are_rounded(plan):
    words = ("ready", "--input", "3x2x2", "--width", "0.3", "--json")
    assert table(plan(*words))["kept_sizes"]["hidden.bias"] == [3]  # 2.4
    assert table(plan(*words, "--rounding", "round"))["kept_sizes"]["hidden.bias"] == [2]


def test_a_network_of_ours(potluck):
    found = table(potluck("plan", "resnet18", "--width", "0.5", "--json"))
    assert (found["parameters_full"], found["parameters"]) == (11_173_962, 2_797_610)


def test_for_people(plan):
    told = plan("ready", "--input", "3x2x2")
    assert told.code == 0
    assert f"{HALF} of {FULL} parameters" in told.words
    assert "hidden.weight" in told.out
    assert "8x12" in told.out
    assert "4x12" in told.out
    assert "it is the network's output" in told.words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ready", "needs --input"),
        ("ready --input 3xq", "3x32x32"),
        ("ready --input 5", "shape"),
        ("ready --input 3x2x2 --width 0", "above 0 and at most 1"),
        ("ready --input 3x2x2 --width 1.5", "above 0 and at most 1"),
        ("ready --input 3x2x2 --keep hiden", "did you mean 'hidden'?"),
        ("ready --input 3x2x2 --rounding down", "rounding"),
        ("fixed --input 3x2x2", "cannot be made narrower"),
        ("fixed --input 3x2x2", "a function of the width"),
        ("function --input 3x2x2 --keep 1", "keep"),
        ("broken --input 3x2x2", "exist at one width only"),
        ("number --input 3x2x2", "no function or class that makes a Module"),
        ("nothing --input 3x2x2", "cannot load model"),
    ],
)
def test_mistakes_get_a_sentence(plan, words, said):
    told = plan(*words.split())
    assert told.code == 2, told.words
    assert said in told.words
    assert "Traceback" not in told.words


def test_a_plan_of_a_method_that_treats_layers_differently(potluck):
    told = potluck("plan", "lg-cnn", "--method", "fedhm", "--width", "0.25", "--json")
    assert told.code == 0, told
    layers = json.loads(told.out)["layers"]
    assert set(layers.values()) >= {"whole: it is the first layer", "whole: it makes the logits"}
    assert any(words.startswith("factors of rank ") for words in layers.values())
    later = json.loads(
        potluck("plan", "lg-cnn", "--method", "fedhm", "--width", "0.25", "--set", "method.rho=3", "--json").out
    )["layers"]
    assert sum(words.startswith("factors") for words in later.values()) == 1


def test_a_plan_of_composed_layers(potluck):
    told = potluck("plan", "flanc-cnn", "--method", "flanc", "--width", "0.25")
    assert told.code == 0, told
    assert "composed: R1 = 16, R2 = 32" in told.out
    assert "left: the stem" in told.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "heterofl"), "heterofl treats all layers alike"),
        (("--method", "fedhmm"), "did you mean 'fedhm'?"),
        (("--method", "fedhm", "--set", "train.lr=1"), "a plan takes settings of the method alone"),
        (("--method", "flanc", "--width", "0.3"), "does not divide"),
    ],
)
def test_mistakes_in_a_plan_of_a_method(potluck, options, words):
    told = potluck("plan", "flanc-cnn", *options)
    assert told.code == 2
    assert words in told.words


def test_a_network_of_ours_is_told_of_the_option_that_was_typed(potluck):
    told = potluck("plan", "lg-mlp", "--rounding", "up")
    assert told.code == 2
    assert "rounding is 'up', but it should be 'ceil' or 'round'" in told.words


def test_settings_of_no_method_are_refused(potluck):
    told = potluck("plan", "lg-mlp", "--set", "train.lr=1")
    assert told.code == 2
    assert "say which with --method" in told.words


HEADS = "24 of 92 instead of 23: 4 heads or groups keep 6 of 23 each"


def test_channels_beside_heads_say_why_they_are_not_as_many_as_the_width_alone_would_give(plan):
    found = table(plan("heads", "--input", "6x5", "--width", "0.25", "--json"))
    assert (found["kept_sizes"]["stem.weight"], found["kept_sizes"]["up.weight"]) == ([24, 5], [23, 24])
    assert found["remarks"] == {"stem.weight": HEADS}
    told = plan("heads", "--input", "6x5", "--width", "0.25")
    assert HEADS in " ".join(word for word in told.words.split() if word not in "│┃|")


@pytest.mark.parametrize(("net", "width"), [("heads", "1"), ("ready", "0.25"), ("function", "0.25")])
def test_a_plan_without_such_channels_has_no_remark(plan, net, width):
    words = ("--input", "6x5" if net == "heads" else "3x2x2", "--width", width)
    assert table(plan(net, *words, "--json"))["remarks"] == {}
    assert "instead of" not in plan(net, *words).words


def test_a_width_that_leaves_all_heads_their_share_needs_no_remark(plan):
    found = table(plan("heads", "--input", "6x5", "--width", str(12 / 23), "--json"))
    assert (found["kept_sizes"]["stem.weight"], found["remarks"]) == ([48, 5], {})

"""A table in a config: `source = { name = "table", path = "…" }`."""

import numpy as np
import pytest
from small_experiment import SMALL, write_config

from potluck.core.errors import ConfigError, DataError
from potluck.engines import make_engine
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.run import execute

pytest.importorskip("pyarrow")

NETWORK = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
"""


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Makes the experiment on a table with these options."""
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{2 * a - b},{'xyz'[at % 3]}" for at, (a, b) in enumerate(rng.normal(size=(60, 2)))]
    for name, some in (("rows", rows), ("more", rows[:9])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,price,shop", *some]) + "\n")
    (tmp_path / "table_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def prepared(options, partition="natural"):
        text = SMALL.replace(
            'model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }',
            'model = "table_network:net"\ngoal = "regression"',
        )
        text = text.replace('source = "digits"', f'source = {{ name = "table", {options} }}')
        text = text.replace('partition = "iid"', f'partition = "{partition}"').replace("clients = 14", "clients = 3")
        return from_config(read_config(write_config(tmp_path, text), trust=True))

    return prepared


def test_a_regression_from_a_file(prepare):
    experiment = prepare('path = "rows.csv", target = "price", owner = "shop", test = 0.25')
    assert (len(experiment.data), len(experiment.test), sorted(experiment.names)) == (45, 15, ["x", "y", "z"])
    assert experiment.task.example[0].shape == (1, 2)
    result = execute(experiment, make_engine("serial", 1), {}, None)
    assert {"loss", "mae", "r2"} <= set(result.metrics[-1]["levels"]["big"])


def test_inputs_and_test_rows_may_be_named(prepare):
    experiment = prepare('path = "rows.csv", target = "price", inputs = ["b", "a"], test = "more.csv"', "iid")
    assert (len(experiment.data), len(experiment.test), experiment.names) == (60, 9, ())


def test_owners_may_be_numbers(prepare, tmp_path):
    lines = (tmp_path / "rows.csv").read_text().translate(str.maketrans({"x": "7", "y": "11", "z": "8"}))
    (tmp_path / "numbered.csv").write_text(lines)
    experiment = prepare('path = "numbered.csv", target = "price", owner = "shop", test = 0.25')
    named = prepare('path = "rows.csv", target = "price", owner = "shop", test = 0.25')
    assert [{"x": "7", "y": "11", "z": "8"}[name] for name in named.names] == list(experiment.names)
    sizes = [[each.holdings.size(client) for client in range(3)] for each in (experiment, named)]
    assert sizes[0] == sizes[1]


def test_a_table_of_test_rows_with_its_columns_in_another_order_is_refused(prepare, tmp_path):
    (tmp_path / "turned.csv").write_text("b,a,price,shop\n1,2,3,x\n")
    says = "turned.csv has the columns b, a, but rows.csv has a, b: the network is given them in this order"
    with pytest.raises(DataError, match=says):
        prepare('path = "rows.csv", target = "price", owner = "shop", test = "turned.csv"')


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('target = "price"', r"source: path is '', but it should be a path that ends in \.csv or \.parquet"),
        ('path = "none.csv"', r"there is no file none\.csv"),
        ('path = "rows.csv", target = "prize"', "did you mean 'price'"),
        (
            'path = "rows.csv", target = "price", owner = "shop", test = 1.0',
            "test is 1.0, which would hold out 60 of 60",
        ),
        ('path = "rows.csv", goal = "price"', "table has no 'goal'"),
        ('path = "rows.csv", inputs = 3', "inputs"),
    ],
)
def test_mistakes_get_a_sentence(prepare, options, says):
    with pytest.raises((ConfigError, DataError), match=says):
        prepare(options)

"""Names in files that somebody else made are shown, but no terminal obeys them."""

import json

import pytest

ORDER = "\x1b]0;mine\x07\x1b[2J\r\x9b5m"  # sets the window's title, clears the screen, goes back in the line
CONFIG = """\
name = {run}
seed = {seed}
task = {{ model = {word}, rounds = 1 }}
data = {{ source = "digits", partition = {run} }}
fleet = {{ clients = 3, levels = {{ {word} = 1.0 }} }}
method = {{ name = {word} }}
recipe = {{ classes = 3 }}
"""


@pytest.fixture
def runs(tmp_path):
    """A folder of runs that are called by what a terminal obeys."""
    counted = ("failures", "bytes_down", "bytes_up", "macs", "evaluation_bytes_down", "evaluation_bytes_up")
    figures = {**dict.fromkeys(counted, 0), "seconds": 1.0, "seconds_training": 1.0}
    for seed, name in enumerate(("one", "two")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        text = CONFIG.format(run=json.dumps(ORDER + name), seed=seed, word=json.dumps(ORDER)).replace("\x9b", "\\u009b")
        (folder / "config.toml").write_text(text)
        record = {"round": 1, "clients": 3, "failed": [], "levels": {ORDER: {"accuracy": 0.5, "loss": 1.0}}, **figures}
        (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", ".", "--target", "0.5"],
        ["compare", ".", "--format", "csv"],
        ["compare", ".", "--format", "latex"],
        ["compare", ".", "--format", "markdown"],
        ["inspect", "one"],
        ["export", "one", "--level", ORDER, "--out", "model.safetensors"],
    ],
)
def test_a_strangers_names_give_no_orders_to_a_terminal(potluck, runs, monkeypatch, arguments):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("FORCE_COLOR", "1")  # click takes colours, and some orders, out of text for a pipe
    told = potluck(*arguments)
    assert "mine" in told.words
    found = {letter for letter in told.out + told.err if not letter.isprintable()} - {"\n"}
    assert not found - {"\x1b"}
    assert "\x1b]" not in told.out + told.err
    assert "\x1b[2J" not in told.out + told.err


def test_nor_do_the_columns_of_a_table(potluck, tmp_path):
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    (tmp_path / "rows.csv").write_text(f'"a{ORDER}",b\n1,2\n', encoding="utf-8", newline="")
    config = tmp_path / "table.toml"
    config.write_text(
        f'task = {{ model = "mlp", rounds = 1 }}\ndata.source = {{ name = "table", path = "{tmp_path}/rows.csv" }}\n'
        'fleet = { clients = 2, levels = { all = 1.0 } }\nmethod.name = "fedavg"\n'
    )
    told = potluck("partition", config)
    assert told.code == 2
    assert "mine" in told.err
    assert not {letter for letter in told.err if not letter.isprintable()} - {"\n"}

"""An experiment on real digits that takes a fraction of a second; 14 clients hold 103 examples each."""

import torch

from potluck.engines import make_engine
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.run import execute
from potluck.study.watchers import Nobody

torch.set_num_threads(1)  # networks so small that more threads only wait for each other

SMALL = """\
name = "small"
seed = 3

[task]
model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }
rounds = 3
evaluate_every = 2
calibration_clients = 3

[data]
source = "digits"
partition = "iid"

[fleet]
clients = 14
levels = { big = 1.0, small = 0.5 }
cohort = 3

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 2
batch_size = 52

[engine]
name = "serial"
"""


def write_config(folder, text=SMALL):
    path = folder / "a.toml"
    path.write_text(text)
    return path


def line_of(text, start):
    """The number of the first line that starts like this."""
    return next(number for number, line in enumerate(text.splitlines(), start=1) if line.startswith(start))


def run_config(path, directory, *overrides, resume=False, watcher=None):
    config = read_config(path, overrides, trust=True)
    engine = make_engine("serial")
    return execute(from_config(config), engine, config.resolved(), directory, resume, watcher)


class StopAfter(Nobody):
    """Ends a run as Ctrl-C would, once a round is finished."""

    def __init__(self, round):
        self.round = round

    def round_done(self, record):
        if record["round"] == self.round:
            raise KeyboardInterrupt


def interrupted(path, directory, after=1):
    """A run that stopped after a round."""
    try:
        run_config(path, directory, watcher=StopAfter(after))
    except KeyboardInterrupt:
        return directory
    raise AssertionError("the run was not interrupted")


def without_seconds(records):
    return [{key: value for key, value in record.items() if not key.startswith("seconds")} for record in records]


def content(directory):
    """Every file below a directory, by its relative name."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }

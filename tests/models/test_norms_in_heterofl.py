"""Every cell of HeteroFL's ablation plays a round on real digits: norms, with and without scaler and masking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import pytest
import torch

from potluck.engines import make_engine
from potluck.models.norms import Norm
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.result import Result
from potluck.study.run import execute

CONFIG = """\
[task]
model = { name = "heterofl-cnn", hidden = [8, 16, 16] }
rounds = 1
calibration_clients = 3

[data]
source = "digits"
partition = { name = "shards", classes_per_client = 2 }

[fleet]
clients = 20
levels = { big = 1.0, small = 0.5 }
cohort = 4

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 2
batch_size = 24
"""


def played(folder: Path, *overrides: str) -> Result:
    torch.set_num_threads(1)
    path = folder / "ablation.toml"
    path.write_text(CONFIG)
    config = read_config(path, overrides)
    return execute(from_config(config), make_engine("serial"), config.resolved(), None, False, None)


@pytest.mark.parametrize("masking", ["zero", pytest.param("-inf", marks=pytest.mark.slow), "off"])
@pytest.mark.parametrize("scaler", ["true", "false"])
@pytest.mark.parametrize("norm", get_args(Norm))
def test_a_round_stays_finite(tmp_path: Path, norm: str, scaler: str, masking: str) -> None:
    result = played(tmp_path, f"task.model.norm={norm}", f"method.scaler={scaler}", f'method.masking="{masking}"')
    (record,) = result.metrics
    assert (record["clients"], record["failures"]) == (4, 0)
    assert all(math.isfinite(found["loss"]) for found in record["levels"].values())
    assert all(tensor.isfinite().all() for tensor in result.state.values())
    assert ("body.1.weight" in result.state) == (norm != "none")
    if norm != "none":
        assert not result.state["body.1.weight"].eq(1).all()


@pytest.mark.parametrize("norm", ["in", "gn", "ln", "none"])
def test_without_batch_norm_there_is_nothing_to_measure(tmp_path: Path, norm: str) -> None:
    (record,) = played(tmp_path, f"task.model.norm={norm}").metrics
    assert record["evaluation_bytes_down"] == record["evaluation_bytes_up"] == 0


def test_batch_norm_is_measured_or_averaged(tmp_path: Path) -> None:
    static, running = (played(tmp_path, f"method.static_norm={static}") for static in ("true", "false"))
    assert static.metrics[0]["evaluation_bytes_up"] > 0
    assert running.metrics[0]["evaluation_bytes_up"] == 0
    assert ("body.1.running_mean" in static.state, "body.1.running_mean" in running.state) == (False, True)

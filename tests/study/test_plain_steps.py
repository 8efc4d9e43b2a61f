"""Methods that need steps w - η·g are refused other training settings, before anything is made of them."""

import pytest
from small_experiment import SMALL, run_config, write_config

from potluck.core.errors import ConfigError

SCAFFOLD = SMALL.replace('name = "heterofl"', 'name = "scaffold"')
PLAIN = ["train.momentum=0", "train.clip=0"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], r"\[train\] momentum is 0.9, but SCAFFOLD needs plain steps"),
        (["train.momentum=0"], r"\[train\] clip is 1.0, but SCAFFOLD"),
        ([*PLAIN, "train.optimizer=adam"], r"\[train\] optimizer is 'adam', but SCAFFOLD"),
    ],
)
def test_what_is_no_plain_step_is_refused(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        run_config(write_config(tmp_path, SCAFFOLD), tmp_path / "run", *overrides)
    assert not (tmp_path / "run").exists()


def test_weight_decay_is_part_of_a_gradient(tmp_path):
    result = run_config(write_config(tmp_path, SCAFFOLD), tmp_path / "run", *PLAIN, "train.weight_decay=0.01")
    assert not any(record["failures"] for record in result.metrics)
    assert any((tmp_path / "run" / "personal").glob("*/*.safetensors"))  # control variates stay on clients


def test_control_variates_count_for_every_client_of_the_fleet(tmp_path):
    result = run_config(write_config(tmp_path, SCAFFOLD), None, *PLAIN, "task.rounds=1")
    assert result.experiment.task.clients == 14
    with pytest.raises(ConfigError, match=r"width is 1, which level 'small' \(0.5\) cannot carry"):
        run_config(write_config(tmp_path, SCAFFOLD), None, *PLAIN, "method.width=1.0")

"""How clients are trained, asked for on the command line: mistakes in one sentence."""

import pytest
from federation import differences, outcome_of

PINNED = ["--set", "engine.step.big=channels-last", "--set", "engine.step.small=stacked-2"]
FEW = ["--set", "task.rounds=1", "--set", "data.test_examples=40"]


def one_sentence(told):
    lines = told.err.strip().splitlines()
    return told.code == 2 and len(lines) == 1 and lines[0].startswith("potluck: ") and "Traceback" not in told.err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("engine.step=fast", "[engine] step is 'fast', but it should be 'counted', 'auto', 'plain', 'swift'"),
        ("engine.step.big=stacked-0", "[engine] step is 'stacked-0'"),
        ("engine.step.tiny=swift", "[engine] step names the level 'tiny', but the levels are big, small"),
        ("engine.step=8", "step"),
        ("engine.device=cuda", "[engine] device is 'cuda', but this machine has none"),
        ("engine.device=tpu", "[engine] device is 'tpu', but it should be 'cpu' or 'cuda'"),
        ("engine.device=meta", "[engine] device is 'meta', but it should be 'cpu' or 'cuda'"),
    ],
)
def test_a_mistake_is_one_sentence(potluck, config, tmp_path, setting, says, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    told = potluck("run", config, "--set", setting, "--out", tmp_path / "run")
    assert one_sentence(told), told
    assert says in told.err
    assert not told.out.strip()  # no bar of a run that never began


def test_other_ways_on_resume_are_one_sentence(potluck, config, tmp_path):
    assert potluck("run", config, *FEW, *PINNED, "--out", tmp_path / "run").code == 0
    told = potluck("run", config, *FEW, "--set", "engine.step=swift", "--out", tmp_path / "run", "--resume")
    assert one_sentence(told), told
    assert "engine.step is {'big': 'channels-last', 'small': 'stacked-2'} there and 'swift' here" in told.err
    assert potluck("run", config, *FEW, "--set", "engine.step=auto", "--out", tmp_path / "run", "--resume").code == 0


def test_the_config_beside_a_run_gives_it_again(potluck, config, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.core.ways.trial.TURNS", 1)
    monkeypatch.setattr("potluck.study.tuning.SHARE", 1e9)
    auto = ("--set", "engine.step=auto", "--set", "method.static_norm=false")
    assert potluck("run", config, *FEW, *auto, "--out", tmp_path / "run").code == 0
    assert potluck("run", tmp_path / "run" / "config.toml", "--out", tmp_path / "again").code == 0
    assert not differences(outcome_of(tmp_path / "run"), outcome_of(tmp_path / "again"))

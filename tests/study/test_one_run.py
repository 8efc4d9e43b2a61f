"""The files of a run belong together; a resume that finds others is refused, and nothing on disk changes."""

import json
import shutil

import pytest
import torch
from small_experiment import StopAfter, content, interrupted, run_config, write_config
from test_personal_runs import TEXT, personal_files

from potluck.core.checkpoint import read, save
from potluck.core.errors import RunError
from potluck.study.record import RunDirectory

OTHERS = {"run": [], "seed": ["seed=4"], "cohort": ["fleet.cohort=4"], "guard": ["guard.bound=99.0"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A config, and runs of it that stopped after two rounds: as it is, and with other settings."""
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder)
    config.write_text(config.read_text().replace("[engine]", '[engine]\nstep = "plain"'))
    for name, overrides in OTHERS.items():
        with pytest.raises(KeyboardInterrupt):
            run_config(config, folder / name, *overrides, watcher=StopAfter(2))
    return config, folder


@pytest.fixture
def copy(runs, tmp_path):
    config, folder = runs
    return config, shutil.copytree(folder / "run", tmp_path / "run")


def refused(config, directory, *overrides):
    """The sentence that a resume is refused with; every byte is as it was."""
    before = content(directory)
    with pytest.raises(RunError) as caught:
        run_config(config, directory, *overrides, resume=True)
    assert content(directory) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("other", ["seed", "cohort", "guard"])
@pytest.mark.parametrize("files", [["checkpoint"], ["checkpoint", "metrics.jsonl"]])
def test_the_checkpoint_of_another_run(runs, copy, other, files):
    """With its metrics, too, it would run to the end, and nobody would know what came out."""
    config, directory = copy
    for name in files:
        source = runs[1] / other / name
        if source.is_dir():
            shutil.rmtree(directory / name)
            shutil.copytree(source, directory / name)
        else:
            shutil.copy(source, directory / name)
    assert "do not belong together" in refused(config, directory)


def test_the_metrics_of_another_run(runs, copy):
    config, directory = copy
    shutil.copy(runs[1] / "seed" / "metrics.jsonl", directory / "metrics.jsonl")
    assert f"{directory / 'metrics.jsonl'} is " in refused(config, directory)


def test_a_refused_resume_can_be_mended(runs, copy, tmp_path):
    """The wrong checkpoint is refused, the right one is then taken, as if nothing had been tried."""
    config, directory = copy
    path = RunDirectory(directory).checkpoint
    right = path.read_bytes()
    shutil.copy(RunDirectory(runs[1] / "seed").checkpoint, path)
    refused(config, directory)
    path.write_bytes(right)
    resumed, whole = run_config(config, directory, resume=True), run_config(config, None)
    assert all(torch.equal(whole.state[name], tensor) for name, tensor in resumed.state.items())


def rewritten(directory, change):
    """The checkpoint with another content and a checksum that is right."""
    path = RunDirectory(directory).checkpoint
    state, about = read(path)
    change(state, about)
    save(path, state, about)


def to_double(state, about):
    state["head.bias"] = state["head.bias"].double()


def to_integers(state, about):
    state["head.bias"] = state["head.bias"].view(torch.int32)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state, about: about.update(rounds_done=-1), "says that -1 rounds are done"),
        (lambda state, about: about.update(rounds_done=0), "says that 0 rounds are done"),
        (lambda state, about: about.update(rounds_done=10**9), "says that 1000000000 of 3 rounds are done"),
        (lambda state, about: about.update(rounds_done="2"), "does not say its rounds_done"),
        (lambda state, about: about.update(rounds_done=True), "does not say its rounds_done"),
        (lambda state, about: about.pop("rounds_done"), "does not say its rounds_done"),
        (lambda state, about: about.pop("run"), "does not say its run"),
        (lambda state, about: about.pop("metrics_sha256"), "does not say its metrics_sha256"),
        (lambda state, about: about.update(rounds_done=1), "has 2 rounds, but the checkpoint says that 1 are done"),
        (lambda state, about: about.update(metrics_bytes=1), "metrics.jsonl is not what it was"),
        (lambda state, about: about.update(metrics_bytes=0), "says that the metrics have 0 bytes"),
        (lambda state, about: about.update(metrics_bytes=-5), "says that the metrics have -5 bytes"),
        (lambda state, about: about.update(metrics_bytes=10**12), "metrics.jsonl is shorter"),
        (lambda state, about: about.update(clients=1), "personal has files of 0 clients, but 1 had one"),
        (lambda state, about: state.update(extra=torch.zeros(0)), "'extra' is (0,) of float32, but there should be no"),
        (lambda state, about: state.update(extra=torch.zeros(3)), "bytes of tensors, where"),
        (lambda state, about: state.pop("head.bias"), "bytes of tensors, where"),
        (to_double, "bytes of tensors, where"),
        (to_integers, "'head.bias' is (10,) of int32, but it should be (10,) of float32"),
    ],
)
def test_a_checkpoint_with_a_right_checksum_that_says_something_else(copy, change, says):
    config, directory = copy
    rewritten(directory, change)
    found = refused(config, directory)
    assert says in found
    assert str(directory) in found


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rounds = 3", "rounds = 2", "says 2 rounds, but its digest"),
        ("rounds = 3", "rounds = 1979-05-27", "rounds, but its digest"),
        ('step = "plain"', 'step = "swift"', "engine.step is 'swift' there and 'plain' here"),
        ('step = "plain"', "step = 5", "cannot be used"),
        ('step = "plain"', 'step = "plaim"', "step is 'plaim'"),
        ("seed = 3", "seed = 4", "seed (4 there, 3 here)"),
        ("[recipe]", "[recipf]", "has no digest of its run"),
        ("run = ", "ran = ", "has no digest of its run"),
        ("kind = ", "kynd = ", "has no digest of its run"),
    ],
)
def test_a_config_that_was_changed(copy, old, new, says):
    config, directory = copy
    path = directory / "config.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert says in refused(config, directory)


def test_a_changed_step_is_noticed_also_if_any_would_do(copy):
    config, directory = copy
    path = directory / "config.toml"
    path.write_text(path.read_text().replace('step = "plain"', 'step = "swift"'))
    assert "do not belong together" in refused(config, directory, "engine.step=auto")


@pytest.mark.parametrize("damage", ["null", "{}", "[]", "", "[{}]", '{"levels": [], "sha256": 1}', "\x00", None])
def test_damaged_costs_are_counted_again(copy, runs, damage):
    config, directory = copy
    path = directory / "costs.json"
    before = path.read_bytes()
    path.unlink() if damage is None else path.write_text(damage)
    run_config(config, directory, resume=True)
    assert path.read_bytes() == before


def test_any_flipped_bit_in_the_costs_is_noticed(copy):
    _, directory = copy
    path, run = directory / "costs.json", RunDirectory(directory)
    whole, costs = path.read_bytes(), run.costs()
    found = []
    for place in range(0, 8 * len(whole), 13):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found.append(run.costs() == costs)  # white space may change
        except RunError as error:
            found.append(str(path) in str(error))
    assert all(found)
    assert len(found) > 100


@pytest.mark.parametrize("place", [40, 200, -30])
def test_a_changed_figure_in_the_metrics_is_noticed_by_every_reader(copy, place):
    _, directory = copy
    path = directory / "metrics.jsonl"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"metrics\.jsonl is not what it was"):
        RunDirectory(directory).records()


def test_half_a_line_after_the_checkpoint_is_no_record(copy):
    _, directory = copy
    with (directory / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 3, "lev')
    assert [record["round"] for record in RunDirectory(directory).records()] == [1, 2]


def test_the_seal_has_all_that_belongs_together(copy):
    _, directory = copy
    about = read(RunDirectory(directory).checkpoint)[1]
    assert set(about) == {"run", "rounds_done", "metrics_bytes", "metrics_sha256", "clients", "clients_digest"}
    assert about["metrics_bytes"] == (directory / "metrics.jsonl").stat().st_size
    assert json.loads((directory / "metrics.jsonl").read_text().splitlines()[-1])["round"] == about["rounds_done"] == 2


# ---- what stays on clients ----


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("personal")
    config = write_config(folder, TEXT.replace("cohort = 3", "cohort = 7"))
    return config, interrupted(config, folder / "run", 2)


@pytest.fixture
def own(personal, tmp_path):
    config, directory = personal
    return config, shutil.copytree(directory, tmp_path / "run")


def test_a_file_that_is_missing_is_noticed(own):
    """Otherwise its client would go on as if it had never trained."""
    config, directory = own
    files = personal_files(directory)
    files[min(files)].unlink()
    found = refused(config, directory)
    assert f"has files of {len(files) - 1} clients, but {len(files)} had one" in found


def test_so_is_one_that_bears_another_clients_number(own):
    config, directory = own
    files = personal_files(directory)
    stranger = next(client for client in range(14) if client not in files)
    files[min(files)].rename(files[min(files)].with_name(f"{stranger}.safetensors"))
    assert "or they were other clients" in refused(config, directory)


def test_files_of_a_run_with_another_seed_are_refused(own, personal, tmp_path):
    config, directory = own
    other = tmp_path / "other"
    other.mkdir()
    path = write_config(other, config.read_text().replace("seed = 3", "seed = 4"))
    strangers = personal_files(interrupted(path, other / "run", 2))
    for client, file in personal_files(directory).items():
        if client in strangers:
            file.write_bytes(strangers[client].read_bytes())
    with pytest.raises(RunError, match="of another client or run"):
        run_config(config, directory, resume=True)

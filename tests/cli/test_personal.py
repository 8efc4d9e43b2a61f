"""What stays on clients, from the command line: kept through any interruption, and handed out by client."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import safetensors.torch
import torch
from federation import all_gone, differences, outcome_of, rounds_recorded, start, wait_until, workers_of

from potluck.core.checkpoint import read
from potluck.models.catalogue import find_model

KILLED = -signal.SIGKILL
HERE = Path(__file__).parent  # where own_heads is


@pytest.fixture(scope="module")
def finished(personal, tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished") / "run"
    assert personal.run(directory).status == 0
    return directory


def kept_in(directory):
    """The files of clients, by their numbers."""
    return {int(path.stem): path for path in (directory / "personal").glob("[0-9]*/*.safetensors")}


def resumed(server, directory):
    """The outcome after a resume, which must succeed and leave nothing waiting."""
    ended = server.run(directory, "--resume")
    assert ended.status == 0, ended.stderr
    assert not list((directory / "personal" / "next").glob("[!.]*"))
    return outcome_of(directory)


# ---- interruptions ----


def test_the_moments_are_those_that_matter(personal_reference):
    """Every client's file is written, forced to disk and renamed before its round counts, then put into its place."""
    outcome, moments = personal_reference
    waiting = [moment for moment in moments if "/personal/next/." in moment]
    for what in ("open", "force", "forced", "rename"):
        assert sum(moment.startswith(f"{what} ") for moment in waiting) == 9, what  # three clients, three rounds
    settled = [moment for moment in moments if moment.startswith("rename /personal/next/") and "/." not in moment]
    assert len(settled) == 9
    assert 3 < sum(name.startswith("personal/") for name in outcome) <= 9
    assert not any(name.startswith("models/") for name in outcome)


def round_of(moments):
    """The moments of the second round, from its first personal file to the last that is put into its place."""
    written = [number for number, moment in enumerate(moments) if moment.startswith("open /personal/next/")]
    third = written[6]
    settled = [
        number
        for number, moment in enumerate(moments[:third])
        if moment.startswith("rename /personal/next/") and "/." not in moment
    ]
    return range(written[3], settled[-1] + 3)


@pytest.mark.whole
def test_killed_at_every_moment_of_a_round(personal, personal_reference, tmp_path):
    expected, moments = personal_reference
    wrong = {}
    numbers = [number for number in round_of(moments) if not moments[number].startswith("forced ")]
    assert len(numbers) > 15
    for number in numbers:
        directory = tmp_path / str(number)
        assert personal.run(directory, end="kill", at=number).status == KILLED, moments[number]
        if found := differences(expected, resumed(personal, directory)):
            wrong[f"{number}: {moments[number]}"] = found
        shutil.rmtree(directory)
    assert not wrong


@pytest.mark.whole
def test_killed_in_the_first_and_in_the_last_round(personal, personal_reference, tmp_path):
    """Before there is a checkpoint, and after the last."""
    expected, moments = personal_reference
    written = [number for number, moment in enumerate(moments) if "/personal/next/" in moment]
    for number in (written[0], written[2], written[-1]):
        assert personal.run(tmp_path / str(number), end="kill", at=number).status == KILLED
        assert not differences(expected, resumed(personal, tmp_path / str(number))), moments[number]


@pytest.mark.whole
def test_killed_again_while_it_resumes(personal, personal_reference, tmp_path):
    """With files that wait for a checkpoint that was never written, and with files that one was written for."""
    expected, moments = personal_reference
    of_the_round = list(round_of(moments))
    for first in (of_the_round[6], of_the_round[-2]):
        directory = tmp_path / str(first)
        assert personal.run(directory, end="kill", at=first).status == KILLED
        for again in (2, 4, 7):
            assert personal.run(directory, "--resume", end="kill", at=again).status == KILLED
        assert not differences(expected, resumed(personal, directory)), moments[first]


@pytest.mark.whole
@pytest.mark.parametrize(("end", "status"), [("tear", -signal.SIGXFSZ), ("full", 2)])
@pytest.mark.parametrize("which", [0, 4, -1])
def test_a_write_that_is_cut_short(personal, personal_reference, tmp_path, end, status, which):
    expected, moments = personal_reference
    opened = [number for number, moment in enumerate(moments) if moment.startswith("open /personal/next/")]
    ended = personal.run(tmp_path / "run", end=end, at=opened[which])
    assert ended.status == status
    assert "Traceback" not in ended.stderr
    if end == "full":
        assert f"cannot write {tmp_path / 'run' / 'personal'}" in ended.stderr
    assert not differences(expected, resumed(personal, tmp_path / "run"))


@pytest.mark.whole
def test_workers_of_a_killed_run_end_and_any_engine_goes_on(personal, personal_reference, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE)]))
    expected, _ = personal_reference
    directory, local = tmp_path / "run", ["--set", "engine.name=local"]
    first = start("run", personal.config, "--trust", "--out", directory, *local, "--set", "engine.workers=2")
    wait_until(lambda: rounds_recorded(directory), first)
    workers = workers_of(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert first.returncode == KILLED
    assert all_gone(workers)
    shutil.copytree(directory, tmp_path / "serial")
    assert not differences(expected, resumed(personal, tmp_path / "serial"))
    again = start(
        "run", personal.config, "--trust", "--out", directory, "--resume", *local, "--set", "engine.workers=1"
    )
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert not differences(expected, outcome_of(directory))


# ---- models to take away ----


def network():
    return find_model("heterofl-cnn")(1.0, shape=(1, 8, 8), classes=10, hidden=(4, 8, 8, 8))


def test_export_of_a_client(potluck, finished, tmp_path):
    kept = kept_in(finished)
    client, path = sorted(kept.items())[0]
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    out = tmp_path / "new" / "client.safetensors"
    told = potluck("export", finished, "--trust", "--client", client, "--out", out)
    assert told.code == 0, told
    assert "after 3 rounds" in told.words
    weights, about = read(out)
    network().load_state_dict(weights, strict=True)
    state, own = (safetensors.torch.load_file(each) for each in (finished / "final.safetensors", path))
    assert set(own) == {"head.weight", "head.bias"}
    assert not torch.equal(own["head.weight"], state["head.weight"])
    assert all(torch.equal(weights[name], {**state, **own}[name]) for name in state)
    assert (about["client"], about["rounds_done"]) == (client, 3)
    assert about["level"] in ("big", "same")
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_export_of_a_client_notices_a_missing_file(potluck, finished, tmp_path):
    """Otherwise a client would seem never to have trained."""
    run = shutil.copytree(finished, tmp_path / "run")
    client, path = sorted(kept_in(run).items())[0]
    path.unlink()
    told = potluck("export", run, "--trust", "--client", client, "--out", tmp_path / "net.safetensors")
    assert told.code == 2, told
    assert "had one when the checkpoint was written" in told.err
    assert not (tmp_path / "net.safetensors").exists()


def test_export_of_a_client_that_never_trained(potluck, finished, tmp_path):
    client = next(id for id in range(28) if id not in kept_in(finished))
    assert potluck("export", finished, "--trust", "--client", client, "--out", tmp_path / "net.safetensors").code == 0
    weights, state = (
        safetensors.torch.load_file(path) for path in (tmp_path / "net.safetensors", finished / "final.safetensors")
    )
    assert all(torch.equal(weights[name], state[name]) for name in state)


@pytest.mark.whole
def test_export_from_an_unfinished_run_gives_its_latest(potluck, personal, personal_reference, tmp_path):
    _, moments = personal_reference
    third = [number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl"][2]
    assert personal.run(tmp_path / "run", end="kill", at=third).status == KILLED
    assert rounds_recorded(tmp_path / "run") == 2
    assert personal.run(tmp_path / "two", "--set", "task.rounds=2").status == 0
    for client in kept_in(tmp_path / "two"):
        found = []
        for name in ("run", "two"):
            told = potluck(
                "export", tmp_path / name, "--trust", "--client", client, "--out", tmp_path / f"{name}.safetensors"
            )
            assert told.code == 0, told
            assert "after 2 rounds" in told.words
            found.append(safetensors.torch.load_file(tmp_path / f"{name}.safetensors"))
        assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_export_changes_nothing_in_a_run_that_was_cut_short(potluck, personal, personal_reference, tmp_path):
    """Nobody holds the directory while a model is taken out of it: the run itself may still be going."""
    _, moments = personal_reference
    third = [number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl"][2]
    personal.run(tmp_path / "run", end="kill", at=third)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert any("next" in path.parts for path in before)
    assert (
        potluck("export", tmp_path / "run", "--trust", "--client", 0, "--out", tmp_path / "net.safetensors").code == 0
    )
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--level", "big"], "every client has a model of its own; say whose with --client"),
        (["--ratio", "1.0"], "every client has a model of its own; say whose with --client"),
        (["--client", "28"], "there is no client 28; they are numbered from 0 to 27"),
        (["--client", "-1"], "there is no client -1"),
        ([], "export needs a --level (big, same), a --ratio, such as 0.4, or a --client"),
        (["--client", "alice"], "client is 'alice', but clients of this run have no names"),
        (
            ["--client", "1", "--level", "big"],
            "export takes one of --level, --ratio and --client, but there are --level",
        ),
        (["--client", "0", "--level", "big", "--ratio", "1"], "there are --level and --ratio and --client"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence(potluck, finished, tmp_path, arguments, says):
    told = potluck("export", finished, "--trust", *arguments, "--out", tmp_path / "net.safetensors")
    assert told.code == 2
    assert says in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert not (tmp_path / "net.safetensors").exists()


def test_a_client_of_a_run_whose_levels_share_models_has_none_of_its_own(potluck, server, tmp_path):
    """What a client trains is not what is deployed: HeteroFL's has no statistics for its batch norm."""
    assert server.run(tmp_path / "run").status == 0
    told = potluck("export", tmp_path / "run", "--trust", "--client", 1, "--out", tmp_path / "net.safetensors")
    assert told.code == 2
    assert "share a model" in told.err
    assert not (tmp_path / "net.safetensors").exists()


def test_a_run_says_where_it_saved_what(potluck, personal, tmp_path):
    told = potluck("run", personal.config, "--trust", "--out", tmp_path / "run", "--set", "task.rounds=1")
    assert told.code == 0, told
    assert f"Saved in {tmp_path / 'run'}" in told.words
    assert "personal/" in told.words
    assert "models/" not in told.words  # there are none


def test_a_comparison_shows_how_good_clients_are(potluck, finished):
    told = potluck("compare", finished)
    assert told.code == 0
    for level in ("big", "same"):
        assert f"{level}: accuracy" in told.words

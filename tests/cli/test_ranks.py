"""`potluck ranks` as a user calls it: what a budget buys, beside the paper's rule."""

import json

import pytest


@pytest.fixture(scope="module")
def run(server, tmp_path_factory):
    """A run of FedHM on digits."""
    directory = tmp_path_factory.mktemp("ranks") / "run"
    assert server.run(directory, "--set", "method.name=fedhm").status == 0
    return directory


def choices(potluck, run, *options):
    told = potluck("ranks", run, "--json", *options)
    assert told.code == 0, told
    return json.loads(told.out)


@pytest.mark.parametrize("share", ["parameters", "macs", "bytes"])
def test_a_choice_costs_no_more_and_loses_no_more_than_the_rule(potluck, run, share):
    for found in choices(potluck, run, "--share", share, "--levels", "0.8,0.6"):
        chosen, rule = found["chosen"], found["rule"]
        assert rule["cost"] <= found["budget"] == pytest.approx(float(found["level"]) * found["total"])
        assert chosen["cost"] <= found["budget"]
        assert 0 <= chosen["lost_energy"] <= rule["lost_energy"] < 1
        assert chosen["first"] in chosen["ranks"]


def test_less_is_lost_of_a_larger_budget(potluck, run):
    lost = [found["chosen"]["lost_energy"] for found in choices(potluck, run, "--levels", "1,0.9,0.7,0.6")]
    assert lost == sorted(lost)
    assert lost[0] == 0.0


def test_the_table_for_people(potluck, run):
    told = potluck("ranks", run, "--levels", "0.7")
    assert told.code == 0, told
    assert "0.7 chosen" in told.out
    assert "body.4" in told.out
    assert "of the energy is lost" in told.words
    assert "by the rule with gamma" in told.words


def test_a_run_of_another_method_has_a_global_network_too(potluck, server, tmp_path):
    assert server.run(tmp_path / "heterofl").status == 0
    assert choices(potluck, tmp_path / "heterofl", "--levels", "0.7")[0]["chosen"]["ranks"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--share", "second"), "there is no unit 'second'; did you mean 'seconds'?"),
        (("--levels", "0.01"), "level '0.01' has a share of 0.01 of the parameters"),
        (("--levels", "half"), "--levels is 'half'"),
        (("--levels", "1.5"), "level '1.5' has the ratio 1.5"),
    ],
)
def test_mistakes_are_told_in_a_sentence(potluck, run, options, words):
    told = potluck("ranks", run, *options)
    assert told.code == 2
    assert words in told.words
    assert "Traceback" not in told.err


def test_a_run_without_a_whole_network_is_refused(potluck, server, tmp_path):
    ended = server.run(tmp_path / "flanc", "--set", "method.name=flanc", "--set", "method.basis_size=0.25")
    assert ended.status == 0, ended.stderr
    told = potluck("ranks", tmp_path / "flanc")
    assert told.code == 2
    assert "no whole network" in told.words

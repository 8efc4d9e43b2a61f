"""Some of the test examples choose the best round; the others say how good it is."""

import pytest
import torch
from heads_at_home import OwnHeads
from torch import nn

import potluck
from potluck.core.errors import ConfigError, RunError
from potluck.study.best import best_round

LEVELS = {"server": 1.0, "watch": 0.5}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def run(**more):
    given = {"model": net(), "data": "digits", "levels": LEVELS, "clients": 10, "rounds": 4, "engine": "serial", **more}
    return potluck.run(**given, train=potluck.Train(lr=0.1, epochs=1), watcher=None)


def test_validation_examples_and_the_others_are_all_test_examples() -> None:
    result = run(validation=0.2)
    tests, chosen = len(result.experiment.test), len(result.experiment.desk.examples(choosing=True))
    assert chosen == round(tests * 0.2)
    both = torch.cat([result.experiment.desk.examples(choosing) for choosing in (False, True)])
    assert both.sort().values.tolist() == list(range(tests))
    for record in result.metrics:
        for level in LEVELS:
            parts = {"validation": chosen, "rest": tests - chosen}
            right = sum(record[part][level]["accuracy"] * count for part, count in parts.items())
            assert right == pytest.approx(record["levels"][level]["accuracy"] * tests)
    assert result.accuracy == pytest.approx(run().accuracy)


def test_the_same_examples_choose_whatever_the_seed() -> None:
    first, second = (run(validation=0.2, seed=seed, rounds=1) for seed in (0, 1))
    one, other = (each.experiment.desk.examples(choosing=True).tolist() for each in (first, second))
    assert one == other


def test_validation_does_not_depend_on_the_engine() -> None:
    one, other = (run(validation=0.3, rounds=2, engine=engine, workers=1) for engine in ("serial", "local"))
    assert [record["rest"] for record in one.metrics] == [record["rest"] for record in other.metrics]
    assert [record["validation"] for record in one.metrics] == [record["validation"] for record in other.metrics]


def scored(*values: float, measure: str = "accuracy") -> list[dict]:
    return [
        {
            "round": at,
            "validation": {"a": {measure: value, "loss": 9.0}},
            "rest": {"a": {measure: value / 2, "loss": 1.0}},
        }
        for at, value in enumerate(values, start=1)
    ]


def test_the_best_round_is_chosen_on_the_validation_examples_and_scored_on_the_others() -> None:
    found = best_round([{"round": 0}, *scored(0.5, 0.9, 0.7, 0.9)])
    assert found.round == 2
    assert found.scores == {"a": {"accuracy": 0.45, "loss": 1.0}}


def test_of_perplexities_and_errors_the_smallest_is_the_best() -> None:
    for measure in ("perplexity", "mae"):
        assert best_round(scored(5.0, 3.0, 4.0, measure=measure)).round == 2


def test_another_measure_and_a_level_may_choose_the_round() -> None:
    records = scored(0.5, 0.9, 0.7)
    for record, loss in zip(records, (1.0, 3.0, 2.0), strict=True):
        record["validation"]["b"] = {"accuracy": 1.0 - record["validation"]["a"]["accuracy"], "loss": loss}
    found = [best_round(records, *asked).round for asked in (("accuracy", "a"), ("accuracy", "b"), ("loss",))]
    assert found == [2, 1, 1]
    with pytest.raises(RunError, match="have no mae of any level"):
        best_round(records, "mae")


def test_without_validation_examples_there_is_no_best_round() -> None:
    with pytest.raises(RunError, match="no validation examples"):
        best_round(run(rounds=1).metrics)


@pytest.mark.parametrize("share", [-0.1, 1.0, 0.999])
def test_a_share_that_leaves_nothing_on_a_side_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="validation is"):
        run(validation=share)


def test_where_clients_score_their_own_models_nothing_chooses_a_round() -> None:
    with pytest.raises(ConfigError, match="leave validation out"):
        run(validation=0.2, method=OwnHeads())

"""What an experiment costs, told without its data."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from potluck.core.errors import ConfigError, DataError
from potluck.core.guard import Epochs
from potluck.engines import make_engine
from potluck.series.preset import preset_named
from potluck.series.price import LevelPrice, Price, examples_per_client, known, price
from potluck.study.config import Config, parse_config
from potluck.study.experiment import from_config
from potluck.study.run import execute
from potluck.study.schema import NOWHERE

SMALL = {"name": "heterofl-cnn", "hidden": [16, 32]}
FIGURES = ("parameters", "space", "macs", "paper_macs", "heterofl_flops")
METHODS: dict[str, dict[str, Any]] = {
    "heterofl": {},
    "fedrolex": {},
    "fjord": {},
    "splitmix": {},
    "flanc": {"model": "flanc-cnn"},
    "fedhm": {},
    "fedavg": {},
}


def config(method: dict[str, Any], model: object = SMALL, **sections: dict[str, Any]) -> Config:
    """Digits, three levels, two clients of each and all of them in every round."""
    fleet = {"clients": 6, "cohort": 6, "levels": {"big": 1.0, "middle": 0.5, "small": 0.25}}
    table = {
        "task": {"model": model, "rounds": 2, "evaluate_every": 2},
        "data": {"source": "digits", **sections.get("data", {})},
        "fleet": {**fleet, **sections.get("fleet", {})},
        "method": method,
        "train": {"epochs": 3, "batch_size": 32},
        "engine": {"name": "serial"},
    }
    return parse_config(table, NOWHERE)


@pytest.mark.parametrize("method", METHODS)
def test_every_level_costs_what_it_costs_in_the_experiment(method: str) -> None:
    given = config({"name": method}, **METHODS[method])
    expected = {cost.level: asdict(cost) for cost in from_config(given).costs()}
    found = price(given).levels
    assert found.keys() == expected.keys()
    for name, level in found.items():
        assert [getattr(level, each) for each in FIGURES] == [expected[name][each] for each in FIGURES]


def test_passes_over_public_examples_are_work_too(monkeypatch: pytest.MonkeyPatch) -> None:
    level = LevelPrice(1, 1.0, 10, None, None, Epochs(private=2, proxy=3))
    monkeypatch.setattr("potluck.series.price.level_price", lambda *whose: level)
    digits = known("digits").training
    alone, with_public = (config({"name": "heterofl"}, data=data) for data in ({}, {"proxy": "digits"}))
    assert price(alone).macs == round(2 * 6 * 10 * 2 * digits / 6)
    assert price(with_public).macs == round(2 * 6 * 10 * (2 * digits / 6 + 3 * digits))


@pytest.mark.parametrize("name", ["heterofl", "fjord"])
def test_the_work_of_a_run_is_what_its_records_add_up_to(name: str, tmp_path: Path) -> None:
    given = config({"name": name})
    execute(from_config(given), make_engine("serial"), given.resolved(), tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    # 1,442 examples are not the same number for 6 clients: 240 or 241 each.
    assert price(given).macs == pytest.approx(sum(record["macs"] for record in records), rel=0.003)


def work(**sections: dict[str, Any]) -> Price:
    return price(config({"name": "heterofl"}, **sections))


def macs(found: Price, **shares: float) -> float:
    """Rounds, cohort, epochs and examples of a client, times what an example costs in these shares of the levels."""
    return 2 * 6 * 3 * (1442 / 6) * sum(found.levels[level].macs * share for level, share in shares.items())


def test_levels_count_in_their_shares() -> None:
    even = work()
    assert even.macs == round(macs(even, big=1 / 3, middle=1 / 3, small=1 / 3))
    uneven = work(fleet={"assignment": {"name": "dynamic", "mix": {"big": 1, "small": 3}}})
    assert uneven.macs == round(macs(uneven, big=0.25, small=0.75))


def test_a_share_of_the_clients_is_a_cohort() -> None:
    assert work(fleet={"cohort": 0.5}).macs == pytest.approx(work().macs / 2, abs=1)


def test_only_levels_that_are_admitted_count_and_others_are_drawn_in_their_place() -> None:
    found = price(config({"name": "fedavg", "width": 0.5}))
    assert list(found.levels) == ["big", "middle"]
    assert found.levels["big"].macs == found.levels["middle"].macs
    assert found.macs == round(macs(found, big=1))


def test_where_a_cohort_is_drawn_first_levels_that_are_not_admitted_cost_nothing() -> None:
    found = price(config({"name": "fedavg", "width": 0.5}, fleet={"assignment": "dynamic-all"}))
    assert found.macs == round(macs(found, big=2 / 3))


def test_the_mean_is_a_plain_one() -> None:
    found = work()
    assert found.mean("parameters") == sum(cost.parameters for cost in found.levels.values()) / 3


@pytest.mark.parametrize(
    ("source", "partition", "clients", "size"),
    [
        ("digits", "iid", 10, 144.2),
        ("digits", {"name": "drawn", "size": 77}, 10, 77),
        ("wikitext2", "natural", 100, 327),
        ("shakespeare", "natural", 100, 3_380_481 / 1129),
    ],
)
def test_how_many_examples_a_client_has(source: str, partition: Any, clients: int, size: float) -> None:
    given = config({"name": "heterofl"}, data={"source": source, "partition": partition}, fleet={"clients": clients})
    assert examples_per_client(given, known(source)) == size


def test_data_that_nobody_knows_have_no_price() -> None:
    with pytest.raises(DataError, match="there is no data set 'table'"):
        price(config({"name": "heterofl"}, data={"source": {"name": "table", "path": "x.csv"}}))


def test_a_method_that_admits_no_level_has_no_price() -> None:
    nobody = config({"name": "fedavg", "width": 1.0}, fleet={"levels": {"middle": 0.5, "small": 0.25}})
    with pytest.raises(ConfigError, match="admits none of the levels middle, small"):
        price(nobody)


def test_heterofls_largest_run_is_known_without_its_data() -> None:
    preset = preset_named("heterofl-table-7")
    found = price(parse_config(preset.config(preset.row("e"), "iid"), NOWHERE))
    # 200 rounds of 10 clients, 5 times over 600 images
    assert found.macs == 200 * 10 * 5 * 600 * 182_912

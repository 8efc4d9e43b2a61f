"""Whatever a config says: it runs, or one sentence says why not. No traceback, no hang."""

import copy
import datetime
import math
import random
import shutil
import signal
import tomllib
from dataclasses import fields

import pytest
import tomli_w
from federation import CONFIG

from potluck import methods
from potluck.core.guard import Guard
from potluck.core.types import Train
from potluck.data.assignment import ASSIGNMENTS
from potluck.data.partitions import PARTITIONS
from potluck.models.catalogue import catalogue
from potluck.study.settings import DataSection, EngineSection, FleetSection, TaskSection

SOME, MANY = 40, 500
SECONDS = 30  # of the processor's time, which a busy machine does not stretch; a run of these takes less than one
SMALL = "calibration_clients = 2", "calibration_clients = 1\nscored_clients = 1"
WORDS = ["", "x", "a.b:c", "os:system", "subprocess:run", "../up", "n" * 300, "a\tb", "é", "auto", "stacked-2", "none"]
NUMBERS = [0, -1, 1, 2, 2**31, 2**62, 2**63, 0.5, 1.5, -0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf]
DAY = datetime.date(2020, 1, 1)
OTHERS = [True, False, [], [0], [1, 2], [[[]]], ["x"], {}, {"x": 1}, {"name": "x"}, {"name": 3}, DAY]
NAMES = [*methods.names(), *PARTITIONS, *ASSIGNMENTS, *catalogue(), "digits", "local", "serial"]
ALIKE = {
    bool: [True, False],
    int: [1, 2, 3, 3, 0, 2**31, 2**62],
    float: [0.5, 0.25, 1.0, 0.01, 1e-300, 1e-9, 1e30, 1e300, math.inf, math.nan],
    str: [*WORDS, *NAMES],
}
SECTIONS = {
    "task": TaskSection,
    "data": DataSection,
    "fleet": FleetSection,
    "train": Train,
    "guard": Guard,
    "engine": EngineSection,
}
OPTIONS = {
    "task.model": ("name", "hidden", "norm", "rounding", "classes", "shape", "unknown"),
    "data.partition": ("name", "alpha", "k", "size", "min_size"),
    "data.source": ("name", "recipe"),
    "fleet.levels": ("big", "new"),
    "fleet.assignment": ("name", "mix"),
    "recipe": ("run",),
}
DEFAULTS = {f"{section}.{key.name}": key.default for section, schema in SECTIONS.items() for key in fields(schema)}
NAMED = [f"{section}.{key}" for section, keys in OPTIONS.items() for key in keys]
KEYS = dict.fromkeys(["name", "seed", "unknown", "method.name", *SECTIONS, *OPTIONS, *NAMED]) | DEFAULTS
PARTITIONED = ["iid", "shards", {"name": "dirichlet", "alpha": 0.5}, {"name": "classes", "k": 2}, {"name": "drawn"}]


def tried(rng, folder):
    """A small config with one to three things changed."""
    table = tomllib.loads(CONFIG.replace(*SMALL))
    table["task"] |= {"rounds": 1, "evaluate_every": 1}
    table["data"] |= {"test_examples": 20, "partition": rng.choice(PARTITIONED)}
    table["method"]["name"] = rng.choice(methods.names())
    table |= {"guard": {}, "seed": 0}
    own = fields(methods.find(table["method"]["name"]))
    keys = KEYS | {f"method.{each.name}": each.default for each in own}
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(keys))
        *sections, key = path.split(".")
        inside = table
        for section in sections:
            inner = inside.get(section)
            inside[section] = inside = dict(inner) if isinstance(inner, dict) else {"name": inner} if inner else {}
        if rng.random() < 0.1:
            inside.pop(key, None)
        else:
            alike = ALIKE.get(type(inside.get(key, keys[path])))
            anything = rng.choice([WORDS, NUMBERS, OTHERS, NAMES])
            inside[key] = copy.deepcopy(rng.choice(alike if alike and rng.random() < 0.9 else anything))
    text = tomli_w.dumps(table)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(['"', "[", "]", "=", "\n", "0", "\x01", "{", ""]) + text[place + 1 :]
    file = folder / "a.toml"
    file.write_text(text, encoding="utf-8")
    return file


def hangs(number, frame):
    raise AssertionError("it takes too long")


@pytest.fixture
def impatient():
    """Ends what takes too much of the processor's time."""
    before = signal.signal(signal.SIGPROF, hangs)

    def wait():
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    yield wait
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_any_config_runs_or_is_refused_in_a_sentence(potluck, tmp_path, monkeypatch, impatient, seed):
    monkeypatch.chdir(tmp_path)
    rng, codes = random.Random(seed), []
    for number in range(MANY if seed else SOME):
        config = tried(rng, tmp_path)
        impatient()
        told = potluck("run", config, "--out", "run", "--set", "engine.workers=1")
        shutil.rmtree("run", ignore_errors=True)
        assert told.code in (0, 2), f"number {number}: {config.read_text()}\n{told.err}"
        assert "Traceback" not in told.words
        assert told.code == 0 or told.err.startswith("potluck: ")
        codes.append(told.code)
    assert {0, 2} == set(codes)  # or it tries nothing

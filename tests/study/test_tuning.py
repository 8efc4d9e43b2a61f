"""How clients are trained, as a setting; finding the fastest way, once for a run."""

import json
import tomllib

import pytest
from safetensors.torch import load_file
from small_experiment import SMALL, StopAfter, content, run_config, without_seconds, write_config

from potluck.core.errors import ConfigError, PotluckError, RunError
from potluck.core.tensors import same_tensors
from potluck.core.ways.step import same_ways, ways_of
from potluck.study import run
from potluck.study.config import read_config
from potluck.study.experiment import from_config
from potluck.study.recipes import recipe_table
from potluck.study.tuning import fastest, told
from potluck.study.watchers import Nobody

LEVELS = ["big", "small"]


# ---- the setting ----


@pytest.mark.parametrize(
    ("step", "ways"),
    [
        ("plain", {"big": "plain", "small": "plain"}),
        ("stacked-8", {"big": "stacked-8", "small": "stacked-8"}),
        ({}, {"big": "plain", "small": "plain"}),
        ({"small": "swift"}, {"big": "plain", "small": "swift"}),
        ({"small": "swift", "big": "channels-last"}, {"big": "channels-last", "small": "swift"}),
    ],
)
def test_a_setting_is_a_way_for_every_level(step, ways):
    found = ways_of(step, iter(LEVELS))
    assert found == ways
    assert list(found) == LEVELS


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("fast", r"\[engine\] step is 'fast', but it should be 'counted', 'auto', 'plain'"),
        ({"big": "stacked-0"}, r"\[engine\] step is 'stacked-0', but it should be"),
        ({"tiny": "plain"}, r"\[engine\] step names the level 'tiny', but the levels are big, small"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(step, says):
    with pytest.raises(ConfigError, match=says):
        ways_of(step, LEVELS)


@pytest.mark.parametrize("step", ["auto", "counted"])
def test_a_choice_for_one_level_is_refused_in_words_that_help(step):
    with pytest.raises(ConfigError, match=f"step is '{step}' for level 'big'") as caught:
        ways_of({"big": step}, LEVELS)
    assert "should be 'auto'" not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("plain", "plain", True),
        ("plain", {}, True),
        ("plain", {"big": "plain"}, True),
        ("swift", {"big": "swift", "small": "swift"}, True),
        ("swift", {"big": "swift"}, False),
        ("plain", "swift", False),
        ("stacked-8", "stacked-32", False),
        ("auto", "auto", True),
        ("auto", {"big": "stacked-8"}, True),
        ("auto", "plain", True),
        ("counted", "counted", True),
        ("counted", "auto", True),
        ("counted", {"big": "stacked-8"}, True),
        ("counted", "plain", True),
    ],
)
def test_settings_that_mean_the_same(one, other, same):
    assert same_ways(one, other, LEVELS) is same
    assert same_ways(other, one, LEVELS) is same


# ---- the choice ----

PLAINLY = {"big": "plain", "small": "plain"}


@pytest.mark.parametrize(
    ("seconds", "counted", "way"),
    [
        ({"plain": 1.0, "swift": 0.98}, "plain", "plain"),  # hardly faster
        ({"plain": 1.0, "swift": 0.97}, "plain", "plain"),
        ({"plain": 1.0, "swift": 0.969}, "plain", "swift"),
        ({"plain": 1.0, "swift": 0.96, "stacked-8": 0.2, "channels-last": 0.5}, "plain", "stacked-8"),
        ({"plain": 1.0, "swift": 1.5, "stacked-8": 2.0}, "plain", "plain"),
        ({"plain": 0.0, "swift": 0.0}, "plain", "plain"),
        ({"plain": 1.0, "swift": 1.02}, "swift", "swift"),  # as good as what was counted
        ({"plain": 1.0, "swift": 1.04}, "swift", "plain"),
        ({"plain": 1.0, "swift": 0.5}, "channels-last", "swift"),
        ({"plain": 1.0}, "swift", "swift"),  # there was no time for another
        ({}, "swift", "swift"),
    ],
)
def test_the_fastest_is_chosen_if_it_is_worth_it(seconds, counted, way):
    assert fastest({"big": seconds}, {**PLAINLY, "big": counted}) == {"big": way, "small": "plain"}


def test_every_level_has_a_choice_of_its_own_in_the_order_of_the_levels():
    timed = {"small": {"plain": 2.0, "stacked-8": 1.0}, "big": {"plain": 2.0, "swift": 1.0}}
    found = fastest(timed, PLAINLY)
    assert found == {"big": "swift", "small": "stacked-8"}
    assert list(found) == LEVELS
    assert fastest({}, CHOSEN) == CHOSEN


def test_the_choice_in_a_sentence_with_what_it_won():
    timed = {"big": {"plain": 3.0, "swift": 2.0}, "small": {"plain": 2.0, "swift": 3.0}, "short": {"plain": 1.0}}
    assert told({"big": "swift", "small": "plain", "short": "channels-last", "absent": "plain"}, timed) == (
        "Training steps: big swift (1.50x as fast as plain), small plain (nothing is faster), "
        "short channels-last (counted, not timed), absent plain (counted, not timed)"
    )


# ---- a run that finds it ----

CHOSEN = {"big": "channels-last", "small": "stacked-3"}
TIMED = {"big": {"plain": 1.0, "channels-last": 0.5}, "small": {"plain": 1.0, "stacked-3": 0.25}}
OTHER = {"big": {"plain": 1.0, "swift": 0.5}, "small": {"plain": 1.0}}
STACKED = "engine.step={big='stacked-2', small='stacked-2'}"


class Timing:
    """Stands in for the stop-watch; counts how often it is asked."""

    def __init__(self, says):
        self.says, self.asked = says, 0

    def __call__(self, experiment, engine, state, costs, counted, clock):
        self.asked += 1
        assert not experiment.recipe.ways
        return self.says


@pytest.fixture
def timing(monkeypatch):
    found = Timing(TIMED)
    monkeypatch.setattr(run, "time_ways", found)
    return found


QUICK = [
    ("hidden = [4, 8, 8, 8]", "hidden = [4, 8]"),
    ("rounds = 3", "rounds = 2"),
    ('source = "digits"', 'source = "digits"\ntest_examples = 40'),
    ("clients = 14", "clients = 103"),  # 14 examples each
    ("cohort = 3", "cohort = 6"),
    ("epochs = 2", "epochs = 1"),
    ("batch_size = 52", "batch_size = 7"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    text = SMALL
    for here, there in QUICK:
        assert here in text
        text = text.replace(here, there)
    return write_config(tmp_path_factory.mktemp("config"), text)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """A run that nothing disturbed, its ways chosen by what the stop-watch said."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "time_ways", Timing(TIMED))
        run_config(config, directory, "engine.step=auto")
    return directory


def step_in(directory):
    return tomllib.loads((directory / "config.toml").read_text())["engine"]["step"]


def outcome(directory):
    """All that must not differ: metrics but for seconds, and every byte of the weights."""
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    weights = {name: found for name, found in content(directory).items() if name.startswith(("final", "models"))}
    assert len(weights) == 3
    return without_seconds(records), weights


class Told(Nobody):
    """Notes what it is told of the tuning, and when."""

    def __init__(self):
        self.events = []

    def tuned(self, ways, timed):
        self.events.append(("tuned", dict(ways), timed))

    def begins(self, rounds, done):
        self.events.append(("begins", done))


def test_the_choice_is_written_down_before_the_first_round(config, tmp_path, timing):
    class Look(Told):
        def begins(self, rounds, done):
            super().begins(rounds, done)
            assert step_in(tmp_path / "run") == CHOSEN
            assert json.loads((tmp_path / "run" / "tuning.json").read_text()) == TIMED

    watcher = Look()
    run_config(config, tmp_path / "run", "engine.step=auto", watcher=watcher)
    assert watcher.events == [("tuned", CHOSEN, TIMED), ("begins", 0)]
    resolved = read_config(config, ["engine.step=auto"]).resolved()
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    recipe = written.pop("recipe")
    assert written == {**resolved, "engine": {**resolved["engine"], "step": CHOSEN}}
    assert recipe == recipe_table(from_config(read_config(config)).recipe)  # ways are no part of its digest
    read_config(tmp_path / "run" / "config.toml")  # and it is a config


def test_the_choice_shows_in_the_bits_and_the_pins_alone_give_them_again(config, tmp_path, whole, timing):
    run_config(whole / "config.toml", tmp_path / "again")
    run_config(config, tmp_path / "pinned", "engine.step.big=channels-last", "engine.step.small=stacked-3")
    run_config(config, tmp_path / "plain", "engine.step=plain")
    assert timing.asked == 0
    assert outcome(whole) == outcome(tmp_path / "again") == outcome(tmp_path / "pinned")
    assert outcome(whole)[1] != outcome(tmp_path / "plain")[1]
    assert not (tmp_path / "pinned" / "tuning.json").exists()


def test_a_resumed_run_keeps_its_ways_whatever_timing_says_now(config, tmp_path, whole, timing, monkeypatch):
    interrupted_with(config, tmp_path / "run", "engine.step=auto")
    assert timing.asked == 1
    later, watcher = Timing(OTHER), Told()
    monkeypatch.setattr(run, "time_ways", later)
    run_config(config, tmp_path / "run", "engine.step=auto", resume=True, watcher=watcher)
    assert later.asked == 0
    assert watcher.events == [("begins", 1)]
    assert outcome(tmp_path / "run") == outcome(whole)
    assert step_in(tmp_path / "run") == CHOSEN
    assert json.loads((tmp_path / "run" / "tuning.json").read_text()) == TIMED


def test_a_run_that_stopped_while_it_was_timed_is_timed_again(config, tmp_path, whole, timing, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "time_ways", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_config(config, tmp_path / "run", "engine.step=auto")
    assert step_in(tmp_path / "run") == "auto"
    assert not (tmp_path / "run" / "tuning.json").exists()
    run_config(config, tmp_path / "run", "engine.step=auto", resume=True)
    assert timing.asked == 1
    assert outcome(tmp_path / "run") == outcome(whole)


class StopBefore(Nobody):
    """Loses patience when the first round is about to begin."""

    def begins(self, rounds, done):
        raise KeyboardInterrupt


def test_a_run_that_stopped_before_its_first_round_keeps_its_ways(config, tmp_path, whole, timing, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run_config(config, tmp_path / "run", "engine.step=auto", watcher=StopBefore())
    later = Timing(OTHER)
    monkeypatch.setattr(run, "time_ways", later)
    run_config(config, tmp_path / "run", "engine.step=auto", resume=True)
    assert (timing.asked, later.asked) == (1, 0)
    assert outcome(tmp_path / "run") == outcome(whole)
    assert step_in(tmp_path / "run") == CHOSEN


def interrupted_with(config, directory, *overrides):
    with pytest.raises(KeyboardInterrupt):
        run_config(config, directory, *overrides, watcher=StopAfter(1))
    return content(directory)


def test_other_ways_on_resume_are_refused(config, tmp_path, timing):
    before = interrupted_with(config, tmp_path / "run", "engine.step=auto")
    for asked in ("engine.step=plain", "engine.step=swift", "engine.step={big='channels-last'}", STACKED):
        with pytest.raises(RunError, match=r"holds a run of another config: engine\.step is") as caught:
            run_config(config, tmp_path / "run", asked, resume=True)
        message = str(caught.value)
        assert f"{CHOSEN!r} there" in message
        assert "'counted' and 'auto' take over the first" in message
        assert content(tmp_path / "run") == before


@pytest.mark.parametrize("step", ["engine.step=plain", STACKED])
def test_auto_takes_over_the_ways_of_a_run(config, tmp_path, timing, step):
    run_config(config, tmp_path / "whole", step)
    interrupted_with(config, tmp_path / "run", step)
    run_config(config, tmp_path / "run", "engine.step=auto", resume=True)
    assert timing.asked == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_ways_written_otherwise_are_the_same(config, tmp_path):
    interrupted_with(config, tmp_path / "run", "engine.step=swift")
    run_config(config, tmp_path / "run", "engine.step={small='swift', big='swift'}", resume=True)
    run_config(config, tmp_path / "whole", "engine.step=swift")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_runs_from_before_there_were_ways_are_plain(config, tmp_path):
    interrupted_with(config, tmp_path / "run", "engine.step=plain")
    path = tmp_path / "run" / "config.toml"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("step =")))
    with pytest.raises(RunError, match=r"engine\.step is 'plain' there and 'swift' here"):
        run_config(config, tmp_path / "run", "engine.step=swift", resume=True)
    run_config(config, tmp_path / "run", resume=True)


MISTAKES = [("engine.step=fast", "step is 'fast'"), ("engine.step.tiny=swift", "names the level 'tiny'")]


@pytest.mark.parametrize(("override", "says"), MISTAKES)
def test_a_mistake_is_refused(config, tmp_path, override, says):
    with pytest.raises(PotluckError, match=says):
        run_config(config, tmp_path / "run", override)
    assert not (tmp_path / "run" / "final.safetensors").exists()


@pytest.mark.parametrize(("override", "says"), MISTAKES)
@pytest.mark.parametrize("resume", [False, True])
def test_a_mistake_that_is_mended_is_not_in_the_way(config, tmp_path, override, says, resume):
    with pytest.raises(PotluckError, match=says):
        run_config(config, tmp_path / "run", override)
    run_config(config, tmp_path / "run", resume=resume)


# ---- the stop-watch itself ----


@pytest.fixture
def haste(monkeypatch):
    """Every way is timed once, however short the run is."""
    monkeypatch.setattr("potluck.core.ways.trial.TURNS", 1)
    monkeypatch.setattr("potluck.core.ways.trial.SECONDS", 1e9)
    monkeypatch.setattr("potluck.core.ways.trial.SHARE", 1e9)
    monkeypatch.setattr("potluck.study.tuning.SHARE", 1e9)


@pytest.mark.usefixtures("haste")
def test_every_level_is_timed(config, tmp_path):
    watcher = Told()
    result = run_config(config, tmp_path / "run", "engine.step=auto", "task.rounds=1", watcher=watcher)
    timed = json.loads((tmp_path / "run" / "tuning.json").read_text())
    assert set(timed) == {"big", "small"}
    for seconds in timed.values():
        assert set(seconds) == {"plain", "swift", "channels-last", "stacked-3"}  # half of a cohort of six
        assert all(found > 0 for found in seconds.values())
    counted = dict.fromkeys(LEVELS, "stacked-3")
    assert watcher.events[0] == ("tuned", fastest(timed, counted), timed)
    assert step_in(tmp_path / "run") == fastest(timed, counted)
    assert result.profile.seconds["tuning"] > 0
    assert result.metrics[0]["clients"] == 6  # trials are no clients of a round


def timed_in(config, directory, *overrides):
    run_config(config, directory, "engine.step=auto", "task.rounds=1", *overrides)
    return set(json.loads((directory / "tuning.json").read_text()))


@pytest.mark.usefixtures("haste")
def test_a_level_that_no_client_of_the_first_round_has_is_timed_too(config, tmp_path):
    assert timed_in(config, tmp_path / "run", "fleet.cohort=1") == {"big", "small"}


@pytest.mark.usefixtures("haste")
def test_a_level_that_takes_no_part_is_not_timed(config, tmp_path):
    assert timed_in(config, tmp_path / "run", "method.name=fedavg") == {"big"}
    assert step_in(tmp_path / "run")["small"] == "plain"


def test_a_run_too_short_to_try_anything_is_not_held_up(config, tmp_path):
    """Six clients of two batches: two hundredths of that is nothing."""
    assert timed_in(config, tmp_path / "run") == set()
    run_config(config, tmp_path / "counted", "task.rounds=1")
    assert step_in(tmp_path / "run") == step_in(tmp_path / "counted")


@pytest.mark.usefixtures("haste")
def test_a_batch_that_takes_a_second_is_not_tried(config, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.study.tuning.MOST_MACS", 10_000)
    assert timed_in(config, tmp_path / "run") == set()


@pytest.mark.usefixtures("haste")
@pytest.mark.parametrize("ways", ["channels-last", "swift", "stacked-3"])
def test_trials_leave_no_trace_in_the_bits(config, tmp_path, ways, monkeypatch):
    monkeypatch.setattr(run, "fastest", lambda timed, counted: dict.fromkeys(counted, ways))
    run_config(config, tmp_path / "auto", "engine.step=auto", "method.static_norm=false")
    run_config(config, tmp_path / "pinned", f"engine.step={ways}", "method.static_norm=false")
    assert outcome(tmp_path / "auto") == outcome(tmp_path / "pinned")


@pytest.mark.usefixtures("haste")
def test_a_first_cohort_of_nobody(config, tmp_path):
    """All devices are of a level that takes no part: a run all the same, though of no use."""
    overrides = ["method.name=fedavg", "fleet.assignment={name='fixed', mix={small=1.0}}", "task.rounds=1"]
    for step in ("plain", "counted", "auto"):
        run_config(config, tmp_path / step, *overrides, f"engine.step={step}")
    plain, counted, timed = (load_file(tmp_path / step / "final.safetensors") for step in ("plain", "counted", "auto"))
    assert same_tensors(plain, counted)  # the files name their run, of which a way that was timed is part
    assert same_tensors(plain, timed)

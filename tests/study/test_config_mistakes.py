"""What can be wrong in an experiment file: each is one sentence that names the place, the value and what would do."""

import pytest
from small_experiment import SMALL, line_of, write_config

from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.study.config import read_config
from potluck.study.experiment import from_config


def mistake(folder, text, *overrides, kind=ConfigError):
    """The sentence that a config with a mistake is refused with, by the time an experiment is made of it."""
    with pytest.raises(kind) as caught:
        from_config(read_config(write_config(folder, text), overrides, trust=True))
    return str(caught.value)


def test_the_config_the_others_are_made_from_is_right(tmp_path):
    assert len(from_config(read_config(write_config(tmp_path))).fleet) == 14


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("lr = 0.05", "momentun = 0.5", "[train] has no 'momentun'; did you mean 'momentum'?"),
        ('name = "heterofl"', 'name = "heterofl"\nscalar = true', "heterofl has no 'scalar'; did you mean 'scaler'?"),
        ("rounds = 3", "round = 3", "[task] has no 'round'; did you mean 'rounds'?"),
        ("clients = 14", "client = 14", "[fleet] has no 'client'; did you mean 'clients'?"),
        ('source = "digits"', 'sources = "digits"', "[data] has no 'sources'; did you mean 'source'?"),
        ('name = "serial"', "worker = 2", "[engine] has no 'worker'; did you mean 'workers'?"),
        ("seed = 3", "sed = 3", "has no 'sed'; did you mean 'seed'?"),
        ("[train]", "[trian]", "has no 'trian'; did you mean 'train'?"),
        ("[engine]", "[zzz]", "has no 'zzz'; "),
        ("[engine]", "[gaurd]", "has no 'gaurd'; did you mean 'guard'?"),
        ('[engine]\nname = "serial"', "[guard]\nbond = 3.0", "[guard] has no 'bond'; did you mean 'bound'?"),
        ('source = "digits"', 'source = "digits"\nproxi = "digits"', "[data] has no 'proxi'; did you mean 'proxy'?"),
        (
            "rounds = 3",
            "rounds = 3\nscored_client = 1",
            "[task] has no 'scored_client'; did you mean 'scored_clients'?",
        ),
    ],
)
def test_unknown_key(tmp_path, old, new, expected):
    text = SMALL.replace(old, new, 1)
    message = mistake(tmp_path, text)
    assert expected in message
    assert f"({tmp_path / 'a.toml'}:{line_of(text, new.splitlines()[-1])})" in message


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('partition = "iid"', 'partition = { name = "dirichlet", alhpa = 1.0 }', "'alhpa'; did you mean 'alpha'?"),
        ("cohort = 3", 'assignment = { name = "fixed", mx = "a1" }', "'mx'; did you mean 'mix'?"),
        ("hidden = [4, 8, 8, 8]", "hiden = [4]", "'hiden'; did you mean 'hidden'?"),
        ('source = "digits"', 'source = { name = "digits", recip = "plain" }', "'recip'; did you mean 'recipe'?"),
    ],
)
def test_unknown_option_of_a_named_thing(tmp_path, old, new, names):
    assert names in mistake(tmp_path, SMALL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rounds = 3", 'rounds = "ten"', "[task] rounds is 'ten', but it should be a whole number"),
        ("rounds = 3", "rounds = 2.5", "[task] rounds is 2.5, but it should be a whole number"),
        ("rounds = 3", "rounds = true", "[task] rounds is True, but it should be a whole number"),
        ("rounds = 3", "rounds = 0", "[task] rounds is 0, but it should be greater than or equal to 1"),
        ("rounds = 3", "rounds = 2020-01-01", "[task] rounds is"),
        ("lr = 0.05", 'lr = "fast"', "[train] lr is 'fast', but it should be a finite number above 0"),
        ("lr = 0.05", "lr = -1", "[train] lr is -1, but it should be a finite number above 0"),
        ("lr = 0.05", "lr = nan", "[train] lr is nan, but it should be a finite number above 0"),
        ("lr = 0.05", "lr = inf", "[train] lr is inf, but it should be a finite number above 0"),
        ("lr = 0.05", 'optimizer = "adm"', "[train] there is no optimizer 'adm'; did you mean 'adam'?"),
        ("clients = 14", 'clients = "all"', "[fleet] clients is 'all', but it should be a whole number"),
        ("cohort = 3", "cohort = 0", "[fleet] cohort is 0, but it should be a whole number of clients (10) or a share"),
        (
            "cohort = 3",
            "cohort = 1.5",
            "[fleet] cohort is 1.5, but it should be a whole number of clients (10) or a share up to 1 (0.1)",
        ),
        ("levels = { big = 1.0, small = 0.5 }", "levels = 3", "[fleet] levels is 3, but it should be"),
        (
            "levels = { big = 1.0, small = 0.5 }",
            "levels = {}",
            "[fleet] levels is empty; name at least one device class, e.g. { server = 1.0 }",
        ),
        ('source = "digits"', "source = 5", "[data] source is 5, but it should be"),
        (
            "evaluate_every = 2",
            "scored_clients = 0",
            "[task] scored_clients is 0, but it should be greater than or equal to 1",
        ),
        ("seed = 3", "guard = 5", "guard is 5, but it should be"),
        ("seed = 3", "seed = -3", "seed is -3, but it should be greater than or equal to 0"),
        ("seed = 3", 'seed = "x"', "seed is 'x', but it should be a whole number"),
    ],
)
def test_wrong_type_or_range(tmp_path, old, new, expected):
    text = SMALL.replace(old, new, 1)
    message = mistake(tmp_path, text)
    assert expected in message
    assert f"({tmp_path / 'a.toml'}:{line_of(text, new)})" in message


@pytest.mark.parametrize("bound", ["0", "-1.0", "nan", '"much"', "true"])
def test_a_bound_of_the_guard_that_means_nothing(tmp_path, bound):
    text = f"{SMALL}\n[guard]\nbound = {bound}\n"
    message = mistake(tmp_path, text)
    assert message.startswith("[guard] bound is ")
    assert f"({tmp_path / 'a.toml'}:{line_of(text, 'bound')})" in message


def test_a_section_that_is_not_a_table(tmp_path):
    text = "train = 5\n" + SMALL[: SMALL.index("[train]")]
    message = mistake(tmp_path, text)
    assert "train is 5" in message
    assert f"{tmp_path / 'a.toml'}:1" in message


@pytest.mark.parametrize("ratio", ["0", "0.0", "1.5", "-0.5", "nan", "2"])
def test_a_level_ratio_outside_its_range(tmp_path, ratio):
    text = SMALL.replace("small = 0.5", f"small = {ratio}")
    message = mistake(tmp_path, text)
    assert message.startswith(f"[fleet] levels.small is {ratio}")
    assert "should be" in message
    assert f"({tmp_path / 'a.toml'}:{line_of(text, 'levels')})" in message


def test_more_clients_than_examples(tmp_path):
    message = mistake(tmp_path, SMALL.replace("clients = 14", "clients = 1443"), kind=DataError)
    assert "1443 clients" in message
    assert "at most 1442 clients" in message


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('name = "heterofl"', 'name = "heterfl"', "there is no method 'heterfl'; did you mean 'heterofl'?"),
        ('"heterofl-cnn"', '"heterofl-cn"', "[task] there is no model 'heterofl-cn'; did you mean 'heterofl-cnn'?"),
        ('source = "digits"', 'source = "digit"', "'digit'; did you mean 'digits'?"),
        ('partition = "iid"', 'partition = "dirichlt"', "there is no partition 'dirichlt'; did you mean 'dirichlet'?"),
        ("cohort = 3", 'assignment = "fixd"', "there is no assignment 'fixd'; did you mean 'fixed'?"),
        ('name = "heterofl"', 'name = "qqqq"', "there is no method 'qqqq'; "),
        ('name = "heterofl"', 'name = "no.such.module:Thing"', "cannot load method 'no.such.module:Thing'"),
        ('name = "heterofl"', 'name = "collections:OrderedDict"', "is not a subclass of potluck.Method"),
        ('"heterofl-cnn"', '"math:pi"', "[task] model 'math:pi' is "),
        ('"heterofl-cnn"', '"math:nothing"', "cannot load model 'math:nothing'"),
        ('source = "digits"', 'source = "json:nothing"', "cannot load source 'json:nothing'"),
        (
            'source = "digits"',
            'source = "platform:node"',
            "source 'platform:node' is no function or class that makes a Dataset",
        ),
    ],
)
def test_an_unknown_name(tmp_path, old, new, hint):
    assert hint in mistake(tmp_path, SMALL.replace(old, new, 1), kind=PotluckError)


@pytest.mark.parametrize("name", ["heterfl", "zzz"])
def test_an_unknown_method_is_pointed_to(tmp_path, name):
    text = SMALL.replace('name = "heterofl"', f'name = "{name}"')
    assert f"{tmp_path / 'a.toml'}:{line_of(text, f'name = {chr(34)}{name}')}" in mistake(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rounds = 3", "[task] needs 'rounds'"),
        ('model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }', "[task] needs 'model'"),
        ('source = "digits"', "[data] needs 'source'"),
        ("clients = 14", "[fleet] needs 'clients'"),
        ("levels = { big = 1.0, small = 0.5 }", "[fleet] needs 'levels'"),
        ('name = "heterofl"', "[method] needs a 'name'"),
    ],
)
def test_a_missing_key(tmp_path, line, expected):
    message = mistake(tmp_path, SMALL.replace(line, "", 1))
    assert expected in message
    assert str(tmp_path / "a.toml") in message


@pytest.mark.parametrize("section", ["task", "data", "fleet", "method"])
def test_a_missing_section(tmp_path, section):
    parts = SMALL.split("\n\n")
    text = "\n\n".join(part for part in parts if not part.startswith(f"[{section}]"))
    assert f"the config needs '{section}'" in mistake(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[task\nrounds = 3", "line 1"),
        ("[task]\nrounds = = 3", "line 2"),
        ("[task]\nrounds = 3\nrounds = 4\n", "line 3"),
        ("[task]\n[task]\n", "line 2"),
        ("just words", "line 1"),
    ],
)
def test_text_that_is_not_toml(tmp_path, text, place):
    message = mistake(tmp_path, text)
    assert message.startswith(f"{tmp_path / 'a.toml'} is not valid TOML")
    assert place in message


def test_a_data_set_that_does_not_exist_is_told_with_its_place(tmp_path):
    message = mistake(tmp_path, SMALL.replace('"digits"', '"digit"'), kind=DataError)
    assert message.startswith("[data] source: there is no data set 'digit'; did you mean 'digits'? (")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.toml: No such file"):
        read_config(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}: Is a directory"):
        read_config(tmp_path)
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ConfigError, match=r"picture\.toml is not text in UTF-8"):
        read_config(tmp_path / "picture.toml")


@pytest.mark.parametrize("disguise", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n")])
def test_a_byte_order_mark_and_line_ends_of_windows_do_not_matter(tmp_path, disguise):
    path = write_config(tmp_path)
    plain = read_config(path)
    path.write_bytes(disguise(path.read_bytes()))
    assert read_config(path).resolved() == plain.resolved()


def test_a_network_with_the_wrong_number_of_outputs(tmp_path):
    message = mistake(tmp_path, SMALL.replace("8] }", "8], classes = 7 }"), kind=PotluckError)
    assert "has 7 outputs" in message
    assert "needs 10" in message


def test_a_network_that_cannot_be_built(tmp_path):
    message = mistake(tmp_path, SMALL.replace("hidden = [4, 8, 8, 8]", "hidden = []"), kind=PotluckError)
    assert "heterofl" in message


def test_a_network_that_nobody_can_carry(tmp_path):
    text = SMALL.replace("big = 1.0, ", "").replace('name = "heterofl"', 'name = "fedavg"\nwidth = 1.0')
    assert "small (0.5)" in mistake(tmp_path, text)


@pytest.mark.parametrize("name", ["../outside", "a/b", ""])
def test_a_level_whose_name_is_no_file_name(tmp_path, name):
    """Its model would be written to models/<level>.safetensors, so such a name leads out of the run's directory."""
    message = mistake(tmp_path, SMALL.replace("small = 0.5", f'"{name}" = 0.5'))
    assert f"'{name}'" in message


def test_a_broken_data_file(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03 cut short")
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x01\x05")
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path / "data"))
    message = mistake(tmp_path, SMALL, "data.source=mnist", kind=DataError)
    assert str(folder / "train-images-idx3-ubyte") in message


def test_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    message = mistake(tmp_path, SMALL, "data.source=mnist", kind=DataError)
    assert "mnist was not found" in message
    assert str(tmp_path) in message

"""Finding, describing and loading data sets by name."""

import hashlib
import pickle
import re
from pathlib import Path

import pytest
import torch

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.preprocess import CropFlip, Flip, Normalise
from potluck.data.readers.idx import read_pair
from potluck.data.sources import digits
from potluck.study.facts import described, example_of, made_up


def test_digits_are_split_in_the_same_proportion_per_class():
    data = sources.load("digits")
    assert data.train.inputs.shape == (1442, 1, 8, 8)
    assert data.train.inputs.dtype == torch.uint8
    assert data.train.targets.bincount().tolist() == [143, 146, 142, 147, 145, 146, 145, 144, 140, 144]
    assert data.test.targets.bincount().tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert int(data.train.inputs.max()) == 16


def test_what_is_known_of_the_digits_before_they_are_read_is_so():
    data, about = sources.load("digits"), sources.about("digits")
    assert described(example_of(data.train)[0]) == about.inputs == "float32:1x8x8"
    assert (data.classes, len(data.train), about.owners) == (about.classes, about.training, 0)


def test_shapes_classes_and_numbers_are_known_of_every_set():
    for about in sources.catalogue():
        assert made_up(about.inputs).shape[0] == 1
        assert about.classes > 1
        assert about.training > 1000


def test_bundled_digits_are_the_distributed_ones():
    images, labels = read_pair(sources.find("digits"), digits.IMAGES, digits.LABELS, digits.CLASSES)
    known = "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
    assert hashlib.sha256(images.numpy().tobytes()).hexdigest() == known
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_fifth_of_every_class_is_for_testing():
    targets = torch.tensor([0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1])
    assert digits.every_fifth(targets, 2).nonzero().flatten().tolist() == [5, 9]


def test_digits_come_out_normalised():
    data = sources.load("digits")
    inputs, targets = data.train.take(torch.arange(len(data.train)))
    assert inputs.dtype == torch.float32
    assert targets.dtype == torch.long
    assert abs(float(inputs.mean())) < 0.01
    assert abs(float(inputs.std()) - 1) < 0.01


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(DataError, match="there is no data set 'cifar-10'; did you mean 'cifar10'"):
        sources.load("cifar-10")


def test_no_data_folder_says_how_to_give_one(monkeypatch):
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"set POTLUCK_DATA .* --data-dir; `potluck data fetch mnist --data-dir FOLDER`"
    ):
        sources.load("mnist")


def test_data_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'nowhere'} does not exist")):
        sources.load("mnist", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("cifar10", "cifar-10-batches-py"),
        ("cifar10", "cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-binary"),
        ("tiny-imagenet", "tiny-imagenet-200"),
        ("shakespeare", "shakespeare/pg100.txt"),
        ("wikitext2", "wikitext-2"),
    ],
)
def test_missing_set_names_the_places_and_how_to_get_it(tmp_path, monkeypatch, name, place):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    with pytest.raises(DataError) as caught:
        sources.load(name)
    assert str(tmp_path / place) in str(caught.value)
    assert f"potluck data fetch {name}" in str(caught.value)


def test_incomplete_folder_says_what_it_lacks(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte"):
        (raw / name).touch()
    with pytest.raises(DataError, match="which lacks t10k-labels-idx1-ubyte"):
        sources.find("mnist", tmp_path)


def test_recipes_are_the_papers():
    assert sources.recipes("cifar10") == ("heterofl", "flanc", "plain")
    heterofl = sources.SOURCES["cifar10"].recipes["heterofl"]
    assert heterofl.prepare == Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert heterofl.augment == CropFlip(pad=4)
    flanc = sources.SOURCES["fashion-mnist"].recipes["flanc"]
    assert (flanc.prepare, flanc.augment) == (Normalise((0.1307,), (0.3081,)), Flip())
    assert sources.SOURCES["cifar100"].recipes["flanc"].prepare(torch.full((1, 3, 1, 1), 188)).flatten().tolist() == (
        pytest.approx([(188 - 125.3) / 63.0, (188 - 123.0) / 62.1, (188 - 113.9) / 66.7])
    )


def test_every_recipe_survives_pickling():
    for source in sources.SOURCES.values():
        for recipe in source.recipes.values():
            assert pickle.loads(pickle.dumps(recipe)) == recipe


def test_unknown_recipe_lists_those_there_are():
    with pytest.raises(DataError, match="digits has no recipe 'flanc'; it has plain"):
        sources.load("digits", recipe="flanc")
    with pytest.raises(DataError, match="shakespeare has no recipe 'plain'; it has none"):
        sources.load("shakespeare", recipe="plain")


def test_catalogue_describes_every_source():
    listed = sources.catalogue()
    assert [about.name for about in listed] == list(sources.SOURCES)
    assert all(about.licence and about.homepage and about.how_to_get for about in listed)
    sums = [download.checksum for about in listed for download in about.downloads]
    assert all(re.fullmatch("|md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", checksum) for checksum in sums)


def test_survey_tells_found_from_missing_and_right_from_wrong(tmp_path):
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    (folder / "train.txt").write_text("not it")
    (folder / "test.txt").write_text("at all")
    found = {line.about.name: line for line in sources.survey(tmp_path)}
    assert found["digits"].checksum == "verified"
    assert found["digits"].place == Path(sources.find("digits"))
    assert found["wikitext2"].checksum == "differs"
    assert found["wikitext2"].size == 12
    assert str(folder / "train.txt") in found["wikitext2"].detail
    assert found["mnist"].checksum == "missing"
    assert found["mnist"].place is None
    assert "potluck data fetch mnist" in found["mnist"].detail


def test_survey_without_a_data_folder_still_finds_the_digits(monkeypatch):
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    assert [line.about.name for line in sources.survey() if line.place] == ["digits"]


def test_survey_of_what_cannot_be_verified_says_so(tmp_path):
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "pg100.txt").write_text("To be")
    line = next(line for line in sources.survey(tmp_path) if line.about.name == "shakespeare")
    assert line.checksum == "not verified"

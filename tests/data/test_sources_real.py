"""The real data sets, byte for byte."""

import hashlib
import os

import pytest
import torch

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.readers.files import read_text
from potluck.data.readers.roles import split_by_role
from potluck.data.sources.shakespeare import LETTERS
from potluck.study.facts import described, example_of

pytestmark = [pytest.mark.real_data, pytest.mark.filterwarnings("ignore:.* holds .* of the")]


def real(name: str):
    """A real data set, or the reason why there is none."""
    if not os.environ.get("POTLUCK_DATA"):
        pytest.skip("POTLUCK_DATA is not set: it names the folder with the real data sets")
    try:
        return sources.load(name, recipe=None)
    except DataError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip(str(error))


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.to(torch.uint8).contiguous().numpy().tobytes()).hexdigest()


HASHES = {
    "mnist": (
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    "fashion-mnist": (
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    "cifar10": (
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
}


@pytest.mark.parametrize("name", HASHES)
def test_images_and_labels(name):
    data = real(name)
    parts = [(part.inputs.permute(0, 2, 3, 1), part.targets) for part in (data.train, data.test)]
    assert tuple(digest(tensor) for part in parts for tensor in part) == HASHES[name]


def test_cifar100_test_part():
    data = real("cifar100")
    known = "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19"
    assert digest(data.test.inputs.permute(0, 2, 3, 1)) == known
    assert digest(data.test.targets) == "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b"
    assert data.train.targets[:5].tolist() == [19, 29, 0, 11, 1]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_plain_recipe_has_the_sets_own_constants(name):
    real(name)
    data = sources.load(name, recipe="plain")
    inputs, _ = data.train.take(torch.arange(0, len(data.train), 5))
    assert inputs.mean((0, 2, 3)).abs().max() < 0.02
    assert (inputs.std((0, 2, 3)) - 1).abs().max() < 0.02


def test_shakespeare_has_leafs_counts():
    data = real("shakespeare")
    assert int(data.owners.max()) + 1 == 1129
    assert len(data.train.text) == 4_316_478
    assert len(data.train) == len(data.owners)
    windows = len(data.train.text) - 80 * 1129
    assert windows == 4_226_158
    assert abs(len(data.train) / windows - 0.8) < 0.001
    inputs, targets = data.train.take(torch.tensor([0]))
    assert "".join(LETTERS[i] for i in inputs[0]).startswith("And I in going, madam, weep o'er my father's death anew")
    assert LETTERS[int(targets[0])] == data_text(data, 80)


def data_text(data, place: int) -> str:
    return LETTERS[int(data.train.text[place])]


def test_plays_split_by_our_rules_are_the_roles_of_leaf():
    data = real("shakespeare")
    plays = sources.find("shakespeare") / "pg100.txt"
    if not plays.exists():
        pytest.skip(f"{plays} is not there")
    roles = [text for text in split_by_role(read_text(plays)).values() if len(text) > 80]
    assert len(roles) == 1129
    assert "".join(roles) == "".join(LETTERS[code] for code in data.train.text.tolist())


def test_wikitext_has_heterofls_counts():
    data = real("wikitext2")
    assert data.classes == 33_279
    assert data.train.mask == 33_279
    assert len(data.train.text) == 100 * 20_886
    assert len(data.test.text) == 10 * 24_556
    assert data.owners.bincount().tolist() == [327] * 100
    assert int(data.test.text.min()) > 0  # every test word occurs in training
    inputs, targets = data.test.take(torch.arange(len(data.test)))
    assert inputs.shape == targets.shape == (3840, 64)
    assert abs(float((inputs == data.train.mask).float().mean()) - 0.15) < 0.002


def test_survey_verifies_what_is_complete():
    real("mnist")
    state = {line.about.name: line.checksum for line in sources.survey(os.environ["POTLUCK_DATA"])}
    assert state["mnist"] == state["fashion-mnist"] == "verified"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "shakespeare", "wikitext2"])
def test_what_is_known_before_a_set_is_read_is_so(name):
    data = real(name)
    about = sources.about(name)
    inputs, _ = example_of(data.train)
    assert (described(inputs), data.classes) == (about.inputs, about.classes)
    assert len(data.train) == about.training or name == "cifar100"  # of which there may be a part
    assert (0 if data.owners is None else len(data.owners.unique())) == about.owners

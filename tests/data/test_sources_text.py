"""Shakespeare by speaking role and WikiText-2 with masks."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import DataError
from potluck.core.random import stream
from potluck.data import sources
from potluck.data.readers.leaf import join_windows
from potluck.data.readers.roles import split_by_role
from potluck.data.sources.shakespeare import LETTERS
from potluck.data.sources.wikitext2 import in_rows
from potluck.data.sources.windows import MaskedWindows, Windows

PLAYS = """\
THE SONNETS

by William Shakespeare

  No speeches here. None.

1601
THE TEMPEST

by William Shakespeare

  PROSPERO. No harm.
    I have done nothing but in care of thee,
    Of thee, my dear one.
  Miranda. More to know
    Did never meddle   with my thoughts.
  [Exit]
    Stays with nobody? No: with Miranda.
  MIRANDA. Alack!
  ARIEL. One line only.
    Two lines.

THE COMEDY OF ERRORS

by William Shakespeare

AEGEON. Proceed, Solinus,
to procure my fall,
And by the doom of death end woes and all.
ACT I. SCENE I
Nobody says this.
DUKE. Merchant
of Syracuse,
plead no more;
<<THIS ELECTRONIC VERSION>>
Nor this.
"""


def decode(codes: torch.Tensor) -> str:
    return "".join(LETTERS[code] for code in codes.tolist())


def test_vocabulary_is_leafs():
    assert len(LETTERS) == len(set(LETTERS)) == 80


def test_plays_are_split_by_role():
    assert split_by_role(PLAYS) == {
        "THE_COMEDY_OF_ERRORS_AEGEON": "Proceed, Solinus, to procure my fall, "
        "And by the doom of death end woes and all. ",
        "THE_COMEDY_OF_ERRORS_DUKE": "Merchant of Syracuse, plead no more; ",
        "THE_TEMPEST_MIRANDA": "More to know Did never meddle with my thoughts. "
        "Stays with nobody? No: with Miranda. Alack! ",
        "THE_TEMPEST_PROSPERO": "No harm. I have done nothing but in care of thee, Of thee, my dear one. ",
    }


def test_a_text_without_plays_has_no_roles():
    assert split_by_role("To be, or not to be\n") == {}


def write_roles(tmp_path, **texts: str):
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    roles = {name: {"play": "P", "text": text} for name, text in texts.items()}
    (folder / "roles.json").write_text(json.dumps(roles))
    return tmp_path


def counting(length: int) -> str:
    """Text in which every place looks different from its neighbours."""
    return "".join(LETTERS[1 + (i * 7 + i // 79) % 79] for i in range(length)).replace("  ", " a")[:length]


def test_windows_are_cut_in_time_with_a_gap_and_owned_by_roles(tmp_path):
    text = "x" * 70 + "abcdefghijk" + "y" * 498 + " "  # 580 characters: 500 windows, 400 of them for training
    data = sources.load("shakespeare", write_roles(tmp_path, ROMEO=text, SHORT="z" * 79 + " ", TYBALT="w" * 84 + " "))
    assert data.classes == 80
    assert isinstance(data.train, Windows)
    assert len(data.train) == 400 + 4  # SHORT has no window; TYBALT's 5 windows give 4 and, after the gap, no test
    assert data.owners.tolist() == [0] * 400 + [1] * 4
    assert len(data.test) == 500 - 400 - 79
    inputs, targets = data.train.take(torch.tensor([0, 3]))
    assert decode(inputs[0]) == text[:80]
    assert decode(inputs[1]) == text[3:83]
    assert decode(targets) == text[80] + text[83]
    assert torch.equal(data.train.labels(torch.tensor([0, 3])), targets)


def test_test_windows_are_clear_of_the_training_ones(tmp_path):
    text = "a" * 999 + " "  # 920 windows: 736 for training, then from 736 + 79
    data = sources.load("shakespeare", write_roles(tmp_path, ROMEO=text))
    assert len(data.train) == 736
    assert data.test.starts.tolist() == list(range(815, 920))


def test_every_layout_gives_the_same_windows(tmp_path):
    speech = "\n".join("    " + "To be, or not to be, that is the question" * 2 for _ in range(30))
    title = "HAMLET\n\nby William Shakespeare\n\n"
    play = f"{title}  HAMLET. To be?\n{speech}\n  GHOST. Mark me.\n    I am thy\n    spirit.\n"
    for name in ("pg100.txt", "100.txt"):
        folder = tmp_path / name / "shakespeare"
        folder.mkdir(parents=True)
        (folder / name).write_text("\ufeff" + play.replace("\n", "\r\n"), encoding="utf-8")
    files = tmp_path / "files" / "shakespeare" / "data" / "raw_data" / "by_play_and_character"
    files.mkdir(parents=True)
    lines = ["To be?", *(line.strip() for line in speech.split("\n"))]
    (files / "HAMLET_HAMLET.txt").write_text("".join(line + "\n" for line in lines))
    found = [sources.load("shakespeare", tmp_path / place) for place in ("pg100.txt", "100.txt", "files")]
    assert len(found[0].train) > 1000
    assert all(torch.equal(data.train.text, found[0].train.text) for data in found)
    assert all(torch.equal(data.test.starts, found[0].test.starts) for data in found)


def leaf_json(folder, **users: str) -> None:
    """A JSON file of LEAF's, from the text whose windows a user has."""
    folder.mkdir(parents=True)
    data = {
        user: {"x": [text[i : i + 80] for i in range(len(text) - 80)], "y": list(text[80:])}
        for user, text in users.items()
    }
    (folder / "all_data_niid.json").write_text(json.dumps({"users": list(users), "user_data": data}))


def test_leafs_output_keeps_its_own_split(tmp_path):
    place = tmp_path / "shakespeare" / "data"
    leaf_json(place / "train", ROMEO=counting(200), JULIET=counting(100))
    leaf_json(place / "test", ROMEO=counting(300)[200:])
    data = sources.load("shakespeare", tmp_path)
    assert (len(data.train), len(data.test)) == (120 + 20, 20)
    assert data.owners.tolist() == [0] * 20 + [1] * 120  # in order of name
    assert decode(data.train.take(torch.tensor([25]))[0][0]) == counting(200)[5:85]
    assert decode(data.test.take(torch.tensor([19]))[1]) == counting(300)[299]
    assert len(data.train.text) == 100 + 200 + 100  # consecutive windows share their characters


@given(st.lists(st.tuples(st.text("ab", min_size=3, max_size=3), st.sampled_from("ab")), max_size=30))
def test_joined_windows_can_all_be_read_back(samples):
    text, starts = join_windows(samples)
    assert [(text[start : start + 3], text[start + 3]) for start in starts] == samples


def test_character_outside_the_vocabulary_is_named(tmp_path):
    with pytest.raises(DataError, match=r"roles\.json: role ROMEO has 'é', which is not one of LEAF's 80 symbols"):
        sources.load("shakespeare", write_roles(tmp_path, ROMEO="a" * 90 + "é"))
    (tmp_path / "shakespeare" / "roles.json").write_text(json.dumps({"R": {"text": "a" * 90 + "\u2019"}}))
    with pytest.raises(DataError, match="role R has '\u2019'"):
        sources.load("shakespeare", tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"R": {"text"', "is truncated or no JSON"),
        ('["R"]', "is not an object of roles"),
        ('{"R": {"text": "short"}}', "has no role with more than 80 characters"),
    ],
)
def test_damaged_roles_name_the_file(tmp_path, content, complaint):
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    (folder / "roles.json").write_text(content)
    with pytest.raises(DataError, match=rf"roles\.json {complaint}"):
        sources.load("shakespeare", tmp_path)


def test_roles_all_too_short_for_a_test_window_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"roles\.json has no role long enough to be tested on"):
        sources.load("shakespeare", write_roles(tmp_path, ROMEO="a" * 199 + " "))


def test_leaf_windows_of_another_length_are_refused(tmp_path):
    for part in ("train", "test"):
        folder = tmp_path / "shakespeare" / "data" / part
        folder.mkdir(parents=True)
        (folder / "a.json").write_text(json.dumps({"user_data": {"ROMEO": {"x": ["short"], "y": ["a"]}}}))
    with pytest.raises(DataError, match="ROMEO has a window that is not 80 characters"):
        sources.load("shakespeare", tmp_path)


def write_wikitext(tmp_path, names=("wiki.train.tokens", "wiki.test.tokens")):
    """7,200 training tokens (72 in a row) of 7 kinds, and 800 test tokens (80 in a row) with a new word."""
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    (folder / names[0]).write_text(" a b c \n d e <unk> \n \n" * 800, encoding="utf-8")
    (folder / names[1]).write_text(" a new b c d \n e \n" * 100, encoding="utf-8")
    return tmp_path


@pytest.mark.filterwarnings("ignore:.* holds .* of the")
@pytest.mark.parametrize("names", [("wiki.train.tokens", "wiki.test.tokens"), ("train.txt", "test.txt")])
def test_wikitext_vocabulary_rows_and_windows(tmp_path, names):
    data = sources.load("wikitext2", write_wikitext(tmp_path, names))
    assert data.classes == 2 + 6  # <ukn>, <eos>, a b c d e <unk>
    assert isinstance(data.train, MaskedWindows)
    assert data.train.mask == 8
    assert data.train.text[:9].tolist() == [2, 3, 4, 1, 5, 6, 7, 1, 1]
    assert data.test.text[:8].tolist() == [2, 0, 3, 4, 5, 1, 6, 1]
    assert data.train.starts[:4].tolist() == [0, 8, 72, 80]
    assert data.test.starts[:4].tolist() == [0, 16, 80, 96]
    assert data.owners.bincount().tolist() == [2] * 100


def test_rows_are_cut_into_full_windows():
    text, starts, owners = in_rows(torch.arange(1505), 10, None)
    assert len(text) == 1500
    assert starts[:6].tolist() == [0, 64, 86, 150, 214, 236]  # the last window of a row ends with the row
    assert owners.tolist() == [row for row in range(10) for _ in range(3)]
    _, exact, _ = in_rows(torch.arange(1280), 10, None)
    assert exact.tolist() == list(range(0, 1280, 64))


def test_text_too_short_for_its_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"wiki\.test\.tokens is truncated: 639 tokens do not fill 10 rows of 64"):
        in_rows(torch.arange(639), 10, tmp_path / "wiki.test.tokens")


@pytest.fixture
def masked():
    return MaskedWindows(torch.arange(5000), torch.arange(0, 4900, 64), 64, mask=5000)


def test_masks_hide_fifteen_percent_and_targets_are_whole(masked):
    everything = torch.arange(len(masked)).repeat(20)
    inputs, targets = masked.take(everything, stream(0, "mask"))
    assert torch.equal(targets, masked.labels(everything))
    hidden = inputs == masked.mask
    assert torch.equal(inputs[~hidden], targets[~hidden])
    assert 0.145 < float(hidden.float().mean()) < 0.155


def test_training_masks_come_from_the_generator(masked):
    index = torch.arange(10)
    again = [masked.take(index, stream(0, "mask"))[0] for _ in range(2)]
    assert torch.equal(*again)
    assert not torch.equal(again[0], masked.take(index, stream(1, "mask"))[0])


def test_evaluation_masks_do_not_depend_on_the_batch(masked):
    together = masked.take(torch.arange(20))[0]
    alone = torch.cat([masked.take(torch.tensor([i]))[0] for i in range(20)])
    assert torch.equal(together, alone)
    assert bool((together == masked.mask).any())


def test_text_that_is_not_utf8_is_named(tmp_path):
    write_wikitext(tmp_path)
    (tmp_path / "wikitext-2" / "wiki.test.tokens").write_bytes(b"a b \xff")
    with pytest.raises(DataError, match=r"wiki\.test\.tokens is damaged: it is not UTF-8"):
        sources.load("wikitext2", tmp_path)

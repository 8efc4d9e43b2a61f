"""WikiText-2 for masked language modelling, as HeteroFL cuts it.

The vocabulary is `<ukn>`, `<eos>` and then every training token in order of appearance (33,279 in all);
the mask is the number after them. Training tokens are laid out in 100 rows, each somebody's data,
test tokens in 10; a row is cut into windows of 64 tokens.

Departures: the authors' last window of a row is shorter; here it begins 64 tokens before the row's end, so
that all windows are full and there are as many as the authors have steps.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.data.dataset import Dataset
from potluck.data.readers.files import packed_or_not, read_bytes
from potluck.data.sources.source import About, Download, Layout, Source
from potluck.data.sources.windows import MaskedWindows

UNKNOWN, END_OF_LINE = "<ukn>", "<eos>"
LENGTH = 64
TRAIN_ROWS, TEST_ROWS = 100, 10
TRAIN_SUM = "sha256:9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"
TEST_SUM = "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"
SITE = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"


def read(folder: Path, train: str, test: str) -> Dataset:
    """The training and the test file of a folder."""
    train_file, test_file = (packed_or_not(folder / name) for name in (train, test))
    train_words, test_words = words_of(train_file), words_of(test_file)
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([UNKNOWN, END_OF_LINE, *train_words]))}
    mask = len(vocabulary)
    train_text, train_starts, owners = in_rows(numbers(train_words, vocabulary), TRAIN_ROWS, train_file)
    test_text, test_starts, _ = in_rows(numbers(test_words, vocabulary), TEST_ROWS, test_file)
    return Dataset(
        train=MaskedWindows(train_text, train_starts, LENGTH, mask),
        test=MaskedWindows(test_text, test_starts, LENGTH, mask),
        classes=len(vocabulary),
        goal="masked-tokens",
        owners=owners,
    )


def words_of(path: Path) -> list[str]:
    """The tokens of a file, with one more at the end of each line."""
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: it is not UTF-8 text ({error.reason} at byte {error.start})") from error
    words: list[str] = []
    for line in text.split("\n"):
        words += line.split()
        words.append(END_OF_LINE)
    return words[:-1]  # after the last line none ends


def numbers(words: list[str], vocabulary: dict[str, int]) -> Tensor:
    """Every word's number; those never seen in training share one."""
    unknown = vocabulary[UNKNOWN]
    return torch.tensor([vocabulary.get(word, unknown) for word in words], dtype=torch.int32)


def in_rows(tokens: Tensor, rows: int, path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens that fill `rows` equal rows, where the windows in them begin, and the row of each window."""
    size = len(tokens) // rows
    if size < LENGTH:
        raise DataError(f"{path} is truncated: {len(tokens)} tokens do not fill {rows} rows of {LENGTH}")
    begins = list(range(0, size - LENGTH + 1, LENGTH))
    if size % LENGTH:
        begins.append(size - LENGTH)
    starts = torch.arange(rows).unsqueeze(1) * size + torch.tensor(begins)
    return tokens[: rows * size], starts.flatten(), torch.arange(rows).repeat_interleave(len(begins))


def layout(folder: str, train: str, test: str) -> Layout:
    """The two files under these names; their content is the same everywhere."""
    return Layout(folder, {train: TRAIN_SUM, test: TEST_SUM}, partial(read, train=train, test=test))


WIKITEXT2 = Source(
    about=About(
        name="wikitext2",
        title="WikiText-2 tokens from Wikipedia, windows of 64 with masks",
        licence="CC BY-SA 3.0 (Wikipedia's authors; Merity et al. 2016)",
        homepage="https://arxiv.org/abs/1609.07843",
        examples=(32_700, 3_840),
        inputs=f"int64:{LENGTH}",
        classes=33_279,
        owners=TRAIN_ROWS,
        downloads=(
            Download(SITE + "train.txt", "wikitext-2/train.txt", TRAIN_SUM),
            Download(SITE + "test.txt", "wikitext-2/test.txt", TEST_SUM),
        ),
    ),
    layouts=(
        layout("wikitext-2", "wiki.train.tokens", "wiki.test.tokens"),
        layout("wikitext-2", "train.txt", "test.txt"),
        layout("WikiText2/wikitext-2", "wiki.train.tokens", "wiki.test.tokens"),
    ),
)

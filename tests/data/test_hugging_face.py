"""Hugging Face data sets: formats, transforms, streams, pictures; in memory where they fit."""

import numpy as np
import pytest
import torch

import potluck
from potluck.core.errors import ConfigError
from potluck.data.items.lazy import Items
from potluck.data.own import examples_from


def hugging_face(rows):
    return pytest.importorskip("datasets").Dataset.from_dict(rows)


def read(data, **how):
    return potluck.examples(data, **how).examples


def test_transforms_of_hugging_face_data_sets_are_used():
    data = hugging_face({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
    tenfold = data.with_transform(lambda rows: {"x": [10 * torch.tensor(x) for x in rows["x"]], "label": rows["label"]})
    assert examples_from(tenfold).inputs.tolist() == [[10, 20], [30, 40]]
    noisy = data.with_transform(lambda rows: {"x": [torch.rand(2) for _ in rows["x"]], "label": rows["label"]})
    assert isinstance(examples_from(noisy), Items)
    with pytest.raises(ConfigError, match=r"owners is 'x', but a data set that .* has a transform is read row by row"):
        potluck.examples(tenfold, owners="x")


def test_formats_of_hugging_face_data_sets_choose_columns():
    data = hugging_face({"text": ["a", "b"], "x": [1.0, 2.0], "label": [0, 1]})
    for kind in ("torch", "numpy", "pandas"):
        assert examples_from(data.with_format(kind, columns=["x", "label"])).inputs.tolist() == [1, 2]


def test_mapped_and_streamed_hugging_face_data_sets():
    data = hugging_face({"text": ["a", "bcd"], "label": [1, 0]})
    mapped = data.map(lambda row: {"ids": [ord(letter) for letter in row["text"]]})
    wanted = [[97, 0, 0], [98, 99, 100]]
    for each in (mapped, mapped.to_iterable_dataset(), mapped.remove_columns("text").to_iterable_dataset()):
        examples = read(each, inputs="ids", pad=0)
        assert (examples.take(torch.arange(2))[0].tolist(), examples.targets.tolist()) == (wanted, [1, 0])
    with pytest.raises(
        ConfigError, match=r"tokenizer is a builtin_function_or_method, but a data set that is streamed .*data\.map\("
    ):
        read(data.to_iterable_dataset(), tokenizer=len)


def test_classes_and_pictures_of_hugging_face_data_sets(tmp_path):
    datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    for number in range(2):
        image.new("RGB", (4, 3), (number, 2, 3)).save(tmp_path / f"{number}.png")
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"image": [str(tmp_path / f"{number}.png") for number in range(2)], "label": [1, 0]}
    examples = examples_from(datasets.Dataset.from_dict(rows, features=kinds))
    assert examples.inputs.shape == (2, 3, 3, 4)
    assert (examples.inputs[1, :, 0, 0].tolist(), examples.targets.tolist()) == ([1, 2, 3], [1, 0])


def test_large_hugging_face_data_sets_stay_where_they_are(monkeypatch):
    data = hugging_face({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
    held = examples_from(data)
    monkeypatch.setattr("potluck.data.tables.find.MOST_BYTES", 0)
    monkeypatch.setattr("potluck.data.items.collect.MOST_BYTES", 0)
    lazy = examples_from(data)
    index = torch.tensor([1, 0])
    assert type(lazy) is not type(held)
    assert torch.equal(lazy.take(index)[0], held.take(index)[0])
    assert np.array_equal(lazy.labels(index), held.labels(index))

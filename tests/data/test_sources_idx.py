"""MNIST's and Fashion-MNIST's idx files."""

import gzip
import struct

import numpy as np
import pytest

from potluck.core.errors import DataError
from potluck.data import sources

pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* of the")


def idx(array: np.ndarray) -> bytes:
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_set(folder, packed: bool, train: int = 6, test: int = 4):
    """Image i is filled with i; its label is i % 10."""
    folder.mkdir(parents=True)
    for prefix, count in (("train", train), ("t10k", test)):
        images = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28).reshape(count, 28, 28)
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            content = idx(array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")])
def test_torchvisions_layout_packed_or_not(tmp_path, name, folder, packed):
    write_set(tmp_path / folder, packed)
    data = sources.load(name, tmp_path)
    assert (len(data.train), len(data.test), data.classes) == (6, 4, 10)
    assert data.train.inputs.shape == (6, 1, 28, 28)
    assert data.train.inputs[:, 0, 5, 5].tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test.targets.tolist() == [0, 1, 2, 3]


def test_a_part_of_the_set_is_loaded_with_a_warning(tmp_path):
    write_set(tmp_path / "MNIST/raw", False)
    with pytest.warns(UserWarning, match="holds 6 of the 60,000 training examples of mnist"):
        sources.load("mnist", tmp_path)


def broken(tmp_path, name: str, content: bytes) -> str:
    """The message for an MNIST folder in which one file has this content."""
    path = write_set(tmp_path / "MNIST/raw", False) / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        sources.load("mnist", tmp_path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_wrong_magic(tmp_path):
    assert "starts with bytes 00000801, not with 00000803" in broken(
        tmp_path, "train-images-idx3-ubyte", idx(np.zeros(6, np.uint8))
    )


def test_truncated_values(tmp_path):
    assert "is truncated or damaged: 100 bytes" in broken(
        tmp_path, "train-images-idx3-ubyte", idx(np.zeros((6, 28, 28), np.uint8))[:100]
    )


def test_truncated_header(tmp_path):
    assert "the header alone takes 8" in broken(tmp_path, "t10k-labels-idx1-ubyte", b"\0\0\x08\x01\0\0")


def test_empty_file_of_labels(tmp_path):
    assert "holds no examples" in broken(tmp_path, "t10k-labels-idx1-ubyte", idx(np.zeros(0, np.uint8)))


def test_label_outside_the_range(tmp_path):
    assert "has label 10, outside 0 to 9" in broken(
        tmp_path, "train-labels-idx1-ubyte", idx(np.array([0, 1, 2, 3, 4, 10], np.uint8))
    )


def test_images_and_labels_of_different_number(tmp_path):
    assert "holds 6 images, but" in broken(tmp_path, "train-labels-idx1-ubyte", idx(np.zeros(5, np.uint8)))


@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: b"no gzip" + c, lambda c: c[:-8] + b"\0" * 8])
def test_damaged_gzip(tmp_path, damage):
    path = write_set(tmp_path / "MNIST/raw", True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is truncated or damaged"):
        sources.load("mnist", tmp_path)

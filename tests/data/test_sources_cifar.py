"""The CIFAR sets in both of their authors' formats, unpacked and packed; and pickles that must not be trusted."""

import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.readers.pickles import read_pickle

pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* of the")

ROWS = 4


def pixels(batch: int) -> np.ndarray:
    """Rows of 3,072 bytes: planes R, G, B filled with the batch's number, then the row's, then 7."""
    rows = np.empty((ROWS, 3, 1024), np.uint8)
    rows[:, 0], rows[:, 1], rows[:, 2] = batch, np.arange(ROWS)[:, None], 7
    return rows.reshape(ROWS, 3072)


def python2_pickle(array: np.ndarray, labels: list[int], key: str) -> bytes:
    """A batch as Python 2 wrote it: byte strings throughout, numpy under its old name."""
    rows, columns = array.shape
    text = lambda s: b"U" + bytes([len(s)]) + s.encode()  # noqa: E731
    return (
        b"\x80\x02}(" + text("data") + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + text("b") + b"\x87R(K\x01" + b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns)
        + b"\x86cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNN"
        + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb\x89T" + struct.pack("<i", array.nbytes) + array.tobytes() + b"tb"
        + text(key) + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"eu."
    )  # fmt: skip


def batch_files(python: bool) -> dict[str, bytes]:
    """Six CIFAR-10 batches; labels are 0 .. 3."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    if python:
        return {name: python2_pickle(pixels(i), list(range(ROWS)), "labels") for i, name in enumerate(names, 1)}
    labels = np.arange(ROWS, dtype=np.uint8)[:, None]
    return {f"{name}.bin": np.hstack([labels, pixels(i)]).tobytes() for i, name in enumerate(names, 1)}


def write(folder, files: dict[str, bytes]):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pack(path, folder: str, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def check_cifar10(data) -> None:
    assert (len(data.train), len(data.test), data.classes) == (20, 4, 10)
    assert data.train.inputs.shape == (20, 3, 32, 32)
    assert data.train.inputs[:, 0, 31, 0].tolist() == [i for i in range(1, 6) for _ in range(4)]
    assert data.train.inputs[:, 1, 0, 31].tolist() == [0, 1, 2, 3] * 5
    assert data.test.inputs[:, 0, 0, 0].tolist() == [6] * 4
    assert data.train.targets.tolist() == [0, 1, 2, 3] * 5


@pytest.mark.parametrize("python", [True, False])
def test_cifar10_unpacked(tmp_path, python):
    write(tmp_path / ("cifar-10-batches-py" if python else "cifar-10-batches-bin"), batch_files(python))
    check_cifar10(sources.load("cifar10", tmp_path))


@pytest.mark.parametrize("python", [True, False])
def test_cifar10_in_its_archive(tmp_path, python):
    kind, folder = ("python", "cifar-10-batches-py") if python else ("binary", "cifar-10-batches-bin")
    pack(tmp_path / f"cifar-10-{kind}.tar.gz", folder, batch_files(python))
    check_cifar10(sources.load("cifar10", tmp_path))


def test_cifar100_takes_the_fine_labels(tmp_path):
    batch = {"data": pixels(1), "coarse_labels": [0, 1, 2, 3], "fine_labels": [99, 5, 6, 7]}
    content = pickle.dumps(batch, protocol=4)
    write(tmp_path / "cifar-100-python", {"train": content, "test": content})
    data = sources.load("cifar100", tmp_path)
    assert (data.classes, data.test.targets.tolist()) == (100, [99, 5, 6, 7])


def test_cifar100_binary_takes_the_second_label(tmp_path):
    content = np.hstack([np.full((ROWS, 1), 19, np.uint8), np.full((ROWS, 1), 98, np.uint8), pixels(3)]).tobytes()
    write(tmp_path / "cifar-100-binary", {"train.bin": content, "test.bin": content})
    data = sources.load("cifar100", tmp_path)
    assert data.train.targets.tolist() == [98] * 4
    assert data.train.inputs[0, :, 9, 9].tolist() == [3, 0, 7]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_batches_saved_again_by_python_3(tmp_path, protocol):
    array = np.asfortranarray(pixels(2)) if protocol == 4 else pixels(2)
    read = read_pickle(pickle.dumps({b"data": array, "labels": [1]}, protocol=protocol), tmp_path)
    assert np.array_equal(read["data"], pixels(2))


class Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_pickle_that_runs_a_command_is_refused_and_runs_nothing(tmp_path):
    files = batch_files(python=True)
    files["data_batch_2"] = pickle.dumps({"data": pixels(1), "labels": Malicious(tmp_path / "ran")})
    write(tmp_path / "cifar-10-batches-py", files)
    with pytest.raises(DataError, match=r"data_batch_2 is no pickle of byte arrays.*it asks for (posix|nt)\.system"):
        sources.load("cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"cpickle\nloads\n.",
        pickle.dumps({"data": np.array([object()])}),
        pickle.dumps({"data": np.zeros(3)}),
        pickle.dumps([1, 2]),
        b"",
        b"garbage",
    ],
)
def test_other_pickles_are_refused(tmp_path, content):
    with pytest.raises(DataError, match="batch is no pickle of byte arrays and plain containers"):
        read_pickle(content, tmp_path / "batch")


def test_array_shorter_than_announced_is_refused(tmp_path):
    content = python2_pickle(pixels(1), [0], "labels").replace(struct.pack("<H", ROWS), struct.pack("<H", 900), 1)
    with pytest.raises(DataError, match="12288 bytes, not the"):
        read_pickle(content, tmp_path)


def message(tmp_path, folder: str, files: dict[str, bytes], name: str = "cifar10") -> str:
    write(tmp_path / folder, files)
    with pytest.raises(DataError) as caught:
        sources.load(name, tmp_path)
    return str(caught.value)


def test_truncated_pickle(tmp_path):
    files = batch_files(python=True)
    files["data_batch_4"] = files["data_batch_4"][:5000]
    assert "data_batch_4 is no pickle" in message(tmp_path, "cifar-10-batches-py", files)


def test_truncated_records(tmp_path):
    files = batch_files(python=False)
    files["test_batch.bin"] = files["test_batch.bin"][:5000]
    assert "test_batch.bin is truncated or damaged: 5000 bytes are not whole records of 3073" in message(
        tmp_path, "cifar-10-batches-bin", files
    )


def test_batch_cut_between_two_records(tmp_path):
    files = batch_files(python=False)
    files["data_batch_3.bin"] = files["data_batch_3.bin"][: 2 * 3073]
    assert "data_batch_3.bin is truncated: 2 images, but another batch has 4" in message(
        tmp_path, "cifar-10-batches-bin", files
    )


def test_label_outside_the_range(tmp_path):
    files = batch_files(python=True)
    files["data_batch_5"] = python2_pickle(pixels(5), [0, 1, 2, 10], "labels")
    assert "data_batch_5 has label 10, outside 0 to 9" in message(tmp_path, "cifar-10-batches-py", files)


def test_batches_without_what_is_needed(tmp_path):
    wrong = {"data": pixels(1)[:, :99], "fine_labels": [0] * ROWS}
    assert "has no array 'data' of rows of 3072 bytes" in message(
        tmp_path, "cifar-100-python", {"train": pickle.dumps(wrong, protocol=4), "test": b""}, "cifar100"
    )


def test_labels_of_another_number_than_images(tmp_path):
    files = batch_files(python=True)
    files["data_batch_1"] = python2_pickle(pixels(1), [0, 1], "labels")
    assert "data_batch_1 holds 4 images but 2 labels" in message(tmp_path, "cifar-10-batches-py", files)


def test_truncated_archive_and_one_with_a_file_missing(tmp_path):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    files = batch_files(python=False)
    pack(archive, "cifar-10-batches-bin", files)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz is truncated or damaged"):
        sources.load("cifar10", tmp_path)
    del files["data_batch_2.bin"]
    pack(archive, "cifar-10-batches-bin", files)
    with pytest.raises(DataError, match=r"lacks cifar-10-batches-bin/data_batch_2\.bin"):
        sources.load("cifar10", tmp_path)

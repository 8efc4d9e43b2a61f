"""Files that would fill the memory, never end or never begin are refused for next to nothing."""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zlib

import numpy as np
import pytest
from holes import with_holes
from peak_memory import MEGABYTE, measured

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.own import examples_from
from potluck.data.readers.cifar import read_batch, read_records
from potluck.data.readers.idx import read_idx
from potluck.data.readers.pickles import read_pickle
from potluck.data.sources.shakespeare import LENGTH

pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* of the")

ZEROS = 32 * MEGABYTE


def refused(read, *given, room: int = 4 * MEGABYTE) -> str:
    """The complaint about a file, after next to nothing was allocated for it."""
    with measured() as peak, pytest.raises(DataError) as caught:
        read(*given)
    assert peak.bytes < room
    return str(caught.value)


def packed_zeros(start: bytes, count: int) -> bytes:
    """A gzip file of some bytes and then many zeros, a thousandth of their size."""
    squeezed = io.BytesIO()
    with gzip.GzipFile(fileobj=squeezed, mode="wb") as file:
        file.write(start)
        for _ in range(count // MEGABYTE):
            file.write(bytes(MEGABYTE))
    return squeezed.getvalue()


# ---- whatever the format ----


def test_a_device_or_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.gz")
    (tmp_path / "zero.gz").symlink_to("/dev/zero")
    (tmp_path / "folder.gz").mkdir()
    for name in ("pipe.gz", "zero.gz"):
        assert f"{name}: it is not a file, but a device" in refused(read_idx, tmp_path / name, 1)
    assert "folder.gz: it is not a file, but a folder" in refused(read_idx, tmp_path / "folder.gz", 1)


def test_a_survey_takes_no_memory_for_what_it_hashes(tmp_path):
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (folder / f"{name}.gz").write_bytes(packed_zeros(b"", ZEROS))
    (folder / "t10k-labels-idx1-ubyte").symlink_to("/dev/zero")
    with measured() as peak:
        found = {line.about.name: line for line in sources.survey(tmp_path)}
    assert found["mnist"].checksum == "differs"
    assert "64 times its own size" in found["mnist"].detail
    assert peak.bytes < 8 * MEGABYTE


# ---- idx ----


@pytest.mark.parametrize("examples", [1, 1 << 31])
def test_idx_that_unpacks_to_more_than_its_header_or_its_size_allows(tmp_path, examples):
    path = tmp_path / "labels.gz"
    path.write_bytes(packed_zeros(struct.pack(">HBBI", 0, 8, 1, examples), ZEROS))
    complaint = refused(read_idx, path, 1, room=8 * MEGABYTE)
    assert ("more than 9 bytes" if examples == 1 else "more than 64 times its own size") in complaint


def test_idx_that_honestly_packs_well_is_read(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(packed_zeros(struct.pack(">HBBI", 0, 8, 1, MEGABYTE // 2) + bytes(MEGABYTE // 2), 0))
    assert len(read_idx(path, 1)) == MEGABYTE // 2


# ---- pickles ----

HUGE = struct.pack("<I", 0xFFFFFFF0)


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


NESTED = b")" + b"".join(b"q\x00h\x00\x86" for _ in range(200))  # a tuple of twice the same, 200 deep
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n)R"
BYTES_TYPE = b"cnumpy\ndtype\n" + text("u1") + b"\x85R"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02}r" + HUGE + b".", id="a large number of a memo"),
        pytest.param(b"\x80\x04\x96" + struct.pack("<Q", 1 << 40) + b".", id="a large array"),
        pytest.param(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"short.", id="long bytes"),
        pytest.param(b"\x80\x02T" + struct.pack("<i", 1 << 30) + b"short.", id="a long string"),
        pytest.param(b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"}.", id="a long frame"),
        pytest.param(b"\x80\x02" + b"]" * MEGABYTE + b".", id="many lists"),
        pytest.param(b"\x80\x02}" + NESTED + b"K\x00s.", id="a key that takes for ever to hash"),
        pytest.param(
            b"\x80\x02}" + text("data") + ARRAY + b"(K\x01" + NESTED + BYTES_TYPE + b"\x89C\x00tbs.",
            id="a shape that takes for ever to tell",
        ),
        pytest.param(
            b"\x80\x02" + text("x" * 50_000) + b"q\x00(" + b"c_codecs\nencode\nh\x00\x85R" * 200 + b"l.",
            id="one text again and again",
        ),
        pytest.param(b"\x80\x02" + text("a\nb" * 9999) + text("c") + b"\x93.", id="a long name"),
        pytest.param(b"\x80\x02}" + text("data") + b"K\x00a.", id="added to what is no list"),
        pytest.param(b"\x80\x02t.", id="no mark"),
        pytest.param(b"\x80\x02K\x00K\x00b.", id="a state for a number"),
    ],
)  # fmt: skip
def test_pickles_made_to_fill_memory_or_to_take_for_ever(tmp_path, content):
    complaint = refused(read_batch, content, tmp_path / "batch", "labels", 10)
    assert len(complaint) < 400
    assert "\n" not in complaint


def test_a_shape_that_multiplies_texts(tmp_path):
    shape = b"J" + struct.pack("<i", 1 << 30) + text("x") + b"\x86"
    content = b"\x80\x02}" + text("data") + ARRAY + b"(K\x01" + shape + BYTES_TYPE + b"\x89C\x00tbs."
    assert "a shape that is none" in refused(read_pickle, content, tmp_path)


def test_a_shape_of_less_than_nothing(tmp_path):
    shape = (b"J" + struct.pack("<i", -2)) * 2 + b"\x86"
    content = b"\x80\x02}" + text("data") + ARRAY + b"(K\x01" + shape + BYTES_TYPE + b"\x89C\x04abcdtbs."
    assert "a shape that is none" in refused(read_pickle, content, tmp_path)


@pytest.mark.parametrize("label", [1 << 70, -1, 1 << 40_000], ids=["large", "negative", "huge"])
def test_labels_that_no_array_holds(tmp_path, label):
    content = pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [label]}, protocol=4)
    assert "label" in refused(read_batch, content, tmp_path / "batch", "labels", 10)


# ---- archives ----


def pack(path, **members: bytes) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_an_archive_of_far_more_than_its_size(tmp_path):
    pack(tmp_path / "cifar-10-binary.tar.gz", **{"cifar-10-batches-bin/data_batch_1.bin": bytes(ZEROS)})
    complaint = refused(sources.load, "cifar10", tmp_path, room=8 * MEGABYTE)
    assert "cifar-10-binary.tar.gz holds more than 64 times its own size" in complaint


@pytest.mark.parametrize("link", [False, True])
def test_an_archive_of_holes(tmp_path, link):
    wanted = "cifar-10-batches-bin/data_batch_1.bin"
    content = with_holes("a", 8 * ZEROS, wanted) if link else with_holes(wanted, 8 * ZEROS)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(content)
    says = "lacks" if link else "holds more than 64 times its own size"
    assert f"cifar-10-binary.tar.gz {says}" in refused(sources.load, "cifar10", tmp_path, room=8 * MEGABYTE)


def test_an_archive_of_headers_upon_headers(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 0
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) * 1900))
    assert "is truncated or damaged" in refused(sources.load, "cifar10", tmp_path)


def test_an_empty_file_has_no_records(tmp_path):
    assert "0 bytes are not whole records" in refused(read_records, b"", tmp_path / "data_batch_1.bin", 1, 10)


# ---- images ----


def picture(width: int, height: int, rows: int | None = None) -> bytes:
    """A black PNG, which may announce more rows than it has."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    squeeze = zlib.compressobj(1)
    pixels = b"".join(squeeze.compress(bytes(1 + width)) for _ in range(height if rows is None else rows))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels + squeeze.flush()) + chunk(b"IEND", b"")
    )


@pytest.fixture
def album(tmp_path):
    """A folder of one class with one image."""
    pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.png").write_bytes(picture(8, 8))
    assert examples_from(tmp_path).inputs.shape == (1, 1, 8, 8)
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*decompression bomb")
@pytest.mark.parametrize(("width", "height"), [(5000, 5000), (50_000, 2000), (50_000, 50_000)])
def test_a_huge_image_is_refused_before_it_is_decoded(album, width, height):
    (album / "cats" / "a.png").write_bytes(picture(width, height, rows=100))
    complaint = refused(examples_from, album)
    assert f"is {width}x{height} pixels" in complaint or "truncated or no image" in complaint


def test_an_image_of_another_size_is_refused_before_it_is_decoded(album):
    (album / "cats" / "b.png").write_bytes(picture(4000, 4000))
    assert "b.png is 4000x4000 pixels, but" in refused(examples_from, album)


def test_a_program_is_no_image(album):
    (album / "cats" / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    )
    assert "a.png is truncated or no image" in refused(examples_from, album)


def test_only_formats_that_need_no_program_are_tried(album):
    from PIL import Image

    Image.new("L", (8, 8)).save(album / "cats" / "a.png", format="TGA")  # Pillow would read it
    assert "a.png is truncated or no image" in refused(examples_from, album)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../x.JPEG", "..", "", "a\0b"])
def test_annotations_name_files_of_their_folder(tmp_path, name):
    root = tmp_path / "tiny-imagenet-200"
    (root / "train" / "n01" / "images").mkdir(parents=True)
    (root / "train" / "n01" / "images" / "a.png").write_bytes(picture(8, 8))
    (root / "val").mkdir()
    (root / "val" / "val_annotations.txt").write_text(f"{name}\tn01\n")
    assert "does not begin with the name of a file" in refused(sources.load, "tiny-imagenet", tmp_path)


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "tiny-imagenet-200" / "val").mkdir(parents=True)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").touch()
    (tmp_path / "tiny-imagenet-200" / "train").touch()
    assert "tiny-imagenet-200/train: Not a directory" in refused(sources.load, "tiny-imagenet", tmp_path)


# ---- texts ----


def leaf(folder, users: object) -> None:
    for part in ("train", "test"):
        (folder / "shakespeare/data" / part).mkdir(parents=True)
        (folder / "shakespeare/data" / part / "all.json").write_text(json.dumps({"user_data": users}))


@pytest.mark.parametrize("x", [[5], [["a"] * LENGTH], [None], "a", {"a": 1}, 7])
def test_leafs_windows_are_texts(tmp_path, x):
    leaf(tmp_path, {"ROMEO": {"x": x, "y": ["a"]}})
    assert "shakespeare/data" in refused(sources.load, "shakespeare", tmp_path)


def test_a_user_without_windows_is_none(tmp_path):
    leaf(tmp_path, {"NOBODY": {"x": [], "y": []}, "ROMEO": {"x": ["a" * LENGTH], "y": ["b"]}})
    data = sources.load("shakespeare", tmp_path)
    assert len(data.train) == 1
    assert data.owners.tolist() == [0]


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": {"text": "\\ud800' + "a" * 100 + '"}}', "1" * 5000])
def test_json_that_is_odd(tmp_path, content):
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "roles.json").write_text(content)
    assert "roles.json" in refused(sources.load, "shakespeare", tmp_path, room=16 * MEGABYTE)


def test_lines_of_nothing_take_little_memory(tmp_path):
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "train.txt").write_bytes(b"\n" * MEGABYTE)
    (tmp_path / "wikitext-2" / "test.txt").write_bytes(b"a")
    assert "test.txt is truncated" in refused(sources.load, "wikitext2", tmp_path, room=48 * MEGABYTE)

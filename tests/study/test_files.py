"""Reading text that anybody may have written: bounded, and refused by the file's name."""

import os
import tracemalloc

import pytest

from potluck.core.errors import RunError
from potluck.study.config import LARGEST_FILE, write_toml
from potluck.study.files import LARGEST, read_json, read_toml
from potluck.study.journal import LONGEST_LINE, read_records

ROOM = 4 << 20  # bytes that reading a small file may take, whatever it holds


def refused(read, path):
    """The sentence that a file is refused with; it names the file."""
    tracemalloc.start()
    try:
        with pytest.raises(RunError) as caught:
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value), peak


@pytest.mark.parametrize("read", [read_toml, read_json])
@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"a = " + b"[" * 3000,
        b"a = " + b"{a = " * 3000,
        b"[" * 3000,
        b'{"a":' * 3000,
        b"a" + b".a" * 60_000 + b" = 1",
        b"[a" + b".a" * 60_000 + b"]",
        b'a."\xe2\x80\xa8"' * 20_000 + b" = 1",  # no end of a line to TOML
        b"a = " + b"9" * 5001,
        b"9" * 5001,
        b"[task",
        b"\0",
    ],
    ids=lambda content: content[:12].decode("latin-1").encode("unicode_escape").decode(),
)
def test_damaged_text_is_refused(tmp_path, read, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    _, peak = refused(read, path)
    assert peak < ROOM


@pytest.mark.parametrize("read", [read_toml, read_json])
def test_a_huge_file_is_refused_before_it_is_read(tmp_path, read):
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 40)  # it takes no room on disk
    said, peak = refused(read, path)
    assert f"more than {LARGEST} bytes" in said
    assert peak < ROOM


@pytest.mark.parametrize("read", [read_toml, read_json, read_records])
def test_what_is_not_a_plain_file_is_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        assert "not a plain file" in refused(read, tmp_path / name)[0]
    assert "No such file" in refused(read, tmp_path / "nothing")[0]


@pytest.mark.parametrize(
    "line", ["null", "{}", "[]", "3", '{"round": 2}', '{"round": true}', '{"round": "1"}', '{"round": 1', "", "\0" * 9]
)
def test_what_is_no_record_is_refused(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    refused(read_records, tmp_path / "metrics.jsonl")


def test_a_record_that_is_nested_deeply_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for deep in (100, 3000, 10**6):
        path.write_text('{"round": 1, "method": ' + "[" * deep + "]" * deep + "}\n")
        refused(read_records, path)


def test_a_line_that_never_ends_is_refused_before_it_is_read_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.touch()
    os.truncate(path, 1 << 40)
    assert refused(read_records, path)[1] < 8 * LONGEST_LINE


def test_dates_are_text(tmp_path):
    (tmp_path / "a.toml").write_text("day = 1979-05-27\nrate = 0.5\nnumbers = [1, 2]")
    assert read_toml(tmp_path / "a.toml") == {"day": "1979-05-27", "rate": 0.5, "numbers": [1, 2]}


def test_a_long_list_on_one_line_is_no_damage(tmp_path):
    path = tmp_path / "file"
    path.write_text(f"a = {[0.5] * 1500}")
    assert read_toml(path) == {"a": [0.5] * 1500}


def test_what_a_run_makes_of_the_largest_config_can_be_read():
    assert len(write_toml({"a": [1] * (LARGEST_FILE // 2)})) < LARGEST


def test_what_is_nested_a_little_too_deep_is_refused(tmp_path):
    nested = "[" * 17 + "]" * 17
    for read, content in ((read_toml, f"a = {nested}"), (read_json, nested)):
        (tmp_path / "file").write_text(content)
        assert "nested deeper than 16 tables" in refused(read, tmp_path / "file")[0]

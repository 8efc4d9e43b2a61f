"""Downloads against a web server on loopback that can be told to misbehave."""

import hashlib
import io
import struct
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from holes import with_holes

from potluck.core.errors import DataError
from potluck.data.fetch import fetch
from potluck.data.sources import About, Download

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes


class Server(ThreadingHTTPServer):
    """Serves `content`; `cuts` says after how many bytes each coming answer breaks off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.ranges = True
        self.shift = 0
        self.length = ""  # what is said instead of the length
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/set.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.content
        if self.server.statuses:
            return self.send_error(self.server.statuses.pop(0))
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            start += self.server.shift
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", self.server.length or str(len(content) - start))
        self.end_headers()
        sent = self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start : start + sent])
        return None

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server():
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def about(server: Server, checksum: str | None = None, path: str = "sub/set.bin", unpack: bool = False) -> About:
    known = "sha256:" + hashlib.sha256(server.content).hexdigest() if checksum is None else checksum
    return About("set", "a set", "free", "http://localhost", downloads=(Download(server.url, path, known, unpack),))


def files(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_with_progress(server, tmp_path):
    seen = []
    (path,) = fetch(about(server), tmp_path, lambda *step: seen.append(step))
    assert path == tmp_path / "sub" / "set.bin"
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == ["sub/set.bin"]
    assert seen[-1] == ("set.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_file_that_is_there_is_not_fetched_again_but_a_damaged_one_is(server, tmp_path):
    fetch(about(server), tmp_path)
    fetch(about(server), tmp_path)
    assert len(server.asked) == 1
    (tmp_path / "sub" / "set.bin").write_bytes(b"damaged")
    fetch(about(server), tmp_path)
    assert (tmp_path / "sub" / "set.bin").read_bytes() == CONTENT


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [100_000, 70_000]
    (path,) = fetch(about(server), tmp_path, pause=0)
    assert server.asked == [None, "bytes=100000-", "bytes=170000-"]
    assert path.read_bytes() == CONTENT


def test_after_too_many_cuts_the_next_run_goes_on(server, tmp_path):
    server.cuts = [1000, 1000, 1000]
    with pytest.raises(DataError, match=r"broke off 3 times \(3000 of 512000 bytes came\); run it again"):
        fetch(about(server), tmp_path, tries=3, pause=0)
    assert files(tmp_path) == ["sub/set.bin.part"]
    (path,) = fetch(about(server), tmp_path)
    assert server.asked[-1] == "bytes=3000-"
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == ["sub/set.bin"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    server.cuts = [100_000]
    (path,) = fetch(about(server), tmp_path, pause=0)
    assert server.asked == [None, "bytes=100000-"]
    assert path.read_bytes() == CONTENT


def test_a_server_that_sends_the_wrong_part_is_not_believed(server, tmp_path):
    server.shift = 5
    server.cuts = [100_000]
    (path,) = fetch(about(server), tmp_path, pause=0)
    assert server.asked == [None, "bytes=100000-", None]
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(DataError, match=r"set\.bin is not the published file: its checksum is not md5:0000"):
        fetch(about(server, "md5:" + "0" * 32), tmp_path)
    assert files(tmp_path) == []


def test_a_wrong_checksum_does_not_replace_what_was_there(server, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "set.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match="not the published file"):
        fetch(about(server, "md5:" + "0" * 32), tmp_path)
    assert (tmp_path / "sub" / "set.bin").read_bytes() == b"mine"


def test_a_complete_part_is_verified_not_fetched(server, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "set.bin.part").write_bytes(CONTENT)
    (path,) = fetch(about(server), tmp_path)
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert path.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "set.bin.part").write_bytes(CONTENT + b"more")
    (path,) = fetch(about(server), tmp_path, pause=0)
    assert path.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_a_refusal_is_final(server, tmp_path):
    server.statuses = [503]
    fetch(about(server), tmp_path, pause=0)
    server.statuses = [404]
    with pytest.raises(DataError, match="the server answered 404"):
        fetch(about(server, path="other.bin"), tmp_path, pause=0)
    assert len(server.asked) == 3


def test_nobody_at_the_address(tmp_path):
    nobody = About("set", "", "", "", downloads=(Download("http://127.0.0.1:9/set.bin", "set.bin"),))
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9/set\.bin broke off 2 times"):
        fetch(nobody, tmp_path, tries=2, pause=0)


def test_a_folder_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "sub").write_text("in the way")
    with pytest.raises(DataError, match=f"cannot write {tmp_path / 'sub'}"):
        fetch(about(server), tmp_path)


def test_only_the_web_is_fetched_from(tmp_path):
    local = About("set", "", "", "", downloads=(Download("file:///etc/passwd", "set.bin"),))
    with pytest.raises(DataError, match="neither http nor https"):
        fetch(local, tmp_path)


def test_what_is_bundled_is_not_fetched(tmp_path):
    with pytest.raises(DataError, match="digits is not downloaded"):
        fetch("digits", tmp_path)


def tar_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_archives_are_unpacked_beside_themselves(server, tmp_path):
    server.content = tar_of(**{"set/a.bin": b"A", "set/deep/b.bin": b"B"})
    fetch(about(server, path="set.tar.gz", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.tar.gz", "set/a.bin", "set/deep/b.bin"]
    assert (tmp_path / "set/deep/b.bin").read_bytes() == b"B"


def test_zip_archives_too(server, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("set/a.txt", "A")
        archive.writestr("../outside.txt", "B")
    server.content = packed.getvalue()
    root = tmp_path / "root"
    fetch(about(server, path="set.zip", unpack=True), root)
    assert (root / "set/a.txt").read_text() == "A"
    assert all(name.startswith("root/") for name in files(tmp_path))


@pytest.mark.parametrize("name", ["../outside.bin", "../../outside.bin", "/absolute.bin"])
def test_archives_that_reach_outside_do_not(server, tmp_path, name):
    server.content = tar_of(**{"good.bin": b"A", name: b"B"})
    root = tmp_path / "root"
    try:
        fetch(about(server, path="set.tar.gz", unpack=True), root)
    except DataError as error:
        assert "cannot be unpacked" in str(error)  # noqa: PT017 (stripping a leading slash is as good)
    assert all(found.startswith("root/") for found in files(tmp_path))


def test_a_damaged_archive_leaves_no_half_file(server, tmp_path):
    whole = tar_of(**{"a.bin": hashlib.shake_128(b"noise").digest(100_000)})
    server.content = whole[: len(whole) // 2]
    with pytest.raises(DataError, match=r"set\.tar\.gz cannot be unpacked"):
        fetch(about(server, path="set.tar.gz", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.tar.gz"]


@pytest.mark.parametrize("length", ["abc", "-5", "9" * 5000, "²", "1e3"])
def test_a_length_that_is_no_number_is_told(server, tmp_path, length):
    server.length = length.encode().decode("latin-1")
    with pytest.raises(DataError, match=r"set\.bin cannot be had: the server says that '.{1,60}' bytes will come"):
        fetch(about(server), tmp_path)
    assert files(tmp_path) == []


def zip_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def changed(archive: bytes, local: int, central: int, value: int) -> bytes:
    """A zip archive of one file, with another number at these places of its two headers."""
    found, directory = bytearray(archive), archive.rindex(b"PK\x01\x02")
    struct.pack_into("<H", found, local, value)
    struct.pack_into("<H", found, directory + central, value)
    return bytes(found)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (changed(zip_of(a=b"A"), 6, 8, 1), "encrypted"),
        (changed(zip_of(a=b"A"), 8, 10, 99), "compression"),
        (zip_of(a=b"A", b=bytes(8 << 20)), "it holds more than 64 times its own size"),
        (zip_of(**{f"empty/{number}": b"" for number in range(3)})[:-30], "not a zip file"),
        (b"no archive", "not a zip file"),
    ],
)
def test_zip_archives_that_cannot_be_unpacked_leave_nothing(server, tmp_path, content, says):
    server.content = content
    with pytest.raises(DataError, match=rf"set\.zip cannot be unpacked: .*{says}"):
        fetch(about(server, path="set.zip", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.zip"]
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_tar_archives_of_far_more_than_their_size_leave_nothing(server, tmp_path):
    server.content = tar_of(**{"a.bin": b"A", "b.bin": bytes(8 << 20)})
    with pytest.raises(DataError, match=r"set\.tar\.gz cannot be unpacked: .*holds more than 64 times its own size"):
        fetch(about(server, path="set.tar.gz", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.tar.gz"]


def test_so_do_those_with_holes(server, tmp_path):
    server.content = with_holes("a.bin", 256 << 20)
    with pytest.raises(DataError, match=r"set\.tar\.gz cannot be unpacked: .*holds more than 64 times its own size"):
        fetch(about(server, path="set.tar.gz", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.tar.gz"]


@pytest.mark.parametrize("checksum", [None, ""])
def test_a_folder_where_the_file_should_be_is_named(server, tmp_path, checksum):
    (tmp_path / "sub" / "set.bin").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cannot read .*set\.bin: it is not a file, but a folder"):
        fetch(about(server, checksum), tmp_path)
    assert files(tmp_path) == []


def test_a_file_where_a_folder_is_unpacked_is_named_and_nothing_is_moved(server, tmp_path):
    (tmp_path / "set").write_text("mine")
    server.content = tar_of(**{"a.bin": b"A", "set/b.bin": b"B"})
    with pytest.raises(DataError, match=rf"{tmp_path / 'set'} is a file, but a folder of that name is to be unpacked"):
        fetch(about(server, path="set.tar.gz", unpack=True), tmp_path)
    assert files(tmp_path) == ["set", "set.tar.gz"]


def test_a_folder_where_a_file_is_unpacked_is_named_and_nothing_is_moved(server, tmp_path):
    (tmp_path / "z.bin").mkdir()
    server.content = zip_of(**{"a.bin": b"A", "z.bin": b"B"})
    with pytest.raises(
        DataError, match=rf"{tmp_path / 'z.bin'} is a folder, but a file of that name is to be unpacked"
    ):
        fetch(about(server, path="set.zip", unpack=True), tmp_path)
    assert files(tmp_path) == ["set.zip"]

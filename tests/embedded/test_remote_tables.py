"""Tables of object stores and web servers, read by their address through fsspec."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import fsspec
import pytest
from support import commands, tables
from support.listening import Quiet, listening
from support.waiting import until

from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded.feed import open_input
from stream_lsh.errors import InputError

FILES: dict[str, bytes] = {}
LEFT = [10**9]
"""Requests that are answered as a whole before the connection breaks."""

PUTS: list[str] = []
HOLDING = Event()
"""Set: objects are acknowledged at once."""
HOLDING.set()


class Handler(Quiet):
    """Parts of files, as object stores give them; after LEFT requests they end too early."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.lstrip("/").partition("?")[0]
        if name not in FILES:
            return self.send_error(404)
        data, status = FILES[name], 200
        begin, end = 0, len(data)
        if found := self.headers.get("Range"):
            first, _, last = found.removeprefix("bytes=").partition("-")
            begin, end, status = int(first), min(int(last or len(data)) + 1, len(data)), 206
        self.send_response(status)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hash(data)}"')
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            LEFT[0] -= 1
            self.wfile.write(data[begin : (begin + end) // 2 if LEFT[0] < 0 else end])

    def do_PUT(self) -> None:
        """Take an object as a whole; with HOLDING it is taken, and its sender waits for the answer."""
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        PUTS.append(self.path)
        FILES[self.path.lstrip("/")] = data
        HOLDING.wait(60)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def address() -> Iterator[str]:
    with listening(Handler) as url:
        yield url
    FILES.clear()
    PUTS.clear()
    HOLDING.set()
    LEFT[0] = 10**9


def ids(name: str, row: int = 0) -> list[bytes]:
    source = open_input(name, Fields())
    source.check()
    return [id for batch in source.batches(Position(row, row)) for id in batch.ids]


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_tables_of_a_web_server_are_read_from_any_row(tmp_path: Path, address: str, suffix: str) -> None:
    path = tables.write(tmp_path / f"feed{suffix}", tables.table(700))
    FILES[path.name] = path.read_bytes()
    assert ids(f"{address}/{path.name}?signature=abc", 333) == ids(str(path), 333)


def test_a_run_over_a_bucket_is_resumed_to_the_row_after_its_connection_broke(tmp_path: Path, address: str) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(700))
    FILES["feed.parquet"] = path.read_bytes()
    name, out = f"{address}/feed.parquet", tmp_path / "out.parquet"
    run = ("dedup", name, "--unique", out, "--index", tmp_path / "index", "-q")
    said = ""
    for requests in (0, 6, 10):
        LEFT[0] = requests
        said += commands.run(*run, code=4).stderr
    assert f"{name} cannot be read to its end" in said and "300 rows before it were read" in said
    LEFT[0] = 10**9
    commands.run(*run)
    commands.run(*run)  # it is read to its end
    assert tables.read(out).num_rows == 700 - 139
    FILES["feed.parquet"] = tables.write(path, tables.table(800)).read_bytes()
    assert "its rows are others now" in commands.run(*run, code=4).stderr


def test_an_object_store_in_memory(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(700))
    with fsspec.open("memory://bucket/feed.parquet", "wb") as file:
        file.write(path.read_bytes())
    assert ids("memory://bucket/feed.parquet", 301) == ids(str(path), 301)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_table_at_an_address_is_put_there_as_a_whole(tmp_path: Path, address: str, suffix: str) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(700))
    local, there = tmp_path / f"local{suffix}", f"{address}/unique{suffix}"
    beside = ("--unique", local, "--index", tmp_path / "local", "-q")
    commands.run("dedup", path, *beside)
    FILES[f"unique{suffix}"] = b"of another program"
    run = ("dedup", path, "--unique", there, "--index", tmp_path / "index", "-q")
    assert "has not put it there" in commands.run(*run, code=5).stderr
    del FILES[f"unique{suffix}"]
    for _ in range(2):
        commands.run(*run)
        assert FILES[f"unique{suffix}"] == local.read_bytes() and len(PUTS) == 1
    FILES[f"unique{suffix}"] = b"of another program"
    assert "has not put it there" in commands.run(*run, code=5).stderr
    commands.run(*run, "--overwrite")
    assert FILES[f"unique{suffix}"] == local.read_bytes()
    more = tables.write(tmp_path / "more.parquet", tables.table(900))
    commands.run("dedup", path, more, *run[2:])
    commands.run("dedup", path, more, *beside)
    (tmp_path / f"there{suffix}").write_bytes(FILES[f"unique{suffix}"])
    assert tables.read(tmp_path / f"there{suffix}").equals(tables.read(local)) and len(PUTS) == 3


def test_run_that_is_killed_while_it_puts_its_table_there(tmp_path: Path, address: str) -> None:
    path, local = tables.write(tmp_path / "feed.parquet", tables.table(700)), tmp_path / "local.parquet"
    commands.run("dedup", path, "--unique", local, "-q")
    words = ["dedup", str(path), "--unique", f"{address}/unique.parquet", "--index", str(tmp_path / "index"), "-q"]
    HOLDING.clear()
    process = subprocess.Popen([sys.executable, "-m", "stream_lsh", *words])
    until(lambda: PUTS)
    process.kill()
    process.wait()
    HOLDING.set()
    for _ in range(2):
        commands.run(*words)
        assert FILES["unique.parquet"] == local.read_bytes() and len(PUTS) == 2


def test_only_a_table_of_unique_has_an_address(tmp_path: Path) -> None:
    path = tables.write(tmp_path / "feed.parquet", tables.table(3))
    for option, name in (("--unique", "s3://b/unique.jsonl"), ("--verdicts", "s3://b/verdicts.parquet")):
        assert "only a table of --unique" in commands.run("dedup", path, option, name, code=2).stderr
    said = commands.run("dedup", path, "--unique", "http://127.0.0.1:9/unique.parquet", code=5).stderr
    assert "cannot write http://127.0.0.1:9/unique.parquet" in said


def test_what_an_address_cannot_be(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        ids(f"{address}/missing.parquet")
    with pytest.raises(InputError, match="only tables are read"):
        ids(f"{address}/feed.jsonl")
    assert "Protocol not known: nowhere" in commands.run("dedup", "nowhere://a.parquet", code=2).stderr
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert "pip install 'stream-lsh[remote]'" in commands.run("dedup", f"{address}/a.parquet", code=2).stderr

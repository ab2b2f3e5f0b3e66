"""Limits of connections: their number, headers, and slow bodies; and the parts of uvicorn that they override."""

import asyncio
import inspect
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn
from support.raw_clients import added, head, line, say, serving
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_lsh.serve.connection import HEADER_BYTES, PIPELINED, Connection
from stream_lsh.serve.interface import Limits

GET = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
LARGE = {
    "tiny headers": GET + b"a:b\r\n" * (HEADER_BYTES // 5) + b"\r\n",
    "a large header": GET + b"a: " + b"b" * HEADER_BYTES + b"\r\n\r\n",
    "a header without an end": GET + b"a: " + b"b" * HEADER_BYTES,
    "more than one read": GET + b"a: " + b"b" * (64 * HEADER_BYTES),
    "more tiny headers than one read": GET + b"a:b\r\n" * (8 * HEADER_BYTES),
    "a large address": b"GET /" + b"a" * HEADER_BYTES + b" HTTP/1.1\r\n\r\n",
}


async def test_large_headers_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, _):
        for name, request in LARGE.items():
            said, _, problem = (await say(port, request)).partition(b"\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 431 "), name
            assert json.loads(problem)["status"] == 431
            assert await added(port, name)


async def test_large_trailers_end_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, _):
        body = b"%x\r\n%b\r\n0\r\n" % (len(line("a")), line("a"))
        request = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + body
        await say(port, request, b"a:b\r\n" * HEADER_BYTES)  # returns only when the connection is closed
        assert await added(port, "honest")


def post(name: str) -> bytes:
    """A request that adds a document."""
    return head(len(line(name)), kind="application/json") + line(name)


@pytest.mark.parametrize(
    ("count", "last", "status"), [(PIPELINED + 5, b"", 429), (3, b"nonsense\r\n\r\n", 400)], ids=["many", "nonsense"]
)
async def test_requests_before_a_refused_one_are_answered_in_order(
    tmp_path: Path, count: int, last: bytes, status: int
) -> None:
    async with serving(tmp_path) as (port, service):
        answers = await say(port, b"".join(post(f"piped {n}") for n in range(count)) + last)
        begun = min(count, PIPELINED + 1)
        assert [int(seq) for seq in re.findall(rb'"seq":(\d+),"kind":"unique"', answers)] == list(range(begun))
        assert [int(said) for said in re.findall(rb"HTTP/1.1 (\d+)", answers)] == [200] * begun + [status]
        assert service.engine.seq == begun and await added(port, "honest")


async def test_refusals_of_the_server_are_counted_and_logged_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="stream_lsh.serve.requests")
    async with serving(tmp_path) as (port, service):
        for _ in range(3):
            await say(port, b"nonsense\r\n\r\n")
        assert service.tally.refused == 3
    said = [record.getMessage() for record in caplog.records if "status=400" in record.getMessage()]
    assert len(said) == 1 and "client=127.0.0.1" in said[0]


CODED = b"Transfer-Encoding: gzip, chunked"
AMBIGUOUS = {
    400: post("two hosts").replace(b"Host: localhost", b"Host: localhost\r\nHost: example.org"),
    501: head(0).replace(b"Content-Length: 0", CODED) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(line("a")), line("a")),
}


@pytest.mark.parametrize("status", AMBIGUOUS)
async def test_ambiguous_requests_are_refused(tmp_path: Path, status: int) -> None:
    async with serving(tmp_path) as (port, service):
        assert (await say(port, AMBIGUOUS[status])).startswith(b"HTTP/1.1 %d " % status)
        assert service.engine.seq == 0


async def test_idle_connections_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.serve.server.CONNECTIONS", 5)
    async with serving(tmp_path) as (port, _):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert b" 200 " in await say(port, GET + b"Connection: close\r\n\r\n")
        assert await added(port, "honest")
        assert await idle[0][0].read() == b""  # the oldest one is closed
        idle[-1][1].write(GET + b"Connection: close\r\n\r\n")
        assert b" 200 " in await idle[-1][0].read()
        for _, writer in idle:
            writer.close()


async def test_health_answers_while_all_connections_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.serve.server.CONNECTIONS", 5)
    async with serving(tmp_path) as (port, _):
        listeners = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, writer in listeners:
            writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in await say(port, GET + b"Connection: close\r\n\r\n")
        refused = await say(port, b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 503 " in refused and b"application/problem+json" in refused
        listeners[0][1].close()
        while not await added(port, "honest"):  # the server may not have noticed yet
            await asyncio.sleep(0.01)
        for _, writer in listeners:
            writer.close()


@pytest.mark.parametrize("path", ["/v1/documents", "/nowhere"])
async def test_trickled_bodies_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    async with serving(tmp_path) as (port, _):
        with monkeypatch.context() as patched:
            patched.setattr("stream_lsh.serve.connection.SILENT_SECONDS", 0.4)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head(10_000_000, path))
            with suppress(ConnectionError):
                while not writer.transport.is_closing():
                    writer.write(b"\n")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            writer.close()
        assert await added(port, "honest")


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_waiting_bytes_are_limited(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path, Limits(waiting_bytes=100_000)) as (port, service):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(200_000, kind=kind) + b'{"id": "' + b"x" * 90_000)  # a request alone may have more
        while service.intake.bytes < 90_000:
            await asyncio.sleep(0.01)
        answer = await say(port, head(200_000, kind=kind) + b'{"id": "' + b"x" * 90_000)
        assert b" 429 " in answer and b"retry-after: 1" in answer.lower()
        writer.close()
        while service.intake.bytes:
            await asyncio.sleep(0.01)
        assert await added(port, "honest")


def test_requests_are_answered_before_the_engine_is_imported() -> None:
    """`stream_lsh.serve.server` needs none of what takes long to import."""
    code = "import sys, stream_lsh.serve.server; print({'numba', 'numpy', 'fastapi', 'rocksdict'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


OVERRIDDEN = {
    "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing", "send_400_response",
    "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete",
}  # fmt: skip


def test_overridden_parts_of_uvicorn_are_as_expected() -> None:
    """A new version may rename what is overridden, or use a name of `Connection` for something else."""
    assert {name for name in vars(Connection) if name in vars(HttpToolsProtocol) and name[:2] != "__"} == OVERRIDDEN
    for name in OVERRIDDEN:
        theirs, mine = (inspect.signature(getattr(owner, name)) for owner in (HttpToolsProtocol, Connection))
        assert list(theirs.parameters) == list(mine.parameters), name
    assert "self.send_400_response(" in inspect.getsource(HttpToolsProtocol.data_received)
    assert "self.app_state.copy()" in inspect.getsource(HttpToolsProtocol.on_message_begin)
    assert "with self.capture_signals()" in inspect.getsource(uvicorn.Server.serve)
    theirs, mine = (
        set(re.findall(r"self\.(\w+)", inspect.getsource(owner))) for owner in (HttpToolsProtocol, Connection)
    )
    uses = {"transport", "loop"}
    assert theirs & mine - OVERRIDDEN == uses, "a name has another meaning in uvicorn, or is missing there"


async def test_a_request_that_is_cut_off_by_a_stop_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("server", "intake"):
        monkeypatch.setattr(f"stream_lsh.serve.{module}.STOP_SECONDS", -4)  # and five more until it is cut off
    async with serving(tmp_path) as (port, _):
        cut = asyncio.create_task(say(port, head(len(line("late")), kind="application/json") + b'{"id"'))
        await asyncio.sleep(0.3)
    said = await cut
    assert b" 503 " in said.partition(b"\r\n")[0] and b"the service is stopping" in said

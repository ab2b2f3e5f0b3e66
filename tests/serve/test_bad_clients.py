"""Clients that are slow, broken, or gone, and reads while documents are judged: no other client notices."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from operator import gt
from pathlib import Path
from typing import Any

import pytest
from support.poison import WORDS, poison
from support.raw_clients import added, head, line, say, serving, until
from support.waiting import PATIENCE

from stream_lsh.embedded.lines import Lines
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.progress import report
from stream_lsh.serve import intake
from stream_lsh.serve.address import Address, listen
from stream_lsh.serve.interface import MOST_COMPARISONS
from stream_lsh.serve.lines import one_line
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.service import Limits, Service
from stream_lsh.serve.work import Add, Check, Delete, joined
from stream_lsh.serve.writer import PART
from stream_lsh.settings.model import Settings

SILENT: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "half a line": (b"POST /v1/doc",),
    "drops of headers": (b"POST /v1/documents HTTP/1.1\r\nHost: lo", b"calhost\r\nX: ", b"y\r\n"),
    "half a body of lines": (head(1000) + line("half"),),
    "half a document": (head(1000, kind="application/json") + b'{"id": ',),
}


async def test_a_client_that_stops_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as (port, service):
        with monkeypatch.context() as patched:  # an honest one may be slow, as may the machine
            patched.setattr("stream_lsh.serve.connection.HEADER_SECONDS", 0.3)
            patched.setattr("stream_lsh.serve.connection.SILENT_SECONDS", 0.3)
            await asyncio.gather(*(say(port, *pieces, pause=0.15) for pieces in SILENT.values()))  # all come to an end
        assert await added(port, "honest")
        await until(lambda: not service.intake.taken)


@pytest.mark.long
async def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In which what was sent before is judged on, on a slow machine.
    monkeypatch.setattr("stream_lsh.serve.connection.SILENT_SECONDS", 3)
    async with serving(tmp_path) as (port, service):
        body = b'{"id": "%b", "text": "some text"}\n' % (b"x" * 4000) * 4000  # its answers are more than sockets hold
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(head(len(body)) + body)
        await writer.drain()  # all was read, though no answer was taken
        await until(lambda: not service.intake.taken and service.engine.seq == 4000)
        assert await added(port, "honest")
        writer.close()
        assert service.engine.seq == 4001


async def test_documents_sent_before_a_client_disconnects_are_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, service):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(100_000) + line("one") + line("two") + b'{"id": "thr')
        await writer.drain()
        await until(lambda: service.engine.seq == 2)
        writer.transport.abort()
        await until(lambda: not service.intake.taken)
        assert await added(port, "honest")
    assert service.engine.seq == 3


async def test_what_is_not_in_memory_of_a_request_does_not_count(tmp_path: Path) -> None:
    async with serving(tmp_path, max_document_bytes=1 << 12) as (port, service):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(16 << 20) + b"\n" * (4 << 20) + b"x" * (4 << 20) + b"\n" + line("one"))
        await until(lambda: service.engine.seq == 2)  # the line that is too large, and one
        assert service.intake.taken and service.intake.bytes < 2 << 20
        writer.transport.abort()


NONSENSE: list[tuple[bytes, int]] = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (head("x"), 400),
    (head(10**9), 413),
    (head(10**9, kind="application/json"), 413),
    (head(2000, kind="application/json") + b"[" * 2000, 422),
    (head(9, kind="application/json") + b'{"id":"\xff"', 422),
    (head(20 * len(line("a"))) + line("a") * 20, 413),
    (b"GET /v1/documents/%00%ff%fe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
    (b"GET /page/../../server.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
    (b"GET /page/%2e%2e/server.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
]


async def test_nonsense_gets_an_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(request_documents=10)) as (port, _):
        for request, status in NONSENSE:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert (await reader.readline()).split(b" ")[1] == b"%d" % status, request
            writer.close()
            assert await added(port, "honest")


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
async def test_a_body_without_an_end_is_cut_off(tmp_path: Path, kind: str) -> None:
    """It says no length, so only what came counts; of a million lines the whole ones of the beginning are taken."""
    async with serving(tmp_path, Limits(body_bytes=1 << 20), max_document_bytes=1 << 19) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(0, kind=kind).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        sent, block = 0, (b" " * 4095 + b"\n") * 16
        with suppress(ConnectionError):
            while sent < 1 << 30:
                writer.write(b"%x\r\n%b\r\n" % (len(block), block))
                await writer.drain()
                sent += len(block)
        assert sent < 64 << 20  # what sockets hold, and a limit of 1 MiB
        with suppress(ConnectionError):
            assert b" 413 " in await reader.readline()
        writer.close()
        assert await added(port, "honest")


@pytest.mark.long
async def test_nothing_is_left_of_disconnected_clients(tmp_path: Path) -> None:
    """In the middle of lines, of a document, of headers, of events."""
    pieces = [
        head(100_000) + line("a") * 3 + b'{"id": "b', head(1000, kind="application/json") + b'{"id": "b',
        b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT", b"",
    ]  # fmt: skip

    async def leave(port: int, piece: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(piece)
        await writer.drain()
        if b"events" in piece:
            await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    def held(service: Service) -> tuple[int, int, int]:
        gc.collect()
        files = len(list(Path("/proc/self/fd").iterdir()))
        return len(asyncio.all_tasks()), files, len(gc.get_objects()) - service.engine.seq

    async with serving(tmp_path) as (port, service):

        async def crowd(n: int, most: Sequence[float]) -> tuple[int, int, int]:
            """What is held once no more than this is, or it does not get less any more."""
            for _ in range(n):
                await asyncio.gather(*(leave(port, piece) for piece in pieces * 4))
            assert await added(port, "honest")
            end = time.monotonic() + PATIENCE
            await until(lambda: not (service.intake.taken or service.writer.waiting or service.ring.listeners))
            while any(map(gt, found := held(service), most)) and time.monotonic() < end:
                await asyncio.sleep(0.1)
            return found

        tasks = held(service)[0]
        _, files, objects = await crowd(5, (tasks, inf, inf))
        # A thousand clients; events are kept, so many at most.
        after = await crowd(50, most := (tasks, files + 2, objects + 1000))
        assert not any(map(gt, after, most)), (after, most)


async def test_too_many_waiting_clients_are_sent_away(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(waiting_documents=5)) as (port, service):
        service.writer.waiting += 5
        answer = await say(port, head(len(line("a")), kind="application/json").replace(
            b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + line("a"))  # fmt: skip
        assert b" 429 " in answer and b"retry-after: 1" in answer.lower()
        service.writer.waiting -= 5
        assert await added(port, "a")
    assert service.engine.seq == 1


async def test_no_request_waits_for_compiling_or_closing(tmp_path: Path) -> None:
    service = Service(Settings(), tmp_path / "index")
    with pytest.raises(Problem, match="the service is starting") as problem:
        service.intake.admit()
    assert problem.value.status == 503
    with pytest.raises(StreamLshError, match="the service is starting"):
        await service.stats(1)
    await service.stop()  # before it has started
    with pytest.raises(Problem, match="the service is stopping"):
        service.intake.admit()


async def test_requests_while_an_index_opens_get_retry_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stream_lsh.serve import server

    reported, opened, warming, warm = threading.Event(), threading.Event(), threading.Event(), threading.Event()

    def service_of(failed: Callable[[BaseException], None]) -> Service:
        report("rebuilding", 1, 2, "rows")
        reported.set()
        assert opened.wait(PATIENCE)
        return Service(Settings(), tmp_path / "index", failed=failed)

    def warm_up(*_: object) -> None:
        warming.set()
        assert warm.wait(PATIENCE)

    monkeypatch.setattr("stream_lsh.serve.service.warm_up", warm_up)
    (listening, address), stop, started = listen(Address(port=0)), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(service_of, address, listening, stop, lambda _: started.set()))

    async def get(path: str) -> bytes:
        return await say(address.port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())

    await asyncio.to_thread(reported.wait, PATIENCE)
    for path in ("/v1/stats", "/health/ready", "/v1/documents/a"):
        answer = await get(path)
        assert b" 503 " in answer and b"retry-after: 1" in answer and b'"health": "starting"' in answer
        assert b'"progress": {"name": "rebuilding", "done": 1, "all": 2, "unit": "rows"}' in answer
    assert b" 200 " in await get("/health/live")
    assert b" 503 " in (page := await get("/")) and b"refresh: 1" in page
    opened.set()
    await asyncio.to_thread(warming.wait, PATIENCE)
    for path in ("/v1/stats", "/health/ready", "/v1/documents/a"):
        assert b" 503 " in await get(path)
    assert b'kernels", "done": ' in await get("/health/ready")
    warm.set()
    await started.wait()
    assert b'{"status":"ready"}' in await get("/health/ready")
    assert b" 404 " in await get("/v1/documents/a")
    stop.set()
    await running


async def test_an_index_that_cannot_be_opened_ends_the_service(tmp_path: Path) -> None:
    from stream_lsh.serve import server

    def service_of(failed: Callable[[BaseException], None]) -> Service:
        return Service(Settings(id_field="@line"), tmp_path / "index", failed=failed)

    listening, address = listen(Address(port=0))
    with pytest.raises(UsageError, match="documents over HTTP have no line numbers"):
        await server.run(service_of, address, listening, asyncio.Event(), lambda _: None)


async def test_a_document_that_the_engine_fails_on_is_answered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch)
    async with serving(tmp_path) as (port, service):
        odd = json.dumps({"id": "odd", "text": WORDS}).encode()
        body = line("a") + odd + b"\n" + line("b")
        close = b"Connection: close\r\n\r\n"
        answer = await say(port, head(len(body)).replace(b"\r\n\r\n", b"\r\n" + close) + body)
        kinds = [json.loads(found)["kind"] for found in answer.splitlines() if found.startswith(b'{"id')]
        assert kinds == ["unique", "rejected", "unique"] and b'"reason":"engine_error"' in answer
        for path in ("/v1/documents", "/v1/check"):
            asked = head(len(odd), path, "application/json").replace(b"\r\n\r\n", b"\r\n" + close)
            said, _, problem = (await say(port, asked + odd)).partition(b"\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 422 ")
            assert json.loads(problem)["verdict"]["reason"] == "engine_error"
        assert await added(port, "honest")
        assert b'stream_lsh_serve_rejected_total{reason="engine_error"} 2.0' in service.tally.exposition


def lines(*ids: str) -> Lines:
    return joined([one_line(json.dumps({"id": id, "text": f"a text of {id} alone " * 3}).encode()) for id in ids])


async def test_reads_do_not_wait_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered between its parts. A document of the import is shown after the commit, never before."""
    service = Service(Settings(on_conflict="update"), tmp_path / "index")
    await service.start()
    await service.answer(Add(lines("old", "other")))
    assert (await service.document("other"))["seq"] == 1  # reads are expected from now on
    began, asked, read = asyncio.Event(), threading.Event(), threading.Event()
    loop, add, parts = asyncio.get_running_loop(), service.engine.add, 0

    def slow(*given: Any, **named: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts == 2:
            loop.call_soon_threadsafe(began.set)
            assert asked.wait(PATIENCE)
        if parts == 3:
            assert read.wait(PATIENCE)
        return add(*given, **named)

    monkeypatch.setattr(service.engine, "add", slow)
    ids = ["other", *(f"d{i}" for i in range(3 * PART))]
    adding = asyncio.create_task(service.answer(Add(lines(*ids))))
    await began.wait()
    wanted = (service.document("old"), service.answer(Check(lines("old"))), service.stats(1))
    reads = [asyncio.create_task(each) for each in wanted]
    early = [asyncio.create_task(service.document(id)) for id in ("d0", "other")]
    await asyncio.sleep(0)  # all of them begin
    asked.set()
    document, check, _ = await asyncio.gather(*reads)
    assert document["seq"] == 0 and json.loads(check.lines[0])["kind"] == "redelivered"
    assert not any(task.done() for task in early), "they are of the import"
    read.set()
    assert [found["seq"] for found in await asyncio.gather(*early)] == [3, 1]
    assert service.engine.index.store.named("job")["next_seq"] == 2 + len(ids)
    await adding
    await service.answer(Delete(["d0"]))
    with pytest.raises(Problem, match="there is no document"):
        await service.document("d0")
    await service.stop()


async def test_reads_have_a_limit_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(Settings(), tmp_path / "index")
    await service.start()
    service.writer.waiting += service.limits.waiting_documents
    with pytest.raises(Problem, match="documents wait for their verdicts") as refused:
        service.intake.admit()
    service.intake.admit_read()
    monkeypatch.setattr(intake, "MOST_READS", 1)
    service.writer.reading += 1
    with pytest.raises(Problem, match="1 reads wait for their answers") as refused:
        service.intake.admit_read()
    assert refused.value.status == 429
    service.writer.waiting = 0
    service.intake.admit()
    await service.stop()


async def test_comparisons_are_made_one_at_a_time_and_few_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(Settings(), tmp_path / "index")
    await service.start()
    await service.answer(Add(lines("a", "b")))
    release, compare, under_way = threading.Event(), service._compare, 0

    def slow(*given: Any, **named: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert release.wait(PATIENCE) and under_way == 1
        under_way -= 1
        return compare(*given)

    monkeypatch.setattr(service, "_compare", slow)
    asked = [asyncio.create_task(service.compared("a", "b")) for _ in range(MOST_COMPARISONS)]
    await asyncio.sleep(0)  # all of them have their places
    with pytest.raises(Problem, match="8 comparisons wait already") as refused:
        await service.compared("a", "b")
    assert refused.value.status == 429 and service.tally.refused == 1
    release.set()
    assert {found["a"]["id"] for found in await asyncio.gather(*asked)} == {"a"}
    await service.compared("a", "b")
    await service.stop()

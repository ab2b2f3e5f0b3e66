"""A full disk: documents are refused with 507, reading goes on, and writing too once there is room."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.raw_clients import added, head, line, say, serving

from stream_lsh.embedded.erasure import erasure
from stream_lsh.embedded.stored_answers import RETRIES
from stream_lsh.index.store.errors import output_error
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.serve.disk import FREE, RESERVE
from stream_lsh.serve.interface import Limits

RESERVED = 1024
CLOSE = b"\r\nConnection: close\r\n\r\n"


async def post(port: int, name: str, path: str = "/v1/documents", key: str = "") -> bytes:
    end = f"\r\nIdempotency-Key: {key}".encode() + CLOSE if key else CLOSE
    request = head(len(line(name)), path, "application/json").replace(b"\r\n\r\n", end)
    return await say(port, request + line(name))


async def there(port: int, name: str) -> bool:
    return b" 200 " in await say(port, f"GET /v1/documents/{name} HTTP/1.1\r\nHost: localhost".encode() + CLOSE)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the free bytes of every disk."""

    def set_free(size: int) -> None:
        monkeypatch.setattr(
            "stream_lsh.serve.disk.os.statvfs", lambda _: SimpleNamespace(f_bavail=size, f_frsize=1)
        )  # fmt: skip

    monkeypatch.setattr("stream_lsh.serve.disk.CHECK_SECONDS", -1)
    set_free(2 * RESERVED)
    return set_free


async def test_without_room_writes_get_507_and_reads_go_on(tmp_path: Path, free: Callable[[int], None]) -> None:
    async with serving(tmp_path, Limits(free_bytes=RESERVED)) as (port, service):
        assert await added(port, "before")
        free(RESERVED - 1)
        said, _, problem = (await post(port, "late")).partition(b"\r\n\r\n")
        assert b" 507 " in said and "make room" in json.loads(problem)["detail"]
        assert await there(port, "before") and b" 200 " in await post(port, "late", "/v1/check")
        for name, size in ((FREE, 1023), (RESERVE, 1024)):
            assert f"\nstream_lsh_{name} {size}.0\n".encode() in service.tally.exposition
        free(RESERVED)
        assert await added(port, "late")


async def test_a_failed_commit_loses_nothing_and_is_not_the_end(
    tmp_path: Path, free: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(store: Store, *_: object, **__: object) -> None:
        raise output_error(store.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    async with serving(tmp_path, Limits(free_bytes=RESERVED)) as (port, service):
        assert b" 200 " in await post(port, "before", key="first")
        with monkeypatch.context() as patched:
            patched.setattr(Store, "write", write)
            assert b" 507 " in await post(port, "late")
            for _ in range(2):
                assert await there(port, "before") and not await there(port, "late")
                assert b" 507 " in await post(port, "late")
            assert service.engine.index.read_only
        monkeypatch.setattr("stream_lsh.serve.disk.Disk.full", False)
        assert b" 200 " in await post(port, "before", key="first")  # the answer that is stored
        assert await added(port, "late")
        assert await there(port, "before")
        assert service.engine.seq == 2


async def test_reads_do_not_keep_an_idle_service_from_erasing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.serve.writer.IDLE_SECONDS", 0.05)
    async with serving(tmp_path, on_conflict="update", erase_hours=0) as (port, service):
        assert b" 200 " in await post(port, "gone", key="first") and await added(port, "kept")
        request = b"DELETE /v1/documents/gone HTTP/1.1\r\nHost: localhost" + CLOSE
        assert b" 200 " in await say(port, request)
        while (left := erasure(service.engine.index.store)).waiting or not left.erased:
            assert await there(port, "kept")
        assert not list(service.engine.index.store.names(RETRIES)), "an answer names the erased id"


async def test_a_service_starts_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as (port, _):
        assert await added(port, "before")

    def open(*_: object, **__: object) -> None:
        raise output_error(tmp_path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    monkeypatch.setattr("stream_lsh.serve.service.Engine.open", open)
    async with serving(tmp_path) as (port, service):
        assert await there(port, "before") and b" 507 " in await post(port, "late")
        assert service.keeps_groups

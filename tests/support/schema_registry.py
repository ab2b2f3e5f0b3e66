"""A Schema Registry in Confluent's protocol, on loopback, that can also misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any

from support.listening import Quiet

CRIME: dict[str, Any] = {
    "redirect": (302, b""), "failure": (500, b"{}"), "page": (200, b"<html>"), "list": (200, b"[]"),
    "number": (200, b'{"schema":1}'), "login": (401, b'{"message":"no"}'), "busy": (429, b""),
    "no page": (404, b"<html>"), "no path": (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
    "no object": (404, b"[40403]"), "no code": (404, b'{"error_code":[]}'),
}  # fmt: skip
"""Answers that are no schema, by the value of `Server.crime`. Besides: "endless", "slow", "silent", "drip"."""


REFUSALS: dict[str, Any] = {
    "incompatible": (409, b'{"error_code":409,"message":"Schema being registered is incompatible"}'),
    "forbidden": (403, b'{"error_code":40301,"message":"User is denied"}'),
}  # fmt: skip
"""Answers to who registers a schema, by the value of `Server.crime`."""


class Server(ThreadingHTTPServer):
    """schemas: answers by id; subjects: by subject and version; registered: ids by subject and schema; crime: how it
    misbehaves, "" = not at all; got: paths and headers of requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.registered: dict[tuple[str, str], int] = {}
        self.crime = ""
        self.got: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(Quiet):
    server: Server

    def do_GET(self) -> None:
        self.server.got.append((self.path, dict(self.headers)))
        with suppress(OSError):
            self._answer(self.server.crime)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.crime in CRIME | REFUSALS:
            self._send(*(CRIME | REFUSALS)[self.server.crime])
            return
        place, schema = self.path.split("/"), json.loads(body)["schema"]
        assert (place[1], place[3:]) == ("subjects", ["versions"])
        id = self.server.registered.setdefault((place[2], schema), 1000 + len(self.server.registered))
        self.server.schemas[id] = {"schema": schema}
        self._send(200, b'{"id":%d}' % id)

    def _answer(self, crime: str) -> None:
        if crime in CRIME:
            self._send(*CRIME[crime])
        elif crime in ("endless", "slow", "silent", "drip"):
            end = time.monotonic() + 60
            if crime in ("endless", "slow"):
                self.send_response(200)
                self.end_headers()
            while crime != "silent" and time.monotonic() < end:
                self.wfile.write(b"x" * (1 if crime != "endless" else 1 << 20))
                time.sleep(0 if crime == "endless" else 0.05)
        else:
            path = self.path.partition("?")[0].split("/")[1:]
            found = None
            if path[0] == "schemas":
                found = self.server.schemas.get(int(path[2]))
            elif path[0] == "subjects":
                found = self.server.subjects.get((path[1], int(path[3])))
            missing = (404, b'{"error_code":40403,"message":"Schema not found"}')
            self._send(*(missing if found is None else (200, json.dumps(found).encode())))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", "/schemas/ids/1")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def schema_registry() -> Iterator[Server]:
    """A registry without schemas."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def encoded(id: int, value: bytes) -> bytes:
    """A value with the head that names its schema."""
    return b"\0" + id.to_bytes(4) + value

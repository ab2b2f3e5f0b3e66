"""A service in a process of its own, and clients for it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from stream_lsh.hashing import notice
from support.waiting import PATIENCE

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


class Serving:
    """`stream-lsh serve` as a process, of an index, or with --kafka; `with` ends it by SIGTERM."""

    def __init__(self, state: Path | None, *options: str) -> None:
        self.state = state
        self._options = options
        # Nobody else gets the port, also while nobody listens there: it is bound here for as long as this lives.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.client = httpx.Client()
        self.start()

    def start(self) -> None:
        """Begin, also once more after an end."""
        command = [sys.executable, "-m", "stream_lsh", "serve", "--port", str(self._held.getsockname()[1])]
        command += ["--kafka"] if self.state is None else ["--index", str(self.state)]
        self.process = subprocess.Popen([*command, *self._options], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = ""
        while (found := re.search(r"(https?://\S+) serves", said)) is None:  # perhaps it compiles first, and says so
            said += (line := self.process.stderr.readline())
            assert line, said
        self.said = said
        self._rest: list[str] = []
        self._reading = threading.Thread(target=self._rest.extend, args=(self.process.stderr,), daemon=True)
        self._reading.start()
        self.url = found[1]
        self.client.close()
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def add(self, document: dict[str, Any], **query: str) -> dict[str, Any]:
        """The answer to one document."""
        answer = self.client.post("/v1/documents", headers=JSON, content=json.dumps(document), params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add_all(self, documents: Iterable[dict[str, Any]], path: str = "/v1/documents") -> list[dict[str, Any]]:
        """The answers to many."""
        body = "".join(json.dumps(document) + "\n" for document in documents)
        answer = self.client.post(path, headers=NDJSON, content=body.encode())
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it by a signal: its exit code, and what it said."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout=PATIENCE)
        self._reading.join(timeout=PATIENCE)
        return code, "".join(self._rest)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            code, errors = self.stop()
            unexpected = [
                line for line in errors.splitlines() if not line.endswith(EXPECTED) and " request=" not in line
            ]
            assert (code, unexpected) == (0, []), errors
        self.client.close()
        self._held.close()


EXPECTED = (notice.TEXT, "It is tried again")
"""How lines end that may be written to standard error: kernels are compiled, a busy broker is asked again."""


@contextmanager
def demo(*options: str) -> Iterator[str]:
    """`stream-lsh demo --serve` as a process, which SIGTERM ends: where its page is."""
    command = [sys.executable, "-m", "stream_lsh", "demo", "--serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = ""
            while (found := re.search(r"open (http://\S+)", said)) is None:  # perhaps it compiles first, and says so
                said += (line := process.stderr.readline())
                assert line, said
            yield found[1]
        finally:
            process.terminate()
        assert (process.wait(timeout=PATIENCE), process.stderr.read()) == (0, "")


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events, of the lines of an answer; those without data are left out, but for their ids."""
    event: dict[str, Any] = {}
    for line in lines:
        if not line:
            if event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


def entry(name: str, token: str, *permissions: str) -> str:
    """A token in a tokens file."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'[{name}]\nsha256 = "{digest}"\npermissions = [{", ".join(map(repr, permissions))}]\n'


def write(path: Path, text: str) -> None:
    """Replace a file, as an editor does: a new one in its place."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)

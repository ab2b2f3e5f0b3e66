"""The command line next to a running service: changes and backups go through the service, over a socket in the index
folder. Every process that may write there can open it. Imports nothing of the service."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from stream_lsh.errors import OutputError, StoreError

SOCKET = "serve.sock"
BATCH = 2048
SECONDS = 600.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def is_served(folder: Path) -> bool:
    """Whether a service uses the index in a folder."""
    connection = _Connection(folder / SOCKET)
    try:
        connection.connect()
    except OSError:
        return False
    connection.close()
    return True


def delete(ids: Iterable[str | int], folder: Path) -> Iterator[bytes]:
    """Delete documents from the index of a service. Yields the results as JSON lines, as soon as they are committed.

    Raises:
        StoreError: the service refuses.
        OutputError: the connection was lost. Results so far are committed.
    """
    connection, iterator = _Connection(folder / SOCKET), iter(ids)
    try:
        while some := list(islice(iterator, BATCH)):
            yield from _delete(connection, some)
    except (OSError, http.client.HTTPException) as error:
        raise OutputError(
            f"the service of the index in {folder} closed the connection ({error!r}): the documents listed so "
            "far are deleted; check whether it runs, and delete the others again"
        ) from None
    finally:
        connection.close()


def ask(folder: Path, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the service of an index.

    Raises:
        StoreError: no service has the index, or it refuses. OutputError: the connection was lost.
    """
    connection = _Connection(folder / SOCKET)
    try:
        connection.connect()
    except OSError:
        raise StoreError(f"no service has the index in {folder}: start stream-lsh serve --index {folder}") from None
    try:
        data = None if body is None else json.dumps(body).encode("ascii")
        connection.request(method, path, data, {} if data is None else {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OutputError(f"the service of the index in {folder} closed the connection ({error!r})") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise StoreError(f"the service of the index in {folder} refuses: {found.get('detail')}")
    return found


def backup(folder: Path, destination: Path) -> tuple[int, int]:
    """Have a service make a backup of its index at an absolute path. Returns its `next_seq` and its bytes. Raises as
    `ask`."""
    said = ask(folder, "POST", "/v1/backups", {"folder": str(destination)})
    return said["next_seq"], said["bytes"]


def _delete(connection: _Connection, ids: Sequence[str | int]) -> Iterator[bytes]:
    body = "".join(json.dumps(id) + "\n" for id in ids).encode("ascii")
    connection.request("POST", "/v1/deletions", body, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise StoreError(json.loads(answer.read())["detail"])
    for line in answer.read().splitlines(keepends=True):
        if line.startswith(b'{"problem":'):
            raise StoreError(json.loads(line)["problem"]["detail"])
        yield line

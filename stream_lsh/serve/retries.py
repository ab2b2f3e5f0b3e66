"""Answers under idempotency keys: a request that is repeated gets the answer of the first one."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_lsh.documents.columns import Rejection
from stream_lsh.embedded.stored_answers import RETRIES
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.serve.problems import Problem

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
HOURS = 24.0
LEAST_HOURS = 1 / 6
MOST_ANSWERS = 100_000  # a request of lines has one for each of its parts
MOST_BYTES = 64 << 20
_REJECTED = b'"kind":"rejected"'


@dataclass(frozen=True, slots=True)
class Retry:
    """The key of a request, or of a part of it.

    Attributes:
        name: of the key and its client.
        request: hash of the request, which is the same when it is repeated.
        part: number of the part of a request of many lines.
    """

    name: str
    request: str
    part: int = 0

    @classmethod
    def of(cls, key: str, client: str, *request: bytes) -> Retry:
        """That of a key. client: what identifies the client; keys of two clients never meet. request: its method, its
        address and its body.

        Raises:
            Problem: the key is empty, or longer than 255 characters.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise Problem(422, f"{HEADER}: give 1 to {LONGEST_KEY} characters", field=HEADER)
        hashed = hashlib.blake2b(digest_size=16)
        for piece in request:
            hashed.update(b"%d:%b" % (len(piece), piece))
        name = hashlib.blake2b(f"{client}\0{key}".encode("utf-8", "surrogatepass"), digest_size=16)
        return cls(name.hexdigest(), hashed.hexdigest())

    def check(self, request: str) -> None:
        """Raise Problem if the key was used with another request."""
        if request != self.request:
            raise Problem(
                422, f"the {HEADER} was used for another request, with another method, address or body",
                code="idempotency_key_reused", field=HEADER,
            )  # fmt: skip


@dataclass(slots=True)
class _Entry:
    at: float
    request: str
    size: int


class Retries:
    """The answers under keys of an index. They are committed together with their documents. For one thread.

    An answer is kept for 24 hours, or for `erase_hours` if that is less, but at least for ten minutes. The oldest ones
    are dropped above 100,000 answers or 64 MiB.

    Args:
        store: of the index.
        erase_hours: of its settings.
        now: seconds since 1970.
    """

    def __init__(self, store: Store, erase_hours: float | None, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._seconds = 3600 * max(LEAST_HOURS, min(HOURS, HOURS if erase_hours is None else erase_hours))
        found = ((name, value) for name, value in store.items(RETRIES))
        entries = {name: _Entry(value["at"], value["request"], _size(value["lines"])) for name, value in found}
        self._entries = OrderedDict(sorted(entries.items(), key=lambda entry: entry[1].at))
        self._bytes = sum(entry.size for entry in entries.values())
        self._added: dict[str, Any] = {}
        self._dropped: set[str] = set()

    def answer(self, retry: Retry) -> list[bytes] | None:
        """The lines of the first answer; None if there was none.

        Raises:
            Problem: the key was used with another request.
        """
        name = _name(retry)
        if (entry := self._entries.get(name)) is None:
            return None
        retry.check(entry.request)
        known = self._added.get(name) or self._store.named(name)
        return None if known is None else [line.encode() for line in known["lines"]]

    def add(self, retry: Retry, lines: Sequence[bytes]) -> None:
        """Keep an answer from the next commit on."""
        name, at = _name(retry), self._now()
        said = [line.decode() for line in lines]
        self._entries[name] = _Entry(at, retry.request, size := _size(said))
        self._bytes += size
        self._added[name] = {"at": at, "request": retry.request, "lines": said}
        self._dropped.discard(name)

    @property
    def due(self) -> bool:
        """Whether answers have to be dropped."""
        first = next(iter(self._entries.values()), None)
        return first is not None and (
            first.at <= self._now() - self._seconds or len(self._entries) > MOST_ANSWERS or self._bytes > MOST_BYTES
        )

    def take(self) -> tuple[Mapping[str, Any], Mapping[bytes, bytes | None]]:
        """What the next commit writes: facts by name, and deleted keys of the store."""
        while self.due:
            name, entry = self._entries.popitem(last=False)
            self._bytes -= entry.size
            self._added.pop(name, None)
            self._dropped.add(name)
        added, dropped = self._added, self._dropped
        self._added, self._dropped = {}, set()
        return added, {name_key(name): None for name in dropped}


def rejections(lines: Sequence[bytes]) -> dict[int, Rejection]:
    """Why documents were rejected, by the positions of their answers."""
    found = {i: json.loads(line) for i, line in enumerate(lines) if _REJECTED in line}
    return {i: Rejection(said["reason"], said["detail"]) for i, said in found.items() if said.get("kind") == "rejected"}


def _name(retry: Retry) -> str:
    return f"{RETRIES}{retry.name}/{retry.part}"


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines))

"""The service behind the HTTP API: an index in this process, or a pipeline on Kafka; and the turns of costly reads."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from stream_lsh import progress
from stream_lsh.documents.fields import id_text
from stream_lsh.embedded.backups import Backup
from stream_lsh.embedded.group_query import GroupQuery, MemberQuery, Page
from stream_lsh.progress import Step
from stream_lsh.serve.counts import Tally
from stream_lsh.serve.disk import Disk
from stream_lsh.serve.events import Place, Ring, written
from stream_lsh.serve.headline import Headline
from stream_lsh.serve.intake import Intake
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.proxies import Network
from stream_lsh.serve.tokens import Tokens
from stream_lsh.serve.webhooks import Webhooks
from stream_lsh.serve.work import Add, Answers, Check, Delete
from stream_lsh.settings.model import Settings

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """The turns of one kind of work. Used in the event loop.

    Args:
        what: the work, for messages: a plural.
        most: requests that may wait, the one in progress included.
        crowded: the problem for a request above that.
    """

    def __init__(self, what: str, most: int, crowded: Callable[[str], Problem]) -> None:
        self._what = what
        self._most = most
        self._crowded = crowded
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, what)

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among those that wait, for one request. Raises Problem if there is none."""
        if self._waiting >= self._most:
            raise self._crowded(f"{self._waiting:,} {self._what} wait already, and one is made at a time")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of some work, in its turn."""
        return await asyncio.wrap_future(self.submit(work, *args, **named))

    def submit(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Work in its turn, for which no request waits."""
        return self._thread.submit(work, *args, **named)

    def close(self) -> None:
        """End the thread, after the work in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)


MOST_TABLES, MOST_COMPARISONS = 64, 8  # requests for one that may wait


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients."""

    body_bytes: int = 64 << 20
    request_documents: int = 100_000
    waiting_documents: int = 20_000  # above that requests are refused
    kept_events: int = 65_536
    origins: tuple[str, ...] = ()  # of pages that may use the service from a browser
    hosts: tuple[str, ...] = ()  # names in Host headers, beside those of loopback; with tokens () = any
    proxies: tuple[Network, ...] = ()  # trusted ones
    answer_seconds: float = 10.0  # time limit for a verdict of a pipeline
    free_bytes: int = 256 << 20  # of the index's disk; below that writes are refused
    waiting_bytes: int = 256 << 20  # of bodies and answers in memory; above that requests are refused


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RaisedAlert:
    """An alert. cursor: its place among all. raised: ms since 1970; None if it is not known. line: JSON."""

    cursor: str
    raised: int | None
    line: bytes

    @property
    def json(self) -> bytes:
        raised = b"null" if self.raised is None else b"%d" % self.raised
        return b'{"cursor":"%b","raised":%b,"alert":%b}' % (self.cursor.encode(), raised, self.line)


class Interface(ABC):
    """A service without HTTP. It is created before its event loop, and used in it.

    Args:
        begin: seq of the next document. seq, waiting: the same at any time, and the number of documents without an
            answer. limits: for clients. failed: called with the error after which the service cannot continue.

    Attributes:
        intake: admission of documents.
        socket: for the command line; None if it does not need one.
        backups: folder of backups; None if it has none.
        disk: of the index; None if there is none.
        keeps_groups: whether there are groups.
        event_sources: whether the sources of the documents that cause events are known.
        tables, comparisons: turns of requests for tables of groups, and of comparisons.
        webhooks: the receivers of its alerts; None if it has none.
    """

    socket: Path | None = None
    disk: Disk | None = None
    webhooks: Webhooks | None = None
    backups: Path | None = None
    keeps_groups: bool
    event_sources = False

    def __init__(
        self, settings: Settings, begin: int, seq: Callable[[], int], waiting: Callable[[], int],
        tokens: Tokens | None, limits: Limits, failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.limits = limits
        self.tokens = tokens
        self.ring = Ring(begin, limits.kept_events)
        self.tally = Tally(seq, waiting, lambda: self.ring.listeners)
        self.tally.gauge(
            "serve_waiting_bytes", "Bytes of bodies and unsent answers in memory.", lambda: self.intake.bytes
        )
        self.intake = Intake(self.tally, waiting, limits.waiting_documents, limits.waiting_bytes, self._why_not)
        self.tables = Turns("tables of groups", MOST_TABLES, self.intake.crowded)
        self.comparisons = Turns("comparisons", MOST_COMPARISONS, self.intake.crowded)
        self._waits = waiting
        self._failed = failed

    @abstractmethod
    def _why_not(self) -> str:
        """Why no documents are accepted, if the service is not stopping."""

    @property
    def progress(self) -> Step | None:
        """What the start waits for, and how far it is. None after the start."""
        return progress.now() if self.intake.health == "starting" else None

    @abstractmethod
    async def start(self) -> None:
        """Start answering. Raises StreamLshError."""

    @abstractmethod
    async def stop(self) -> None:
        """Accept nothing new, finish what was accepted, send listeners the rest, and close everything."""

    async def answer(self, work: Add | Check | Delete) -> Answers:
        """The answers to documents. Raises Problem or StreamLshError."""
        if isinstance(work, Delete) and self.settings.on_conflict != "update":
            raise Problem(
                409, "documents cannot be deleted from an index with on_conflict = reject: feed them into a new one "
                "with on_conflict = update", field="on_conflict",
            )  # fmt: skip
        if self.disk is not None and self.disk.full and not isinstance(work, Check):
            raise self.disk.problem()
        begun = time.monotonic()
        found = await self._answer(work)
        self.tally.answered(time.monotonic() - begun)
        return found

    @abstractmethod
    async def _answer(self, work: Add | Check | Delete) -> Answers: ...

    @abstractmethod
    async def document(self, id: str | int, *, text: bool = False) -> dict[str, Any]:
        """A document, on request with its text. Raises Problem if there is none, or no text."""

    @abstractmethod
    async def compared(self, a: str | int, b: str | int) -> dict[str, Any]:
        """A comparison of two documents. Raises Problem if a document or the texts are missing."""

    @abstractmethod
    async def headlines(self, ids: Sequence[str | int]) -> list[Headline]:
        """The headlines of documents, in this order; `UNKNOWN` of a document that is not there."""

    @abstractmethod
    async def groups(self, query: GroupQuery) -> Page:
        """Rows of the table of groups. Raises UsageError if the query needs event times and there are none."""

    @abstractmethod
    async def group(self, number: int, query: MemberQuery) -> tuple[bytes, int | None]:
        """A group with some of its members, as `group_json`. Raises UsageError if there is none."""

    @abstractmethod
    async def alerts(self, before: str | None, limit: int, rule: str | None) -> list[RaisedAlert]:
        """The latest alerts, the newest first: older ones than `before`, a cursor, and of one rule.

        Raises:
            ValueError: `before` is no cursor.
        """

    async def place(self, place: Place | None) -> Place:
        """The start of a listener that has all events up to a place; None = from now on."""
        return self.ring.end if place is None else place

    @property
    def documents_delete(self) -> bool:
        """Whether a document may be a deletion."""
        return self.settings.deleted_field is not None

    async def stats(self, seconds: int) -> dict[str, Any]:
        """The contents of the index and the counts of the service, the last `seconds` one by one."""
        limits, ring = self.limits, self.ring
        return {
            "index": {
                **await self._held(), "groups": self.keeps_groups,
                "settings": {
                    **self.settings.answers, "time_field": self.settings.time_field,
                    "source_field": self.settings.source_field,
                },
            },
            "service": {
                "waiting": self._waits(), "started": _iso(self.tally.started), "now": _iso(time.time()),
                "listeners": ring.listeners, "events": {"from": written(ring.begin), "to": written(ring.end)},
                "limits": {
                    "body_bytes": limits.body_bytes, "request_documents": limits.request_documents,
                    "waiting_documents": limits.waiting_documents, "waiting_bytes": limits.waiting_bytes,
                },
            },
            "totals": self.tally.totals,
            "seconds": self.tally.history(seconds),
        }  # fmt: skip

    async def backup(self, destination: Path) -> Backup:
        """Make a backup of the index. Raises UsageError if there is something at the destination."""
        raise Problem(409, "a pipeline on Kafka has no index here: its topics are its backup")

    async def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return self.tally.exposition

    @abstractmethod
    async def _held(self) -> dict[str, Any]:
        """The contents of the index, and whether it can check documents (`checks`) and has their texts (`texts`)."""


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def shown(id: str | int) -> str:
    """An id as JSON text, for messages: its first 100 bytes."""
    return id_text(id)[:100].decode(errors="ignore")


def as_number(id: str | int) -> str:
    """An addition to the message about a missing document, if its id is text that looks like a number."""
    looks = isinstance(id, str) and id.removeprefix("-").isdecimal()
    return f"; ids are text; for the number {str(id)[:20]} use id_type=json" if looks else ""

"""A client of the HTTP API. `AsyncClient` has the same methods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Self, TypeVar

import httpx

from stream_lsh.client import calls
from stream_lsh.client.calls import Call, Id, Part
from stream_lsh.client.errors import RequestError
from stream_lsh.client.events import PATH, SILENT_SECONDS, Event, Feed
from stream_lsh.client.retries import Retries
from stream_lsh.serve.schemas import (
    Backup,
    Comparison,
    Document,
    Group,
    GroupRow,
    Member,
    Pair,
    RaisedAlert,
    Stats,
    Verdict,
)

T = TypeVar("T")
Order = Literal["largest", "newest", "growing"]


class Client:
    """A client of `stream-lsh serve`.

    A request that fails for a while (no connection, 429, 502, 503, 504) is sent again, after a pause that doubles, and
    not before `Retry-After`. A request that writes has an idempotency key, so it counts once. All methods raise
    RequestError if the service refuses a request, and Unreachable if there is no answer.

    Args:
        url: of the service, such as http://127.0.0.1:8765.
        token: bearer token.
        attempts: most times that a request is sent.
        timeout: seconds without an answer.
        verify: whether certificates are checked, or an SSLContext with the accepted ones.
    """

    def __init__(
        self, url: str, *, token: str | None = None, attempts: int = 6, timeout: float = 60.0, verify: Any = True
    ) -> None:
        headers = calls.authorization(token)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=verify)
        self._attempts = attempts

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- documents --------------------------------------------------------------------------------------------------

    def add(
        self, document: Mapping[str, Any], *, durable: bool = True, version: int | None = None, new: bool = False,
        key: str | None = None,
    ) -> Verdict:  # fmt: skip
        """Check a document and add it.

        Args:
            durable: answer when it is on the disk.
            version: `seq` that the document must have now; otherwise RequestError `version_changed`.
            new: there must be no document with this id.
            key: idempotency key; by default a new one for each call.

        Raises:
            RequestError: also `document_rejected` and `id_reused`; `problem.verdict` has the reason.
            VerdictPending: only on Kafka: the verdict is not there in time.
        """
        return self._result(calls.add(document, durable, version, new, key))

    def add_many(self, documents: Iterable[Mapping[str, Any]], *, durable: bool = True) -> Iterator[Verdict]:
        """Check documents and add them, in requests of 1,000 lines. A rejected one has a verdict with its reason.

        Raises:
            RequestError: also if a document above 8 MiB is larger than the service allows.
            VerdictPending: only on Kafka: a verdict is not there in time. `answers` has the others of its request.
        """
        return self._each(calls.add_many(documents, durable))

    def check(self, document: Mapping[str, Any]) -> Verdict:
        """The verdict that a document would get as the next one."""
        return self._result(calls.check(document))

    def check_many(self, documents: Iterable[Mapping[str, Any]]) -> Iterator[Verdict]:
        """The verdicts that documents would get, each as the next one."""
        return self._each(calls.check_many(documents))

    def delete(
        self, id: Id, *, durable: bool = True, version: int | None = None, key: str | None = None
    ) -> Verdict:  # fmt: skip
        """Delete a document; `deleted` says whether it was there. The arguments are those of `add`."""
        return self._result(calls.delete(id, durable, version, key))

    def delete_many(self, ids: Iterable[Id], *, durable: bool = True) -> Iterator[Verdict]:
        """Delete documents. Raises VerdictPending as `add_many`."""
        return self._each(calls.delete_many(ids, durable))

    def get(self, id: Id, *, text: bool = False) -> Document | None:
        """A document, on request with its text; None if there is none. `seq` is its version."""
        return self._result(calls.get(id, text))

    def get_many(self, ids: Iterable[Id], *, text: bool = False) -> Iterator[Document | None]:
        """Documents in the order of their ids."""
        return self._each(calls.get_many(ids, text))

    def compare(self, a: Id, b: Id) -> Comparison:
        """Two documents side by side."""
        return self._result(calls.compare(a, b))

    # -- groups, events and the service -----------------------------------------------------------------------------

    def groups(
        self, *, order: Order = "largest", since: str | None = None, until: str | None = None, source: Id | None = None,
        min_total: int = 0, min_similarity: float = 0.0, q: str | None = None, limit: int | None = None,
    ) -> Iterator[GroupRow]:  # fmt: skip
        """Rows of the table of groups, page after page.

        Args:
            order: `newest` has each group once. In another order, a group that changes meanwhile may be missing or come
                twice.
            since, until: only groups with a member from then on, and up to then: a duration before the latest event
                time (`90m`, `24h`, `7d`), or an event time in ISO 8601.
            source: only groups with a member of this source.
            min_total: only groups with at least so many members ever.
            min_similarity: only groups with a document that was dropped with at least this similarity.
            q: only groups with all of these words in the headline and id of the representative, and the sources.
            limit: most rows, at least 1; None = all.
        """
        return self._parts(calls.groups(order, since, until, source, min_total, min_similarity, q, limit))

    def group(self, number: int, *, limit: int = 1000) -> Group:
        """A group with its first members."""
        return self._result(calls.group(number, limit))

    def members(
        self, number: int, *, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float | None = None,
    ) -> Iterator[Member]:  # fmt: skip
        """The members of a group in the order of arrival, page after page.

        Args:
            since, until, source: as in `groups`, of the members.
            min_similarity: only members that were dropped with at least this similarity.
        """
        return self._parts(calls.members(number, since, until, source, min_similarity))

    def pairs(
        self, *, q: str | None = None, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float = 0.0, best: bool = False,
    ) -> Iterator[Pair]:  # fmt: skip
        """The latest pairs, the newest first, as far back as the service has them in memory.

        Args:
            q: only pairs with all of these words in headlines, sources and ids.
            since, until: only pairs whose newer document is from then on, and up to then, as in `groups`.
            source: only pairs with a document of this source.
            min_similarity: only pairs with at least this similarity.
            best: only the best match of each newer document.
        """
        return self._parts(calls.pairs(q, since, until, source, min_similarity, best))

    def alerts(self, *, rule: str | None = None) -> Iterator[RaisedAlert]:
        """The alerts that the service has stored, the newest first, page after page. rule: only those of this rule."""
        return self._parts(calls.alerts(rule))

    def events(
        self, *kinds: str, after: str | None = None, source: Id | None = None, min_similarity: float = 0.0,
        min_total: int = 0,
    ) -> Iterator[Event]:  # fmt: skip
        """Events as they are committed, without an end. A lost connection is made again, and continues behind the last
        event.

        Args:
            kinds: verdict, pair, group, alert; all by default.
            after: place of the last event that is known; None = from now on.
            source: only what documents of this source cause.
            min_similarity: only verdicts and pairs with at least this similarity.
            min_total: only groups, and alerts about groups, with at least so many members ever.
        """
        feed, params = Feed(after, self._attempts), calls.events(kinds, source, min_similarity, min_total)
        silent = httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)
        while True:
            lost: RequestError | httpx.TransportError | None = None
            try:
                with self._http.stream("GET", PATH, params=params, headers=feed.headers, timeout=silent) as said:
                    if not said.is_success:
                        said.read()
                        raise calls.problem_of(said)
                    for block in said.iter_bytes():
                        yield from feed.events(block)
            except (httpx.TransportError, RequestError) as error:
                lost = error
            time.sleep(feed.retries.pause(lost))

    def stats(self, seconds: int = 0) -> Stats:
        """The index, the service and its counts. seconds: how many of the last seconds are listed."""
        return self._result(calls.stats(seconds))

    def backup(self, name: str | None = None) -> Backup:
        """Make a backup of the index, in the service's folder of backups. The default name is the time."""
        return self._result(calls.backup(name))

    def _each(self, parts: Iterable[Call[list[T]]]) -> Iterator[T]:
        for call in parts:
            yield from self._result(call)

    def _parts(self, call: Call[Part[T]] | None) -> Iterator[T]:
        while call is not None:
            part = self._result(call)
            yield from part.results
            call = part.following

    def _result(self, call: Call[T]) -> T:
        retries = Retries(f"{call.method} {call.path}", self._attempts)
        while True:
            try:
                said = self._http.request(
                    call.method, call.path, params=call.params, headers=call.headers, content=call.content
                )
                return call.read(said)
            except (httpx.TransportError, RequestError) as error:
                time.sleep(retries.pause(error))

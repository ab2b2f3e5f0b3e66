"""A client of the HTTP API. `AsyncClient` has the same methods."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx

from stream_lsh.client import calls
from stream_lsh.client.calls import Call, Id
from stream_lsh.client.errors import RequestError, Unreachable
from stream_lsh.client.events import SILENT_SECONDS, Event, Feed
from stream_lsh.client.exchange import RETRIED, Outcome, exchange, pause
from stream_lsh.serve.schemas import Backup, Comparison, Document, Group, GroupRow, Stats, Verdict

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        for lines in calls.batches(documents):
            yield from self._result(calls.add_lines(lines, durable))

    def check(self, document: Mapping[str, Any]) -> Verdict:
        """The verdict that a document would get as the next one."""
        return self._result(calls.check(document))

    def check_many(self, documents: Iterable[Mapping[str, Any]]) -> Iterator[Verdict]:
        """The verdicts that documents would get, each as the next one."""
        for lines in calls.batches(documents):
            yield from self._result(calls.check_lines(lines))

    def delete(
        self, id: Id, *, durable: bool = True, version: int | None = None, key: str | None = None
    ) -> Verdict:  # fmt: skip
        """Delete a document; `deleted` says whether it was there. The arguments are those of `add`."""
        return self._result(calls.delete(id, durable, version, key))

    def delete_many(self, ids: Iterable[Id], *, durable: bool = True) -> Iterator[Verdict]:
        """Delete documents. Raises VerdictPending as `add_many`."""
        for lines in calls.batches(ids):
            yield from self._result(calls.delete_lines(lines, durable))

    def get(self, id: Id, *, text: bool = False) -> Document | None:
        """A document, on request with its text; None if there is none. `seq` is its version."""
        return self._result(calls.get(id, text))

    def get_many(self, ids: Iterable[Id], *, text: bool = False) -> Iterator[Document | None]:
        """Documents in the order of their ids."""
        for lines in calls.batches(ids):
            yield from self._result(calls.get_lines(lines, text))

    def compare(self, a: Id, b: Id) -> Comparison:
        """Two documents side by side."""
        return self._result(calls.compare(a, b))

    # -- groups, events and the service -----------------------------------------------------------------------------

    def groups(self, *, order: Order = "largest", since: str | None = None, limit: int = 50) -> list[GroupRow]:
        """Rows of the table of groups. since: only groups that a member joined within `90m`, `24h`, `7d`."""
        return self._result(calls.groups(order, since, limit))

    def group(self, number: int, *, limit: int = 1000) -> Group:
        """A group with its first members."""
        return self._result(calls.group(number, limit))

    def events(self, *kinds: str, after: str | None = None) -> Iterator[Event]:
        """Events as they are committed, without an end. A lost connection is made again, and continues behind the last
        event.

        Args:
            kinds: verdict, pair, group, alert; all by default.
            after: place of the last event that is known; None = from now on.
        """
        feed, failures = Feed(after), 0
        params, silent = {"kinds": ",".join(kinds)}, httpx.Timeout(self._http.timeout.connect, read=SILENT_SECONDS)

        while True:
            error: RequestError | Unreachable = Unreachable("GET /v1/events: the stream ended")
            try:
                with self._http.stream(
                    "GET", "/v1/events", params=params, headers=feed.headers, timeout=silent
                ) as said:
                    if not said.is_success:
                        said.read()
                        raise calls.problem_of(said)
                    for block in said.iter_bytes():
                        failures = 0
                        yield from feed.events(block)
            except httpx.TransportError as lost:
                error = Unreachable(f"GET /v1/events: {lost!r}")
            except RequestError as refused:
                error = refused
            failures += 1
            if failures >= self._attempts or (isinstance(error, RequestError) and error.status not in RETRIED):
                raise error
            time.sleep(pause(failures, error, random.random))

    def stats(self, seconds: int = 0) -> Stats:
        """The index, the service and its counts. seconds: how many of the last seconds are listed."""
        return self._result(calls.stats(seconds))

    def backup(self, name: str | None = None) -> Backup:
        """Make a backup of the index, in the service's folder of backups. The default name is the time."""
        return self._result(calls.backup(name))

    def _result(self, call: Call[T]) -> T:
        steps = exchange(call, self._attempts, random.random)
        outcome: Outcome = None
        seconds = next(steps)
        while True:
            if seconds is None:
                outcome = self._sent(call)
            else:
                time.sleep(seconds)
            try:
                seconds = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result

    def _sent(self, call: Call[T]) -> Outcome:
        try:
            return self._http.request(
                call.method, call.path, params=call.params, headers=call.headers, content=call.content
            )
        except httpx.TransportError as error:
            return error

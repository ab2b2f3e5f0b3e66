"""The operations of the service, each written once: its arguments, its request, and how its answer is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from stream_lsh.client.calls import (
    JSON,
    NDJSON,
    Call,
    Id,
    add_lines,
    batches,
    body,
    document_in,
    documents_in,
    durably,
    given,
    json_of,
    keyed,
    model_of,
    pages,
    path_of,
    verdict_in,
    verdicts_in,
    written,
)
from stream_lsh.serve.schemas import (
    Alerts,
    Backup,
    Comparison,
    Document,
    Group,
    GroupRow,
    Groups,
    Member,
    Pair,
    Pairs,
    RaisedAlert,
    Stats,
    Verdict,
)

P = ParamSpec("P")
T = TypeVar("T")
Now = TypeVar("Now")
Later = TypeVar("Later")
Order = Literal["largest", "newest", "growing"]
Calls = Iterator[Call[list[T]]]
"""Requests, each of which is made when the results of the one before are used up."""


class Blocking(Protocol):
    """A client whose methods have results."""

    def _result(self, call: Call[T]) -> T: ...
    def _each(self, calls: Calls[T]) -> Iterator[T]: ...


class Awaited(Protocol):
    """A client whose methods are awaited."""

    async def _result(self, call: Call[T]) -> T: ...
    def _each(self, calls: Calls[T]) -> AsyncIterator[T]: ...


class Operation(Generic[P, Now, Later]):
    """A method of both clients. One of them has its result at once, the other awaits it."""

    def __init__(self, make: Callable[Concatenate[Any, P], Any], ask: Callable[[Any, Any], Any]) -> None:
        self.make = make
        self._method = wraps(make)(lambda client, *args, **named: ask(client, make(client, *args, **named)))

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Now]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[P, Later]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...

    def __get__(self, client: Blocking | Awaited | None, owner: type) -> Callable[..., Any]:
        return self._method if client is None else MethodType(self._method, client)


def one(make: Callable[Concatenate[Any, P], Call[T]]) -> Operation[P, T, Coroutine[Any, Any, T]]:
    """A method that makes one request, and has its result."""
    return Operation(make, lambda client, call: client._result(call))


def many(make: Callable[Concatenate[Any, P], Calls[T]]) -> Operation[P, Iterator[T], AsyncIterator[T]]:
    """A method that makes requests one after the other, and has the results of all."""
    return Operation(make, lambda client, calls: client._each(calls))


class Operations:
    """The methods of `Client` and `AsyncClient`."""

    # -- documents --------------------------------------------------------------------------------------------------

    @one
    def add(
        self, document: Mapping[str, Any], *, durable: bool = True, version: int | None = None, new: bool = False,
        key: str | None = None,
    ) -> Call[Verdict]:  # fmt: skip
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
        headers = keyed(key, version) | ({"If-None-Match": "*"} if new else {})
        return body("/v1/documents", JSON, json_of(document), verdict_in, headers, durably(durable))

    @many
    def add_many(self, documents: Iterable[Mapping[str, Any]], *, durable: bool = True) -> Calls[Verdict]:
        """Check documents and add them, in requests of 1,000 lines. A rejected one has a verdict with its reason.

        Raises:
            RequestError: also if a document above 8 MiB is larger than the service allows.
            VerdictPending: only on Kafka: a verdict is not there in time. `answers` has the others of its request.
        """
        return (add_lines(lines, durable) for lines in batches(documents))

    @one
    def check(self, document: Mapping[str, Any]) -> Call[Verdict]:
        """The verdict that a document would get as the next one."""
        return body("/v1/check", JSON, json_of(document), verdict_in)

    @many
    def check_many(self, documents: Iterable[Mapping[str, Any]]) -> Calls[Verdict]:
        """The verdicts that documents would get, each as the next one."""
        return (body("/v1/check", NDJSON, b"".join(lines), verdicts_in) for lines in batches(documents))

    @one
    def delete(
        self, id: Id, *, durable: bool = True, version: int | None = None, key: str | None = None
    ) -> Call[Verdict]:  # fmt: skip
        """Delete a document; `deleted` says whether it was there. The arguments are those of `add`."""
        return Call("DELETE", path_of(id), verdict_in, {"id_type": "json", **durably(durable)}, keyed(key, version))

    @many
    def delete_many(self, ids: Iterable[Id], *, durable: bool = True) -> Calls[Verdict]:
        """Delete documents. Raises VerdictPending as `add_many`."""
        return (
            body("/v1/deletions", NDJSON, b"".join(lines), verdicts_in, keyed(), durably(durable))
            for lines in batches(ids)
        )  # fmt: skip

    @one
    def get(self, id: Id, *, text: bool = False) -> Call[Document | None]:
        """A document, on request with its text; None if there is none. `seq` is its version."""
        return Call("GET", path_of(id), document_in, {"id_type": "json"} | ({"text": "true"} if text else {}))

    @many
    def get_many(self, ids: Iterable[Id], *, text: bool = False) -> Calls[Document | None]:
        """Documents in the order of their ids."""
        params = {"text": "true"} if text else {}
        return (body("/v1/lookups", NDJSON, b"".join(lines), documents_in, {}, params) for lines in batches(ids))

    @one
    def compare(self, a: Id, b: Id) -> Call[Comparison]:
        """Two documents side by side."""
        params = {"a": written(a), "b": written(b), "id_type": "json"}
        return Call("GET", "/v1/compare", model_of(Comparison), params)

    # -- groups, events and the service -----------------------------------------------------------------------------

    @many
    def groups(
        self, *, order: Order = "largest", since: str | None = None, until: str | None = None, source: Id | None = None,
        min_total: int = 0, min_similarity: float = 0.0, q: str | None = None, limit: int | None = None,
    ) -> Calls[GroupRow]:  # fmt: skip
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
        params = given(
            order=order, since=since, until=until, source=source, min_total=min_total, min_similarity=min_similarity,
            q=q,
        )  # fmt: skip
        return pages("/v1/groups", Groups, lambda page: page.groups, params, limit)

    @one
    def group(self, number: int, *, limit: int = 1000) -> Call[Group]:
        """A group with its first members."""
        return Call("GET", f"/v1/groups/{number}", model_of(Group), {"limit": limit})

    @many
    def members(
        self, number: int, *, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float | None = None,
    ) -> Calls[Member]:  # fmt: skip
        """The members of a group in the order of arrival, page after page.

        Args:
            since, until, source: as in `groups`, of the members.
            min_similarity: only members that were dropped with at least this similarity.
        """
        params = given(since=since, until=until, source=source, min_similarity=min_similarity)
        return pages(f"/v1/groups/{number}", Group, lambda page: page.members, params)

    @many
    def pairs(
        self, *, q: str | None = None, since: str | None = None, until: str | None = None, source: Id | None = None,
        min_similarity: float = 0.0, best: bool = False,
    ) -> Calls[Pair]:  # fmt: skip
        """The latest pairs, the newest first, as far back as the service has them in memory.

        Args:
            q: only pairs with all of these words in headlines, sources and ids.
            since, until: only pairs whose newer document is from then on, and up to then, as in `groups`.
            source: only pairs with a document of this source.
            min_similarity: only pairs with at least this similarity.
            best: only the best match of each newer document.
        """
        params = given(q=q, since=since, until=until, source=source, min_similarity=min_similarity, best=best)
        return pages("/v1/pairs", Pairs, lambda page: page.pairs, params)

    @many
    def alerts(self, *, rule: str | None = None) -> Calls[RaisedAlert]:
        """The alerts that the service has stored, the newest first, page after page. rule: only those of this rule."""
        return pages("/v1/alerts", Alerts, lambda page: page.alerts, given(rule=rule))

    @one
    def stats(self, seconds: int = 0) -> Call[Stats]:
        """The index, the service and its counts. seconds: how many of the last seconds are listed."""
        return Call("GET", "/v1/stats", model_of(Stats), {"seconds": seconds})

    @one
    def backup(self, name: str | None = None) -> Call[Backup]:
        """Make a backup of the index, in the service's folder of backups. The default name is the time."""
        return body("/v1/backups", JSON, json_of({} if name is None else {"name": name}), model_of(Backup))

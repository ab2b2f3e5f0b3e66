"""The requests of a client, and the results in their answers."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from stream_lsh.client.errors import RequestError, VerdictPending
from stream_lsh.serve.schemas import (
    Accepted,
    Alerts,
    Backup,
    Comparison,
    Document,
    Group,
    GroupRow,
    Groups,
    Member,
    Model,
    Pair,
    Pairs,
    Problem,
    RaisedAlert,
    Stats,
    Verdict,
)

T = TypeVar("T")
M = TypeVar("M", bound=Model)
Page = TypeVar("Page", Groups, Group, Pairs, Alerts)
JSON, NDJSON = "application/json", "application/x-ndjson"
LINES, LINES_BYTES = 1000, 4 << 20  # of a request of many lines
KEYED_BYTES = 8 << 20  # limit of the service for lines with an idempotency key
ROWS = 1000  # of a page
COMPRESSED_BYTES = 16 << 10  # from which a body is compressed
Id = str | int


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its result is read. `read` raises RequestError."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of many results, and the request for the next part; None after the last one."""

    results: Sequence[T]
    following: Call[Part[T]] | None = None


def add(
    document: Mapping[str, Any], durable: bool, version: int | None, new: bool, key: str | None
) -> Call[Verdict]:  # fmt: skip
    headers = {**_key(key), **({} if version is None else {"If-Match": f'"{version}"'})}
    headers |= {"If-None-Match": "*"} if new else {}
    return _body("/v1/documents", JSON, _json(document), _verdict, headers, _durable(durable))


def check(document: Mapping[str, Any]) -> Call[Verdict]:
    return _body("/v1/check", JSON, _json(document), _verdict)


def add_many(documents: Iterable[Any], durable: bool) -> Iterator[Call[list[Verdict]]]:
    return (add_lines(lines, durable) for lines in batches(documents))


def check_many(documents: Iterable[Any]) -> Iterator[Call[list[Verdict]]]:
    return (_body("/v1/check", NDJSON, b"".join(lines), _verdicts) for lines in batches(documents))


def delete_many(ids: Iterable[Id], durable: bool) -> Iterator[Call[list[Verdict]]]:
    return (
        _body("/v1/deletions", NDJSON, b"".join(lines), _verdicts, _key(None), _durable(durable))
        for lines in batches(ids)
    )  # fmt: skip


def get_many(ids: Iterable[Id], text: bool) -> Iterator[Call[list[Document | None]]]:
    params = {"text": "true"} if text else {}
    return (_body("/v1/lookups", NDJSON, b"".join(lines), _documents, {}, params) for lines in batches(ids))


def add_lines(lines: Sequence[bytes], durable: bool) -> Call[list[Verdict]]:
    if len(lines) == 1 and len(lines[0]) > KEYED_BYTES:  # `batches` makes no larger request of several lines
        return _body("/v1/documents", JSON, lines[0], _one_line, _key(None), _durable(durable))
    return _body("/v1/documents", NDJSON, b"".join(lines), _verdicts, _key(None), _durable(durable))


def delete(id: Id, durable: bool, version: int | None, key: str | None) -> Call[Verdict]:
    headers = {**_key(key), **({} if version is None else {"If-Match": f'"{version}"'})}
    return Call("DELETE", _path(id), _verdict, {"id_type": "json", **_durable(durable)}, headers)


def get(id: Id, text: bool) -> Call[Document | None]:
    return Call("GET", _path(id), _document, {"id_type": "json", **({"text": "true"} if text else {})})


def compare(a: Id, b: Id) -> Call[Comparison]:
    params = {"a": _written(a), "b": _written(b), "id_type": "json"}
    return Call("GET", "/v1/compare", _model_of(Comparison), params)


def groups(
    order: str, since: str | None, until: str | None, source: Id | None, min_total: int, min_similarity: float,
    q: str | None, limit: int | None,
) -> Call[Part[GroupRow]]:  # fmt: skip
    params = _given(
        order=order, since=since, until=until, source=source, min_total=min_total, min_similarity=min_similarity, q=q
    )  # fmt: skip
    return _pages("/v1/groups", Groups, lambda page: page.groups, params, limit)


def group(number: int, limit: int) -> Call[Group]:
    return Call("GET", f"/v1/groups/{number}", _model_of(Group), {"limit": limit})


def members(
    number: int, since: str | None, until: str | None, source: Id | None, min_similarity: float | None
) -> Call[Part[Member]]:  # fmt: skip
    params = _given(since=since, until=until, source=source, min_similarity=min_similarity)
    return _pages(f"/v1/groups/{number}", Group, lambda page: page.members, params)


def pairs(
    q: str | None, since: str | None, until: str | None, source: Id | None, min_similarity: float, best: bool
) -> Call[Part[Pair]]:  # fmt: skip
    params = _given(q=q, since=since, until=until, source=source, min_similarity=min_similarity, best=best)
    return _pages("/v1/pairs", Pairs, lambda page: page.pairs, params)


def alerts(rule: str | None) -> Call[Part[RaisedAlert]]:
    return _pages("/v1/alerts", Alerts, lambda page: page.alerts, _given(rule=rule))


def _pages(
    path: str, model: type[Page], rows: Callable[[Page], Sequence[T]], params: Mapping[str, str | int],
    limit: int | None = None, cursor: str | None = None,
) -> Call[Part[T]]:  # fmt: skip
    """A page of rows, and the request for the next one. limit: most rows of all pages; None = all."""

    def read(answer: httpx.Response) -> Part[T]:
        page = _model_of(model)(answer)
        found, more = rows(page), page.next_cursor
        left = None if limit is None else limit - len(found)
        if more is None or left == 0:
            return Part(found)
        return Part(found, _pages(path, model, rows, params, left, more))

    size = ROWS if limit is None else min(limit, ROWS)
    return Call("GET", path, read, {**params, **_given(cursor=cursor, limit=size)})


def events(kinds: Iterable[str], source: Id | None, min_similarity: float, min_total: int) -> dict[str, str | int]:
    """The parameters of a stream of events."""
    return _given(kinds=",".join(kinds), source=source, min_similarity=min_similarity, min_total=min_total)


def _given(**params: str | float | None) -> dict[str, str | int]:
    """The parameters that are not None."""
    return {name: str(value) for name, value in params.items() if value is not None}


def stats(seconds: int) -> Call[Stats]:
    return Call("GET", "/v1/stats", _model_of(Stats), {"seconds": seconds})


def backup(name: str | None) -> Call[Backup]:
    return _body("/v1/backups", JSON, _json({} if name is None else {"name": name}), _model_of(Backup))


def batches(values: Iterable[Any]) -> Iterator[list[bytes]]:
    """Values as JSON lines, in batches of one request."""
    some: list[bytes] = []
    size = 0
    for value in values:
        line = _json(value) + b"\n"
        if some and (len(some) == LINES or size + len(line) > LINES_BYTES):
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line)
    if some:
        yield some


def problem_of(answer: httpx.Response) -> RequestError:
    """The error for an answer that is no success."""
    try:
        problem = Problem.model_validate(answer.json())
    except ValueError:  # of a proxy
        problem = Problem(
            type="about:blank", title=answer.reason_phrase, status=answer.status_code, code="unknown",
            detail=answer.text[:200],
        )  # fmt: skip
    after = answer.headers.get("retry-after", "")
    return RequestError(problem, float(after) if after.isdecimal() else None)


def _body(
    path: str, kind: str, content: bytes, read: Callable[[httpx.Response], T], headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> Call[T]:  # fmt: skip
    more = {"Content-Type": kind, **(headers or {})}
    if len(content) >= COMPRESSED_BYTES:
        content, more = gzip.compress(content, 1), {**more, "Content-Encoding": "gzip"}
    return Call("POST", path, read, params or {}, more, content)


def _key(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def _durable(durable: bool) -> dict[str, str]:
    return {} if durable else {"durable": "false"}


def _path(id: Id) -> str:
    return f"/v1/documents/{quote(_written(id), safe='').replace('.', '%2E')}"


def _written(id: Id) -> str:
    """An id as JSON, as short as it can be: the length of an address is limited."""
    written = json.dumps(id, ensure_ascii=False)
    return json.dumps(id) if any("\ud800" <= char <= "\udfff" for char in written) else written


def authorization(token: str | None) -> dict[str, str]:
    """The header with a token, which may have white space around it, as the end of a file.

    Raises:
        ValueError: it cannot be a token; the message does not have it.
    """
    if token is None:
        return {}
    if not (token := token.strip()).isascii() or not token.isprintable() or " " in token:
        raise ValueError("token: give the token that `stream-lsh serve token add` has printed")
    return {"Authorization": f"Bearer {token}"}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _checked(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise problem_of(answer)
    return answer


def _model_of(model: type[M]) -> Callable[[httpx.Response], M]:
    return lambda answer: model.model_validate(_checked(answer).json())


def _verdict(answer: httpx.Response) -> Verdict:
    if answer.status_code == httpx.codes.ACCEPTED:
        raise VerdictPending([Accepted.model_validate(answer.json())])
    return _model_of(Verdict)(answer)


def _document(answer: httpx.Response) -> Document | None:
    try:
        return _model_of(Document)(answer)
    except RequestError as error:
        if error.code == "unknown_document":
            return None
        raise


def _objects(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The lines of an answer. Raises RequestError for a last line with a problem of the whole request."""
    for line in _checked(answer).content.splitlines():
        found = json.loads(line)
        if "problem" in found and "id" not in found:
            raise RequestError(Problem.model_validate(found["problem"]))
        yield found


def _verdicts(answer: httpx.Response) -> list[Verdict]:
    found = [
        Accepted.model_validate(line) if "taken" in line else Verdict.model_validate(line) for line in _objects(answer)
    ]
    verdicts = [one for one in found if isinstance(one, Verdict)]
    if len(verdicts) < len(found):
        raise VerdictPending(found)
    return verdicts


def _one_line(answer: httpx.Response) -> list[Verdict]:
    """The verdict on one document, as that on a line: it may be a rejection."""
    try:
        return [_verdict(answer)]
    except RequestError as error:
        if error.problem.verdict is None:
            raise
        return [error.problem.verdict]


def _documents(answer: httpx.Response) -> list[Document | None]:
    found: list[Document | None] = []
    for line in _objects(answer):
        problem = Problem.model_validate(line["problem"]) if "problem" in line else None
        if problem is not None and problem.code != "unknown_document":
            raise RequestError(problem)
        found.append(Document.model_validate(line) if problem is None else None)
    return found

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
    Document,
    Group,
    Groups,
    Model,
    Pairs,
    Problem,
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

    @property
    def request(self) -> dict[str, Any]:
        """The arguments of httpx's `request`."""
        return {
            "method": self.method, "url": self.path, "params": self.params, "headers": self.headers,
            "content": self.content,
        }  # fmt: skip


def add_lines(lines: Sequence[bytes], durable: bool) -> Call[list[Verdict]]:
    if len(lines) == 1 and len(lines[0]) > KEYED_BYTES:  # `batches` makes no larger request of several lines
        return body("/v1/documents", JSON, lines[0], _one_line, keyed(), durably(durable))
    return body("/v1/documents", NDJSON, b"".join(lines), verdicts_in, keyed(), durably(durable))


def pages(
    path: str, model: type[Page], rows: Callable[[Page], list[T]], params: Mapping[str, str], limit: int | None = None
) -> Iterator[Call[list[T]]]:  # fmt: skip
    """Requests for one page of rows after the other. limit: most rows of all pages; None = all."""
    left, cursor = limit, None

    def read(answer: httpx.Response) -> list[T]:
        nonlocal left, cursor
        page = model_of(model)(answer)
        cursor, left = page.next_cursor, None if left is None else left - len(rows(page))
        return rows(page)

    while True:
        size = ROWS if left is None else min(left, ROWS)
        yield Call("GET", path, read, {**params, **given(cursor=cursor, limit=size)})
        if cursor is None or left == 0:
            return


def given(**params: str | float | None) -> dict[str, str]:
    """The parameters that are not None."""
    return {name: str(value) for name, value in params.items() if value is not None}


def batches(values: Iterable[Any]) -> Iterator[list[bytes]]:
    """Values as JSON lines, in batches of one request."""
    some: list[bytes] = []
    size = 0
    for value in values:
        line = json_of(value) + b"\n"
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


def body(
    path: str, kind: str, content: bytes, read: Callable[[httpx.Response], T], headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> Call[T]:  # fmt: skip
    more = {"Content-Type": kind, **(headers or {})}
    if len(content) >= COMPRESSED_BYTES:
        content, more = gzip.compress(content, 1), {**more, "Content-Encoding": "gzip"}
    return Call("POST", path, read, params or {}, more, content)


def keyed(key: str | None = None, version: int | None = None) -> dict[str, str]:
    """The headers of a request that counts once. version: that the document must have."""
    return {"Idempotency-Key": key or uuid.uuid4().hex} | ({} if version is None else {"If-Match": f'"{version}"'})


def durably(durable: bool) -> dict[str, str]:
    return {} if durable else {"durable": "false"}


def path_of(id: Id) -> str:
    return f"/v1/documents/{quote(written(id), safe='').replace('.', '%2E')}"


def written(id: Id) -> str:
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


def json_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _checked(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise problem_of(answer)
    return answer


def model_of(model: type[M]) -> Callable[[httpx.Response], M]:
    return lambda answer: model.model_validate(_checked(answer).json())


def verdict_in(answer: httpx.Response) -> Verdict:
    if answer.status_code == httpx.codes.ACCEPTED:
        raise VerdictPending([Accepted.model_validate(answer.json())])
    return model_of(Verdict)(answer)


def document_in(answer: httpx.Response) -> Document | None:
    try:
        return model_of(Document)(answer)
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


def verdicts_in(answer: httpx.Response) -> list[Verdict]:
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
        return [verdict_in(answer)]
    except RequestError as error:
        if error.problem.verdict is None:
            raise
        return [error.problem.verdict]


def documents_in(answer: httpx.Response) -> list[Document | None]:
    found: list[Document | None] = []
    for line in _objects(answer):
        problem = Problem.model_validate(line["problem"]) if "problem" in line else None
        if problem is not None and problem.code != "unknown_document":
            raise RequestError(problem)
        found.append(Document.model_validate(line) if problem is None else None)
    return found

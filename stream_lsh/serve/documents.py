"""Documents over HTTP: adding, checking, deleting, showing and comparing them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.convertors import PathConvertor, register_url_convertor

from stream_lsh.documents.fields import MAX_ID_BYTES, json_id
from stream_lsh.embedded.lines import Lines
from stream_lsh.serve import openapi
from stream_lsh.serve.bodies import body
from stream_lsh.serve.conditions import Condition, tag
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.lines import LinesResponse, RetryOf, one_line
from stream_lsh.serve.openapi import JSON, NDJSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.retries import HEADER, Retry
from stream_lsh.serve.schemas import Comparison, Document, Verdict
from stream_lsh.serve.security import DELETE, READ, WRITE, Served, check_permission
from stream_lsh.serve.tokens import Permission
from stream_lsh.serve.work import Add, Answers, Check, Delete
from stream_lsh.wire.source import Headers
from stream_lsh.wire.trace_context import trace_of

LOOKUPS = 64  # documents that are looked up at once, so that other reads have their turn
_STORED = re.compile(rb'"seq":(\d+),"kind":"(?:unique|near_duplicate|exact_duplicate)"')  # in a verdict
Durable = Annotated[
    bool, Query(description="answer when the document is on the disk; if false, up to half a second earlier")
]
Text = Annotated[bool, Query(description="add the text")]
Id = Annotated[str, Path(max_length=MAX_ID_BYTES, description="the id, as text, or as JSON with id_type")]
IdType = Annotated[
    Literal["text", "json"],
    Query(description='how the id is written: as plain text, or as JSON (17 is a number, "17" a string)'),
]


class _Any(PathConvertor):
    """The rest of a path, including newlines, which an id may contain."""

    regex = r"[\s\S]*"


register_url_convertor("any", _Any())
router = APIRouter(prefix="/v1", tags=["documents"])


def media_type(request: Request, *allowed: str) -> str:
    """The media type of a request. It is mandatory: a page of another site can send none of these without a preflight.

    Raises:
        Problem: another type.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said in ("application/jsonl", "application/ndjson"):
        said = NDJSON
    if said not in allowed:
        raise Problem(415, f"the body has to be {' or '.join(allowed)}, not {said[:60]!r}", field="Content-Type")
    return said


def _retry_of(request: Request) -> RetryOf | None:
    """The idempotency key of a request, which its body completes; None if it has no key."""
    if (key := request.headers.get(HEADER)) is None:
        return None
    client, address = request.headers.get("authorization", ""), f"{request.url.path}?{request.url.query}".encode()
    kind = request.headers.get("content-type", "").encode()
    return lambda data: Retry.of(key, client, request.method.encode(), address, kind, data)


def _trace(request: Request) -> Headers:
    """The trace context of a request."""
    return trace_of((name.decode("latin-1"), value) for name, value in request.headers.raw)


def _no_condition(request: Request) -> None:
    """Raise Problem if a request for several documents has a condition."""
    if (condition := Condition.of(request)) is not None:
        field = "If-None-Match" if condition.new else "If-Match"
        raise Problem(422, f"{field} is for a request with one document", field=field)


def _check(lines: Lines, **_: object) -> Check:
    return Check(lines)


async def _judged(request: Request, service: Interface, work: Callable[..., Add | Check]) -> Response:
    """The answers to one document, or to lines. work: makes of lines what the writer does."""
    kind = media_type(request, JSON, NDJSON)
    if work is _check and kind == JSON:
        service.intake.admit_read()
    else:
        service.intake.admit()
    settings, retry_of = service.settings, _retry_of(request)
    if kind == NDJSON:
        _no_condition(request)

        async def answer(lines: Lines, retry: Retry | None) -> Answers:
            return await service.answer(work(lines, retry=retry))

        permission: Permission = "read" if work is _check else "write"
        return LinesResponse(request, service, answer, settings.max_document_bytes, permission, retry_of)
    condition = Condition.of(request)
    with service.intake.taking() as holding:
        data = await body(request, settings.max_document_bytes, holding)
        retry = None if retry_of is None else retry_of(data)
        found = await service.answer(work(one_line(data), retry=retry, condition=condition))
    return _one(found)


def _one(found: Answers) -> Response:
    """The answer to one document; 202 if the document is sent but its verdict is not there in time.

    Raises:
        Problem: it is rejected.
    """
    if found.rejected:
        raise Problem.rejected(found.rejected[0], found.lines[0])
    headers = {"Idempotent-Replayed": "true"} if found.repeated else {}
    if 0 in found.late:
        return Response(found.lines[0], 202, {"Location": found.late[0], **headers}, JSON)
    stored = _STORED.search(found.lines[0])
    return Response(found.lines[0], media_type=JSON, headers=headers if stored is None else headers | _etag(stored[1]))


def _etag(version: int | bytes | None) -> dict[str, str]:
    """The header with the version of a document; empty for None."""
    return {} if version is None else {"ETag": tag(int(version))}


@router.post(
    "/documents", dependencies=[WRITE],
    openapi_extra={**openapi.DOCUMENTS, "parameters": [openapi.KEY, *openapi.MATCH]},
    responses={
        **openapi.ACCEPTED, **openapi.answers(Verdict, "the verdict", 409, 412, 413, 415, 422, 429)
    },
)  # fmt: skip
async def add_documents(request: Request, service: Served, durable: Durable = True) -> Response:
    """Check documents and add them, each in one atomic step.

    The same id and text again has the first answer, without the `matches`. So you can repeat a request, with an
    `Idempotency-Key` also after a later version. If documents can delete (`deleted_field`), the token needs the
    permission to delete, too.
    """
    if service.documents_delete:
        check_permission(request, "delete")
    return await _judged(request, service, partial(Add, durable=durable, trace=_trace(request)))


@router.post(
    "/check", dependencies=[READ], openapi_extra=openapi.DOCUMENTS,
    responses=openapi.answers(Verdict, "the verdict", 409, 413, 415, 422, 429),
)  # fmt: skip
async def check_documents(request: Request, service: Served) -> Response:
    """The verdict that each document would get as the next one. Nothing is added, and the documents are not compared
    with each other."""
    return await _judged(request, service, _check)


@router.post(
    "/deletions", dependencies=[DELETE], response_class=Response,
    openapi_extra={**openapi.IDS, "parameters": [openapi.KEY]},
    responses=openapi.lines(Verdict, 409, 413, 415, 422, 429),
)  # fmt: skip
async def delete_documents(request: Request, service: Served, durable: Durable = True) -> Response:
    """Delete documents: an id as JSON a line in, a verdict a line out. `deleted` says whether it was there."""
    media_type(request, NDJSON)
    service.intake.admit()
    _no_condition(request)
    trace = _trace(request)

    async def answer(lines: Lines, retry: Retry | None) -> Answers:
        return await service.answer(Delete(_ids(lines), durable=durable, retry=retry, trace=trace))

    return LinesResponse(request, service, answer, MAX_ID_BYTES, "delete", _retry_of(request))


@router.post(
    "/lookups", dependencies=[READ], response_class=Response, openapi_extra=openapi.IDS,
    responses=openapi.lines(Document, 413, 415, 422, 429),
)  # fmt: skip
async def look_up_documents(request: Request, service: Served, text: Text = False) -> Response:
    """Documents: an id as JSON a line in, a document a line out. Where there is none, the line has the `id` and a
    `problem`."""
    media_type(request, NDJSON)
    service.intake.admit_read()

    async def found(id: str | int) -> bytes:
        try:
            said: dict[str, Any] = await service.document(id, text=text)
        except Problem as problem:
            said = {"id": id, "problem": json.loads(problem.json)}
        return json.dumps(said).encode("ascii")

    async def answer(lines: Lines, _: Retry | None) -> Answers:
        ids, said = _ids(lines), list[bytes]()
        for at in range(0, len(ids), LOOKUPS):
            said += await asyncio.gather(*map(found, ids[at : at + LOOKUPS]))
        return Answers(said, {})

    return LinesResponse(request, service, answer, MAX_ID_BYTES, "read")


def _ids(lines: Lines) -> list[str | int]:
    """The ids in lines."""
    starts, ends = lines.starts.tolist(), lines.ends.tolist()
    return [_id(lines.data[start:end], "body") for start, end in zip(starts, ends, strict=True)]


def _id(text: str | bytes, field: str) -> str | int:
    """An id given as JSON in this part of a request."""
    try:
        return json_id(text)
    except ValueError as error:
        raise Problem(422, str(error), field=field) from None


@router.delete(
    "/documents/{id:any}", dependencies=[DELETE], openapi_extra={"parameters": [openapi.KEY, openapi.MATCH[0]]},
    responses={**openapi.ACCEPTED, **openapi.answer(Verdict, "the verdict", 409, 412, 422, 429)},
)  # fmt: skip
async def delete_document(
    request: Request, id: Id, service: Served, id_type: IdType = "text", durable: Durable = True
) -> Response:
    """Delete a document. `deleted` says whether it was there; an unknown id is no error."""
    service.intake.admit()
    wanted = _id(id, "id") if id_type == "json" else id
    retry_of, condition = _retry_of(request), Condition.of(request)
    with service.intake.taking():
        retry = None if retry_of is None else retry_of(b"")
        work = Delete([wanted], durable=durable, retry=retry, condition=condition, trace=_trace(request))
        found = await service.answer(work)
    return _one(found)


@router.get(
    "/documents/{id:any}",
    dependencies=[READ],
    responses=openapi.answer(Document, "the document", 404, 409, 410, 422, 429),
)
async def get_document(id: Id, service: Served, id_type: IdType = "text", text: Text = False) -> Response:
    """A document: its first verdict, its group, and whether it is kept or dropped."""
    service.intake.admit_read()
    found = await service.document(_id(id, "id") if id_type == "json" else id, text=text)
    return json_response(found, _etag(found["seq"]))


@router.get(
    "/compare", dependencies=[READ], responses=openapi.answer(Comparison, "both documents", 404, 409, 410, 422, 429)
)
async def compare_documents(
    a: Annotated[str, Query(max_length=MAX_ID_BYTES, description="an id, written as in /v1/documents/{id}")],
    b: Annotated[str, Query(max_length=MAX_ID_BYTES, description="the other id")],
    service: Served,
    id_type: IdType = "text",
) -> Response:
    """Two documents side by side: their texts, their similarity, and why they match or not.

    `spans` are ranges of characters that common shingles cover, with `jaccard` and `containment` only. `containment`
    adds `passages`, with their places in `a` and `b`. `tf-idf` adds `terms`, and uses today's document frequencies.
    """
    service.intake.admit_read()
    one, other = (_id(a, "a"), _id(b, "b")) if id_type == "json" else (a, b)
    return json_response(await service.compared(one, other))


def json_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response in ASCII: ids and texts may have lone surrogates, which UTF-8 cannot encode."""
    return Response(json.dumps(value).encode("ascii"), media_type=JSON, headers=headers)

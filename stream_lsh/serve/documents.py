"""Documents over HTTP: adding, checking, deleting, showing and comparing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.convertors import PathConvertor, register_url_convertor

from stream_lsh.documents.fields import MAX_ID_BYTES, json_id
from stream_lsh.embedded.lines import Lines
from stream_lsh.serve.conditions import Condition, tag
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.lines import NDJSON, LinesResponse, RetryOf, body, one_line
from stream_lsh.serve.problems import Problem, responses
from stream_lsh.serve.retries import HEADER, Retry
from stream_lsh.serve.security import READ, WRITE, Served
from stream_lsh.serve.writer import Add, Answers, Check, Delete

JSON = "application/json"
_NOT_STORED = ("rejected", "deleted", "outdated")  # kinds of verdicts
_ID = {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
_NUMBER = {"type": ["integer", "null"]}
_PLACE = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
_MATCH = {
    "type": "object",
    "required": ["id", "seq", "similarity"],
    "properties": {
        "id": _ID, "seq": {"type": "integer"}, "similarity": {"type": "number"},
        "terms": {"type": "array", "items": {"type": "string"}, "description": "tf-idf: the terms with most weight"},
        "contained_in": {"type": "number", "description": "containment: share of the document found in the match"},
        "contains": {"type": "number", "description": "containment: share of the match found in the document"},
        "passages": {
            "type": "array", "description": "containment: shared runs of words, the longest first, with their ranges "
            "of characters in the document (`newer`) and in the match (`older`)",
            "items": {
                "type": "object",
                "properties": {"words": {"type": "integer"}, "newer": _PLACE, "older": _PLACE},
            },
        },
        "more_passages": {"type": "integer", "description": "number of passages that are not listed"},
    },
}  # fmt: skip
VERDICT = {
    "type": "object",
    "required": ["id", "seq", "kind", "duplicate_of", "similarity", "group", "matches"],
    "properties": {
        "id": _ID,
        "seq": {**_NUMBER, "description": "number of the document, from 0 on, in the order of arrival"},
        "kind": {
            "enum": [
                "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"
            ]
        },
        "duplicate_of": {**_ID, "description": "the oldest match"},
        "similarity": {"type": ["number", "null"]},
        "group": _NUMBER,
        "matches": {"type": "array", "items": _MATCH},
        "redelivered": {"type": "integer", "description": "seq of the repetition of a document that was there before; "
                        "all other fields are those of the first answer"},
        "deleted": {"type": "boolean", "description": "of a deletion: whether there was such a document"},
        "reason": {"type": "string"},
        "detail": {"type": "string"},
    },
}  # fmt: skip
_FIELDS = (
    "with the fields that the settings name: `id_field` and `text_field`; with measure = weighted-jaccard `set_field`, "
    "an object of weights by element, or a list; with measure = cosine or euclidean `vector_field`, a list of numbers "
    "or their float32 in base64; with measure = hamming `bits_field`, hexadecimal, base64 or an integer"
)
_DOCUMENT = {
    "type": "object", "description": f"a document {_FIELDS}",
    "example": {"id": "a1", "text": "The council has voted for the new bridge."},
}  # fmt: skip
_LINE = {"type": "string", "description": f"one document per line, {_FIELDS}", "format": "ndjson"}
_BODY = {
    "requestBody": {
        "required": True, "content": {JSON: {"schema": _DOCUMENT}, NDJSON: {"schema": _LINE}},
    }
}  # fmt: skip
_IDS = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {"schema": {"type": "string", "description": "one id as JSON per line", "format": "ndjson"}}
        },
    }
}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the verdict; for lines one verdict per line, in order, and a last line {\"problem\": {...}} "
        "after an error",
        "content": {JSON: {"schema": VERDICT}, NDJSON: {"schema": {"type": "string"}}},
    },
    202: {
        "description": "only with a pipeline on Kafka: the document is sent, but its verdict is not there in time; "
        "`Location` says where it will be", "content": {JSON: {"schema": {"type": "object"}}},
    },
}  # fmt: skip
Durable = Annotated[
    bool, Query(description="answer when the document is on the disk; if false, up to half a second earlier")
]
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


def _media_type(request: Request, *allowed: str) -> str:
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
    client, address = request.headers.get("authorization", ""), str(request.url).encode()
    kind = request.headers.get("content-type", "").encode()
    return lambda data: Retry.of(key, client, request.method.encode(), address, kind, data)


def _no_condition(request: Request) -> None:
    """Raise Problem if a request for several documents has a condition."""
    if (condition := Condition.of(request)) is not None:
        field = "If-None-Match" if condition.new else "If-Match"
        raise Problem(422, f"{field} is for a request with one document", field=field)


async def _judged(
    request: Request, service: Interface, work: Callable[[Lines, Retry | None, Condition | None], Add | Check]
) -> Response:
    """The answers to one document, or to lines. work: turns lines into work for the writer."""
    kind = _media_type(request, JSON, NDJSON)
    service.intake.admit()
    settings, retry_of = service.settings, _retry_of(request)
    if kind == NDJSON:
        _no_condition(request)

        async def answer(lines: Lines, retry: Retry | None) -> Answers:
            return await service.answer(work(lines, retry, None))

        return LinesResponse(request, service, answer, settings.max_document_bytes, retry_of)
    condition = Condition.of(request)
    with service.intake.taking():
        data = await body(request, settings.max_document_bytes)
        retry = None if retry_of is None else retry_of(data)
        found = await service.answer(work(one_line(data), retry, condition))
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
    return Response(found.lines[0], media_type=JSON, headers={**headers, **_etag(orjson.loads(found.lines[0]))})


def _etag(document: Mapping[str, Any]) -> dict[str, str]:
    """The header with the version of a document; empty for a deleted one."""
    version = document.get("seq")
    return {} if version is None or document["kind"] in _NOT_STORED else {"ETag": tag(version)}


@router.post(
    "/documents", dependencies=[WRITE], openapi_extra=_BODY,
    responses={**_ANSWER, **responses(409, 413, 415, 422, 429)},
)  # fmt: skip
async def add_documents(request: Request, service: Served, durable: Durable = True) -> Response:
    """Check documents and add them, each in one atomic step.

    The same id and text again has the first answer, without the `matches`. So you can repeat a request, with an
    `Idempotency-Key` also after a later version.
    """
    return await _judged(request, service, lambda lines, retry, condition: Add(lines, durable, retry, condition))


@router.post("/check", dependencies=[READ], openapi_extra=_BODY, responses={**_ANSWER, **responses(413, 415, 422, 429)})
async def check_documents(request: Request, service: Served) -> Response:
    """The verdict that each document would get as the next one. Nothing is added, and the documents are not compared
    with each other."""
    return await _judged(request, service, lambda lines, *_: Check(lines))


@router.post(
    "/deletions", dependencies=[WRITE], openapi_extra=_IDS, responses={**_ANSWER, **responses(409, 413, 415, 422, 429)}
)
async def delete_documents(request: Request, service: Served, durable: Durable = True) -> Response:
    """Delete documents: an id as JSON a line in, a verdict a line out. `deleted` says whether it was there."""
    _media_type(request, NDJSON)
    service.intake.admit()
    _no_condition(request)

    async def answer(lines: Lines, retry: Retry | None) -> Answers:
        starts, ends = lines.starts.tolist(), lines.ends.tolist()
        ids = [_id(lines.data[start:end], "body") for start, end in zip(starts, ends, strict=True)]
        return await service.answer(Delete(ids, durable, retry))

    return LinesResponse(request, service, answer, MAX_ID_BYTES, _retry_of(request))


def _id(text: str | bytes, field: str) -> str | int:
    """An id given as JSON in this part of a request."""
    try:
        return json_id(text)
    except ValueError as error:
        raise Problem(422, str(error), field=field) from None


@router.delete("/documents/{id:any}", dependencies=[WRITE], responses={**_ANSWER, **responses(409, 422, 429)})
async def delete_document(
    request: Request, id: Id, service: Served, id_type: IdType = "text", durable: Durable = True
) -> Response:
    """Delete a document. `deleted` says whether it was there; an unknown id is no error."""
    service.intake.admit()
    wanted = _id(id, "id") if id_type == "json" else id
    retry_of, condition = _retry_of(request), Condition.of(request)
    with service.intake.taking():
        retry = None if retry_of is None else retry_of(b"")
        found = await service.answer(Delete([wanted], durable, retry, condition))
    return _one(found)


@router.get("/documents/{id:any}", dependencies=[READ], responses=responses(404, 409, 410, 422))
async def get_document(
    id: Id,
    service: Served,
    id_type: IdType = "text",
    text: Annotated[bool, Query(description="add the text")] = False,
) -> Response:
    """A document: its first verdict, its group, and whether it is kept or dropped."""
    service.intake.admit()
    found = await service.document(_id(id, "id") if id_type == "json" else id, text=text)
    return json_response(found, _etag(found))


@router.get("/compare", dependencies=[READ], responses=responses(404, 409, 410, 422), tags=["documents"])
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
    service.intake.admit()
    one, other = (_id(a, "a"), _id(b, "b")) if id_type == "json" else (a, b)
    return json_response(await service.compared(one, other))


def json_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response in ASCII: ids and texts may have lone surrogates, which UTF-8 cannot encode."""
    return Response(json.dumps(value).encode("ascii"), media_type=JSON, headers=headers)

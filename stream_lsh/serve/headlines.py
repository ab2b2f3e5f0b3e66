"""Headlines over HTTP: what a page shows of documents in lists."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from stream_lsh.documents.fields import MAX_ID_BYTES
from stream_lsh.serve import openapi
from stream_lsh.serve.bodies import body
from stream_lsh.serve.documents import json_response, media_type
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Headlines
from stream_lsh.serve.security import READ, Served

MOST_IDS = 100
_ID = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_IDS = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": {"type": "array", "items": _ID, "maxItems": MOST_IDS}, "example": ["a1", 17]}},
    }
}
router = APIRouter(prefix="/v1", tags=["documents"])


@router.post(
    "/headlines", dependencies=[READ], openapi_extra=_IDS,
    responses=openapi.answer(Headlines, "the headlines", 409, 413, 415, 422, 429),
)  # fmt: skip
async def get_headlines(request: Request, service: Served) -> Response:
    """The headline, source and time of documents, in the order of their ids; all null for a document that is not there.

    The headline is the first line of the text. With several `text_field`s it begins with the first of them.
    """
    service.intake.admit_read()
    media_type(request, JSON)
    with service.intake.taking() as holding:
        ids = _ids(await body(request, MOST_IDS * (MAX_ID_BYTES + 2), holding))
    found = await service.headlines(ids)
    return json_response({"documents": [{"id": id, **one.json} for id, one in zip(ids, found, strict=True)]})


def _ids(data: bytes) -> list[str | int]:
    """The ids of a request's body. Lone surrogates are allowed in ids."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or any(not isinstance(id, str) and type(id) is not int for id in found):
        raise Problem(422, "give a JSON list of ids, which are strings or integers", field="body")
    if len(found) > MOST_IDS:
        raise Problem(422, f"give at most {MOST_IDS} ids at a time", field="body")
    return found

"""What went wrong, as application/problem+json (RFC 9457): what it is, which field or setting, and the remedy."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from stream_lsh.documents.columns import Rejection
from stream_lsh.errors import StreamLshError, UsageError

MEDIA_TYPE = "application/problem+json"
SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string", "description": "the parameter, header, field or setting that is wrong"},
        "verdict": {"type": "object", "description": "of a document that was rejected, which has its number too"},
    },
}


_WANTED = {
    "int_parsing": "an integer", "float_parsing": "a number", "bool_parsing": "true or false",
    "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than": "less than {lt}",
    "less_than_equal": "at most {le}", "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters", "missing": "a value, as it is not there",
}  # fmt: skip
"""What a parameter has to be, by the kind of the error."""


class Problem(Exception):
    """Something that a client is told instead of an answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self._more = {**({} if field is None else {"field": field}), **(more or {})}

    @property
    def json(self) -> bytes:
        title = http.HTTPStatus(self.status).phrase
        said = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail, **self._more}
        return json.dumps(said).encode("ascii")

    def response(self) -> Response:
        return Response(self.json, self.status, self.headers, MEDIA_TYPE)

    @classmethod
    def rejected(cls, why: Rejection, verdict: bytes) -> Problem:
        """A document that cannot be taken: 409 if its id is another document's, else 422."""
        return cls(409 if why.reason == "id_reused" else 422, why.detail, more={"verdict": json.loads(verdict)})

    @classmethod
    def of(cls, error: StreamLshError) -> Problem:
        """An error of the engine: a request that the index cannot serve, or an index that cannot be used."""
        return cls(409 if isinstance(error, UsageError) else 503, str(error))


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What an operation's documentation says of its problems; some each may have."""
    return {
        status: {"description": http.HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
        for status in sorted({400, 401, 403, 503, *statuses})
    }


def explain(app: FastAPI) -> None:
    """Have an app answer with problems whatever goes wrong in it."""

    @app.exception_handler(Problem)
    async def _(_: Request, problem: Problem) -> Response:
        return problem.response()

    @app.exception_handler(StreamLshError)
    async def _(_: Request, error: StreamLshError) -> Response:
        return Problem.of(error).response()

    @app.exception_handler(Exception)
    async def _(_: Request, error: Exception) -> Response:
        return Problem(500, f"this should not happen ({type(error).__name__}); the log says more").response()

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        wanted = _WANTED.get(first["type"], "a value as /docs describes it").format(**first.get("ctx", {}))
        return Problem(422, f"{field}: give {wanted}", field=field).response()

    @app.exception_handler(HTTPException)
    async def _(_: Request, error: HTTPException) -> Response:
        return Problem(error.status_code, str(error.detail), headers=error.headers).response()

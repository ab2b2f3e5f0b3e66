"""Errors as application/problem+json (RFC 9457): the problem, its field or setting, and the remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.serve.codes import CODES, code_of
from stream_lsh.serve.heads import allowed

if TYPE_CHECKING:  # numba and FastAPI take long to import, and requests are answered before
    from fastapi import FastAPI

    from stream_lsh.documents.columns import Rejection

MEDIA_TYPE = "application/problem+json"

_WANTED = {
    "int_parsing": "an integer", "float_parsing": "a number", "bool_parsing": "true or false",
    "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than": "less than {lt}",
    "less_than_equal": "at most {le}", "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters", "missing": "a value, as it is not there",
}  # fmt: skip
"""What a parameter must be, by the kind of the validation error."""


class Problem(Exception):
    """An error response to a client.

    Args:
        code: of `CODES`; by default the general one of the status.
        after: seconds, after which the client may try it again.
        close: whether the connection is closed, and the rest of the request not read.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        field: str | None = None,
        after: int | None = None,
        close: bool = False,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code_of(status) if code is None else code
        self.headers = {
            **(headers or {}), **({} if after is None else {"Retry-After": str(after)}),
            **({"Connection": "close"} if close else {}),
        }  # fmt: skip
        self._more = {**({} if field is None else {"field": field}), **(more or {})}

    @property
    def json(self) -> bytes:
        said = {
            "type": f"/problems/{self.code}", "title": CODES[self.code].title, "status": self.status,
            "code": self.code, "detail": self.detail, **self._more,
        }  # fmt: skip
        return json.dumps(said).encode("ascii")

    def response(self) -> Response:
        return Response(self.json, self.status, self.headers, MEDIA_TYPE)

    @classmethod
    def rejected(cls, why: Rejection, verdict: bytes) -> Problem:
        """The problem for a rejected document: 409 if its id belongs to another document, else 422."""
        status, code = (409, "id_reused") if why.reason == "id_reused" else (422, "document_rejected")
        return cls(status, why.detail, code=code, more={"verdict": json.loads(verdict)})

    @classmethod
    def of(cls, error: StreamLshError) -> Problem:
        """The problem for an error of the engine: 409 for a request that the index does not support, else 503."""
        return cls(409 if isinstance(error, UsageError) else 503, str(error))


def explain(app: FastAPI) -> None:
    """Make an app answer every error with a problem."""
    from fastapi.exceptions import RequestValidationError

    @app.exception_handler(Problem)
    async def _(_: Request, problem: Problem) -> Response:
        return problem.response()

    @app.exception_handler(StreamLshError)
    async def _(_: Request, error: StreamLshError) -> Response:
        return Problem.of(error).response()

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        wanted = _WANTED.get(first["type"], "a value as /docs describes it").format(**first.get("ctx", {}))
        return Problem(422, f"{field}: give {wanted}", field=field).response()

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        headers = {"Allow": allowed(request)} if error.status_code == 405 else error.headers
        return Problem(error.status_code, str(error.detail), headers=headers).response()

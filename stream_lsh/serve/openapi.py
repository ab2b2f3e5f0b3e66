"""The OpenAPI document: bodies, headers and responses of operations, with the models of `serve.schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stream_lsh.serve import schemas
from stream_lsh.serve.codes import CODES
from stream_lsh.serve.problems import MEDIA_TYPE
from stream_lsh.serve.security import DELETE, WRITE

JSON, NDJSON = "application/json", "application/x-ndjson"
GENERAL = {400, 401, 403, 431, 500, 501, 503}  # problems of every operation
WRITES = {422, 429, 507}  # of every operation that writes
Responses = dict[int | str, dict[str, Any]]
_REF = "#/components/schemas/{model}"
_FIELDS = (
    "with the fields that the settings name: `id_field` and `text_field`; with measure = weighted-jaccard `set_field`, "
    "an object of weights by element, or a list; with measure = cosine or euclidean `vector_field`, a list of numbers "
    "or their float32 in base64; with measure = hamming `bits_field`, hexadecimal, base64 or an integer"
)
_DOCUMENT = {
    "type": "object", "description": f"a document {_FIELDS}",
    "example": {"id": "a1", "text": "The council has voted for the new bridge."},
}  # fmt: skip


def _lines(what: str) -> dict[str, Any]:
    return {NDJSON: {"schema": {"type": "string", "format": "ndjson", "description": what}}}


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}
    }  # fmt: skip


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


KEY = _header("Idempotency-Key", "name of this request: a request with the same key gets the first answer again")
MATCH = [
    _header("If-Match", 'change the document only if it has this version, as in "17"; * if it exists'),
    _header("If-None-Match", "*: add the document only if there is none with its id"),
]
DOCUMENTS = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": _DOCUMENT}, **_lines(f"one document per line, {_FIELDS}")},
    }
}
IDS = {"requestBody": {"required": True, "content": _lines("one id as JSON per line")}}
ACCEPTED: Responses = {
    202: {
        "description": "only with a pipeline on Kafka: the document is sent, but its verdict is not there in time; "
        "`Location` says where it will be", "content": {JSON: {"schema": _ref(schemas.Accepted)}},
    }
}  # fmt: skip


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON body with a model."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _ref(model)}}}}


def answer(model: type[BaseModel], description: str, *problems: int) -> Responses:
    """A response with a model, and problems with these statuses."""
    return {
        200: {"description": description, "content": {JSON: {"schema": _ref(model)}}}, **responses(*problems)
    }  # fmt: skip


def answers(model: type[BaseModel], description: str, *problems: int) -> Responses:
    """The same, and for lines an object per line."""
    found = answer(model, description, *problems)
    found[200]["content"] |= _lines(
        f'one {model.__name__} per line, in order, and a last line {{"problem": {{...}}}} after an error'
    )
    return found


def lines(model: type[BaseModel], *problems: int) -> Responses:
    """A response with an object per line, and problems with these statuses."""
    content = _lines(f'one {model.__name__} per line, in order, and a last line {{"problem": {{...}}}} after an error')
    return {200: {"description": "in the order of the lines", "content": content}, **responses(*problems)}


def text(media_type: str, description: str, *problems: int) -> Responses:
    """A response that is text, and problems with these statuses."""
    content = {media_type: {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}, **responses(*problems)}


def responses(*statuses: int) -> Responses:
    """The problem responses of an operation, with those of every operation."""
    return {status: _problem(status) for status in sorted({*GENERAL, *statuses})}


def _problem(status: int) -> dict[str, Any]:
    codes = [name for name, code in CODES.items() if code.status == status]
    found: dict[str, Any] = {
        "description": ", ".join(codes), "content": {MEDIA_TYPE: {"schema": _ref(schemas.Problem)}}
    }  # fmt: skip
    if status in (429, 503, 507):
        found["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "string"}}}
    return found


def describe(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Add the models, and the problems of writing, to the OpenAPI document of an app with these routers."""
    models = [model for model in vars(schemas).values() if isinstance(model, type) and issubclass(model, schemas.Model)]

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )  # fmt: skip
            _, defined = models_json_schema([(model, "serialization") for model in models], ref_template=_REF)
            found.setdefault("components", {}).setdefault("schemas", {}).update(defined["$defs"])
            for route in (route for router in routers for route in router.routes):
                if isinstance(route, APIRoute) and (WRITE in route.dependencies or DELETE in route.dependencies):
                    for method in route.methods or ():
                        described = found["paths"][route.path_format][method.lower()]["responses"]
                        described |= {str(status): _problem(status) for status in WRITES}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

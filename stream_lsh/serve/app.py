"""The HTTP API, /v1, and the page."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.responses import FileResponse, PlainTextResponse
from starlette.staticfiles import StaticFiles

from stream_lsh import __version__
from stream_lsh.serve import alerting, backups, documents, groups, headlines, looking, pairs
from stream_lsh.serve.codes import CODES
from stream_lsh.serve.heads import Heads
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import describe
from stream_lsh.serve.problems import Problem, explain
from stream_lsh.serve.proxies import Proxies
from stream_lsh.serve.requests import Requests
from stream_lsh.serve.security import Guard
from stream_lsh.tracing import tracer

PAGE = Path(__file__).with_name("page")
ROUTERS = (
    documents.router, headlines.router, pairs.router, groups.router, looking.router, alerting.router, backups.router,
    looking.plain,
)  # fmt: skip
DESCRIPTION = """
Documents in, verdicts out: is this document nearly the same as an earlier one?

An error is `application/problem+json`, with the field or setting that is wrong.
"""


def make_app(service: Interface) -> FastAPI:
    """The app of a service."""
    limits = service.limits
    hosts = frozenset(name.lower() for name in limits.hosts) if limits.hosts or service.tokens is None else None
    app = FastAPI(
        title="stream_lsh", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None,
        openapi_url="/v1/openapi.json", generate_unique_id_function=lambda route: route.name,
        middleware=[
            Middleware(Requests, counts=service.tally.requests, tracer=tracer()),
            *([Middleware(Proxies, trusted=limits.proxies)] if limits.proxies else []),
            Middleware(Heads),
            Middleware(Guard, origins=limits.origins, hosts=hosts),
        ],
    )  # fmt: skip
    app.state.service = service
    explain(app)
    describe(app, ROUTERS)
    for router in ROUTERS:
        app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    @app.get("/problems/{code}", include_in_schema=False)
    async def problem(code: str) -> PlainTextResponse:
        if code not in CODES:
            raise Problem(404, "there is no problem with this code", field="code")
        return PlainTextResponse(f"{CODES[code].title}. {CODES[code].remedy}\n")

    app.mount("/page", StaticFiles(directory=PAGE))
    return app

"""How clients reach the service: names and addresses, proxies, TLS; and what the log says of them."""

import logging
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support import raw_clients
from support.missing import missing
from support.serving import JSON, Serving, entry, events
from support.waiting import until

from stream_lsh.serve.proxies import Proxies, network_of
from stream_lsh.serve.requests import Counts, Requests
from stream_lsh.serve.security import Guard
from stream_lsh.serve.tokens import Token

ROOT = Path(__file__).parents[2]
NOTING = Middleware(Requests, counts=Counts(CollectorRegistry()), tracer=None)


async def shown(request: Request) -> JSONResponse:
    return JSONResponse({"url": str(request.url), "client": request.client.host if request.client else None})


async def broken(_: Request) -> JSONResponse:
    raise ZeroDivisionError


async def asked(
    *middleware: Middleware, client: str = "10.0.0.9", method: str = "GET", path: str = "/seen", **headers: str
) -> httpx.Response:
    """The answer of an app behind some middleware, which says what it was asked for."""
    routes = [Route("/health/ready", shown), Route("/seen", shown), Route("/broken", broken)]
    app = Starlette(routes=routes, middleware=middleware)
    transport = httpx.ASGITransport(app, client=(client, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as sender:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        return await sender.request(method, path, headers=said)


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//", "null", "https://evil.example"])
async def test_wrong_origin_is_refused(origin: str) -> None:
    answer = await asked(Middleware(Guard, origins=(), hosts=None), origin=origin)
    assert (answer.status_code, answer.json()["field"]) == (403, "Origin")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1:8765", 200), ("127.0.0.2", 200), ("[::1]:8765", 200), ("NEWS.example", 200),
        ("evil.example", 403), ("10.0.0.1", 403), ("[", 403), ("", 403),
    ],
)  # fmt: skip
async def test_hosts_are_those_of_loopback_and_allowed_ones(host: str, status: int) -> None:
    answer = await asked(Middleware(Guard, origins=(), hosts=frozenset({"news.example"})), host=host)
    assert answer.status_code == status


FORWARDED = {
    "x_forwarded_for": "6.6.6.6, 203.0.113.7, 10.0.0.8", "x_forwarded_proto": "https",
    "x_forwarded_host": "news.example",
}  # fmt: skip


async def test_only_trusted_proxies_are_believed() -> None:
    proxies = Middleware(Proxies, trusted=[network_of("10.0.0.0/8"), network_of("::1")])
    for client in ("10.0.0.9", "::1", "::ffff:10.0.0.9"):
        seen = (await asked(proxies, client=client, **FORWARDED)).json()
        assert seen == {"url": "https://news.example/seen", "client": "203.0.113.7"}
    seen = (await asked(proxies, client="203.0.113.7", **FORWARDED)).json()
    assert seen == {"url": "http://localhost:8765/seen", "client": "203.0.113.7"}
    for begins in ("6.6.6.6, " * 100, "6" * 1000 + ","):  # a client cannot hide behind a long header
        long = {**FORWARDED, "x_forwarded_for": begins + FORWARDED["x_forwarded_for"]}
        assert (await asked(proxies, **long)).json()["client"] == "203.0.113.7"


DESK = "https://desk.example"


async def test_pages_of_allowed_sites_send_and_read_the_headers_of_the_api() -> None:
    guard = Middleware(Guard, origins=(DESK,), hosts=None)
    asks = await asked(guard, method="OPTIONS", origin=DESK)
    assert "content-encoding" in asks.headers["access-control-allow-headers"].split(", ")
    exposed = (await asked(guard, origin=DESK)).headers["access-control-expose-headers"].split(", ")
    assert {"ETag", "Retry-After", "X-Request-Id"} <= set(exposed)


async def test_unexpected_error_is_logged_and_has_the_headers_of_every_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guards = (NOTING, Middleware(Guard, origins=(DESK,), hosts=None))
    answer = await asked(*guards, path="/broken", origin=DESK, x_request_id="one")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert (answer.headers["x-request-id"], answer.headers["access-control-allow-origin"]) == ("one", DESK)
    assert "content-security-policy" in answer.headers and "ZeroDivisionError" in caplog.text


async def test_head_is_logged_as_such_and_writes_are_described_with_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_clients.serving(tmp_path) as (port, _), httpx.AsyncClient(base_url=f"http://localhost:{port}") as it:
        with caplog.at_level(logging.INFO, "stream_lsh.serve.requests"):
            await it.head("/v1/nothing")
        paths = (await it.get("/v1/openapi.json")).json()["paths"]
    assert " method=HEAD " in caplog.text
    deletion = paths["/v1/documents/{id}"]["delete"]
    for operation in (deletion, *(paths[f"/v1/{path}"]["post"] for path in ("documents", "deletions", "backups"))):
        assert {"429", "431", "500", "507"} <= set(operation["responses"])
    assert "507" not in paths["/v1/check"]["post"]["responses"]


async def test_log_has_writes_and_refusals_without_ids(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: Request) -> JSONResponse:
        request.state.token = Token("desk", "", frozenset())
        return JSONResponse({}, int(request.query_params.get("status", "200")))

    routes = [Route("/documents/{id}", answer, methods=["GET", "DELETE"]), Route("/health/ready", answer)]
    app = Starlette(routes=routes, middleware=[NOTING])
    with caplog.at_level(logging.INFO, "stream_lsh"):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.get("/documents/secret")
            await client.get("/health/ready?status=503")
            await client.delete("/documents/secret", headers={"X-Request-Id": "of-the-client"})
            refused = await client.get("/documents/secret?status=403", headers={"X-Request-Id": "two\ttabs"})
    lines = [dict(pair.split("=", 1) for pair in line.split()) for line in caplog.messages]
    found = [(line["request"], line["token"], line["method"], line["status"]) for line in lines]
    assert found == [
        ("of-the-client", "desk", "DELETE", "200"), (refused.headers["X-Request-Id"], "desk", "GET", "403")
    ]  # fmt: skip
    assert len(found[1][0]) == 16 and "secret" not in caplog.text


def certificate(folder: Path, name: str) -> None:
    """certificate.pem and key.pem of a service with this name."""
    if shutil.which("openssl") is None:
        missing("no program openssl to make certificates with")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", f"/CN={name}",
         "-keyout", "key.new", "-out", "certificate.new"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    for part in ("certificate", "key"):
        (folder / f"{part}.new").replace(folder / f"{part}.pem")


@pytest.mark.long
def test_changed_certificate_is_read_on_another_loopback_address(tmp_path: Path) -> None:
    def shown() -> str:
        return ssl.get_server_certificate((address, int(port)))

    certificate(tmp_path, "first")
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key")}
    options = ("--tls-certificate", str(files["certificate"]), "--tls-key", str(files["key"]), "--host", "127.0.0.2")
    with Serving(tmp_path / "index", *options) as serving:
        address, port = serving.url.removeprefix("https://").split(":")
        first = shown()
        files["certificate"].write_text("nothing")
        certificate(tmp_path, "second")
        second = files["certificate"].read_text()
        until(lambda: shown().split() == second.split())
        assert first.split() != second.split()
        assert httpx.get(f"{serving.url}/v1/stats", verify=False).status_code == 200
        assert "certificate.pem was read again" in serving.stop()[1]


@contextmanager
def nginx(folder: Path, config: str) -> Iterator[None]:
    """A real nginx with this server block, until the end."""
    text = f"""
        pid {folder}/pid; error_log {folder}/error.log; worker_processes 1; events {{}}
        http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
        fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; {config} }}
    """
    (folder / "nginx.conf").write_text(text)
    with subprocess.Popen(["nginx", "-p", str(folder), "-c", "nginx.conf", "-g", "daemon off;"]) as process:
        try:
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.long
def test_nginx_of_the_page_keeps_client_scheme_and_host(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        missing("no program nginx")
    certificate(tmp_path, "news.example.org")
    tokens, port = tmp_path / "tokens.toml", free_port()
    tokens.write_text(entry("desk", "secret", "read", "write"))
    (block,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs/how-to/serve.md").read_text(), re.DOTALL)
    with Serving(tmp_path / "index", "--token-file", str(tokens), "--trusted-proxy", "127.0.0.1") as serving:
        block = block.replace("/etc/nginx", str(tmp_path)).replace("listen 443", f"listen 127.0.0.1:{port}")
        client = httpx.Client(
            base_url=f"https://127.0.0.1:{port}",
            transport=httpx.HTTPTransport(verify=False, local_address="127.0.0.3"),
            headers={"Host": "news.example.org", "Authorization": "Bearer secret", "X-Forwarded-For": "6.6.6.6"},
        )  # fmt: skip
        with nginx(tmp_path, block.replace("http://127.0.0.1:8765", serving.url)), client:

            def answers() -> bool:
                try:
                    return client.get("/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(answers)
            assert client.get("/v1/groups/").headers["location"] == "https://news.example.org/v1/groups"
            with client.stream("GET", "/v1/events") as stream:
                reported = events(stream.iter_lines())
                assert next(reported)["id"] == "0.0"
                page: dict[str, Any] = {**JSON, "Origin": "https://news.example.org"}
                added = client.post("/v1/documents", headers=page, content=b'{"id": 1, "text": "some text"}')
                assert added.status_code == 200, added.text
                assert next(reported)["event"] == "verdict"
        lines = [line for line in serving.stop()[1].splitlines() if " method=POST " in line]
        assert len(lines) == 1 and " token=desk client=127.0.0.3 " in lines[0] and "secret" not in lines[0]

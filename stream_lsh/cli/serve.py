"""`stream-lsh serve`: an index over HTTP, with a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import click

from stream_lsh.cli.extra import require_serve
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import (
    DOCUMENTS,
    GROUPS,
    INDEX,
    SECTIONS,
    SIMILARITY,
    config_option,
    load_settings,
    quiet_option,
    setting,
    state_option,
    with_options,
)

EXAMPLES = """
stream-lsh serve --state index
stream-lsh serve --state index --groups --source-field outlet --time-field published --rules rules.toml
stream-lsh serve --state index --host 0.0.0.0 --token-file tokens.toml --tls-certificate cert.pem --tls-key key.pem
"""
SERVICE = "Service"
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Serve an index over HTTP: documents in, verdicts out, and a page that shows what happens.

Documents are checked and added in the order in which they come, whoever sends them, each in one atomic step: the
answers are those of `dedup` for the same documents in the same order. An answer is given when it is on the disk.

The interface is described at /docs. Without --token-file only this machine can reach it.

SIGTERM finishes what was taken. The index can be read beside it, by query, groups and info; `delete` goes through
it.""",
)
@with_options(
    [
        Option(["--host"], default="127.0.0.1", metavar="ADDRESS", section=SERVICE, help="address  [127.0.0.1]"),
        Option(["--port"], type=click.IntRange(0, 65535), default=8765, section=SERVICE, help="0: a free one  [8765]"),
        Option(
            ["--token-file"], type=_FILE, metavar="FILE", section=SERVICE,
            help="TOML file with who may come: [name], sha256 of a token, scopes; read again when it changes",
        ),
        Option(["--tls-certificate"], type=_FILE, metavar="FILE", section=SERVICE, help="PEM file, for TLS"),
        Option(["--tls-key"], type=_FILE, metavar="FILE", section=SERVICE, help="PEM file with its key"),
        Option(
            ["--allow-origin", "origins"], multiple=True, metavar="URL", section=SERVICE,
            help="pages from there may use it from a browser; repeatable",
        ),
        Option(
            ["--max-body"], type=click.IntRange(min=1024), default=64 << 20, metavar="BYTES", section=SERVICE,
            help="of a request  [67108864]",
        ),
        Option(
            ["--max-documents"], type=click.IntRange(min=1), default=100_000, metavar="N", section=SERVICE,
            help="of a request  [100000]",
        ),
        Option(
            ["--max-waiting"], type=click.IntRange(min=1), default=20_000, metavar="N", section=SERVICE,
            help="documents that wait for their verdicts, beyond which requests are refused (429)  [20000]",
        ),
        Option(
            ["--keep-events"], type=click.IntRange(min=1), default=65_536, metavar="N", section=SERVICE,
            help="events in memory, that listeners can go back to  [65536]",
        ),
        *(setting(name) for name in SECTIONS[SIMILARITY] + SECTIONS[DOCUMENTS]),
        Option(
            ["--groups/--no-groups"], default=None, section=GROUPS,
            help="whether a new index keeps groups  [yes, under --against unique]",
        ),
        *(setting(name) for name in SECTIONS[GROUPS]),
        Option(
            ["--rules"], type=_FILE, metavar="FILE", section=GROUPS,
            help="TOML file with the rules of alerts, which go to the events",
        ),
        state_option(required=True),
        *(setting(name) for name in SECTIONS[INDEX]),
        config_option(),
        quiet_option(),
    ]
)  # fmt: skip
@click.pass_context
def serve(
    context: click.Context,
    /,
    host: str,
    port: int,
    token_file: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    origins: tuple[str, ...],
    max_body: int,
    max_documents: int,
    max_waiting: int,
    keep_events: int,
    groups: bool | None,
    rules: Path | None,
    state: Path,
    quiet: bool,
    **_: object,
) -> None:
    require_serve()
    settings = load_settings(context)

    from stream_lsh.alerts.rules import read_rules
    from stream_lsh.serve import server
    from stream_lsh.serve.service import Limits, Service
    from stream_lsh.serve.tokens import Tokens

    address = server.Address(host, port, tls_certificate, tls_key)
    server.check_address(address, token_file is not None)
    holders = Tokens(token_file) if token_file is not None else None
    found = read_rules(rules) if rules is not None else ()
    limits = Limits(max_body, max_documents, max_waiting, keep_events, origins)
    logging.basicConfig(format="stream-lsh: %(message)s", level=logging.WARNING)
    logging.getLogger("stream_lsh").setLevel(logging.ERROR if quiet else logging.INFO)

    def service(failed: Callable[[BaseException], None]) -> Service:
        return Service(
            settings, state, groups=settings.against == "unique" if groups is None else groups, rules=found,
            tokens=holders, limits=limits, failed=failed,
        )  # fmt: skip

    def started(url: str) -> None:
        if not quiet:
            who = "whoever has a token" if holders is not None else "this machine only, as there are no tokens"
            complain(f"{url} serves {state} to {who}; the page is there, the interface at {url}/docs")

    server.serve(service, address, started=started)

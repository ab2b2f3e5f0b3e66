"""`stream-lsh serve`: an index, or a pipeline on Kafka, over HTTP, with a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stream_lsh.cli.extra import SERVE_PACKAGES, require, require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import CommandWithCommands
from stream_lsh.cli.health import SERVICE_PORT
from stream_lsh.cli.options import (
    DOCUMENTS,
    FILE,
    FOLDER,
    GROUPS,
    INDEX,
    KAFKA,
    KAFKA_SECTIONS,
    RECORDS,
    SECTIONS,
    SIMILARITY,
    Number,
    config_option,
    index_option,
    load_settings,
    option,
    properties_option,
    quiet_option,
    setting,
)
from stream_lsh.cli.serve_token import token
from stream_lsh.cli.stored import bound, stored_answers
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from stream_lsh.serve.interface import Interface, Limits
    from stream_lsh.serve.tokens import Tokens

    Made = Callable[[Callable[[BaseException], None]], Interface]

EXAMPLES = """
stream-lsh serve --index index
stream-lsh serve --index index --groups --source-field outlet --time-field published --rules rules.toml
stream-lsh serve --index index --host 0.0.0.0 --token-file tokens.toml --tls-certificate cert.pem --tls-key key.pem
stream-lsh serve --kafka --config settings.toml
stream-lsh serve --kafka --config settings.toml --index copy
"""
# What is looked at on Kafka besides the settings that fix the answers.
KAFKA_NAMES = (*KAFKA_SECTIONS[KAFKA], *KAFKA_SECTIONS[RECORDS], "retention_hours")
# What is the pipeline's there, and what an index here does not have.
EMBEDDED_ONLY = ("rules", "webhooks", "erase_hours", "min_free_bytes", "backup_folder")
KAFKA_ONLY = (*KAFKA_NAMES, "properties", "answer_seconds")
_own = partial(option, "Service")
_rare = partial(_own, common=False)


@click.group(
    cls=CommandWithCommands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
    examples=EXAMPLES,
    help="""Serve an index over HTTP: documents in, verdicts out, and a page that shows both.

Documents are checked and added in the order of arrival, each in one atomic step. The answers are those of `dedup` for
the same documents in the same order. An answer means that the document is on the disk.

With --kafka it serves the pipeline of `stream-lsh kafka worker`: documents are sent to the documents topic, and answers
are read from the topics. It needs the settings of the workers. With --index, too, it keeps a copy of the workers'
shards in that folder, and answers /v1/check from it.

The API is described at /docs. Without --token-file only this machine can reach it.

SIGTERM finishes what was accepted. `query`, `groups` and `info` can read the index at the same time, and `delete` sends
its deletions to the service.""",
    params=[
        _own("--kafka", "serve a pipeline on Kafka instead of an index"),
        _own("--host ADDRESS", "address to listen on", default="127.0.0.1"),
        _own("--port N", "port to listen on; 0: a free one", click.IntRange(0, 65535), default=SERVICE_PORT),
        _own("--token-file FILE", "TOML file that `serve token add` writes; it is read again when it changes", FILE),
        _own("--tls-certificate FILE", "PEM file with the certificate, for TLS", FILE),
        _rare("--tls-key FILE", "PEM file with the private key", FILE),
        _rare(
            "--allow-origin URL", "site whose pages may use the API from a browser; repeatable", name="origins",
            multiple=True,
        ),
        _rare(
            "--allow-host NAME",
            "name under which clients reach the service, for example through a proxy; repeatable; any name with "
            "--token-file if none is given, otherwise only those of this machine", name="hosts", multiple=True,
        ),
        _rare(
            "--trusted-proxy ADDRESS",
            "address or network of a proxy whose X-Forwarded-For, -Proto and -Host are believed; repeatable",
            name="proxies", multiple=True,
        ),
        _rare("--backup-folder DIR", "folder in which POST /v1/backups makes backups", FOLDER),
        _rare("--max-body BYTES", "most bytes of a request", click.IntRange(min=1024), default=64 << 20),
        _rare("--max-documents N", "most documents of a request", click.IntRange(min=1), default=100_000),
        _rare(
            "--max-waiting N", "most documents that wait for verdicts; further requests are refused (429)",
            click.IntRange(min=1), default=20_000,
        ),
        _rare(
            "--max-waiting-bytes BYTES",
            "most bytes of bodies and answers in memory; further requests are refused (429)",
            click.IntRange(min=1024), default=256 << 20,
        ),
        _rare(
            "--min-free-bytes BYTES", "bytes that stay free on the index's disk; below that writes are refused (507)",
            click.IntRange(min=0), default=256 << 20,
        ),
        _rare(
            "--keep-events N", "events in memory, from which clients can resume; on Kafka also documents",
            click.IntRange(min=1), default=65_536,
        ),
        _rare(
            "--answer-seconds SECONDS", "on Kafka, seconds to wait for a verdict before the answer is 202",
            Number(min=0.1, max=50), default=10,
        ),
        *(setting(name) for name in SECTIONS[SIMILARITY] + SECTIONS[DOCUMENTS]),
        option(
            GROUPS, "--groups/--no-groups",
            "whether a new index keeps groups; on Kafka as the workers have it  [yes, with --compare-with kept]",
            default=None,
        ),
        *(setting(name) for name in SECTIONS[GROUPS]),
        option(GROUPS, "--rules FILE", "TOML file with the rules of alerts, which are sent as events", FILE),
        option(
            GROUPS, "--webhooks FILE", "TOML file with receivers, to which alerts are sent; it needs --rules", FILE,
            common=False,
        ),
        index_option(),
        *(setting(name) for name in SECTIONS[INDEX]),
        *(setting(name, KafkaSettings) for name in KAFKA_NAMES),
        properties_option(),
        config_option(),
        quiet_option(),
    ],
)  # fmt: skip
@click.pass_context
def serve(
    context: click.Context, /, kafka: bool, host: str, port: int, token_file: Path | None,
    tls_certificate: Path | None, tls_key: Path | None, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    if context.invoked_subcommand is not None:
        return
    _check(context, kafka)
    require("serve", "serve", SERVE_PACKAGES)
    if kafka:
        require_kafka()

    from stream_lsh.serve.address import Address, check_address, listen
    from stream_lsh.serve.proxies import network_of
    from stream_lsh.serve.tokens import Tokens

    check_address(address := Address(host, port, tls_certificate, tls_key), token_file is not None)
    if token_file is not None and not token_file.exists():
        raise UsageError(
            f"tokens file {token_file}: No such file; make it with stream-lsh serve token add NAME --token-file "
            f"{token_file}"
        )
    tokens = Tokens(token_file) if token_file is not None else None
    trusted = tuple(network_of(text) for text in given["proxies"])
    listening, address = listen(address)
    if not quiet:
        complain(f"{address.url} is starting; requests get 503 until it is ready")

    # Here, because it takes long.
    from stream_lsh.serve import request_log, server
    from stream_lsh.serve.interface import Limits

    limits = Limits(
        given["max_body"], given["max_documents"], given["max_waiting"], given["keep_events"], given["origins"],
        given["hosts"], trusted, given["answer_seconds"], given["min_free_bytes"], given["max_waiting_bytes"],
    )  # fmt: skip
    logging.basicConfig(format="stream-lsh: %(message)s", level=logging.WARNING)
    logging.getLogger("stream_lsh").setLevel(logging.ERROR if quiet else logging.INFO)
    if kafka:
        logging.getLogger("stream_lsh.kafka").setLevel(logging.ERROR)  # what it means for the service is said by it
        what, made = _pipeline(context, tokens, limits)
    else:
        what, made = str(given["folder"]), _index(context, tokens, limits)

    def started(url: str) -> None:
        if not quiet:
            clients = "clients with a token" if tokens is not None else "this machine only, as there are no tokens"
            complain(f"{url} serves {what} to {clients}; the page is at {url}, the API at {url}/docs")

    with request_log.written():
        server.serve(made, address, listening, started=started)


def _check(context: click.Context, kafka: bool) -> None:
    """Whether the options belong together.

    Raises:
        UsageError: they do not.
    """
    if not kafka and context.params["folder"] is None:
        raise UsageError("--index DIR names the index that is to be served; with --kafka it is a pipeline's topics")
    for name in EMBEDDED_ONLY if kafka else KAFKA_ONLY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            where = "an index on this machine, which --kafka is not" if kafka else "a pipeline: it needs --kafka"
            raise UsageError(f"{flag} is for {where}")


def _index(context: click.Context, tokens: Tokens | None, limits: Limits) -> Made:
    """What makes the service of an index."""
    from stream_lsh.alerts.receivers import read_receivers
    from stream_lsh.alerts.rules import read_rules
    from stream_lsh.serve.service import Service

    given = context.params
    folder, rules, webhooks = given["folder"], given["rules"], given["webhooks"]
    settings = load_settings(context, defaults=bound(stored_answers(folder), given["measure"]))
    if webhooks is not None and rules is None:
        raise UsageError("--webhooks sends the alerts of rules: give --rules FILE, too")
    found = read_rules(rules) if rules is not None else ()
    receivers = read_receivers(webhooks, found) if webhooks is not None else ()
    return lambda failed: Service(
        settings, folder, groups=given["groups"], rules=found, receivers=receivers, tokens=tokens, limits=limits,
        backups=given["backup_folder"], failed=failed,
    )  # fmt: skip


def _pipeline(context: click.Context, tokens: Tokens | None, limits: Limits) -> tuple[str, Made]:
    """What is served of a pipeline, and what makes the service."""
    from stream_lsh.serve.pipeline.service import PipelineService

    settings = load_settings(context, KafkaSettings)
    what = f"the pipeline {settings.topic_prefix} on {settings.bootstrap_servers}"
    return what, lambda failed: PipelineService(
        settings, tokens=tokens, limits=limits, failed=failed, folder=context.params["folder"]
    )  # fmt: skip


serve.add_command(token)

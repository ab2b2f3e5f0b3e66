"""`stream-lsh health`: whether the worker or service on this machine works, for a container's health check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from stream_lsh.cli.group import OPTIONS, Command
from stream_lsh.cli.options import config_option, load_settings, option, quiet_option
from stream_lsh.errors import StreamLshError
from stream_lsh.kafka.tools.workers import EVERY_ADDRESS, OTHER, service_health
from stream_lsh.kafka.tools.workers import health as report_of
from stream_lsh.wording import duration

SERVICE_PORT = 8765
EXAMPLES = """
stream-lsh health --port 8080
stream-lsh health --port 8765 --https
STREAM_LSH_HTTP_PORT=8080 stream-lsh health --quiet
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Check the worker or the service on this machine. The exit code is 0 if it works, otherwise 1.

A worker works if all roles of its processes do. A role works if it has committed, or had nothing to do, within the last
minute. A role that has stopped is named with the reason. The worker needs an http_port; its first process names the
ports of the others.

A service (`stream-lsh serve`) works if it accepts documents.""",
    params=[
        option(
            OPTIONS, "--port N", "port of the worker's first process, or of the service  [http_port, else 8765]",
            click.IntRange(1, 65535),
        ),
        option(OPTIONS, "--host ADDRESS", "address of either  [http_host; 127.0.0.1 if that is every address]"),
        option(OPTIONS, "--https", "the service has TLS; its certificate is not checked"),
        config_option(),
        quiet_option(),
    ],
)  # fmt: skip
@click.pass_context
def health(
    context: click.Context, /, port: int | None, host: str | None, https: bool, quiet: bool, **_: object
) -> None:
    from stream_lsh.kafka.settings import KafkaSettings

    settings = load_settings(context, KafkaSettings)
    ports = [port] if port is not None else [*filter(None, [settings.http_port]), SERVICE_PORT]
    live, lines = ask(host or settings.http_host, ports, https)
    if not live:
        raise StreamLshError("not live: " + "; ".join(lines))
    if not quiet:
        for line in lines:
            click.echo(line)


def ask(host: str, ports: Sequence[int], https: bool = False) -> tuple[bool, list[str]]:
    """Whether all roles of a worker are live, or a service accepts documents; and a line on each.

    Args:
        host: where it listens.
        ports: where it may listen; a worker's first process, which names the others. The first that answers counts.
        https: whether it is a service with TLS.
    """
    host = "127.0.0.1" if host in EVERY_ADDRESS else host
    silent = []
    for port in ports:
        report = report_of(host, port)
        if isinstance(report, dict):
            return _worker(host, port, report)
        http = https or report.startswith(OTHER)
        if http and (service := service_health(host, port, https)) is not None:
            return service[0], [f"service (port {port}): {service[1]}"]
        silent.append(report)
    return False, silent


def _worker(host: str, port: int, first: dict[str, Any]) -> tuple[bool, list[str]]:
    live, lines = _lines(port, first)
    for other in first.get("ports", ()):
        if other != port:
            fine, more = _lines(other, report_of(host, other))
            live &= fine
            lines += more
    return live, lines


def _lines(port: int, report: dict[str, Any] | str) -> tuple[bool, list[str]]:
    if isinstance(report, str):
        return False, [report]
    lines = []
    for role, found in report["roles"].items():
        seconds = found["seconds_since"]
        words = [
            f"{what} {duration(seconds[name])} ago"
            for name, what in (("committed", "last commit"), ("idle", "nothing to do"), ("started", "started"))
            if seconds[name] is not None
        ]
        words += [f"stopped: {found['stopped']}"] if "stopped" in found else []
        lines.append(f"{role} (port {port}): {'live' if found['live'] else 'not live'}, {', '.join(words)}")
    return bool(report["live"]), lines

"""`stream-lsh kafka health`: whether the worker on this machine is live, for a container's health check."""

from __future__ import annotations

from typing import Any

import click

from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import config_option, load_settings, quiet_option
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.kafka.tools.workers import EVERY_ADDRESS
from stream_lsh.kafka.tools.workers import health as report_of
from stream_lsh.wording import duration

EXAMPLES = """
stream-lsh kafka health --port 8080
STREAM_LSH_HTTP_PORT=8080 stream-lsh kafka health --quiet
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Check all processes of a worker on this machine. The exit code is 0 if all roles work, otherwise 1.

A role works if it has committed, or had nothing to do, within the last minute. A role that has stopped is named with
the reason. The worker needs an http_port; its first process names the ports of the others.""",
    params=[
        Option(["--port"], type=click.IntRange(1, 65535), metavar="N", help="port of the first process  [http_port]"),
        Option(
            ["--host"], metavar="ADDRESS", help="address of the worker  [http_host; 127.0.0.1 if that is every address]"
        ),
        config_option(),
        quiet_option(),
    ],
)
@click.pass_context
def health(context: click.Context, /, port: int | None, host: str | None, quiet: bool, **_: object) -> None:
    from stream_lsh.kafka.settings import KafkaSettings

    settings = load_settings(context, KafkaSettings)
    first = port or settings.http_port
    if first is None:
        raise UsageError("http_port is not set, so the worker does not answer; set it for both, or give --port")
    live, lines = ask(host or settings.http_host, first)
    if not live:
        raise StreamLshError("not live: " + "; ".join(lines))
    if not quiet:
        for line in lines:
            click.echo(line)


def ask(host: str, port: int) -> tuple[bool, list[str]]:
    """Whether all roles of a worker are live, and a line on each.

    Args:
        host: where the worker listens. port: of its first process, which names the others.
    """
    host = "127.0.0.1" if host in EVERY_ADDRESS else host
    first = report_of(host, port)
    live, lines = _lines(port, first)
    others = first.get("ports", ()) if isinstance(first, dict) else ()
    for other in others:
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

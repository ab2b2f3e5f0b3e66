"""`stream-lsh kafka status`: the state of the pipeline on one screen."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.kafka.command import PIPELINE, of_pipeline, pipeline_command, result_of
from stream_lsh.cli.options import RUNNING, json_option, option
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from stream_lsh.kafka.tools.status import Report

SECONDS = 2.0  # between two screens, and between two looks that show what moves
HOME, REST, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"  # to the top; delete what is left of the line, of the screen
CANNOT = "CANNOT LOOK"
EXAMPLES = """
stream-lsh kafka status
stream-lsh kafka status --config settings.toml --once
stream-lsh kafka status --http-port 8080
stream-lsh kafka status --workers 10.0.0.7:8080,10.0.0.8:8080
stream-lsh kafka status --json | jq .troubles
stream-lsh kafka status --serve 9200
"""


def places(text: str) -> list[tuple[str, int]]:
    """Hosts and ports from a comma list. Raises UsageError."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise UsageError(f"--workers {text}: {part!r} is not host:port (several with commas between them)")
        found.append((host.strip("[]"), int(port)))
    return found


@pipeline_command(
    (*PIPELINE, "http_port", "http_host"),
    examples=EXAMPLES,
    help="""Show the state of the pipeline on one screen: what is wrong, the worker of each role, how many documents
wait and for how long, the shards. A terminal gets a new screen every two seconds, until Ctrl-C; a pipe gets one.

Groups, positions and waiting records are read from Kafka, also while workers are down. Rows, bytes, recovery and
versions are read from the workers: at http_port of each member of the groups, or at the addresses of --workers. The
command changes nothing.

Settings that are not given are those of the pipeline. Each line below WRONG names an alert; its page is
docs/how-to/runbook/ALERT.md.""",
    params=[
        option(RUNNING, "--once", "print one screen, also on a terminal"),
        json_option(RUNNING, "print one JSON object"),
        option(
            RUNNING, "--workers HOST:PORT,...",
            "address of each worker's first process  [members of the groups, at http_port]",
        ),
        option(
            RUNNING, "--serve PORT", "serve metrics for Prometheus on this port of http_host, instead of a screen",
            click.IntRange(1, 65535),
        ),
    ],
)  # fmt: skip
def status(settings: KafkaSettings, once: bool, as_json: bool, workers: str | None, serve: int | None) -> None:
    firsts = places(workers or "")
    if serve is not None and (once or as_json or firsts):
        raise UsageError("--serve does not end, and asks no worker: leave out --once, --json and --workers")
    settings = of_pipeline(settings)
    if serve is not None:
        require_kafka("prometheus_client", "aiohttp")
        from stream_lsh.kafka.tools.exporter import exporting

        result_of(settings, exporting(settings, serve))
    elif once or as_json or not sys.stdout.isatty():
        report = result_of(settings, _once(settings, firsts))
        if as_json:
            click.echo(json.dumps(asdict(report)))
        else:
            from stream_lsh.cli.screen import lines

            click.echo("\n".join(lines(report, _title(settings))))
    else:
        result_of(settings, _watch(settings, firsts))


async def _once(settings: KafkaSettings, firsts: Sequence[tuple[str, int]]) -> Report:
    from stream_lsh.kafka.tools.observer import observing
    from stream_lsh.kafka.tools.status import report, waits_long

    async with observing(settings, firsts) as observer:
        before, seen = None, await observer.look()
        if waits_long(seen):
            await asyncio.sleep(SECONDS)
            before, seen = seen, await observer.look()
        return report(seen, settings.decision_lag, before)


async def _watch(settings: KafkaSettings, firsts: Sequence[tuple[str, int]]) -> None:
    """A screen every two seconds. After the first one, a broker that does not answer is shown, and no error."""
    from aiokafka.errors import KafkaError

    from stream_lsh.cli.screen import lines
    from stream_lsh.errors import StreamLshError
    from stream_lsh.kafka.client.connection import explain

    before: Report | None = None
    shown: list[str] = []
    while True:
        try:
            found = await _once(settings, firsts)
            shown = lines(found, _title(settings), before)
            before, trouble = found, []
        except (StreamLshError, KafkaError, OSError, TimeoutError) as error:
            if before is None:
                raise
            said = error if isinstance(error, StreamLshError) else explain(error, settings)
            trouble = [f"{CANNOT}: {said}", "The screen below is older.", ""]
        _draw([*trouble, *shown])
        await asyncio.sleep(SECONDS)


def _draw(lines: Sequence[str]) -> None:
    """Replace the screen before in one write, which does not flicker. Lines below WRONG are folded, others are cut."""
    from stream_lsh.cli.screen import BLOCKED, CRITICAL, WARNING

    columns, rows = shutil.get_terminal_size()
    drawn: list[str] = []
    for line in lines:
        if line.startswith((CANNOT, BLOCKED, CRITICAL, WARNING)):
            folded = textwrap.wrap(line, columns, subsequent_indent=" " * 10)
            loud = not line.startswith(WARNING)
            drawn += [click.style(part, bold=True, fg="red") if loud else part for part in folded]
        else:
            drawn.append(line if len(line) <= columns else line[: columns - 1] + "…")
    click.echo(HOME + "".join(f"{line}{REST}\n" for line in drawn[: rows - 1]) + BELOW, nl=False, color=True)


def _title(settings: KafkaSettings) -> str:
    return f"{settings.topic_prefix} at {settings.bootstrap_servers}"

"""`stream-lsh kafka drain`: nothing new is read, and what was read is finished."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import (
    COMMON,
    KAFKA,
    KAFKA_SECTIONS,
    RUNNING,
    load_settings,
    quiet_option,
    settings_options,
    with_options,
)
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh kafka drain
stream-lsh kafka drain --topic-prefix news --timeout 600
stream-lsh kafka drain --resume
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Pause the signers and wait until everything that was read is complete.

Drain before you install a version with other formats, change the number of shards, or switch the pipeline off.

The workers keep running: their signers pause, the other roles complete their work. The exit code is 0 when every
document that was read has its verdict and all outputs are written. After --timeout it lists what is not complete. The
signers pause until you run --resume, also in workers that start later; documents wait in their topic meanwhile.""",
)
@with_options(
    [
        Option(["--resume"], is_flag=True, section=RUNNING, help="have the signers read again"),
        Option(
            ["--timeout"], type=click.FloatRange(min=0), default=300.0, show_default=True, metavar="SECONDS",
            section=RUNNING, help="how long to wait",
        ),
        quiet_option(),
        *settings_options((*KAFKA_SECTIONS[KAFKA], *COMMON, "groups"), KafkaSettings),
    ]
)  # fmt: skip
@click.pass_context
def drain(context: click.Context, /, resume: bool, timeout: float, quiet: bool, **_: Any) -> None:
    settings = load_settings(context, KafkaSettings)
    require_kafka()
    from stream_lsh.kafka.client.connection import explained
    from stream_lsh.kafka.tools import drain as tool

    if resume:
        with explained(settings):
            paused = asyncio.run(tool.resume(settings))
        click.echo("the signers read again" if paused else "the signers do not pause: nothing to resume")
        return
    said: list[str] = []

    def report(left: list[str]) -> None:
        if left != said and not quiet:
            complain("; ".join(left))
        said[:] = left

    async def run() -> tool.Standing:
        return await tool.follow(settings, await tool.begin(settings), timeout, report)

    with explained(settings):
        found = asyncio.run(run())
    whole = "" if found.forward is not None else ", but for what forward would do, which has never run"
    click.echo(
        f"drained: {count(found.documents, 'document')} read, each with its verdict and its outputs{whole}; "
        "stream-lsh kafka drain --resume has the signers read again"
    )

"""`stream-lsh kafka skip`: a record that stops the pipeline is passed over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import (
    COMMON,
    KAFKA,
    KAFKA_SECTIONS,
    RUNNING,
    load_settings,
    settings_options,
    with_options,
)
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import size

TOPICS = ("signatures", "frames", "matches", "verdicts")
EXAMPLES = """
stream-lsh kafka skip signatures 0 4711
stream-lsh kafka skip signatures 0 4711 --yes
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Skip one record that stops a role because it cannot be read: of other settings, another version, or damaged.

The message of the stopped role names topic, partition and offset. The command shows the record and what is lost without
it. Only with --yes it is skipped. Then start the worker again. The settings must be those of the workers.

Bytes that are not a record of this program are skipped without this command. A change in a shard's changelog cannot be
skipped: every later change depends on it.""",
)
@click.argument("topic", type=click.Choice(TOPICS), metavar="|".join(TOPICS))
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@with_options(
    [
        Option(["--yes"], is_flag=True, section=RUNNING, help="do it; without, only show what it would mean"),
        *settings_options((*KAFKA_SECTIONS[KAFKA], *COMMON, "groups"), KafkaSettings),
    ]
)
@click.pass_context
def skip(context: click.Context, /, topic: str, partition: int, offset: int, yes: bool, **_: Any) -> None:
    settings = load_settings(context, KafkaSettings)
    require_kafka()
    from stream_lsh.kafka.client.connection import explained
    from stream_lsh.kafka.tools import skip as tool

    with explained(settings):
        unread = asyncio.run(tool.look(settings, topic, partition, offset))
    when = datetime.fromtimestamp(unread.timestamp / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    click.echo(f"{unread.place.topic}, partition {partition}, offset {offset}: {size(unread.size)}, {when}")
    click.echo(f"cannot be read: {unread.why}")
    click.echo(f"lost without it: {unread.lost}")
    if not yes:
        raise UsageError("nothing was changed; give --yes to have this record passed over")
    with explained(settings):
        asyncio.run(tool.skip(settings, unread))
    click.echo("it is passed over when its reader starts; start the worker again")

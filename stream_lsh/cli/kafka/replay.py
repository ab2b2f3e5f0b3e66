"""`stream-lsh kafka replay`: rejected documents are sent again."""

from __future__ import annotations

import asyncio
from datetime import datetime
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
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

TIMES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M")
EXAMPLES = """
stream-lsh kafka replay --dry-run
stream-lsh kafka replay --reason too_large --since 2026-11-01
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Send rejected documents to the documents topic again, after you have removed the cause.

An example is a larger max_document_bytes. Key, value, headers, timestamp and partition are those of the document.

It reads the dead letters that are in the topic now, and keeps its position for each reason. Repeated, or killed and
restarted, it sends no document twice, and later only new dead letters. Letters that a time range excludes count as
read. The header stream-lsh-replays says how often a document was sent again.""",
)
@with_options(
    [
        Option(
            ["--reason"], multiple=True, metavar="NAME", section=RUNNING,
            help="only those rejected for this reason, as the dead letters name it; may be repeated",
        ),
        Option(
            ["--since"], type=click.DateTime(TIMES), metavar="TIME", section=RUNNING,
            help="only documents with this timestamp or a later one (2026-11-22 or 2026-11-22T10:00:00Z)",
        ),
        Option(
            ["--until"], type=click.DateTime(TIMES), metavar="TIME", section=RUNNING,
            help="only those with an earlier one",
        ),
        Option(
            ["--most"], type=click.IntRange(min=1), default=3, show_default=True, metavar="N", section=RUNNING,
            help="leave documents that were sent again so often",
        ),
        Option(["--from-beginning"], is_flag=True, section=RUNNING, help="those that were gone through before, too"),
        Option(["--dry-run"], is_flag=True, section=RUNNING, help="only say what would be sent"),
        *settings_options((*KAFKA_SECTIONS[KAFKA], *COMMON, "groups"), KafkaSettings),
    ]
)  # fmt: skip
@click.pass_context
def replay(
    context: click.Context, /, reason: tuple[str, ...], since: datetime | None, until: datetime | None, most: int,
    from_beginning: bool, dry_run: bool, **_: Any,
) -> None:  # fmt: skip
    settings = load_settings(context, KafkaSettings)
    require_kafka()
    from stream_lsh.kafka.client.connection import explained
    from stream_lsh.kafka.tools.replay import Wanted, replay

    wanted = Wanted(frozenset(reason), _milliseconds(since), _milliseconds(until), most)
    with explained(settings):
        counts = asyncio.run(replay(settings, wanted, from_beginning=from_beginning, dry_run=dry_run))
    sent = ", ".join(f"{number:,} {name}" for name, number in counts.sent.most_common())
    done = "would be sent again" if dry_run else "sent again"
    click.echo(f"{count(counts.sent.total(), 'document')} {done}{f': {sent}' if sent else ''}")
    for number, why in (
        (counts.other_time, "outside of the time asked for"),
        (counts.too_often, f"sent again {count(most, 'time')} already"),
        (counts.foreign, "no dead letters of this program"),
    ):
        if number:
            click.echo(f"left: {number:,}, {why}")


def _milliseconds(time: datetime | None) -> int | None:
    """Of a time that says no zone, by the clock of this machine."""
    return None if time is None else int(time.timestamp() * 1000)

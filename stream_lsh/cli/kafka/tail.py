"""`stream-lsh kafka tail`: the outputs of the pipeline as lines on standard output."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import KAFKA, KAFKA_SECTIONS, load_settings, settings_options, with_options
from stream_lsh.kafka.settings import KafkaSettings

FOLDED = ("groups", "alerts")  # where the workers have `groups`
OUTPUTS = ("pairs", "verdicts", "unique", "dead-letters", *FOLDED)
EXAMPLES = """
stream-lsh kafka tail pairs
stream-lsh kafka tail verdicts --from-beginning --limit 10
stream-lsh kafka tail unique --from-beginning --until-end > unique.jsonl
stream-lsh kafka tail dead-letters --from-beginning | jq .headers
stream-lsh kafka tail groups | jq -c 'select(.total_members == 10)'
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Print the records of an output topic, a line each, as they are committed, until Ctrl-C.

pairs, verdicts, groups and alerts are JSON lines. unique has the values of the unique documents as they were produced.
dead-letters are JSON lines with the headers, which give the reason, and the original bytes. groups and alerts need
workers with `groups`. Records of aborted transactions are not shown.""",
)
@click.argument("output", type=click.Choice(OUTPUTS), metavar="|".join(OUTPUTS))
@with_options(
    [
        Option(["--from-beginning"], is_flag=True, section="Reading", help="what is there already, too"),
        Option(["--until-end"], is_flag=True, section="Reading", help="end where the topic ends now"),
        Option(
            ["--limit"], type=click.IntRange(min=1), metavar="N", section="Reading", help="end after so many lines"
        ),
        *settings_options(KAFKA_SECTIONS[KAFKA], KafkaSettings),
    ]
)  # fmt: skip
@click.pass_context
def tail(
    context: click.Context, /, output: str, from_beginning: bool, until_end: bool, limit: int | None, **_: Any
) -> None:
    settings = load_settings(context, KafkaSettings)
    require_kafka()
    asyncio.run(_print(settings, output, from_beginning, not until_end, limit))


async def _print(settings: KafkaSettings, output: str, from_beginning: bool, follow: bool, limit: int | None) -> None:
    from stream_lsh.kafka.tools.tail import tail as lines

    stream = sys.stdout.buffer
    number = 0
    found = lines(settings, output, from_beginning=from_beginning, follow=follow)
    try:
        async for line in found:
            stream.write(line + b"\n")
            stream.flush()
            number += 1
            if number == limit:
                return
    finally:
        await found.aclose()

"""`stream-lsh kafka tail`: the outputs of the pipeline as lines on standard output."""

from __future__ import annotations

import asyncio
import sys

import click

from stream_lsh.cli.kafka.command import CONNECTION, of_pipeline, pipeline_command
from stream_lsh.cli.options import option
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


@pipeline_command(
    CONNECTION,
    examples=EXAMPLES,
    help="""Print an output of the pipeline until Ctrl-C, a line for each committed record.

pairs, verdicts, groups (events of groups) and alerts are JSON lines. unique has the values of the unique documents as
they were sent. dead-letters are JSON lines with the headers, which have the reason, and the original bytes. groups and
alerts need workers with the setting `groups`.""",
    params=[
        option("Reading", "--from-beginning", "begin with the first record of the topic"),
        option("Reading", "--until-end", "stop at the present end of the topic"),
        option("Reading", "--limit N", "stop after N lines", click.IntRange(min=1)),
    ],
)
@click.argument("output", type=click.Choice(OUTPUTS), metavar="|".join(OUTPUTS))
def tail(settings: KafkaSettings, output: str, from_beginning: bool, until_end: bool, limit: int | None) -> None:
    asyncio.run(_print(of_pipeline(settings), output, from_beginning, not until_end, limit))


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

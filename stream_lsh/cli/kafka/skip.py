"""`stream-lsh kafka skip`: a record that stops the pipeline is passed over."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from stream_lsh.cli.kafka.command import PIPELINE, pipeline_command, result_of
from stream_lsh.cli.options import RUNNING, option
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import size

TOPICS = ("signatures", "frames", "matches", "verdicts")
EXAMPLES = """
stream-lsh kafka skip signatures 0 4711
stream-lsh kafka skip signatures 0 4711 --yes
"""


@pipeline_command(
    PIPELINE,
    examples=EXAMPLES,
    help="""Skip one record that stops its reader: a record of other settings, of another version, or a damaged one. The
message of the stopped role names topic, partition and offset.

The command shows the record, and what is lost without it. With --yes its reader skips it from the next start on: start
the worker again. The command needs the settings of the workers. Bytes of other programs are skipped without it. A
change in the changelog of a shard cannot be skipped, because everything after it depends on it.""",
    params=[option(RUNNING, "--yes", "skip the record; default: only show it")],
)
@click.argument("topic", type=click.Choice(TOPICS), metavar="|".join(TOPICS))
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
def skip(settings: KafkaSettings, topic: str, partition: int, offset: int, yes: bool) -> None:
    from stream_lsh.kafka.tools import skip as tool

    unread = result_of(settings, tool.look(settings, topic, partition, offset))
    when = datetime.fromtimestamp(unread.timestamp / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    click.echo(f"{unread.place.topic}, partition {partition}, offset {offset}: {size(unread.size)}, {when}")
    click.echo(f"cannot be read: {unread.why}")
    click.echo(f"lost without it: {unread.lost}")
    if not yes:
        raise UsageError("nothing was changed; give --yes to have this record passed over")
    result_of(settings, tool.skip(settings, unread))
    click.echo("it is passed over when its reader starts; start the worker again")

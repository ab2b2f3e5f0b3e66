"""`stream-lsh kafka groups`: which documents spread in a pipeline."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from stream_lsh.cli.groups import choice_options, show_groups
from stream_lsh.cli.kafka.command import CONNECTION, of_pipeline, pipeline_command
from stream_lsh.kafka.settings import KafkaSettings

EXAMPLES = """
stream-lsh kafka groups --topic-prefix news --order newest
stream-lsh kafka groups --topic-prefix news 4711
"""


@pipeline_command(
    CONNECTION,
    examples=EXAMPLES,
    help="""Show the groups of a pipeline whose workers have the setting `groups`, the largest first.

The command reads PREFIX.group-changelog into a temporary folder. GROUP is the number of a group: the command shows its
members in the order of arrival. The output is a table on a terminal, and JSON lines elsewhere.""",
    params=choice_options(),
)
@click.argument("group", type=click.IntRange(min=0), metavar="[GROUP]", required=False)
def groups(settings: KafkaSettings, **given: Any) -> None:
    # Here, because they take the Kafka client with them, and RocksDB.
    from stream_lsh.embedded.temporary import temporary_folder
    from stream_lsh.kafka.tools.groups import fetch

    with temporary_folder() as made:
        asyncio.run(fetch(of_pipeline(settings), Path(made)))
        show_groups(Path(made), **given)

"""`stream-lsh kafka groups`: which documents spread in a pipeline."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.group import Command
from stream_lsh.cli.groups import choice_options, show_groups
from stream_lsh.cli.options import KAFKA, KAFKA_SECTIONS, load_settings, settings_options, with_options
from stream_lsh.kafka.settings import KafkaSettings

EXAMPLES = """
stream-lsh kafka groups --topic-prefix news --order newest
stream-lsh kafka groups --topic-prefix news 4711
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Show the groups of a pipeline whose workers have `groups`, the largest first.

The state of the role groups is read from PREFIX.group-changelog into a temporary folder. GROUP is the number of a
group: its members are shown in the order of arrival. On a terminal this is a table, elsewhere JSON lines.""",
)
@click.argument("group", type=click.IntRange(min=0), metavar="[GROUP]", required=False)
@with_options([*choice_options(), *settings_options(KAFKA_SECTIONS[KAFKA], KafkaSettings)])
@click.pass_context
def groups(context: click.Context, /, **given: Any) -> None:
    settings = load_settings(context, KafkaSettings)
    require_kafka()
    # Here, because they take the Kafka client with them, and RocksDB.
    from stream_lsh.embedded.temporary import temporary_folder
    from stream_lsh.kafka.tools.groups import fetch

    chosen = {name: given[name] for name in ("group", "order", "since", "limit", "as_json", "plot")}
    with temporary_folder() as made:
        asyncio.run(fetch(settings, Path(made)))
        show_groups(Path(made), **chosen)

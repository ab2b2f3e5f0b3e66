"""`stream-lsh kafka delete`: documents are taken out of a pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from stream_lsh.cli.delete import json_id_option, wanted_ids
from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import (
    KAFKA,
    KAFKA_SECTIONS,
    load_settings,
    quiet_option,
    settings_options,
    with_options,
)
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh kafka delete a1 a2 --topic-prefix news --key-is-id string
withdrawn | stream-lsh kafka delete --topic-prefix news --deleted-field deleted -
"""
SETTINGS = (*KAFKA_SECTIONS[KAFKA], "id_field", "deleted_field", "key_is_id")


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Send deletions to the documents topic of a pipeline whose workers have on_conflict = "update".

Their verdicts are in the verdicts topic. With --key-is-id a deletion is a tombstone, else a record with
--deleted-field. Partitions are chosen as by produce. ID is text; with --json-id it is JSON: 17 is then a number.
- reads ids from standard input, one a line.""",
)
@click.argument("ids", nargs=-1, metavar="ID ...")
@with_options([json_id_option(), *settings_options(SETTINGS, KafkaSettings), quiet_option()])
@click.pass_context
def delete(context: click.Context, /, ids: tuple[str, ...], as_json: bool, quiet: bool, **_: Any) -> None:
    wanted = wanted_ids(ids, as_json=as_json)
    settings = load_settings(context, KafkaSettings, defaults={"on_conflict": "update"})
    require_kafka()
    from stream_lsh.kafka.tools.delete import check, lines
    from stream_lsh.kafka.tools.produce import Feeder

    check(settings)
    feeder = Feeder(settings, (), lines=lines(settings, wanted))
    try:
        asyncio.run(feeder.run())
    except BaseException:
        if feeder.partitions:
            complain(f"{count(feeder.sent, 'deletion')} acknowledged before it ended; to delete twice is no error")
        raise
    if not quiet:
        complain(
            f"{count(feeder.sent, 'deletion')} sent to {feeder.topic}; a verdict with `replaces` deleted something"
        )

"""`stream-lsh kafka delete`: documents are taken out of a pipeline."""

from __future__ import annotations

import asyncio

import click

from stream_lsh.cli.delete import json_id_option, wanted_ids
from stream_lsh.cli.failures import complain
from stream_lsh.cli.kafka.command import CONNECTION, pipeline_command
from stream_lsh.cli.options import quiet_option
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh kafka delete a1 a2 --topic-prefix news --key-is-id string
withdrawn | stream-lsh kafka delete --topic-prefix news --deleted-field deleted -
"""
SETTINGS = (*CONNECTION, "id_field", "deleted_field", "key_is_id", "id_prefix", "partitioner")


@pipeline_command(
    SETTINGS,
    examples=EXAMPLES,
    help="""Send deletions to the documents topic of a pipeline whose workers have on_conflict = "update".

With --key-is-id a deletion is a tombstone, with --deleted-field a record with that field. Its verdict is among the
others. Partitions are chosen as `produce` chooses them. ID is text; with --json-id it is JSON, and 17 is a number. -
reads ids from standard input, one a line.""",
    params=[json_id_option(), quiet_option()],
    defaults={"on_conflict": "update"},
)
@click.argument("ids", nargs=-1, metavar="ID ...")
def delete(settings: KafkaSettings, ids: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    wanted = wanted_ids(ids, as_json=as_json)
    from stream_lsh.kafka.tools.delete import check, lines
    from stream_lsh.kafka.tools.produce import Feeder

    settings = settings.one_topic
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

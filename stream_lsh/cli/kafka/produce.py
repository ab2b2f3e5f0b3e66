"""`stream-lsh kafka produce`: documents from files onto the documents topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import (
    KAFKA,
    KAFKA_SECTIONS,
    NAME,
    Number,
    load_settings,
    option,
    quiet_option,
    settings_options,
)
from stream_lsh.cli.progress import Speed, progress_display
from stream_lsh.cli.running import chosen_inputs
from stream_lsh.cli.webfeeds import chosen_feeds, feed_options
from stream_lsh.errors import InputError, UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count, duration, per_second

if TYPE_CHECKING:
    from stream_lsh.embedded.report import Progress
    from stream_lsh.kafka.tools.produce import Feeder, UnsentLines

EXAMPLES = """
stream-lsh kafka produce feed.jsonl
stream-lsh kafka produce monday.jsonl.gz tuesday.jsonl.zst --rate 1000
stream-lsh kafka produce --feed https://news.example/rss --feed-log entries.jsonl --every 5m
producer | stream-lsh kafka produce - --topic-prefix news --key url
"""
SETTINGS = (
    *KAFKA_SECTIONS[KAFKA], "give_up_seconds", "document_format", "key_is_id", "partitioner", "id_field", "text_field",
    "max_document_bytes",
)  # fmt: skip


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Send the lines of files, or the rows of tables, to the documents topic, each as a record with the document's
id as key.

FILE has JSON lines (.jsonl; also .gz, .xz, .zst), is a table (.parquet, .arrow, .csv, .tsv) or a crawl (.warc, .wet;
also compressed), or is - for standard input. Without FILE, standard input is read if it is a pipe. With --feed it sends
the new entries of web feeds instead.

With --document-format text the value is the text alone. --partitioner chooses the partition of a key, and has to be
that of your other producers. Lines keep their order, and count when all in-sync replicas have acknowledged them.""",
    params=[
        option(
            "Sending", "--rate N", "documents per second  [as fast as Kafka takes them]",
            Number(min=0, min_open=True),
        ),
        option("Sending", "--key FIELD", "field of the key  [field of the id]"),
        *settings_options(SETTINGS, KafkaSettings),
        *feed_options(),
        quiet_option(),
    ],
)  # fmt: skip
@click.argument("inputs", nargs=-1, metavar="[FILE ...]", type=NAME)
@click.pass_context
def produce(context: click.Context, /, inputs: tuple[str, ...], rate: float | None, key: str | None, **_: Any) -> None:
    asking = bool(context.params["feeds"])
    if asking and inputs:
        raise UsageError("give FILE or --feed, not both")
    names = [] if asking else chosen_inputs(inputs, "stream-lsh kafka produce feed.jsonl")
    for name in names:
        if name != "-" and Path(name).is_dir():
            raise UsageError(f"{name} is a folder; name the files in it")
    if key is not None and not key:
        raise UsageError("--key is empty; name a field, or leave it out")
    needed = {"on_conflict": "update"} if context.params["key_is_id"] else None  # such keys need it
    settings = load_settings(context, KafkaSettings, defaults=needed)
    feeds = chosen_feeds(context.params, versions=settings.updates)
    require_kafka()
    from stream_lsh.kafka.tools.produce import Feeder

    quiet = context.params["quiet"]
    if feeds is not None:
        from stream_lsh.kafka.tools.produce_feeds import send_feeds

        def said(feeder: Feeder, sent: Progress) -> None:
            if not quiet:
                complain(summary(feeder, sent))
            if feeder.excluded.count:
                complain(unsent(feeder.excluded))

        send_feeds(settings, feeds, key, rate, said)
        return
    with progress_display(
        quiet=quiet, writes_standard_output=False, words=phrases, idle="nothing acknowledged yet"
    ) as display:
        feeder = Feeder(settings, names, key_field=key, rate=rate, report=display)
        try:
            sent = asyncio.run(feeder.run())
        except BaseException:
            if feeder.partitions:
                complain(
                    f"{count(feeder.sent, 'document')} acknowledged before it ended; to continue, send the same again: "
                    "documents that arrive a second time are recognised by their ids (redelivered)"
                )
            raise
    if not quiet:
        complain(summary(feeder, sent))
    if feeder.excluded.count:
        raise InputError(unsent(feeder.excluded))


def unsent(excluded: UnsentLines) -> str:
    """The lines that could not be sent, and why."""
    more = [f"and {excluded.count - len(excluded.messages):,} more"] * (excluded.count > len(excluded.messages))
    lines = "\n  ".join([*excluded.messages, *more])
    return f"{count(excluded.count, 'line')} left out, all others sent:\n  {lines}"


def summary(feeder: Feeder, sent: Progress) -> str:
    """What was sent, in one line."""
    rate = f" ({per_second(sent.documents / sent.seconds)})" if sent.seconds > 0 else ""
    where = f"{feeder.topic}, {count(feeder.partitions, 'partition')}"
    return f"{count(sent.documents, 'document')} in {duration(sent.seconds)}{rate} to {where}"


def phrases(report: Progress, speed: Speed) -> list[str]:
    """`123,456 documents`, `38,211/s`."""
    rate = speed.documents()
    return [count(report.documents, "document"), *([per_second(rate)] if rate is not None else [])]

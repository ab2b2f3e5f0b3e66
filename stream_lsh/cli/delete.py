"""`stream-lsh delete`: documents are taken out of an index."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import (
    DOCUMENTS,
    KAFKA,
    KAFKA_SECTIONS,
    OUTPUTS,
    erase_option,
    index_option,
    load_settings,
    quiet_option,
    settings_options,
    with_options,
)
from stream_lsh.cli.stored import stored_settings
from stream_lsh.documents.fields import json_id
from stream_lsh.errors import InputError, UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.beside import delete as delete_beside
from stream_lsh.serve.beside import is_served
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh delete a1 --index index
stream-lsh delete a1 a2 --index index --unique unique.jsonl
stream-lsh delete 17 18 --json-id --index index
withdrawn | stream-lsh delete --index index -
stream-lsh delete a1 a2 --topic-prefix news --key-is-id string
"""
STANDARD = "-"
SETTINGS = (*KAFKA_SECTIONS[KAFKA], "give_up_seconds", "id_field", "deleted_field", "key_is_id")


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Delete documents from an index that was made with --on-conflict update. They are seen no more, and the
    oldest
of those that were dropped for one takes its place. With --index the verdicts go to standard output, a JSON line each;
without it, on Kafka, deletions are sent to the documents topic, and their verdicts go where all verdicts go: with
--key-is-id tombstones, else with --deleted-field records that say so. Partitions are chosen as by produce.

ID is an id of the feed, as text; with --json-id it is JSON, so that 17 is a number. - reads ids from standard input,
one a line; empty lines are passed over. An id that is not there is no error: `deleted` in its verdict is false.

What they said is erased from the disk after --erase-hours, by whatever writes to the index then, or by the command
erase. Where stream-lsh serve has the index in DIR it goes through that; nobody else may be writing to it. A feed
deletes by itself, with --deleted-field.""",
)
@click.argument("ids", nargs=-1, metavar="ID ...")
@with_options(
    [
        Option(
            ["--json-id", "as_json"], is_flag=True, section=DOCUMENTS,
            help='each ID is JSON: 17 is a number, "17" with its quotes a string',
        ),
        Option(
            ["--unique"], metavar="FILE", section=OUTPUTS,
            help="the unique documents that dedup has written: a line is added for each that goes, with who takes its "
            "place",
        ),
        Option(
            ["--groups"], metavar="FILE", section=OUTPUTS,
            help="the events of groups that dedup has written: what becomes of groups is added",
        ),
        index_option(),
        erase_option(),
        *settings_options(SETTINGS, KafkaSettings),
        quiet_option(),
    ]
)  # fmt: skip
@click.pass_context
def delete(
    context: click.Context, /, ids: tuple[str, ...], as_json: bool, unique: str | None, groups: str | None,
    folder: Path | None, erase_hours: float | None, quiet: bool, **_: Any,
) -> None:  # fmt: skip
    if not ids:
        raise UsageError("no ID: name documents, or - for ids from standard input, one a line")
    if ids.count(STANDARD) > 1:
        raise UsageError("standard input (-) is given more than once; it can be read only once")
    for option, path in (("--unique", unique), ("--groups", groups)):
        if path == STANDARD:
            raise UsageError(f"{option} - goes where the verdicts go; give the file that dedup has written")
        if path is not None and folder is None:
            raise UsageError(f"{option} is a file that dedup has written: it needs --index")
    if erase_hours is not None and folder is None:
        raise UsageError("--erase-hours is for an index on this machine: it needs --index")
    wanted = map(_json_id, chosen(ids)) if as_json else chosen(ids)
    if folder is None:
        _send(context, wanted, quiet=quiet)
        return
    for name in (*SETTINGS, "config"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} is for Kafka, --index for an index on this machine: give one")
    asked = there = 0
    for many, found, lines in deletions(wanted, folder, unique, groups, erase_hours):
        asked, there = asked + many, there + found
        click.echo(lines, nl=False)
    if not quiet:
        missing = f", {count(asked - there, 'id')} not there" if asked > there else ""
        numbers = missing and not as_json and any(id.removeprefix("-").isdecimal() for id in ids)
        hint = "; ids are text, and --json-id says that they are JSON numbers" if numbers else ""
        complain(f"{count(there, 'document')} deleted{missing}{hint}")


def _json_id(text: str) -> str | int:
    try:
        return json_id(text)
    except ValueError as error:
        raise UsageError(f"--json-id: {error}") from None


def deletions(
    ids: Iterator[str | int], folder: Path, unique: str | None, groups: str | None, erase_hours: float | None
) -> Iterator[tuple[int, int, bytes]]:
    """Delete documents; as soon as some are: how many were asked for, how many were there, and the verdicts."""
    settings = stored_settings(folder, **({} if erase_hours is None else {"erase_hours": erase_hours}))
    if is_served(folder):
        for option, given in (("--unique", unique), ("--groups", groups), ("--erase-hours", erase_hours)):
            if given is not None:
                raise UsageError(
                    f"{option}: a service has the index in {folder}, and takes no such option; leave it out, or stop "
                    "the service first"
                )
        for line in delete_beside(ids, folder):
            yield 1, b',"replaces":' in line, line
        return

    # Here, because they take numba and RocksDB with them.
    from stream_lsh.embedded.deleting import delete as deleted
    from stream_lsh.judging.verdicts import deletion, verdicts

    for judgement in deleted(ids, folder, unique, groups, settings.erase_hours):
        lines = b"".join(deletion(verdict + b"}") + b"\n" for verdict in verdicts(judgement))
        yield len(judgement.ids), int((judgement.replaces >= 0).sum()), lines


def _send(context: click.Context, ids: Iterator[str | int], *, quiet: bool) -> None:
    """Have ids deleted by records of the documents topic."""
    settings = load_settings(context, KafkaSettings, defaults={"on_conflict": "update"})
    require_kafka()
    from stream_lsh.kafka.tools.delete import check, lines
    from stream_lsh.kafka.tools.produce import Feeder

    check(settings)
    feeder = Feeder(settings, (), lines=lines(settings, ids))
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


def chosen(ids: Iterable[str]) -> Iterator[str]:
    """The ids of a command line, those of standard input in their place.

    Raises:
        InputError: a line is not UTF-8.
    """
    for id in ids:
        if id != STANDARD:
            yield id
            continue
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise InputError(f"standard input is not UTF-8: byte {error.start + 1} of line {number}") from None
            if text:
                yield text

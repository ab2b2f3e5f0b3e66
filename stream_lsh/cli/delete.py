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
    KAFKA,
    KAFKA_SECTIONS,
    OUTPUTS,
    erase_option,
    load_settings,
    quiet_option,
    settings_options,
    state_option,
    with_options,
)
from stream_lsh.cli.stored import stored_settings
from stream_lsh.documents.fields import id_of
from stream_lsh.errors import InputError, UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.beside import delete as delete_beside
from stream_lsh.serve.beside import is_served
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh delete a1 --state index
stream-lsh delete a1 a2 17 --state index --unique unique.jsonl
withdrawn | stream-lsh delete --state index -
stream-lsh delete a1 a2 --topic-prefix news --key-is-id string
"""
STANDARD = "-"
SETTINGS = (*KAFKA_SECTIONS[KAFKA], "give_up_seconds", "id_field", "deleted_field", "key_is_id")


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Delete documents from an index that was made with --on-same-id update. They are seen no more, and the oldest
of those that were dropped for one takes its place. With --state the verdicts go to standard output, a JSON line each;
without it, on Kafka, deletions are sent to the documents topic, and their verdicts go where all verdicts go: with
--key-is-id tombstones, else with --deleted-field records that say so. Partitions are chosen as by produce.

ID is an id of the feed. 17 is the number, '"17"' with quotes of its own the text; what is neither an integer nor a JSON
text is a text as it is. - reads ids from standard input, one a line. An id that is not there is no error.

What they said is erased from the disk after --erase-hours, by whatever writes to the index then, or by the command
erase. Where stream-lsh serve has the index in DIR it goes through that; nobody else may be writing to it. A feed
deletes by itself, with --deleted-field.""",
)
@click.argument("ids", nargs=-1, metavar="ID ...")
@with_options(
    [
        Option(
            ["--unique"], metavar="FILE", section=OUTPUTS,
            help="the unique documents that dedup has written: a line is added for each that goes, with who takes its "
            "place",
        ),
        Option(
            ["--groups"], metavar="FILE", section=OUTPUTS,
            help="the events of groups that dedup has written: what becomes of groups is added",
        ),
        state_option(),
        erase_option(),
        *settings_options(SETTINGS, KafkaSettings),
        quiet_option(),
    ]
)  # fmt: skip
@click.pass_context
def delete(
    context: click.Context, /, ids: tuple[str, ...], unique: str | None, groups: str | None, state: Path | None,
    erase_hours: float | None, quiet: bool, **_: Any,
) -> None:  # fmt: skip
    if not ids:
        raise UsageError("no ID: name documents, or - for ids from standard input, one a line")
    if ids.count(STANDARD) > 1:
        raise UsageError("standard input (-) is given more than once; it can be read only once")
    for option, path in (("--unique", unique), ("--groups", groups)):
        if path == STANDARD:
            raise UsageError(f"{option} - goes where the verdicts go; give the file that dedup has written")
        if path is not None and state is None:
            raise UsageError(f"{option} is a file that dedup has written: it needs --state")
    if erase_hours is not None and state is None:
        raise UsageError("--erase-hours is for an index on this machine: it needs --state")
    if state is None:
        _send(context, map(id_of, chosen(ids)), quiet=quiet)
        return
    for name in (*SETTINGS, "config"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} is for Kafka, --state for an index on this machine: give one")
    asked = there = 0
    for many, found, lines in deletions(map(id_of, chosen(ids)), state, unique, groups, erase_hours):
        asked, there = asked + many, there + found
        click.echo(lines, nl=False)
    if not quiet:
        missing = f", {count(asked - there, 'id')} not there" if asked > there else ""
        complain(f"{count(there, 'document')} deleted{missing}")


def deletions(
    ids: Iterator[str | int], state: Path, unique: str | None, groups: str | None, erase_hours: float | None
) -> Iterator[tuple[int, int, bytes]]:
    """Delete documents; as soon as some are: how many were asked for, how many were there, and the verdicts."""
    settings = stored_settings(state, **({} if erase_hours is None else {"erase_hours": erase_hours}))
    if is_served(state):
        for option, given in (("--unique", unique), ("--groups", groups), ("--erase-hours", erase_hours)):
            if given is not None:
                raise UsageError(
                    f"{option}: a service has the index in {state}, and takes no such option; leave it out, or stop "
                    "the service first"
                )
        for line in delete_beside(ids, state):
            yield 1, b'"replaces":' in line, line
        return

    # Here, because they take numba and RocksDB with them.
    from stream_lsh.embedded.deleting import delete as deleted
    from stream_lsh.judging.verdicts import verdict_lines

    for judgement in deleted(ids, state, unique, groups, settings.erase_hours):
        yield len(judgement.ids), int((judgement.replaces >= 0).sum()), verdict_lines(judgement)


def _send(context: click.Context, ids: Iterator[str | int], *, quiet: bool) -> None:
    """Have ids deleted by records of the documents topic."""
    settings = load_settings(context, KafkaSettings, defaults={"on_same_id": "update"})
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
        complain(f"{count(feeder.sent, 'deletion')} sent to {feeder.topic}")


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
                text = line.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise InputError(f"standard input is not UTF-8: byte {error.start + 1} of line {number}") from None
            if text:
                yield text

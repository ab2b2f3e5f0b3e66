"""`stream-lsh delete`: documents are taken out of an index."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import DOCUMENTS, OUTPUTS, erase_option, index_option, option, quiet_option
from stream_lsh.cli.stored import stored_settings
from stream_lsh.documents.fields import json_id
from stream_lsh.errors import InputError, UsageError
from stream_lsh.serve.beside import delete as delete_beside
from stream_lsh.serve.beside import is_served
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh delete a1 --index index
stream-lsh delete a1 a2 --index index --unique unique.jsonl
stream-lsh delete 17 18 --json-id --index index
withdrawn | stream-lsh delete --index index -
"""
STANDARD = "-"


def json_id_option() -> Option:
    """`--json-id`: what IDs are."""
    return option(
        DOCUMENTS, "--json-id", 'each ID is JSON: 17 is a number, "17" with its quotes a string', name="as_json"
    )  # fmt: skip


def wanted_ids(ids: Sequence[str], *, as_json: bool) -> Iterator[str | int]:
    """The ids of a command line, as text or as JSON. Raises UsageError: there are none, or standard input twice."""
    if not ids:
        raise UsageError("no ID: name documents, or - for ids from standard input, one a line")
    if ids.count(STANDARD) > 1:
        raise UsageError("standard input (-) is given more than once; it can be read only once")
    return map(_json_id, chosen(ids)) if as_json else chosen(ids)


def _json_id(text: str) -> str | int:
    try:
        return json_id(text)
    except ValueError as error:
        raise UsageError(f"--json-id: {error}") from None


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Delete documents from an index that was made with --on-conflict update, and write a verdict for each. The
oldest document that was dropped for a deleted one becomes the representative of its group.

ID is the id of a document, as text; with --json-id it is JSON, and 17 is a number. - reads ids from standard input, one
a line; empty lines are skipped. An unknown id is no error: `deleted` in its verdict is false.

The deleted texts are erased from the disk after --erase-hours, by the next run that writes to the index, or by
`stream-lsh erase`. If `stream-lsh serve` uses the index, the command sends the deletions to it. No other process may be
writing to the index. A feed can also delete, with --deleted-field.""",
    params=[
        json_id_option(),
        option(
            OUTPUTS, "--unique FILE", "file of unique documents that dedup has written; a line is added for each "
            "deleted document, with the new representative",
        ),
        option(
            OUTPUTS, "--groups FILE", "file of group events that dedup has written; the new events are added"
        ),
        index_option(required=True),
        erase_option(),
        quiet_option(),
    ],
)  # fmt: skip
@click.argument("ids", nargs=-1, metavar="ID ...")
def delete(
    ids: tuple[str, ...], as_json: bool, unique: str | None, groups: str | None, folder: Path,
    erase_hours: float | None, quiet: bool,
) -> None:  # fmt: skip
    wanted = wanted_ids(ids, as_json=as_json)
    for flag, path in (("--unique", unique), ("--groups", groups)):
        if path == STANDARD:
            raise UsageError(f"{flag} - is where the verdicts are written; give the file that dedup has written")
    asked = there = 0
    for many, found, lines in deletions(wanted, folder, unique, groups, erase_hours):
        asked, there = asked + many, there + found
        click.echo(lines, nl=False)
    if not quiet:
        missing = f", {count(asked - there, 'id')} not found" if asked > there else ""
        numbers = missing and not as_json and any(id.removeprefix("-").isdecimal() for id in ids)
        hint = "; ids are text; use --json-id for JSON numbers" if numbers else ""
        complain(f"{count(there, 'document')} deleted{missing}{hint}")


def deletions(
    ids: Iterator[str | int], folder: Path, unique: str | None, groups: str | None, erase_hours: float | None
) -> Iterator[tuple[int, int, bytes]]:
    """Delete documents; as soon as some are: how many were asked for, how many were there, and the verdicts."""
    settings = stored_settings(folder, **({} if erase_hours is None else {"erase_hours": erase_hours}))
    if is_served(folder):
        for flag, given in (("--unique", unique), ("--groups", groups), ("--erase-hours", erase_hours)):
            if given is not None:
                raise UsageError(
                    f"{flag}: a service has the index in {folder}, and takes no such option; leave it out, or stop "
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

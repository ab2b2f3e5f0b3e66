"""`stream-lsh erase`: what was deleted leaves the disk."""

from __future__ import annotations

from pathlib import Path

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import INDEX, index_option, option, quiet_option
from stream_lsh.cli.stored import stored_settings
from stream_lsh.errors import StoreError
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh erase --index index
stream-lsh erase --index index --now
"""
_IN_USE = "is in use by another process"  # as the index says it


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Erase deleted and replaced versions from an index: ids, texts, signatures. No answer changes. A run that
writes to the index does the same after --erase-hours, so this is for an index without such runs.

No other process may be writing to the index: a service or a run erases by itself. Files that dedup has written (unique
documents, verdicts, pairs) are not changed.""",
    params=[
        index_option(required=True),
        option(INDEX, "--now", "also versions that are not due yet"),
        quiet_option(),
    ],
)
def erase(folder: Path, now: bool, quiet: bool) -> None:
    stored_settings(folder)  # there is one

    # Here, because it takes numba and RocksDB with it.
    from stream_lsh.embedded import erasure
    from stream_lsh.embedded.information import reading

    with reading(folder) as store:
        before = erasure.erasure(store)
    try:
        after = erasure.erase(folder, everything=now)
    except StoreError as error:
        if _IN_USE not in str(error):
            raise
        raise StoreError(
            f"the index in {folder} {_IN_USE}, which erases by itself what was deleted or replaced, after its "
            "erase_hours; stop that process to erase sooner"
        ) from None
    if now and after.waiting:
        raise StoreError(f"another process checks the files of {folder}: erase again when that is done")
    if not quiet:
        left = f", {count(after.waiting, 'version')} not due yet" if after.waiting else ""
        complain(f"{count(after.erased - before.erased, 'version')} erased{left}")

"""`stream-lsh backup`: a copy of an index, also while a service writes to it."""

from __future__ import annotations

from pathlib import Path

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import FOLDER, index_option, quiet_option
from stream_lsh.cli.stored import stored_settings
from stream_lsh.serve.beside import backup as backup_beside
from stream_lsh.serve.beside import is_served
from stream_lsh.wording import count, size

EXAMPLES = """
stream-lsh backup backups/monday --index index
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Copy an index to DIR, as it is at one commit. DIR must not exist.

If `stream-lsh serve` uses the index, the service makes the backup, and accepts documents meanwhile. No other process
may be writing to the index. Files of the index that never change are hard links if DIR is on the same file system: copy
DIR to another disk or machine.

The outputs of `dedup` are not copied. `stream-lsh restore` makes an index of the backup.""",
    params=[index_option(required=True), quiet_option()],
)
@click.argument("destination", metavar="DIR", type=FOLDER)
def backup(destination: Path, folder: Path, quiet: bool) -> None:
    stored_settings(folder)  # there is one
    destination = destination.absolute()
    if is_served(folder):
        next_seq, written = backup_beside(folder, destination)
    else:
        from stream_lsh.embedded.backups import backup_of  # here, because it takes numba and RocksDB with it

        made = backup_of(folder, destination)
        next_seq, written = made.next_seq, made.size
    if not quiet:
        complain(f"{destination} has the index after {count(next_seq, 'document')}, {size(written)}")

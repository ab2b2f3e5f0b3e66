"""`stream-lsh restore`: an index out of a backup."""

from __future__ import annotations

from pathlib import Path

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import FOLDER, index_option, quiet_option
from stream_lsh.wording import count, size

EXAMPLES = """
stream-lsh restore backups/monday --index index
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Copy the backup in DIR to the folder of --index, which must not exist, and compare every byte with its
checksums. The backup is not changed.""",
    params=[index_option(required=True), quiet_option()],
)
@click.argument("source", metavar="DIR", type=FOLDER)
def restore(source: Path, folder: Path, quiet: bool) -> None:
    from stream_lsh.embedded import backups  # here, because it takes numba and RocksDB with it

    made = backups.restore(source, folder)
    if not quiet:
        complain(f"{folder} has the index after {count(made.next_seq, 'document')}, {size(made.size)}")

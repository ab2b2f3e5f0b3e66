"""`stream-lsh set-stream-time`: the way back after wrong event times, of an index."""

from __future__ import annotations

from pathlib import Path

import click

from stream_lsh.cli.group import Command
from stream_lsh.cli.options import index_option
from stream_lsh.cli.stored import stored_settings

EXAMPLES = """
stream-lsh set-stream-time 2026-11-22T03:00:00Z --index index
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Set the stream time of an index back to TIME, after wrong event times have moved it ahead. Correct or leave
out the wrong times first.

TIME is the event time of the documents that come now. Documents with that event time are then compared with what is in
the window, and the window moves on with them. What the jump has removed from the window stays removed. A TIME that is
too early is a jump again, as soon as later documents come. Alerts count from TIME, also without a window.

No other process may be writing to the index. `stream-lsh info` shows the stream time.""",
    params=[index_option(required=True)],
)
@click.argument("time")
def set_stream_time(folder: Path, time: str) -> None:
    settings = stored_settings(folder, erase_hours=None)  # only runs can erase what runs have left beside the index

    # Here, because it takes numba and RocksDB with it.
    from stream_lsh.api.deduplicator import Deduplicator

    with Deduplicator(settings, index=folder) as deduplicator:
        deduplicator.set_stream_time(time)

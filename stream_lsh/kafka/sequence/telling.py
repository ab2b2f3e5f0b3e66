"""What the shards are told, where several of them keep, and when; pure.

The log is cut into blocks of documents. With the frame with which a block begins, each shard learns what was dropped of
its rows of the block before the last. So a frame waits until all before the last block are decided, and at most two
blocks are under way.
"""

from __future__ import annotations

from stream_lsh.kafka.group.decided import Decided
from stream_lsh.settings import Settings
from stream_lsh.wire.decisions import dropped_of


def told_with(first: int, documents: int, block: int) -> tuple[int, int] | None:
    """The places of the log whose fate is told with a frame of so many documents (at most a block), which come after
    `first` others; None: nothing is."""
    number = -(-first // block)
    if number < 2 or number * block >= first + documents:
        return None
    return (number - 2) * block, (number - 1) * block


def telling(decided: Decided, begin: int, end: int, settings: Settings) -> list[bytes]:
    """What a frame tells each shard of the documents at the places [begin, end), which are decided.

    Raises:
        StateError: decisions are missing.
    """
    known = decided.since(begin)
    return [dropped_of(known, shard, begin, end).encode(settings) for shard in range(settings.shards)]

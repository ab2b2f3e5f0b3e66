"""How far the judge is: what it commits beside its position, and what the sequencer reads there."""

from __future__ import annotations

from contextlib import suppress

import orjson

from stream_lsh.errors import StateError


def metadata(last: int) -> str:
    """What is committed beside the position: the last complete frame."""
    return orjson.dumps({"last": last}).decode()


def last_of(text: str, group: str) -> int:
    """What `metadata` has written. group: the judge's.

    Raises:
        StateError: somebody else has committed.
    """
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        last = orjson.loads(text)["last"]
        if isinstance(last, int):
            return last
    raise StateError(
        f"the committed offset of the consumer group {group} does not say after which frame it stands ({text[:80]!r}): "
        "it was set by hand. Rebuild into a new topic_prefix with `stream-lsh reindex`"
    )

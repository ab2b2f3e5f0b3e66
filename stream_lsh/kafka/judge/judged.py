"""How far the judge is: what it commits beside its position, and what the sequencer reads there."""

from __future__ import annotations

from contextlib import suppress

import orjson

from stream_lsh.errors import StateError
from stream_lsh.wire.envelope import OLDER

VERSION = 2


def metadata(last: int) -> str:
    """What is committed beside the position: the last complete frame."""
    return orjson.dumps({"version": VERSION, "last": last}).decode()


def last_of(text: str, group: str) -> int:
    """What `metadata` has written. group: the judge's.

    Raises:
        StateError: somebody else has committed, or another version.
    """
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        found = orjson.loads(text)
        last, version = found["last"], found.get("version", 1)
        if isinstance(last, int) and isinstance(version, int):
            if version == VERSION:
                return last
            raise StateError(
                f"the committed offset of the consumer group {group} was written by version {version}, this is "
                f"{VERSION}: {'upgrade this worker' if version > VERSION else OLDER}"
            )
    raise StateError(
        f"the committed offset of the consumer group {group} does not say after which frame it stands ({text[:80]!r}): "
        "it was set by hand. Rebuild into a new topic_prefix with `stream-lsh reindex`"
    )

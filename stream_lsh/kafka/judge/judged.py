"""How far the judge is: what it commits beside its position, and what the sequencer reads there."""

from __future__ import annotations

from contextlib import suppress

import orjson

from stream_lsh.errors import StateError
from stream_lsh.wire.envelope import OLDER

VERSION = 2


def metadata(last: int, documents: str | None = None, decided: int | None = None) -> str:
    """What is committed beside the position: the last complete frame, the documents topic, and how many documents have
    their verdict, where that is known."""
    facts = {"documents": documents or None, "decided": decided}
    known = {name: value for name, value in facts.items() if value is not None}
    return orjson.dumps({"version": VERSION, "last": last} | known).decode()


def decided_of(text: str) -> int | None:
    """How many documents have their verdict; None: a judge before this version has written it."""
    found = orjson.loads(text).get("decided")
    return found if isinstance(found, int) else None


def last_of(text: str, group: str, documents: str | None = None) -> int:
    """The last complete frame, as `metadata` has written it.

    Args:
        group: the judge's. documents: the topic that the verdicts are to be about.

    Raises:
        StateError: somebody else has committed, or another version, or a judge of another documents topic.
    """
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        found = orjson.loads(text)
        last, version = found["last"], found.get("version", 1)
        if isinstance(last, int) and isinstance(version, int):
            if version == VERSION:
                if documents and found.get("documents", documents) != documents:
                    raise StateError(
                        f"the group {group} has judged {found['documents']} so far, and documents_topic is {documents} "
                        "now: use one topic_prefix for one documents topic"
                    )
                return last
            raise StateError(
                f"the committed offset of the consumer group {group} was written by version {version}, this is "
                f"{VERSION}: {'upgrade this worker' if version > VERSION else OLDER}"
            )
    raise StateError(
        f"the committed offset of the consumer group {group} does not say after which frame it stands ({text[:80]!r}): "
        "it was set by hand. Rebuild into a new topic_prefix with `stream-lsh reindex`"
    )

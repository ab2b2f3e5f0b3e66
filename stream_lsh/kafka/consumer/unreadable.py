"""Unreadable records in the pipeline's own topics: which are skipped, and the error for the others.

By the chain rule (docs/internals/protocol.md) a skipped record is never lost silently: the records after it are ignored
until it is written again. Every reader skips bytes that no version of this program writes. A record of another version,
of other settings, or with damage may be needed. It stops the role until an operator names it (`stream-lsh kafka skip`).
"""

from __future__ import annotations

import logging

import orjson

from stream_lsh.embedded.often import Often
from stream_lsh.errors import ForeignError, StoreError
from stream_lsh.kafka.consumer import state
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import FOREIGN, Probe
from stream_lsh.kafka.settings import KafkaSettings

SAY_SECONDS = 30.0  # between two warnings
SKIPPED = "skip"
"""The key of the record in the topic `state` with the offsets that an operator has named, as JSON metadata."""
SKIPPABLE = {"signatures": "sequence", "frames": "match", "matches": "judge", "verdicts": "forward"}
"""Topics, as attributes of `Topics`, and their readers. (The changelog is not among them: each record needs all
before it.)"""


def named(marks: state.Commits, topic: str, partition: int) -> list[int]:
    """The offsets that an operator has named, ascending. marks: what is recorded as `SKIPPED`."""
    _, offsets = marks.get(topic, {}).get(partition, (0, "[]"))
    found: list[int] = orjson.loads(offsets)
    return found


class Unreadable:
    """What a role does with unreadable records."""

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        self._settings = settings
        self._probe = probe
        self._log = logging.getLogger(f"stream_lsh.kafka.{probe.role}")
        self._often = Often(SAY_SECONDS)
        self._passed = 0

    async def pass_over(self, topic: str, partition: int, offset: int, error: StoreError) -> None:
        """Return if a record may be skipped. It is counted, and a warning is logged.

        Args:
            error: why it cannot be read.

        Raises:
            StoreError: the record may not be skipped. The message is that of `error`, with the place and the remedy.
        """
        where = f"{topic}, partition {partition}, offset {offset}"
        if isinstance(error, ForeignError):
            self.passed(where, FOREIGN, error)
        elif offset in named(await state.recorded(self._settings, SKIPPED), topic, partition):
            self.passed(where, "skipped", error)
        else:
            topics = Topics.of(self._settings)
            name = next((name for name in SKIPPABLE if getattr(topics, name) == topic), None)
            skip = f". Or have this one passed over: stream-lsh kafka skip {name} {partition} {offset}" if name else ""
            raise type(error)(f"{where}: {error}{skip}") from None

    def passed(self, where: str, reason: str, error: StoreError) -> None:
        """Count a skipped record and log a warning."""
        self._probe.ignored(reason)
        self._passed += 1
        if self._often.due():
            more = f" ({self._passed} since the last such line)" if self._passed > 1 else ""
            self._log.warning("%s is passed over%s: %s", where, more, error)
            self._passed = 0

"""The log of documents with which the engine fails."""

from __future__ import annotations

import logging

from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.kafka.client.often import Often
from stream_lsh.wire.source import Source

SAY_SECONDS = 30.0  # between two warnings
SHOWN = 200  # characters of an id

log = logging.getLogger("stream_lsh.kafka.sign")


class EngineErrors:
    """Logs documents that are rejected as `engine_error`, one every 30 s at most. topic: that of the documents."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._often = Often(SAY_SECONDS)
        self._found = 0

    def look(self, source: Source) -> None:
        """Look for them in a signed frame."""
        for i, why in source.rejected.items():
            if why.reason != ENGINE_ERROR:
                continue
            self._found += 1
            if self._often.due():
                more = f" ({self._found} documents since the last such line)" if self._found > 1 else ""
                log.warning(
                    "%s, partition %d, offset %d, id %s: rejected as engine_error%s: %s", self._topic,
                    source.partitions[i], source.offsets[i], source.ids[i].decode("utf-8", "replace")[:SHOWN], more,
                    why.detail,
                )  # fmt: skip
                self._found = 0

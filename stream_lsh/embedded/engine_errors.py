"""The log of documents with which the engine fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.embedded.often import Often

SAY_SECONDS = 30.0  # between two warnings


class EngineErrors:
    """Logs documents that are rejected as `engine_error`, one every 30 s at most."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._often = Often(SAY_SECONDS)
        self._found = 0

    def look(
        self, rejected: Mapping[int, Rejection], name: Callable[[int], str], outcome: str = "rejected as engine_error"
    ) -> None:
        """Look for them among rejected documents.

        Args:
            rejected: why each was, by its place. name: of the document at a place, for people. outcome: for people,
                too.
        """
        for place, why in rejected.items():
            if why.reason != ENGINE_ERROR:
                continue
            self._found += 1
            if self._often.due():
                more = f" ({self._found} documents since the last such line)" if self._found > 1 else ""
                self._log.warning("%s: %s%s: %s", name(place), outcome, more, why.detail)
                self._found = 0

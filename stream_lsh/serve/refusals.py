"""Requests that the server refuses by itself, before any app: they are counted, and logged now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from stream_lsh.embedded.often import Often
from stream_lsh.serve.request_log import LOG

LOG_SECONDS = 10.0  # between two lines about refusals with the same status


class Refusals:
    """The refusals of a server.

    Attributes:
        count: called for each refusal; None until there is a service.
    """

    def __init__(self) -> None:
        self.count: Callable[[], None] | None = None
        self._often = Often(LOG_SECONDS)
        self._unsaid: Counter[int] = Counter()

    def add(self, status: int, client: str) -> None:
        """Count a refusal. client: its address, for the log."""
        if self.count is not None:
            self.count()
        self._unsaid[status] += 1
        if self._often.due(status):
            LOG.info(
                "time=%s request=- token=- client=%s method=- route=- status=%d requests=%d",
                datetime.now(UTC).isoformat(timespec="milliseconds"), client, status, self._unsaid.pop(status),
            )  # fmt: skip

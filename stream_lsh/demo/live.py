"""The demo's feed into a service, at the pace of a busy newsroom, until the demo ends."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from stream_lsh.demo.feed import TEXT_FIELDS, feed_lines
from stream_lsh.serve.service import Service
from stream_lsh.settings.model import Settings

TICKS = 4  # a second, at each of which some documents are sent


def service(folder: Path, failed: Callable[[BaseException], None]) -> Service:
    """A service for the feed."""
    settings = Settings.model_validate({"text_field": TEXT_FIELDS, "time_field": "ts", "source_field": "source"})
    return Service(settings, folder, failed=failed)


class Flow:
    """A thread that sends documents to a service until there are no more, or `stop` is called.

    Args:
        url: of the service. rate: documents a second.
    """

    def __init__(self, url: str, documents: int, seed: int, rate: int) -> None:
        self._place = urlsplit(url).netloc
        self._lines = feed_lines(documents, seed)
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, sent = http.client.HTTPConnection(self._place, timeout=60), 0.0
        while not self._stop.wait(1 / TICKS):
            before, sent = int(sent), sent + self._rate / TICKS
            body = b"".join(islice(self._lines, int(sent) - before))
            if not body:
                if sent >= 1:
                    return
                continue
            try:
                connection.request("POST", "/v1/documents", body, {"Content-Type": "application/x-ndjson"})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):  # the service ends
                return

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()
        self._thread.join()

"""URLs of web feeds, and the pause between two requests to one host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


def wrong_with(url: str) -> str | None:
    """What is wrong with the URL of a feed, as the end of a sentence; None if it can be fetched."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"it is no URL ({error})"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it does not begin with http://HOST or https://HOST"
    if parts.username is not None or parts.password is not None:
        return "it has a user or a password in it, which the log of entries would show"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "it has characters that a URL has only encoded (%20)"
    return None


class Turns:
    """One request to a host at a time, and a pause of so many seconds between two."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._hosts: dict[str, tuple[asyncio.Lock, list[float]]] = {}

    @asynccontextmanager
    async def of(self, url: str) -> AsyncIterator[None]:
        """Wait until it is this URL's turn; the turn lasts as long as the context."""
        loop = asyncio.get_running_loop()
        lock, ended = self._hosts.setdefault((urlsplit(url).hostname or "").lower(), (asyncio.Lock(), []))
        async with lock:
            if ended:
                await asyncio.sleep(ended[-1] + self._pause - loop.time())
            try:
                yield
            finally:
                ended[:] = [loop.time()]

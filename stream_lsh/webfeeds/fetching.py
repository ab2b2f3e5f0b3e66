"""One visit to a web feed: a conditional request, with limits, and what its answer means; the turns of hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stream_lsh.embedded.pages import Refusal, TooLarge, decompressed
from stream_lsh.embedded.webhook import retry_after
from stream_lsh.webfeeds.state import FeedState

if TYPE_CHECKING:
    import httpx

_REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {
    "User-Agent": "stream-lsh (feed reader)",
    "Accept": "application/rss+xml, application/atom+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """bytes: of an answer, also decompressed. seconds: of a request with its answer. redirects: followed by one visit.
    pause: seconds between two requests to a host. at_once: requests."""

    bytes: int = 4 * 2**20
    seconds: float = 60.0
    redirects: int = 5
    pause: float = 1.0
    at_once: int = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """data: of the feed, None if there is none. wrong: why, as the end of a sentence; None if the feed has not changed.
    after: seconds that the server wants before the next request, by Retry-After. etag, modified: its ETag and
    Last-Modified, which the next request asks about. base: the URL after redirects."""

    data: bytes | None = None
    wrong: str | None = None
    after: float = 0.0
    etag: str | None = None
    modified: str | None = None
    base: str = ""
    type: str = ""


async def visit(client: httpx.AsyncClient, turns: Turns, url: str, known: FeedState, limits: Limits) -> Answer:
    """Fetch a feed, if it has changed. Never raises for what a server does."""
    import httpx

    at = url
    try:
        for _ in range(limits.redirects + 1):
            async with turns.of(at), asyncio.timeout(limits.seconds):
                answer, location = await _request(client, at, known, limits)
            if location is None:
                return answer
            at = str(httpx.URL(at).join(location))
            if (wrong := wrong_with(at)) is not None:
                return Answer(wrong=f"it redirects to {at[:200]!r}: {wrong}")
    except TimeoutError:
        return Answer(wrong=f"the answer took more than {limits.seconds:g} s")
    except TooLarge:
        return Answer(wrong=f"it has more than {limits.bytes} bytes")
    except Refusal as refusal:
        return Answer(wrong=str(refusal))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Answer(wrong=f"{type(error).__name__}: {error}"[:300])
    return Answer(wrong=f"it redirects more than {limits.redirects} times")


async def _request(client: httpx.AsyncClient, url: str, known: FeedState, limits: Limits) -> tuple[Answer, str | None]:
    """The answer to one request, or where it redirects to."""
    headers = dict(HEADERS)
    for name, value in (("If-None-Match", known.etag), ("If-Modified-Since", known.modified)):
        if (sent := _repeatable(value)) is not None:
            headers[name] = sent
    async with client.stream("GET", url, headers=headers, follow_redirects=False) as response:
        status = response.status_code
        if status in _REDIRECTS and (location := response.headers.get("location")):
            return Answer(), location
        if status == 304:
            return Answer(), None
        if status != 200:
            after = retry_after(response.headers.get("retry-after"), time.time())
            return Answer(wrong=f"the status of HTTP is {status}", after=after), None
        raw = bytearray()
        async for piece in response.aiter_raw(65_536):
            raw += piece
            if len(raw) > limits.bytes:
                raise TooLarge
        data = decompressed(bytes(raw), response.headers.get("content-encoding"), limits.bytes)
        etag, modified = (_repeatable(response.headers.get(name)) for name in ("etag", "last-modified"))
        return Answer(data, None, 0.0, etag, modified, url, response.headers.get("content-type", "")), None


def _repeatable(value: str | None) -> str | None:
    """A server's value if a request may repeat it: only printable ASCII. Otherwise None."""
    return value if value is not None and value.isascii() and value.isprintable() else None


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

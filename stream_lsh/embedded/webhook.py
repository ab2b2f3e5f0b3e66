"""One receiver of alerts: a POST of JSON, and what its answer means."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from stream_lsh.errors import UsageError
from stream_lsh.wire.source import Headers

SIGNATURE, KEY = "X-Stream-Lsh-Signature", "Idempotency-Key"
LONGEST_AFTER = 86_400.0  # seconds that Retry-After counts for at most
LATER = (408, 425, 429)  # of the refusals those that may be none the next time
_READ = 65_536  # bytes of an answer: its content is not used, but the connection ends in order


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a request. said: in words. again: a later attempt may succeed. after: seconds that the receiver
    wants before it, by `Retry-After`."""

    taken: bool
    said: str
    again: bool = False
    after: float = 0.0


class Webhook:
    """A receiver.

    Args:
        url: never shown but for its scheme and host: what follows may be a secret. secret: bodies are signed with it.
        timeout: seconds that a request and its answer take at most.

    Raises:
        UsageError: the URL is none that can be used.
    """

    def __init__(self, url: str, secret: bytes | None, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"the URL of the receiver is none: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("the URL of the receiver does not begin with http://HOST or https://HOST")
        if parts.username is not None or parts.password is not None:
            raise UsageError(
                "the URL of the receiver has a user or a password in it: leave them out; bodies are signed with the "
                "secret that --secret-env names"
            )
        if not url.isascii() or not url.isprintable() or " " in url:
            raise UsageError("the URL of the receiver has characters that have to be written as %XX")
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret = secret
        self._timeout = timeout

    def post(self, body: bytes, key: str, trace: Headers | None = None) -> Answer:
        """Send an alert, with a trace context; redirects are not followed, for what is signed is for this receiver.

        What is signed is the time of sending, a dot and the body: a receiver can refuse an old request that is
        repeated.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "stream-lsh", KEY: key}
        headers |= {name: value.decode() for name, value in trace or ()}
        if self._secret is not None:
            headers[SIGNATURE] = signature(self._secret, int(time.time()), body)
        connection = self._connection()
        late = threading.Event()
        # The connection's own patience begins anew with every byte.
        timer = threading.Timer(self._timeout, _give_up, (connection, late))
        timer.daemon = True
        timer.start()
        try:
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            if late.is_set():  # for http.client headers that break off are complete
                raise TimeoutError
            status, after = response.status, retry_after(response.headers.get("Retry-After"), time.time())
            with suppress(OSError, http.client.HTTPException):
                response.read(_READ)
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: no name of a host, as a..b
            overdue = late.is_set() or isinstance(error, TimeoutError)
            return Answer(False, f"no answer within {self._timeout:g} s" if overdue else _reason(error), again=True)
        finally:
            timer.cancel()
            connection.close()
        if 200 <= status < 300:
            return Answer(True, f"status {status}")
        if 300 <= status < 400:
            return Answer(False, f"status {status}: redirects are not followed")
        again = status >= 500 or status in LATER
        return Answer(False, f"status {status}", again, after if again else 0.0)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


def signature(secret: bytes, time: int, body: bytes) -> str:
    """The header that proves a request's origin and time. time: seconds since 1970."""
    return f"t={time},v1={hmac.new(secret, b'%d.%b' % (time, body), hashlib.sha256).hexdigest()}"


def retry_after(value: str | None, now: float) -> float:
    """The seconds of a header Retry-After, which has them or a date; 0 if it has neither. At most a day."""
    if value is None:
        return 0.0
    try:
        seconds = float(value) if value.strip().isdecimal() else parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, min(seconds, LONGEST_AFTER))


def _give_up(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    with suppress(OSError, AttributeError):  # not connected yet, or not any more
        connection.sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

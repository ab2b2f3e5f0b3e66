"""Whether and when a client sends a request again, without input and output: `Client` and `AsyncClient` wait."""

from __future__ import annotations

import random
from collections.abc import Callable

import httpx

from stream_lsh.client.errors import RequestError, Unreachable

RETRIED = (429, 502, 503, 504)  # statuses
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds


class Retries:
    """The attempts of one request.

    Args:
        request: method and path.
        attempts: most times that it is sent.
        chance: a random number from 0 to 1, so that many clients do not repeat their requests at the same moment.

    Attributes:
        failures: attempts that have failed.
    """

    def __init__(self, request: str, attempts: int, chance: Callable[[], float] = random.random) -> None:
        self._request = request
        self._attempts = attempts
        self._chance = chance
        self.failures = 0

    def pause(self, error: RequestError | httpx.TransportError | None) -> float:
        """Seconds until the next attempt: they double, a random share is left out, and `Retry-After` is the least.
        error: why the last one failed; None: the service has ended the stream.

        Raises:
            RequestError, Unreachable: there is no next attempt.
        """
        self.failures += 1
        least, last = 0.0, self.failures >= self._attempts
        if isinstance(error, RequestError):
            if last or error.status not in RETRIED:
                raise error
            least = error.retry_after or 0.0
        elif last:
            raise Unreachable(f"{self._request}: {error or 'the stream ended'!r}") from None
        longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.failures - 1))
        return min(LONGEST_PAUSE, least) + longest * self._chance()

"""One request with its retries, without input and output: `Client` and `AsyncClient` send and wait."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import TypeVar

import httpx

from stream_lsh.client.calls import Call
from stream_lsh.client.errors import RequestError, Unreachable

T = TypeVar("T")
RETRIED = (429, 502, 503, 504)  # statuses
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds

Outcome = httpx.Response | httpx.TransportError | None
Steps = Generator[float | None, Outcome, T]


def exchange(call: Call[T], attempts: int, chance: Callable[[], float]) -> Steps[T]:
    """The steps of a request, which returns its result. None: send it; a number: wait so many seconds.

    Args:
        attempts: most times that it is sent.
        chance: a random number from 0 to 1, so that many clients do not repeat their requests at the same moment.

    Raises:
        RequestError: the service refuses it.
        Unreachable: there is no answer.
    """
    for attempt in count(1):
        outcome = yield None
        error: RequestError | Unreachable
        try:
            if isinstance(outcome, httpx.Response):
                return call.read(outcome)
            error = Unreachable(f"{call.method} {call.path}: {outcome!r}")
        except RequestError as refused:
            if refused.status not in RETRIED:
                raise
            error = refused
        if attempt >= attempts:
            raise error
        yield pause(attempt, error, chance)
    raise AssertionError("count() has no end")


def pause(attempt: int, error: RequestError | Unreachable | None, chance: Callable[[], float]) -> float:
    """Seconds until the next attempt: they double, a random share is left out, and `Retry-After` is the least."""
    least = error.retry_after or 0.0 if isinstance(error, RequestError) else 0.0
    longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
    return min(LONGEST_PAUSE, least) + longest * chance()

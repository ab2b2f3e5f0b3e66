"""A role lives one life after the other: what a failure leaves undone, the next life does from what is committed."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ClassVar

from aiokafka import errors

from stream_lsh.errors import BrokerError, StreamLshError
from stream_lsh.kafka.client.clients import Stopped, unless, waited
from stream_lsh.kafka.client.connection import FINAL, cause, explain
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import lacking

log = logging.getLogger("stream_lsh.kafka.run.lives")

SHORTEST, LONGEST = 0.1, 5.0  # seconds between two lives
QUIET = 60.0  # seconds without work after which a life counts as a good one, as if it had committed
SAY = 30.0  # seconds in which the same failure is told only once
AGAIN = "%s; beginning again in %.1f s"
PATIENCE = 15.0  # seconds for what may pass when a cluster has just started or a topic was just made

_SOON = (
    errors.UnknownTopicOrPartitionError, errors.OffsetOutOfRangeError, errors.NoOffsetForPartitionError,
    errors.RecordTooLargeError, errors.MessageSizeTooLargeError, errors.RecordListTooLargeError,
)  # fmt: skip
_NETWORK = {
    errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET, errno.ETIMEDOUT,
    errno.ENOTCONN, errno.EADDRNOTAVAIL,
}  # fmt: skip


class Failed(Exception):
    """A stage cannot go on from here, but its next life can: a send was refused, or another member has taken over."""


class Unanswered(Failed):
    """Kafka was waited for in vain: it is away, or a quorum of its brokers."""


_WAITED = (
    Unanswered, TimeoutError, errors.KafkaTimeoutError, errors.RequestTimedOutError, errors.NodeNotReadyError,
    errors.CoordinatorNotAvailableError, errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError,
)  # fmt: skip


class Stage(ABC):
    """One life of a role. What it needs of the past it reads from Kafka, or from its store, in `run`."""

    role: ClassVar[str]

    def __init__(self, settings: KafkaSettings, watch: Probe) -> None:
        self.settings = settings
        self.watch = watch

    @abstractmethod
    async def run(self, stop: asyncio.Event) -> None:
        """Open clients, work until `stop` is set, then finish what is in flight, commit, leave the group, close.

        Raises:
            Stopped: asked to stop before there was anything to finish.
            Failed, KafkaError, OSError of the network: the next life may do better; clients are closed.
            StreamLshError: retrying cannot help.
        """


def may_pass(error: BaseException) -> bool:
    """Whether a failure comes from Kafka or the network, so that beginning again is worth it."""
    if isinstance(error, (Failed, errors.KafkaError, errors.ConsumerStoppedError, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, (socket.gaierror, ssl.SSLError)):
        return True
    return isinstance(error, OSError) and error.errno in _NETWORK


def _known(error: BaseException) -> bool:
    """Whether it is told where it ends a life; tasks that have failed in the same way need not repeat it."""
    return may_pass(error) or isinstance(error, StreamLshError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None and found not in seen:  # libraries may raise an error from itself
        seen.append(found)
        yield found
        found = found.__cause__


async def _reason(error: Exception, settings: KafkaSettings, stop: asyncio.Event) -> BaseException:
    """What is behind an error; the error itself if `stop` is set before that is known."""
    asked = asyncio.ensure_future(stop.wait())
    try:
        return await unless(_found_out(error, settings), asked)
    except Stopped:
        return error
    finally:
        asked.cancel()


async def _found_out(error: Exception, settings: KafkaSettings) -> BaseException:
    """Ask the brokers: aiokafka tells only its log why it could not connect, or what it waits for."""
    reason = await cause(error, settings)
    if isinstance(reason, _WAITED) and (copies := await lacking(settings)):
        reason = errors.NotEnoughReplicasError(f"{copies}; {_words(error)}")
        reason.__cause__ = error
    return reason


def _told(reason: BaseException, settings: KafkaSettings) -> str:
    return str(explain(reason, settings)) if isinstance(reason, errors.NotEnoughReplicasError) else _words(reason)


def _words(error: BaseException) -> str:
    text, name = " ".join(str(error).split()), type(error).__name__
    return text if isinstance(error, Failed) or text.startswith(name) else f"{name}: {text}" if text else name


def _beneath(cancelled: asyncio.CancelledError) -> Exception:
    """What really happened when nobody has cancelled the role: closing a client of a broker that is away raises what
    its tasks have left, in place of the error that it is closed for."""
    found: list[BaseException] = []
    error: BaseException | None = cancelled
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    errors_found = [error for error in found if isinstance(error, Exception)]
    ours = [error for error in errors_found if isinstance(error, StreamLshError)]
    return next(iter(ours + errors_found), None) or Failed("a call to Kafka was cancelled")


async def keep_running(
    make: Callable[[], Stage],
    stop: asyncio.Event,
    settings: KafkaSettings,
    watch: Probe,
) -> None:
    """Run a role, one life after the other, until `stop` is set.

    After a failure that may pass it waits 0.1 s to 5 s and begins again. Waiting time and the clock of giving up begin
    anew when a life has committed something, or has been up for a minute with nothing to do.

    Raises:
        BrokerError: nothing was committed for `give_up_seconds`; Kafka refuses us (at once); a topic or an offset is
            not there, or a record is too large (after 15 s).
        StreamLshError: as the stage raised it.
    """
    logs.role.set(watch.role)
    logs.hush(asyncio.get_running_loop(), _known)
    clock = watch.health.clock
    failing: float | None = None  # since when, without progress
    lacking: float | None = None  # since when it is one of _SOON, again and again
    tries = 0
    words, said = "", clock()
    while not stop.is_set():
        began, commits = clock(), watch.commits
        error: Exception
        try:
            with suppress(Stopped):
                await make().run(stop)
            if stop.is_set():
                return
            raise Failed("it ended without having been asked to")
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = _beneath(cancelled)
        except Exception as raised:
            error = raised
        if not may_pass(error):  # no next life can help, or nobody foresaw it
            raise error
        reason = await _reason(error, settings, stop)
        now = clock()
        if stop.is_set():
            log.warning("stopped with an error (%s); others do again what was not committed", _words(error))
            return
        idle = watch.last_idle
        if watch.commits > commits or (idle is not None and idle >= began + QUIET):
            failing, lacking, tries = now, None, 0
        elif failing is None:
            failing = max(began, idle or began)  # until then all was well
        # A clock of its own: after a bad quarter of a minute such an error may still be a moment's.
        if not any(isinstance(found, _SOON) for found in _causes(reason)):
            lacking = None
        elif lacking is None:
            lacking = now
        _give_up(reason, now - failing, 0.0 if lacking is None else now - lacking, settings)
        delay = min(LONGEST, SHORTEST * 2**tries) * random.uniform(0.75, 1.25)
        tries = min(tries + 1, 10)
        trace = error if log.isEnabledFor(logging.DEBUG) else None
        before, words = words, _told(reason, settings)
        repeated = words == before and now - said < SAY
        said = said if repeated else now
        log.log(logging.DEBUG if repeated else logging.WARNING, AGAIN, words, delay, exc_info=trace)
        watch.restarted()
        if await waited(stop, delay):
            return


def _give_up(error: BaseException, seconds: float, lacking: float, settings: KafkaSettings) -> None:
    """Raise if `error` will not pass any more, after `seconds` without progress, `lacking` of them of this kind."""
    for reason in _causes(error):
        if isinstance(reason, FINAL) or (isinstance(reason, _SOON) and lacking >= PATIENCE):
            raise explain(reason, settings) from error
    if seconds >= settings.give_up_seconds:
        kafka = next((found for found in _causes(error) if may_pass(found) and not isinstance(found, Failed)), error)
        text = explain(kafka, settings)
        raise BrokerError(f"{text} Given up after {seconds:.0f} s without progress (give_up_seconds).") from error

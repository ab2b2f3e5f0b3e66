"""Runs of a role, one after another. After a failure the next run resumes from what is committed."""

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

log = logging.getLogger("stream_lsh.kafka.run.restarts")

SHORTEST, LONGEST = 0.1, 5.0  # seconds between two runs
QUIET = 60.0  # seconds without work after which a run counts as successful, as if it had committed
SAY = 30.0  # seconds within which the same failure is logged only once
AGAIN = "%s; beginning again in %.1f s"
PATIENCE = 15.0  # seconds allowed for errors that a new cluster or a new topic may cause

_SOON = (
    errors.UnknownTopicOrPartitionError, errors.OffsetOutOfRangeError, errors.NoOffsetForPartitionError,
    errors.RecordTooLargeError, errors.MessageSizeTooLargeError, errors.RecordListTooLargeError,
)  # fmt: skip
_NETWORK = {
    errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET, errno.ETIMEDOUT,
    errno.ENOTCONN, errno.EADDRNOTAVAIL,
}  # fmt: skip


class Failed(Exception):
    """This run of a stage cannot continue, but the next one can: a send was refused, or another member took over."""


class Unanswered(Failed):
    """Kafka did not answer in time: it is down, or too many of its brokers are."""


_WAITED = (
    Unanswered, TimeoutError, errors.KafkaTimeoutError, errors.RequestTimedOutError, errors.NodeNotReadyError,
    errors.CoordinatorNotAvailableError, errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError,
)  # fmt: skip


class Stage(ABC):
    """One run of a role. `run` reads the state that it needs from Kafka or from the role's store."""

    role: ClassVar[str]

    def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
        self.settings = settings
        self.probe = probe

    @abstractmethod
    async def run(self, stop: asyncio.Event) -> None:
        """Open clients, work until `stop` is set, then finish what is in flight, commit, leave the group, close.

        Raises:
            Stopped: asked to stop before there was anything to finish.
            Failed, KafkaError, OSError of the network: the next run may succeed; clients are closed.
            StreamLshError: retrying cannot help.
        """


def may_pass(error: BaseException) -> bool:
    """Whether a failure is one of Kafka or the network, so that a new run may succeed."""
    if isinstance(error, (Failed, errors.KafkaError, errors.ConsumerStoppedError, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, (socket.gaierror, ssl.SSLError)):
        return True
    return isinstance(error, OSError) and error.errno in _NETWORK


def _causes(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """The error and what it was raised from. contexts: also what was handled when one was raised."""
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None and found not in seen:  # libraries may raise an error from itself
        seen.append(found)
        yield found
        found = found.__cause__ or (found.__context__ if contexts else None)


async def _reason(error: Exception, settings: KafkaSettings, stop: asyncio.Event) -> BaseException:
    """The cause of an error; the error itself if `stop` is set before the cause is found."""
    try:
        return await unless(_explained(error, settings), stop)
    except Stopped:
        return error


async def _explained(error: Exception, settings: KafkaSettings) -> BaseException:
    """Ask the brokers for the cause: aiokafka only logs why it could not connect or what it waits for."""
    reason = await cause(error, settings)
    if isinstance(reason, _WAITED) and (copies := await lacking(settings)):
        reason = errors.NotEnoughReplicasError(f"{copies}; {_words(error)}")
        reason.__cause__ = error
    return reason


def _message(reason: BaseException, settings: KafkaSettings) -> str:
    return str(explain(reason, settings)) if isinstance(reason, errors.NotEnoughReplicasError) else _words(reason)


def _words(error: BaseException) -> str:
    text, name = " ".join(str(error).split()), type(error).__name__
    return text if isinstance(error, Failed) or text.startswith(name) else f"{name}: {text}" if text else name


def _cause_of(cancelled: asyncio.CancelledError) -> Exception:
    """The true error behind a cancellation that this program did not ask for. Closing a client of a broker that is down
    raises what its tasks have left, in place of the error that made it close."""
    found = [error for error in _causes(cancelled, contexts=True) if isinstance(error, Exception)]
    ours = [error for error in found if isinstance(error, StreamLshError)]
    return next(iter(ours + found), None) or Failed("a call to Kafka was cancelled")


async def keep_running(make: Callable[[], Stage], stop: asyncio.Event, settings: KafkaSettings, probe: Probe) -> None:
    """Run a role again and again until `stop` is set.

    After a temporary failure it waits 0.1 s to 5 s and begins again. The time until it gives up is reset once a run has
    committed something, or has been idle for a minute. So are the delay and the 15 s, if that run has lasted for 5 s.

    Raises:
        BrokerError: nothing was committed for `give_up_seconds`; Kafka refuses this client (at once); a topic or an
            offset is missing, or a record is too large (after 15 s).
        StreamLshError: as the stage raised it.
    """
    logs.role.set(probe.role)
    logs.hush(asyncio.get_running_loop(), lambda error: may_pass(error) or isinstance(error, StreamLshError))
    clock = probe.health.clock
    failing: float | None = None  # start of the time without progress
    lacking: float | None = None  # start of an unbroken series of errors of _SOON
    tries = 0
    words, said = "", clock()
    while not stop.is_set():
        began, commits = clock(), probe.commits
        error: Exception
        try:
            with suppress(Stopped):
                await make().run(stop)
            if stop.is_set():
                return
            raise Failed("the role ended by itself")
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = _cause_of(cancelled)
        except Exception as raised:
            error = raised
        if not may_pass(error):  # no further run can help, or the error is unexpected
            raise error
        reason = await _reason(error, settings, stop)
        now = clock()
        if stop.is_set():
            log.warning("stopped with an error (%s); other workers repeat what was not committed", _words(error))
            return
        idle = probe.last_idle
        if probe.commits > commits or (idle is not None and idle >= began + QUIET):
            failing = now
            if now >= began + LONGEST:  # in shorter runs, some partitions may hide that another one always fails
                lacking, tries = None, 0
        elif failing is None:
            failing = max(began, idle or began)  # there was no failure until then
        # Timed separately: even after 15 s of other failures such an error may be temporary.
        if not any(isinstance(found, _SOON) for found in _causes(reason)):
            lacking = None
        elif lacking is None:
            lacking = now
        _give_up(reason, now - failing, 0.0 if lacking is None else now - lacking, settings)
        delay = min(LONGEST, SHORTEST * 2**tries) * random.uniform(0.75, 1.25)
        tries = min(tries + 1, 10)
        trace = error if log.isEnabledFor(logging.DEBUG) else None
        before, words = words, _message(reason, settings)
        repeated = words == before and now - said < SAY
        said = said if repeated else now
        log.log(logging.DEBUG if repeated else logging.WARNING, AGAIN, words, delay, exc_info=trace)
        probe.restarts.inc()
        if await waited(stop, delay):
            return


def _give_up(error: BaseException, seconds: float, lacking: float, settings: KafkaSettings) -> None:
    """Raise if `error` is permanent: after `seconds` without progress, of which `lacking` seconds with errors of
    `_SOON`."""
    for reason in _causes(error):
        if isinstance(reason, FINAL) or (isinstance(reason, _SOON) and lacking >= PATIENCE):
            raise explain(reason, settings) from error
    if seconds >= settings.give_up_seconds:
        kafka = next((found for found in _causes(error) if may_pass(found) and not isinstance(found, Failed)), error)
        text = explain(kafka, settings)
        raise BrokerError(f"{text} Given up after {seconds:.0f} s without progress (give_up_seconds).") from error

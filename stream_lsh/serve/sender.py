"""Sending the alerts of a service to one receiver: in order, each at least once, again after a failure.

A file in the index folder has the position, the attempts, and the numbers of dead letters. The alerts themselves are in
the journal of the index, so erasing removes them in one place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stream_lsh.alerts.receivers import Receiver
from stream_lsh.embedded.alert_journal import AlertJournal, Journaled
from stream_lsh.embedded.sending import pause
from stream_lsh.embedded.webhook import Answer, Webhook
from stream_lsh.errors import OutputError, StoreError
from stream_lsh.serve.whole_file import replace_file
from stream_lsh.tracing import KEY, WEBHOOK, sending
from stream_lsh.wording import count

_LOG = logging.getLogger("stream_lsh.serve")


@dataclass(slots=True)
class DeadLetter:
    """An alert that was not accepted. said: the last answer."""

    number: int
    said: str
    attempts: int


@dataclass(slots=True)
class State:
    """What is known of a receiver.

    Attributes:
        done: number of the last alert that is done.
        number: of the alert that is being sent, None if none is.
        since: seconds since 1970, from when on its time counts.
        attempts: how many failed.
        due: seconds since 1970, time of the next attempt.
        said: the answer to the last attempt.
        again: numbers of dead letters that are to be sent again.
        dead: dead letters, the oldest first.
    """

    done: int
    number: int | None = None
    since: float = 0.0
    attempts: int = 0
    due: float = 0.0
    said: str | None = None
    again: list[int] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> State | None:
        """That of a file, None if there is none. Raises StoreError if it is damaged."""
        try:
            found = json.loads(path.read_bytes())
            return cls(**{**found, "dead": [DeadLetter(**letter) for letter in found["dead"]]})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            raise StoreError(
                f"{path} is damaged: restore it from a backup, or remove it to begin with the next alert"
            ) from None


class Sender:
    """Sends to one receiver, from `start` on. Used in the event loop.

    Args:
        journal: that of the index. It is another one after the disk was full.
        path: file of the state.
        pool: runs requests.
        clock: seconds since 1970.
    """

    def __init__(
        self, receiver: Receiver, webhook: Webhook, journal: Callable[[], AlertJournal], path: Path, pool: Executor,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.receiver = receiver
        self.webhook = webhook
        self._journal_of = journal
        self._path = path
        self._pool = pool
        self._clock = clock
        self._new = asyncio.Event()
        self._saving = asyncio.Lock()
        found = State.read(path)
        self._state = State(journal().next - 1) if found is None else found
        self._state.done = min(self._state.done, journal().next - 1)  # of an index that was restored from a backup
        self._state.again = [number for number in self._state.again if number < journal().next]
        self._state.dead = [letter for letter in self._state.dead if letter.number < journal().next]
        if found is None:
            replace_file(path, self._contents, 0o600)

    @property
    def _journal(self) -> AlertJournal:
        return self._journal_of()

    def wake(self) -> None:
        """Look for new alerts."""
        self._new.set()

    async def run(self) -> None:
        """Send until it is cancelled. A disk that cannot be written stops it for a while."""
        while True:
            try:
                await self._step()
            except OutputError as error:
                _LOG.error("webhook %s: %s", self.receiver.name, error)
                await asyncio.sleep(pause(10))

    async def _step(self) -> None:
        self._new.clear()
        done, alert = self._state.done, self._next()
        if self._state.done != done:
            await self._save()
        wait = None if alert is None else self._state.due - self._clock()
        if alert is None or (wait is not None and wait > 0):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._new.wait()
            return
        loop = asyncio.get_running_loop()
        with sending(WEBHOOK, alert.trace, {KEY: alert.key}) as trace:
            answer = await loop.run_in_executor(self._pool, self.webhook.post, alert.line, alert.key, trace)
        self._note(alert, answer)
        saving = asyncio.create_task(self._save())
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:  # what was sent is written also if the service stops
            await saving
            raise

    def _next(self) -> Journaled | None:
        """The alert to be sent now: the one that was begun, a dead letter to be sent again, or the next one."""
        state, journal = self._state, self._journal
        if state.number is not None and (alert := journal.get(state.number)) is not None:
            return alert
        while state.again:
            if (alert := journal.get(state.again.pop(0))) is not None:
                return self._begin(alert, self._clock())
        state.number = None
        if (missed := journal.first - state.done - 1) > 0:
            _LOG.warning("webhook %s: %s left the journal before they were sent", self.receiver.name,
                         count(missed, "alert"))  # fmt: skip
            state.done = journal.first - 1
        last = journal.next - 1
        if (alert := journal.after(state.done, self.receiver.rules)) is None:
            state.done = max(state.done, last)
            return None
        return self._begin(alert, alert.time / 1000)

    def _begin(self, alert: Journaled, since: float) -> Journaled:
        self._state.number, self._state.since = alert.number, since
        self._state.attempts, self._state.due = 0, 0.0
        return alert

    def _note(self, alert: Journaled, answer: Answer) -> None:
        """Change the state by an answer."""
        state, now, name = self._state, self._clock(), self.receiver.name
        state.attempts, state.said = state.attempts + 1, answer.said
        if not answer.taken and answer.again and now - state.since < self.receiver.give_up_seconds:
            seconds = pause(state.attempts, answer.after)
            state.due = now + seconds
            _LOG.warning("webhook %s: alert %s: %s; again in %g s", name, alert.key, answer.said, seconds)
            return
        if not answer.taken:
            _LOG.error("webhook %s: alert %s is a dead letter: %s", name, alert.key, answer.said)
            state.dead.append(DeadLetter(alert.number, answer.said, state.attempts))
        state.done = max(state.done, alert.number)
        state.number, state.due, state.attempts = None, 0.0, 0

    async def resend(self) -> int:
        """Send all dead letters again, and the alert that waits for its next attempt now; how many dead letters.

        Raises:
            OutputError: the state cannot be written.
        """
        letters = [letter.number for letter, _ in self._dead()]
        self._state.again += letters
        self._state.dead, self._state.due = [], 0.0
        await self._save()
        self.wake()
        return len(letters)

    @property
    def waiting(self) -> int:
        """Alerts that are not sent yet, with dead letters that are to be sent again."""
        state = self._state
        return self._journal.count_after(state.done, self.receiver.rules) + len(state.again)

    @property
    def dead_letters(self) -> int:
        """How many dead letters there are."""
        return len(self._dead())

    def _dead(self) -> list[tuple[DeadLetter, Journaled]]:
        """The dead letters that the journal still has."""
        found = ((letter, self._journal.get(letter.number)) for letter in self._state.dead)
        return [(letter, alert) for letter, alert in found if alert is not None]

    @property
    def described(self) -> dict[str, Any]:
        """What is to be known of it, for JSON."""
        state = self._state
        return {
            "name": self.receiver.name, "url": self.webhook.name, "waiting": self.waiting,
            "attempts": state.attempts, "next_attempt": int(1000 * state.due) if state.attempts else None,
            "said": state.said,
            "dead_letters": [
                {"cursor": str(alert.number), "said": letter.said, "attempts": letter.attempts,
                 "alert": json.loads(alert.line)}
                for letter, alert in self._dead()
            ],
        }  # fmt: skip

    async def _save(self) -> None:
        async with self._saving:
            first, loop = self._journal.first, asyncio.get_running_loop()
            self._state.dead = [letter for letter in self._state.dead if letter.number >= first]
            await loop.run_in_executor(self._pool, replace_file, self._path, self._contents, 0o600)

    @property
    def _contents(self) -> bytes:
        return json.dumps(asdict(self._state)).encode()

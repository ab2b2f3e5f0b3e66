"""Frames that the judge has not completed: how many documents they may have, and when they are sent again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stream_lsh.errors import StoreError
from stream_lsh.kafka.sequence.order import Accepted


class Window:
    """Documents in flight to the judge, frame by frame. At least one frame may be in flight, even above the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ahead: deque[tuple[int, int]] = deque()
        self.documents = 0

    def __len__(self) -> int:
        return len(self._ahead)

    def room(self, documents: int) -> bool:
        """Whether a frame of so many documents may be sent."""
        return not self.documents or self.documents + documents <= self._most

    @property
    def half(self) -> bool:
        """Whether it is time to ask for the judge's position."""
        return 2 * self.documents >= self._most

    def sent(self, offset: int, documents: int) -> None:
        self._ahead.append((offset, documents))
        self.documents += documents

    def complete(self, last: int) -> None:
        """The judge has complete replies up to the frame at this offset."""
        while self._ahead and self._ahead[0][0] <= last:
            self.documents -= self._ahead.popleft()[1]


@dataclass(slots=True)
class Repeat:
    """When frames are sent again, and whether they are the same ones then.

    Attributes:
        since: of the judge's last progress, in seconds of the monotonic clock.
        least: seconds without progress after which frames are sent again; each further time twice as many.
        times: how often they were, and the judge has not completed them since.
        last: offset of the last frame that was sent again; -1: none was.
        before: position and metadata before that, until they are reached.
    """

    since: float
    least: float
    times: int = 0
    last: int = -1
    before: tuple[int, str] | None = None

    def progress(self, judged: int, now: float) -> None:
        """The judge has completed a frame, at this offset, or has none to complete."""
        self.since = now
        if judged >= self.last:
            self.times = 0

    def due(self, now: float) -> bool:
        """Whether to send frames again."""
        return now > self.since + self.least * (1 << self.times)

    def begin(self, position: int, accepted: Accepted) -> None:
        """Frames before this position, where so much is accepted, are sent again."""
        self.times, self.last = self.times + 1, max(self.last, accepted.last)
        self.before = self.before or (position, accepted.metadata())

    def check(self, topic: str, position: int, accepted: Accepted, remedy: str) -> None:
        """Check what is accepted at a position.

        Raises:
            StoreError: it is not what was accepted before: the topic has other frames now.
        """
        if self.before is None or position < self.before[0]:
            return
        if (position, accepted.metadata()) != self.before:
            raise StoreError(
                f"{topic} has other frames before offset {self.before[0]} than were sequenced: the brokers have lost "
                f"its end, and it has new records since. {remedy}"
            )
        self.before = None

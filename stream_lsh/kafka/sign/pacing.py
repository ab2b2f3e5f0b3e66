"""How far apart a signer begins its frames, so that all signers together do not send more than the shards can carry.

A frame costs a shard about as much as fifty documents. Signers do not talk to each other. Each knows its share of the
partitions, and sees from the places of its own frames how many frames all signers have written in between.
"""

from __future__ import annotations

MOST_FRAMES = 250
"""Frames a second of all signers together: about a third of what one shard takes (`python -m bench.kafka_stages`)."""
LONGEST = 50  # times `linger_ms`: the longest pause
MEASURED_SECONDS = 1.0  # shortest time over which frames are counted


class Pacing:
    """The pause between the beginnings of two frames, by the share of this signer and by the frames of all.

    The shares of all signers add up to 1. So if every one keeps to its share of `MOST_FRAMES`, all together do. While
    there are fewer frames, the pause is shorter in proportion, down to `linger`.

    Args:
        linger: shortest pause, in seconds. 0: there is never a pause.

    Attributes:
        share: of this signer, above 0 and at most 1.
        rate: frames of all signers a second, as last seen.
    """

    def __init__(self, linger: float) -> None:
        self.share, self.rate = 1.0, 0.0
        self._linger = linger
        self._before: tuple[int, float] | None = None

    def placed(self, offset: int, now: float) -> None:
        """A frame of this signer has this offset among the frames of all. now: seconds."""
        if self._before is None:
            self._before = offset, now
            return
        seconds = now - self._before[1]
        if seconds >= MEASURED_SECONDS:
            # The mean with the measurement before: a pause changes what is measured next, and would swing.
            self.rate = (self.rate + (offset - self._before[0]) / seconds) / 2
            self._before = offset, now

    @property
    def pause(self) -> float:
        """Seconds from the beginning of a frame to that of the next one that is not full."""
        wanted = min(self.rate / MOST_FRAMES, 1.0) / (self.share * MOST_FRAMES)
        return min(max(wanted, self._linger), LONGEST * self._linger)

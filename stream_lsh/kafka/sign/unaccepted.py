"""Which frames the brokers have lost: those that they had acknowledged and that the sequencer has not found. Pure.

A signer commits a position when the frames up to there are acknowledged. So they are before the end that `signatures`
has then. Once the sequencer has read up to that end it has accepted the position, or the frames are not there.
"""

from __future__ import annotations

from collections.abc import Mapping


class Unaccepted:
    """The committed positions of a signer that the sequencer has not accepted, as far as is known."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._before: dict[int, int] = {}  # those that were committed when `_end` was the end of signatures
        self._end = 0

    def __bool__(self) -> bool:
        return bool(self._positions)

    def committed(self, partition: int, position: int) -> None:
        """Note the committed position of a source partition; -1: nothing of it was sent."""
        self._positions[partition] = position

    def look(self, sequenced: int, accepted: Mapping[int, int], end: int) -> set[int]:
        """The source partitions of which frames are lost.

        Args:
            sequenced, accepted: the sequencer's position in signatures, and what it had accepted there.
            end: of signatures, read after them.
        """
        before = {p: at for p, at in self._before.items() if accepted.get(p, -1) < at}
        if before and sequenced >= self._end:
            return set(before)
        # A topic that loses its tail ends earlier than before. It is read to its end all the same.
        self._end = min(self._end, end) if before else end
        self._positions = {p: at for p, at in self._positions.items() if accepted.get(p, -1) < at}
        self._before = before or dict(self._positions)
        return set()

"""Replies that come in parts, put together: of each shard those to the frame right after its last reply. Pure.

A shard's replies are complete one after the other, so no others can count. All replies to a frame are equal to the
byte, so the parts of several workers may complete each other.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_lsh.wire.parts import Part, Series


class Assembly:
    """The incomplete replies of all shards. last_of: the last frame to which a shard has replied."""

    def __init__(self, last_of: Callable[[int], int]) -> None:
        self._last_of = last_of
        self._series: dict[int, dict[tuple[int, bytes], Series]] = {}  # by shard; of each the number of parts, digest

    def add(self, position: int, part: Part) -> tuple[int, bytes] | None:
        """Add a part whose predecessor is the last frame of its shard.

        Args:
            position: its offset in the topic matches.

        Returns:
            The reply that it completes, and the offset of its first part.

        Raises:
            FormatError: the parts are damaged.
        """
        shard, _, predecessor = part.place
        known = self._series.setdefault(shard, {})
        self._forget(shard, predecessor)
        name = part.count, part.digest
        series = known.get(name) or Series(position)
        if not series.add(part):  # a repeat, or what was before it is missing
            return None
        known[name] = series
        if (record := series.record) is None:
            return None
        del known[name]
        return series.begin, record

    def _forget(self, shard: int, last: int) -> None:
        """Drop the parts of replies to other frames than the one after `last`."""
        known = self._series[shard]
        for name in [name for name, series in known.items() if series.parts[0].place.predecessor != last]:
            del known[name]

    def needed(self, end: int) -> int:
        """The offset of the first part of a reply that may still be completed; `end` if there is none."""
        for shard in self._series:
            self._forget(shard, self._last_of(shard))
        return min([end, *(series.begin for known in self._series.values() for series in known.values())])

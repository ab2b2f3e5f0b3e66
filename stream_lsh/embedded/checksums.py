"""Checksums of the part of an input that was read: the CRC-32 of each MiB. They detect any change to that part, also in
a file to which lines were appended."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Sequence

from stream_lsh.documents.columns import Position

BLOCK = 1 << 20
MOST = 256
"""So many blocks of a file to which something was added are compared: those before the position, and a sample of all
others."""


class Checksums:
    """Made while an input is read from a position on. offset: of the byte behind the last one that was added; begun:
    CRC-32 of the bytes of its block before it; whole: of the blocks that have ended since, in their order."""

    def __init__(self, position: Position, whole: list[int]) -> None:
        self.offset = position.offset
        self.begun = position.crc
        self.whole = whole

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(data)
        while view:
            piece = view[: BLOCK - self.offset % BLOCK]
            self.begun = zlib.crc32(piece, self.begun)
            self.offset += len(piece)
            view = view[len(piece) :]
            if self.offset % BLOCK == 0:
                self.whole.append(self.begun)
                self.begun = 0


def first_difference(
    known: Sequence[int], position: Position, read: Callable[[int, int], bytes], *, everything: bool, start: int = 0
) -> int | None:
    """Where a file differs first from what was read of it up to a position: the offset of a block, None if it does not.

    Args:
        known: of the blocks before the position. read: bytes of the file, by offset and number. everything: compare
            all blocks, however many there are. start: offset of the first byte that is still there; the block of
            removed bytes is not compared.
    """
    first = -(-start // BLOCK)
    chosen: Iterable[int] = range(first, len(known))
    if len(known) - first > MOST and not everything:
        last = len(known) - MOST // 2
        chosen = [*sorted(random.sample(range(first, last), MOST // 2)), *range(last, len(known))]
    for number in chosen:
        if zlib.crc32(read(number * BLOCK, BLOCK)) != known[number]:
            return number * BLOCK
    begin = len(known) * BLOCK
    if begin < start:
        return None
    data = read(begin, position.offset - begin)
    return begin if len(data) != position.offset - begin or zlib.crc32(data) != position.crc else None


def first_difference_in(known: Sequence[int], position: Position, blocks: Iterable[bytes]) -> int | None:
    """The same of a file that can only be read from its beginning to its end."""
    found = Checksums(Position(), [])
    for block in blocks:
        found.add(memoryview(block)[: position.offset - found.offset])
        if found.offset == position.offset:
            break
    for number, (one, other) in enumerate(zip(found.whole, known, strict=False)):
        if one != other:
            return number * BLOCK
    return None if (found.offset, found.begun) == (position.offset, position.crc) else len(found.whole) * BLOCK

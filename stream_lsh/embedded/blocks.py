"""Blocks of bytes, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

_ALL = 1 << 62


class Blocks:
    """Blocks of bytes, read from the first to the last.

    Attributes:
        offset: of the next byte.
        mid_line: whether the last byte that was read is not a newline.
    """

    def __init__(self, blocks: Iterator[bytes], offset: int = 0) -> None:
        self.offset = offset
        self.mid_line = False
        self._blocks = blocks
        self._block = b""
        self._at = 0

    def peek(self, most: int) -> bytes:
        """The next bytes, at most so many, of one block; empty at the end. They stay the next ones."""
        while self._at == len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._block, self._at = block, 0
        return self._block[self._at : self._at + most]

    def piece(self, most: int) -> bytes:
        """Read the bytes of `peek`."""
        piece = self.peek(most)
        if piece:
            self._at += len(piece)
            self.offset += len(piece)
            self.mid_line = piece[-1] != 10
        return piece

    def pieces(self, count: int) -> Iterator[bytes]:
        """Read so many bytes, fewer at the end."""
        while count > 0 and (piece := self.piece(count)):
            count -= len(piece)
            yield piece

    def skip(self, count: int) -> None:
        """Pass over so many bytes."""
        for _ in self.pieces(count):
            pass

    def rest(self) -> Iterator[bytes]:
        """Read all that is left."""
        return self.pieces(_ALL)

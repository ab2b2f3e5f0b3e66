"""Compressed streams, decompressed piece by piece as they come, and what is wrong with a damaged one."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import zstandard

PIECE = 1 << 20
"""At most this many bytes come out at once (of a malicious zstd file, some 128 MiB)."""

_ZSTD_FEED = 4096


class Damaged(Exception):
    """A compressed stream is broken or cut off; the message says where, as the end of a sentence."""


def decompressor(name: str) -> Callable[[Iterable[bytes]], Iterator[bytes]] | None:
    """The function that decompresses a file of this name, by its suffix in any case; None for a plain one."""
    return next((function for suffix, function in _BY_SUFFIX.items() if name.lower().endswith(suffix)), None)


def compression_of(head: bytes) -> str | None:
    """The suffix of the compression that a file with these first bytes has, None if it looks plain."""
    return next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), None)


class _Member:
    """A member of a gzip file, as lzma has a stream."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, chunk: bytes, most: int) -> bytes:
        data = self._member.decompress(chunk or self._member.unconsumed_tail, most)
        # A full piece may leave more behind, though all of the input is consumed.
        self.needs_input = len(data) < most and not self._member.unconsumed_tail
        return data


def _decompressed(
    begin: Callable[[], _Member | lzma.LZMADecompressor], part: str, name: str, chunks: Iterable[bytes]
) -> Iterator[bytes]:
    """Decompress gzip or xz, of several parts too; zeros after a part are padding. Raises Damaged."""
    current, number = None, 0
    for chunk in chunks:
        while chunk:
            if current is None:
                chunk = chunk.lstrip(b"\0") if number else chunk
                if not chunk:
                    break
                current = begin()
                number += 1
            try:
                data = current.decompress(chunk, PIECE)
                if data:
                    yield data
                while not current.eof and not current.needs_input:
                    data = current.decompress(b"", PIECE)
                    if data:
                        yield data
            except (zlib.error, lzma.LZMAError) as error:
                raise Damaged(f"{part} {number} of the {name} file is damaged ({error})") from None
            chunk = b""
            if current.eof:
                chunk, current = current.unused_data, None
    if current is not None or number == 0:
        raise Damaged(f"the {name} file ends in the middle of {part} {max(number, 1)}")


def _unzstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompresses zstd, of several frames too. Raises Damaged."""
    frame = None
    frames = 0
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            if frame is None:
                frame = zstandard.ZstdDecompressor().decompressobj()
                frames += 1
            piece = chunk[at : at + _ZSTD_FEED]
            at += len(piece)
            try:
                data = frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise Damaged(f"frame {frames} of the zstd file is damaged ({error})") from None
            if data:
                yield data
            if frame.eof:
                at -= len(frame.unused_data)
                frame = None
    if frame is not None or frames == 0:
        raise Damaged(f"the zstd file ends in the middle of frame {max(frames, 1)}")


_BY_SUFFIX: dict[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    ".gz": partial(_decompressed, _Member, "member", "gzip"),
    ".xz": partial(_decompressed, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), "stream", "xz"),
    ".zst": _unzstd,
}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd"}

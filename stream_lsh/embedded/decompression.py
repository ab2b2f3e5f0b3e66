"""Compressed streams, decompressed piece by piece as they come, and what is wrong with a damaged one."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator

import zstandard

PIECE = 1 << 20
"""At most this many bytes come out at once (of zstd, which cannot be told, at most some 128 MiB: a malicious one)."""

_ZSTD_FEED = 4096


class Damaged(Exception):
    """A compressed stream is broken or cut off; the message says where, as the end of a sentence."""


def decompressor(name: str) -> Callable[[Iterable[bytes]], Iterator[bytes]] | None:
    """The function that decompresses a file of this name, by its suffix; None for a plain one."""
    return next((function for suffix, function in _BY_SUFFIX.items() if name.endswith(suffix)), None)


def compression_of(head: bytes) -> str | None:
    """The suffix of the compression that a file with these first bytes has, None if it looks plain."""
    return next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), None)


def gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompresses gzip, of several members too; zeros after a member are padding. Raises Damaged."""
    member = None
    members = 0
    for chunk in chunks:
        while chunk:
            if member is None:
                chunk = chunk.lstrip(b"\0") if members else chunk
                if not chunk:
                    break
                member = zlib.decompressobj(wbits=31)
                members += 1
            try:
                data = member.decompress(chunk, PIECE)
                if data:
                    yield data
                # A full piece may leave more behind, though all of the input is consumed.
                while len(data) == PIECE and not member.unconsumed_tail and not member.eof:
                    data = member.decompress(b"", PIECE)
                    if data:
                        yield data
            except zlib.error as error:
                raise Damaged(f"member {members} of the gzip file is damaged ({error})") from None
            chunk = member.unconsumed_tail
            if member.eof:
                chunk = member.unused_data
                member = None
    if member is not None or members == 0:
        raise Damaged(f"the gzip file ends in the middle of member {max(members, 1)}")


def unxz(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompresses xz, of several streams too; zeros after a stream are padding. Raises Damaged."""
    stream = None
    streams = 0
    for chunk in chunks:
        while chunk:
            if stream is None:
                chunk = chunk.lstrip(b"\0") if streams else chunk
                if not chunk:
                    break
                stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
                streams += 1
            try:
                data = stream.decompress(chunk, PIECE)
                if data:
                    yield data
                while not stream.eof and not stream.needs_input:
                    data = stream.decompress(b"", PIECE)
                    if data:
                        yield data
            except lzma.LZMAError as error:
                raise Damaged(f"stream {streams} of the xz file is damaged ({error})") from None
            chunk = b""
            if stream.eof:
                chunk = stream.unused_data
                stream = None
    if stream is not None or streams == 0:
        raise Damaged(f"the xz file ends in the middle of stream {max(streams, 1)}")


def unzstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
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


_BY_SUFFIX: dict[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {".gz": gunzip, ".xz": unxz, ".zst": unzstd}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd"}

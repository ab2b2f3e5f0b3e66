"""Bodies of requests, block by block: limited in size, and inflated if they are compressed with gzip."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.requests import ClientDisconnect

from stream_lsh.serve.intake import Holding
from stream_lsh.serve.problems import Problem

_BLOCK = 1 << 18  # most bytes that are inflated at once
_GZIP = 31  # window bits of zlib for a gzip header and trailer


async def body(request: Request, most: int, holding: Holding) -> bytes:
    """The body of a request, inflated.

    Raises:
        Problem: it has more than `most` bytes, is incomplete, or has another encoding than gzip; or all requests
            together have too much in memory.
    """
    found = []
    try:
        async for block in blocks(request, most):
            holding.take(len(block))
            found.append(block)
        return b"".join(found)
    except ClientDisconnect:  # no client gets this response, but it is no error of the server
        raise Problem(400, "the body is incomplete", field="body") from None


async def blocks(request: Request, most: int) -> AsyncIterator[bytes]:
    """The blocks of a body, inflated. Raises as `body`, but ClientDisconnect if it is incomplete."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    encoding, size = request.headers.get("content-encoding", "identity").strip().lower(), 0
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise Problem(
            415, f"the encoding of the body has to be gzip, not {encoding[:60]!r}", field="Content-Encoding",
            headers={"Accept-Encoding": "gzip"},
        )  # fmt: skip
    stream = request.stream()
    async for block in stream if encoding == "identity" else _inflated(stream):
        size += len(block)
        if size > most:
            raise _too_large(most)
        yield block


async def _inflated(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The blocks of a gzip stream, with all its members, at most some hundred kilobytes each."""
    member, begun = zlib.decompressobj(_GZIP), False
    async for block in stream:
        while block:
            if member.eof:
                member = zlib.decompressobj(_GZIP)
            begun = True
            try:
                yield member.decompress(block, _BLOCK)
            except zlib.error:
                raise Problem(400, "the body is not gzip", field="body", close=True) from None
            block = member.unused_data if member.eof else member.unconsumed_tail
            await asyncio.sleep(0)  # other requests go on while a large body is inflated
    if not begun or not member.eof:
        raise Problem(400, "the gzip body ends early", field="body")


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body has more than {most:,} bytes; send less at a time", field="body", close=True)

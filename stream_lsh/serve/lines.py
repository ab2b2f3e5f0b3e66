"""Many documents in one request: lines are judged while they are read, and answered in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from stream_lsh.documents.columns import Position
from stream_lsh.embedded.lines import Lines, LineSplitter
from stream_lsh.errors import StreamLshError
from stream_lsh.serve.bodies import blocks, body
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import NDJSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.retries import Retry
from stream_lsh.serve.tokens import Permission
from stream_lsh.serve.work import Answers
from stream_lsh.serve.writer import BATCH

UNDER_WAY = 2  # parts of a request that may wait for the writer
KEYED_BYTES = 8 << 20  # of a request with an idempotency key, which is read completely before its first line is judged
Answer = Callable[[Lines, Retry | None], Coroutine[Any, Any, Answers]]
RetryOf = Callable[[bytes], Retry | None]
_Part = tuple[int, asyncio.Task[Answers]]  # bytes of the request that it holds, and the answers to its lines


def one_line(data: bytes) -> Lines:
    """A body as one document, with any white space in it."""
    zero = np.zeros(1, np.int64)
    return Lines(data, zero, np.array([len(data)], np.int64), zero, zero, {}, Position(len(data), 1))


class LinesResponse(Response):
    """The answers to the lines of a request, one line each, as soon as they are there.

    An error before the first answer is a problem response; a later one is a last line, {"problem": {...}}. Reading
    continues while answers wait to be sent, so that a client may send everything before it reads. The size of the
    request is limited, and so is what waits.

    Args:
        service: has the limits, and counts the request.
        answer: gives the answers to lines, with the key of their part of the request.
        max_line: bytes of the longest line.
        retry_of: the key of a request with this body; None if it has none.
    """

    def __init__(
        self,
        request: Request,
        service: Interface,
        answer: Answer,
        max_line: int,
        permission: Permission,
        retry_of: RetryOf | None = None,
    ) -> None:
        super().__init__()
        self._request = request
        self._answer = answer
        self._retry_of = retry_of
        self._retry: Retry | None = None
        self._splitter = LineSplitter(Position(), max_line, BATCH, whole=lambda _: False)
        self._most_bytes = service.limits.body_bytes
        self._most_documents = service.limits.request_documents
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._problem: Problem | None = None
        self._intake = service.intake
        self._tokens = service.tokens
        self._permission: Permission = permission
        self._revoked = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token, tokens = scope.get("state", {}).get("token"), self._tokens
        held = tokens.stream(token, self._permission, self._revoke) if tokens is not None and token else nullcontext()
        with held, self._intake.taking() as self._holding:
            await self._serve(scope, receive, send)

    def _revoke(self) -> None:
        """Its token can no longer do this: later lines are refused."""
        self._revoked = True

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        taking = asyncio.create_task(self._take())
        try:
            first = await self._said.get()
            if first is None and self._problem is not None:
                await self._problem.response()(scope, receive, send)
                return
            headers = [(b"content-type", NDJSON.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while first is not None:
                await send({"type": "http.response.body", "body": first, "more_body": True})
                self._holding.release(len(first))
                first = await self._said.get()
            last = b"" if self._problem is None else b'{"problem":%b}\n' % self._problem.json
            await send({"type": "http.response.body", "body": last})
        finally:
            await taking

    async def _take(self) -> None:
        """Read the request, have its lines judged, and queue the answers in order."""
        under_way: deque[_Part] = deque()
        try:
            try:
                await self._read(under_way)
            finally:  # lines before an error are answered
                while under_way:
                    await self._tell(under_way)
        except Problem as problem:
            self._problem = problem
        except StreamLshError as error:
            self._problem = Problem.of(error)
        except ClientDisconnect:
            pass
        finally:
            for _, task in under_way:
                task.cancel()
            self._said.put_nowait(None)

    async def _read(self, under_way: deque[_Part]) -> None:
        documents = part = unparted = end = 0
        async for block in self._blocks():
            if self._revoked:
                raise Problem(401, "the token was revoked or has expired while its request was sent", close=True)
            while under_way and not self._holding.fits(len(block)):
                await self._tell(under_way)
            self._holding.take(len(block))
            unparted += len(block)
            for lines in self._splitter.split([block]):
                documents += len(lines.starts)
                if documents > self._most_documents:
                    raise Problem(
                        413, f"the request has more than {self._most_documents:,} documents; send less at a time",
                        field="body", close=True,
                    )  # fmt: skip
                size = min(lines.position.offset - end, unparted)  # a line that is too large is not there completely
                end, unparted = lines.position.offset, unparted - size
                retry = None if self._retry is None else replace(self._retry, part=part)
                part += 1
                under_way.append((size, asyncio.create_task(self._answer(lines, retry))))
                if len(under_way) > UNDER_WAY:
                    await self._tell(under_way)
            kept = self._splitter.held
            self._holding.release(unparted - kept)  # blank lines, and what is cut from lines that are too large
            end, unparted = self._splitter.position.offset, kept

    async def _tell(self, under_way: deque[_Part]) -> None:
        size, task = under_way.popleft()
        answers = await task
        said = b"\n".join(answers.lines) + b"\n"
        self._holding.release(size)
        self._holding.add(len(said))
        self._said.put_nowait(said)

    async def _blocks(self) -> AsyncIterator[bytes]:
        if self._retry_of is not None:
            # One block, so that the same request has the same parts.
            data = await body(self._request, min(KEYED_BYTES, self._most_bytes), self._holding)
            self._holding.release(len(data))  # it is counted as a block again
            self._retry = self._retry_of(data)
            yield data + b"\n"
            return
        last = b"\n"
        async for block in blocks(self._request, self._most_bytes):
            if block:
                last = block[-1:]
                yield block
        if last != b"\n":
            yield b"\n"

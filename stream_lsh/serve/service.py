"""The service of an index in this process, without HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.alerts.receivers import Receiver
from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.columns import LINE_ID
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_table import Order, Row, member_json, table, whole
from stream_lsh.embedded.stored import stored
from stream_lsh.embedded.warming import warm_up
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.families.family import Signs
from stream_lsh.index.comparison import Comparison, compare_with_row
from stream_lsh.index.rows import layout
from stream_lsh.index.store.files import disk_bytes
from stream_lsh.serve.beside import SOCKET
from stream_lsh.serve.comparing import Compared, compared_documents, compared_part, side_by_side
from stream_lsh.serve.events import block_of
from stream_lsh.serve.interface import LIMITS, Interface, Limits, RaisedAlert, as_number, shown
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.tokens import Tokens
from stream_lsh.serve.webhooks import Webhooks
from stream_lsh.serve.writer import Add, Answers, Check, Delete, Look, Round, Writer
from stream_lsh.settings.model import Settings

SIZE_SECONDS = 5.0  # validity of a measured size on disk
STARTING = "the service is starting: it compiles or loads its code"
CLOSED = "the index of the service cannot be written"


class Service(Interface):
    """An index, its writer thread, counts and events."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        groups: bool | None = None,
        rules: Sequence[Rule] = (),
        receivers: Sequence[Receiver] = (),
        tokens: Tokens | None = None,
        limits: Limits = LIMITS,
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        if settings.id_field == LINE_ID:
            raise UsageError(
                f"id_field = {LINE_ID}: documents over HTTP have no line numbers; name the field of the id"
            )
        self.folder = folder
        self.engine = engine = Engine.open(settings, folder, groups=groups, rules=rules or None)
        engine.journals_alerts = engine.alerts is not None
        self._journal = engine.alert_journal  # read before the writer's thread uses it
        self.writer = Writer(engine, self._committed, self._broken)
        super().__init__(
            engine.settings, engine.seq, lambda: engine.seq, lambda: self.writer.waiting, tokens, limits, failed
        )
        self.socket = folder / SOCKET
        if receivers:
            self.webhooks = Webhooks(receivers, self._journal, folder)
            self.webhooks.measure(self.tally.registry)
        self.keeps_groups = engine.groups is not None
        self._starting = asyncio.Lock()
        self._size = (-math.inf, 0)  # time of the measurement, bytes

    async def start(self) -> None:
        async with self._starting:  # everything is compiled first, so that no request waits for that
            await asyncio.to_thread(self._warm_up)
            if not self.intake.stopping:
                self.writer.start()
                if self.webhooks is not None:
                    self.webhooks.start()
                self.intake.ready = True

    def _warm_up(self) -> None:
        warm_up(self.settings, lambda: self.intake.stopping)
        self.engine.index.look_up([b'""'])
        if self.settings.measure == "tf-idf":
            compare_with_row(self.engine.index, "", 0, 0, 0)

    async def stop(self) -> None:
        self.intake.close()
        async with self._starting:  # afterwards the index is not in use
            pass
        await self.intake.finish()
        await self.writer.stop()
        if self.webhooks is not None:
            await self.webhooks.stop()
        self.ring.finish()
        await asyncio.to_thread(self.engine.close)

    def _why_not(self) -> str:
        return CLOSED if self.intake.began else STARTING

    def _committed(self, done: Round) -> None:
        self.tally.add(done)
        if self.webhooks is not None and any(judged.alerts for judged, _ in done.judged):
            self.webhooks.wake()
        block = block_of(done, self.settings.verify)
        if block is not None:
            self.ring.add(block)

    def _broken(self, error: BaseException) -> None:
        self.intake.ready = False
        self._failed(error)

    # -- documents --------------------------------------------------------------------------------------------------

    async def _answer(self, work: Add | Check | Delete) -> Answers:
        found: Answers = await self.writer.do(work)
        return found

    async def document(self, id: str | int, *, text: bool = False) -> dict[str, Any]:
        if text:
            self._check_texts()

        def read(engine: Engine) -> dict[str, Any] | None:
            shard, row = _row_of(engine, id)
            return None if row < 0 else _described(engine, shard, row, text)

        found: dict[str, Any] | None = await self.writer.do(Look(read))
        if found is None:
            raise _missing(id)
        found.pop("hash", None)
        return found

    async def compared(self, a: str | int, b: str | int) -> dict[str, Any]:
        self._check_texts()

        def read(engine: Engine) -> tuple[list[dict[str, Any] | None], Comparison | None]:
            rows = [_row_of(engine, id) for id in (a, b)]
            found = [None if row < 0 else _described(engine, shard, row, True) for shard, row in rows]
            one, other = found
            if one is None or other is None or self.settings.measure != "tf-idf":
                return found, None
            # Compare the newer one as if it were the next document.
            newer, older, (shard, row) = (one, other, rows[1]) if one["seq"] > other["seq"] else (other, one, rows[0])
            scope = _scope(engine.index.signer, older) if self.settings.match_within else 0
            text = compared_part(self.settings, newer["text"])
            return found, compare_with_row(engine.index, text, scope, shard, row)

        (one, other), compared = await self.writer.do(Look(read))
        for id, document in ((a, one), (b, other)):
            if document is None:
                raise _missing(id)
        return await asyncio.to_thread(self._compare, one, other, compared)

    def _compare(self, a: dict[str, Any], b: dict[str, Any], compared: Comparison | None) -> dict[str, Any]:
        signer = self.engine.index.signer
        if compared is None:
            found = compared_documents(signer, self.settings, a, b)
        else:
            found = Compared(compared.similarity, evidence={"terms": compared.terms})
        scopes = [_scope(signer, document) for document in (a, b)]
        apart = bool(self.settings.match_within) and scopes[0] != scopes[1]
        for document in (a, b):
            del document["hash"]
        return side_by_side(self.settings, a, b, found, apart)

    def _check_texts(self) -> None:
        if self.settings.verify != "exact":
            raise Problem(
                409, 'this index keeps no texts (verify = "signature"); one made with verify = "exact" does',
                field="verify",
            )  # fmt: skip

    # -- groups and events ------------------------------------------------------------------------------------------

    async def groups(self, order: Order, within: int | None, limit: int) -> list[Row]:
        try:  # as of the last commit
            return await asyncio.to_thread(table, self.folder, order, within, limit)
        except StoreError:
            if self.engine.index.count:
                raise
            return []  # nothing is committed yet

    async def group(self, number: int, limit: int) -> bytes:
        return await asyncio.to_thread(group_json, self.folder, number, limit)

    async def alerts(self, before: str | None, limit: int, rule: str | None) -> list[RaisedAlert]:
        if before is not None and not (before.isascii() and before.isdecimal()):
            raise ValueError(f"{before!r} is no cursor of alerts")
        found = self._journal.latest(None if before is None else int(before), limit, rule)
        return [RaisedAlert(str(entry.number), entry.time, entry.line) for entry in found]

    # -- the whole --------------------------------------------------------------------------------------------------

    async def _held(self) -> dict[str, Any]:
        def read(engine: Engine) -> dict[str, Any]:
            window = engine.index.window
            return {
                "documents": engine.index.count, "next_seq": engine.seq,
                "stream_time": None if window is None else window.shown, "jumps": 0 if window is None else window.jumps,
            }  # fmt: skip

        held: dict[str, Any] = await self.writer.do(Look(read))
        return {**held, "bytes": await self._bytes(), "checks": True, "texts": self.settings.verify == "exact"}

    async def _bytes(self) -> int:
        """Bytes on disk, at most `SIZE_SECONDS` old."""
        if time.monotonic() - self._size[0] > SIZE_SECONDS:
            self._size = time.monotonic(), await asyncio.to_thread(disk_bytes, self.folder)
        return self._size[1]


def group_json(folder: Path, number: int, limit: int) -> bytes:
    """A group of an index folder with its first members, as JSON.

    Raises:
        StoreError: there are no groups.
        UsageError: there is no such group.
    """
    with whole(folder, number) as (row, members):
        said = b",".join(member_json(row, member) for member in islice(members, limit))
        return b'%b,"members":[%b]}' % (row.json[:-1], said)


def _row_of(engine: Engine, id: str | int) -> tuple[int, int]:
    try:
        shard, row = engine.index.look_up([id_text(id)])[0].tolist()
    except Refused as refused:
        raise Problem(422, refused.detail, field="id") from None
    return shard, row


def _missing(id: str | int) -> Problem:
    return Problem(
        404, f"there is no document with the id {shown(id)}: it was never sent, was rejected or deleted, or has left "
        f"the window{as_number(id)}",
    )  # fmt: skip


def _described(engine: Engine, shard: int, row: int, text: bool) -> dict[str, Any]:
    """The stored facts of a document, on request with its text."""
    index = engine.index
    document = stored(engine, shard, row)
    found: dict[str, Any] = {
        "id": json.loads(document.id), "seq": document.seq,
        "kind": None if document.kind is None else document.kind.label,
        "duplicate_of": json.loads(document.of) if document.of else None, "similarity": document.similarity,
        "group": document.group, "time": document.time, "state": "kept" if document.kept else "dropped",
    }  # fmt: skip
    if text:
        found["text"] = index.text(shard, row).decode("utf-8", "surrogatepass")
        found["hash"] = int(index.words(shard, row)[layout.TEXT])
    return found


def _scope(signer: Signs, document: dict[str, Any]) -> int:
    """The hash of the scope of a document, by its fingerprint."""
    data = document["text"].encode("utf-8", "surrogatepass")
    signed = signer.sign(data, np.array([len(data)]), want_shingles=False, want_signatures=False)
    scope: int = document["hash"] ^ int(signed.fingerprints[0, 0])
    return scope

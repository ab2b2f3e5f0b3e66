"""The service of an index in this process, without HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.alerts.receivers import Receiver
from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.columns import LINE_ID
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.backups import Backup, backup
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_query import GroupQuery, MemberQuery, Page
from stream_lsh.embedded.group_store import FACT as GROUPS
from stream_lsh.embedded.group_table import group_json
from stream_lsh.embedded.stored import stored
from stream_lsh.embedded.warming import warm_up
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.families.family import Signs
from stream_lsh.hashing.compiler import Kernel
from stream_lsh.index.comparison import Comparison, compare_with_row
from stream_lsh.index.index import Index
from stream_lsh.index.kernel import compiling
from stream_lsh.index.rows import layout
from stream_lsh.index.store.files import disk_bytes
from stream_lsh.progress import Step
from stream_lsh.serve.beside import SOCKET
from stream_lsh.serve.comparing import Compared, compared_documents, compared_part, side_by_side
from stream_lsh.serve.disk import FREE, RESERVE, Disk, is_full
from stream_lsh.serve.events import block_of
from stream_lsh.serve.headline import UNKNOWN, Headline, stored_headline
from stream_lsh.serve.interface import LIMITS, Interface, Limits, RaisedAlert, as_number, shown
from stream_lsh.serve.opening import Opening
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.starting import WAITS
from stream_lsh.serve.tokens import Tokens
from stream_lsh.serve.webhooks import Webhooks
from stream_lsh.serve.work import Add, Answers, Check, Delete, Look, Round
from stream_lsh.serve.writer import Writer
from stream_lsh.settings.model import Settings

SIZE_SECONDS = 5.0  # validity of a measured size on disk
_LOG = logging.getLogger("stream_lsh.serve")
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
        backups: Path | None = None,
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        if settings.id_field == LINE_ID:
            raise UsageError(
                f"id_field = {LINE_ID}: documents over HTTP have no line numbers; name the field of the id"
            )
        self.folder = folder
        disk = Disk(folder, limits.free_bytes)
        self._opening = Opening(
            lambda: self._opened(Engine.open(settings, folder, groups=groups, rules=rules or None)),
            lambda: self._opened(Engine(Index(settings, folder, read_only=True))),
            disk,
        )
        engine = self.engine
        self.writer = Writer(self._opening, self._committed, self._broken)
        super().__init__(
            engine.settings, engine.seq, lambda: self.engine.seq, lambda: self.writer.waiting, tokens, limits, failed
        )
        self.intake.reading = lambda: self.writer.reading
        self.disk = disk
        self.tally.gauge(FREE, "Free bytes on the disk of the index.", lambda: disk.free)
        self.tally.gauge(RESERVE, "Free bytes below which writes are refused.", lambda: disk.reserve)
        self.socket, self.backups = folder / SOCKET, backups
        if receivers:
            self.webhooks = Webhooks(receivers, lambda: self.engine.alert_journal, folder)
            self.webhooks.measure(self.tally.registry)
        self.keeps_groups = engine.groups is not None or engine.index.store.named(GROUPS) is not None
        self.event_sources = engine.groups is not None and engine.groups.source_field is not None
        self._starting, self._copying = asyncio.Lock(), asyncio.Lock()
        self._size = (-math.inf, 0)  # time of the measurement, bytes

    def _opened(self, engine: Engine) -> Engine:
        engine.journals_alerts = engine.alerts is not None
        engine.alert_journal  # noqa: B018 - it is read here, before the writer's thread uses it
        return engine

    @property
    def engine(self) -> Engine:
        """The current engine. It is another one after the disk was full."""
        return self._opening.engine

    async def start(self) -> None:
        async with self._starting:  # everything is compiled first, so that no request waits for that
            await asyncio.to_thread(self._warm_up)
            if not self.intake.stopping:
                self.writer.start()
                if self.webhooks is not None:
                    self.webhooks.start()
                self.intake.ready = True
                if self.keeps_groups:  # not when the first table is asked for
                    self.tables.submit(self.engine.rank)

    def _warm_up(self) -> None:
        try:
            warm_up(self.settings, lambda: self.intake.stopping)
        except (OSError, StreamLshError) as error:
            if not is_full(error):
                raise
            _LOG.warning("the first requests wait for compiling: %s", error)
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
        self.tables.close()
        self.comparisons.close()

    def _why_not(self) -> str:
        return CLOSED if self.intake.began else WAITS.format(self.progress)

    @property
    def progress(self) -> Step | None:
        """As in `Interface`. Only of the kernels of matching it is known how many are needed; they take longest."""
        if self.intake.health != "starting":
            return None
        done, all = compiling.ready_of(compiling.needed(self.settings))
        if done < all:
            return Step("compiling the kernels of matching", done, all, "kernels")
        return Step("loading or compiling kernels", Kernel.loaded, None, "kernels")

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

        found: dict[str, Any] | None = await self.writer.do(Look(read, _texts(id)))
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

        with self.comparisons.place():
            (one, other), compared = await self.writer.do(Look(read, _texts(a, b)))
            for id, document in ((a, one), (b, other)):
                if document is None:
                    raise _missing(id)
            return await self.comparisons.run(self._compare, one, other, compared)

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

    async def headlines(self, ids: Sequence[str | int]) -> list[Headline]:
        def read(engine: Engine) -> list[Headline]:
            rows = (_row_of(engine, id) for id in ids)
            return [UNKNOWN if row < 0 else stored_headline(engine, shard, row) for shard, row in rows]

        found: list[Headline] = await self.writer.do(Look(read))
        return found

    def _check_texts(self) -> None:
        if self.settings.verify != "exact":
            raise Problem(
                409, 'this index keeps no texts (verify = "signature"); one made with verify = "exact" does',
                field="verify",
            )  # fmt: skip

    # -- groups and events ------------------------------------------------------------------------------------------

    async def groups(self, query: GroupQuery) -> Page:
        with self.tables.place():
            return await self.tables.run(self._table, query)

    def _table(self, query: GroupQuery) -> Page:
        return self.engine.rank().page(query)

    async def group(self, number: int, query: MemberQuery) -> tuple[bytes, int | None]:
        return await asyncio.to_thread(group_json, self.engine.index.store, number, query)

    async def alerts(self, before: str | None, limit: int, rule: str | None) -> list[RaisedAlert]:
        if before is not None and not (before.isascii() and before.isdecimal()):
            raise ValueError(f"{before!r} is no cursor of alerts")
        found = self.engine.alert_journal.latest(None if before is None else int(before), limit, rule)
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
        return {
            **held, "bytes": await self._bytes(), "disk": self._opening.disk.facts, "checks": True,
            "texts": self.settings.verify == "exact",
        }  # fmt: skip

    async def backup(self, destination: Path) -> Backup:
        loop = asyncio.get_running_loop()

        def checkpoint(path: Path) -> None:
            look = Look(lambda engine: engine.index.store.checkpoint(path))
            asyncio.run_coroutine_threadsafe(self.writer.do(look), loop).result()

        if self._opening.disk.full:
            raise self._opening.disk.problem()
        if self._copying.locked():
            raise Problem(429, "a backup is being made already", after=10)
        async with self._copying:
            return await asyncio.to_thread(backup, self.folder, destination, checkpoint)

    async def metrics(self) -> bytes:
        self.tally.measure(self.engine.index.count, await self._bytes())
        return await super().metrics()

    async def _bytes(self) -> int:
        """Bytes on disk, at most `SIZE_SECONDS` old."""
        if time.monotonic() - self._size[0] > SIZE_SECONDS:
            self._size = time.monotonic(), await asyncio.to_thread(disk_bytes, self.folder)
        return self._size[1]


def _texts(*ids: str | int) -> frozenset[bytes]:
    """Ids as JSON text. No document has an id that is too long."""
    found: set[bytes] = set()
    for id in ids:
        with suppress(Refused):
            found.add(id_text(id))
    return frozenset(found)


def _row_of(engine: Engine, id: str | int) -> tuple[int, int]:
    try:
        shard, row = engine.index.look_up([id_text(id)])[0].tolist()
    except Refused as refused:
        raise Problem(422, refused.detail, field="id") from None
    return shard, row


def _missing(id: str | int) -> Problem:
    return Problem(
        404, f"there is no document with the id {shown(id)}: it was never sent, was rejected or deleted, or has left "
        f"the window{as_number(id)}", code="unknown_document",
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

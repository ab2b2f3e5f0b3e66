"""The service of a pipeline on Kafka, over its topics, without HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.fields import LINE_ID, id_text, json_id
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.lines import parse_lines
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.engine import checked
from stream_lsh.embedded.group_query import GroupQuery, MemberQuery, Page
from stream_lsh.embedded.group_table import group_json
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.warming import warm_up
from stream_lsh.errors import UsageError
from stream_lsh.families.family import signer_of
from stream_lsh.index.reader import IndexReader
from stream_lsh.judging.verdicts import deletion
from stream_lsh.kafka.lookup.lookup import Lookup, NotReady
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.records import prefixed
from stream_lsh.kafka.tools.delete import check, line_of
from stream_lsh.kafka.tools.produce import Line, Reader, UnsentLines
from stream_lsh.progress import Step
from stream_lsh.serve.answers import verdict_lines
from stream_lsh.serve.comparing import compared_documents, side_by_side
from stream_lsh.serve.events import Place, place_of, written
from stream_lsh.serve.headline import Headline
from stream_lsh.serve.interface import LIMITS, Interface, Limits, RaisedAlert, as_number, shown
from stream_lsh.serve.pipeline.copying import GroupCopy
from stream_lsh.serve.pipeline.following import follow
from stream_lsh.serve.pipeline.originals import Headlines, Originals
from stream_lsh.serve.pipeline.outputs import Outputs
from stream_lsh.serve.pipeline.recent_answers import RecentAnswers
from stream_lsh.serve.pipeline.restarts import Restarts
from stream_lsh.serve.pipeline.sending import Sending
from stream_lsh.serve.pipeline.verdicts import Verdicts
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.retries import rejections
from stream_lsh.serve.tokens import Tokens
from stream_lsh.serve.work import Add, Answers, Check, Delete
from stream_lsh.wire.source import Headers

PLACE_SECONDS = 5.0  # how long to wait for a place that another service has reached already
LATE = 65_536  # limit of the ids of documents whose verdicts were late


class PipelineService(Interface):
    """A pipeline's outputs, and a producer to its documents topic."""

    settings: KafkaSettings

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        tokens: Tokens | None = None,
        limits: Limits = LIMITS,
        failed: Callable[[BaseException], None] = lambda _: None,
        folder: Path | None = None,
    ) -> None:
        self._waiting = 0
        super().__init__(settings, 0, lambda: self.ring.end[0], lambda: self._waiting, tokens, limits, failed)
        self.keeps_groups = settings.groups
        self._one = one = settings.one_topic  # that it writes to
        self._topic = Topics.of(one).documents
        self._verdicts = Verdicts(limits.kept_events, keeps=settings.compare_with == "kept", topic=self._topic)
        self._outputs = Outputs(self.ring, self._verdicts, self.tally, limits.kept_events)
        self._sending = Sending(one)
        self._originals = Originals(settings)
        self._headlines = Headlines(settings, self._known, self.intake.crowded)
        self.intake.reading = lambda: self._originals.waiting
        self._reader = Reader(one, None, UnsentLines())
        self._signer = signer_of(settings.signing)
        named = settings.source_field if settings.keep_per is not None else None
        self._fields = replace(one.document_fields, source_field=named)
        self._late: OrderedDict[str | int, None] = OrderedDict()
        self._recent = RecentAnswers()
        self._copy = GroupCopy(settings) if settings.groups else None
        self._lookup = Lookup(settings, folder) if folder is not None else None
        if (lookup := self._lookup) is not None:
            self.tally.gauge(
                "serve_check_behind_documents", "Documents with a verdict that checks do not know yet.",
                lambda: lookup.behind.documents,
            )  # fmt: skip
            self.tally.gauge(
                "serve_check_behind_seconds", "Time since the first of these verdicts was seen.",
                lambda: lookup.behind.seconds,
            )  # fmt: skip
        self._readers: list[Restarts] = []
        self._groups_reader: Restarts | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._began = asyncio.Event()

    @property
    def documents_delete(self) -> bool:
        """As in `Interface`."""
        return self._one.deleted_field is not None

    @property
    def progress(self) -> Step | None:
        """As in `Interface`."""
        if self.intake.health != "starting":
            return None
        done = sum(reader.up_to_date for reader in self._readers)
        if self._lookup is not None and done == len(self._readers) - 1 and not self._readers[-1].up_to_date:
            return self._lookup.progress
        return Step("reading the topics from Kafka", done, len(self._readers), "readers")

    async def start(self) -> None:
        """Start answering once the existing outputs are read.

        Raises:
            StreamLshError: Kafka cannot be reached, a topic is missing, or the pipeline has other settings.
        """
        settings, keep = self.settings, self.limits.kept_events
        self._readers = [Restarts(settings, lambda tell: follow(settings, self._outputs, keep, tell), self._moved)]
        if self._copy is not None:
            self._groups_reader = Restarts(settings, self._copy.follow, self._moved)
            self._readers.append(self._groups_reader)
        if self._lookup is not None:
            await asyncio.to_thread(warm_up, settings, lambda: self.intake.stopping)
            self._readers.append(Restarts(settings, self._lookup.follow, self._moved))
        self._tasks = [asyncio.create_task(reader.run()) for reader in self._readers]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        began = asyncio.create_task(self._began.wait())
        try:
            await asyncio.wait([began, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            began.cancel()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _moved(self) -> None:
        self.intake.ready = not self.intake.stopping and all(reader.up_to_date for reader in self._readers)
        if self.intake.ready:
            self._began.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.intake.ready = False
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _why_not(self) -> str:
        said = next((reader.why for reader in self._readers if reader.why), "")
        return f"the service cannot read at the moment: {said}" if said else "the service is catching up with Kafka"

    async def stop(self) -> None:
        self.intake.close()
        await self.intake.finish()
        await self._sending.close()
        self.ring.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._copy is not None:
            await asyncio.to_thread(self._copy.close)
        self.tables.close()
        self.comparisons.close()

    # -- documents --------------------------------------------------------------------------------------------------

    async def _answer(self, work: Add | Check | Delete) -> Answers:
        """The verdicts on documents. When this returns, the documents are on the documents topic.

        Raises:
            Problem: they were not sent, or it is unknown whether they were.
        """
        if isinstance(work, Check):
            return await self._checked(work.lines)
        if work.condition is not None:
            raise Problem(
                409, "a pipeline on Kafka judges documents in the order of their topic, whatever their version: "
                "If-Match and If-None-Match need an index of your own (stream-lsh serve --index)", field="If-Match",
            )  # fmt: skip
        if work.retry is None:
            return await self._sent(work)
        return await self._recent.answer(work.retry, lambda: self._sent(work))

    async def _checked(self, lines: Lines) -> Answers:
        """The verdicts on documents that are not sent, each with the frame that it is as of."""
        if self._lookup is None:
            raise Problem(
                409, "this service has no copy of the pipeline's shards to check against: start it with --index DIR, "
                "or send the document to /v1/documents",
            )  # fmt: skip
        columns = await asyncio.to_thread(
            parse_lines, lines.data, lines.starts, lines.ends, self._fields, rejected=lines.rejected
        )
        columns = prefixed(columns, self._one)

        def ask(reader: IndexReader) -> tuple[list[bytes], dict[int, Rejection]]:
            judged = checked(reader, columns)
            return verdict_lines(judged), judged.reasons  # which reads the ids

        try:
            (verdicts, rejected), as_of = await self._lookup.ask(ask)
        except NotReady as error:
            raise Problem(503, f"nothing can be checked yet: {error}", after=5) from None
        facts = b',"as_of":%b}' % orjson.dumps(as_of.facts)
        return Answers([verdict[:-1] + facts for verdict in verdicts], rejected)

    async def _sent(self, work: Add | Delete) -> Answers:
        if not self._one.plain_documents:
            raise Problem(409, "the documents topic has events: send the document to where the events are from")
        records = self._deletions(work.ids) if isinstance(work, Delete) else [*self._reader.each(work.lines, "")]
        end = time.monotonic() + self.limits.answer_seconds
        self._waiting += len(work)
        try:
            return await self._answers(records, end, isinstance(work, Delete), work.trace)
        finally:
            self._waiting -= len(work)

    def _deletions(self, ids: Sequence[str | int]) -> list[Line | Rejection]:
        check(self._one)
        try:
            return [line_of(self._one, id, number) for number, id in enumerate(ids, 1)]
        except UsageError as error:
            raise Problem(422, str(error), field="id") from None

    async def _answers(
        self, records: Sequence[Line | Rejection], end: float, deletions: bool, trace: Headers
    ) -> Answers:
        """The answers in the order of the records. Records that cannot be sent are answered with a rejection.

        Args:
            end: time limit, by the monotonic clock.
            deletions: whether the records delete.
            trace: the headers of the records.
        """
        sent = [record for record in records if isinstance(record, Line)]
        places = iter(await self._sending.send(sent, self.limits.answer_seconds, trace) if sent else ())
        waiting = {i: next(places) for i, record in enumerate(records) if isinstance(record, Line)}
        verdicts = {i: self._verdicts.wait(place) for i, place in waiting.items()}
        try:
            if verdicts:
                await asyncio.wait(verdicts.values(), timeout=max(0.0, end - time.monotonic()))
        finally:
            for i, place in waiting.items():
                if not verdicts[i].done():
                    self._verdicts.give_up(place)
        lines: list[bytes] = []
        late: dict[int, str] = {}
        for i, record in enumerate(records):
            if isinstance(record, Rejection):
                lines.append(_refused(record))
            elif verdicts[i].done():
                said = verdicts[i].result()
                lines.append(deletion(said) if deletions else said)
            else:
                line, late[i] = self._overdue(record, *waiting[i])
                lines.append(line)
        return Answers(lines, rejections(lines), late)

    def _overdue(self, record: Line, partition: int, offset: int) -> tuple[bytes, str]:
        """The answer for a document whose verdict is late, and where the verdict will be."""
        topic = self._topic
        id = self._id(record, f"{topic}:{partition}:{offset}")
        where = "/v1/events" if id is None else f"/v1/documents/{quote(json.dumps(id), safe='')}?id_type=json"
        if id is not None:
            self._late[id] = None
            if len(self._late) > LATE:
                self._late.popitem(last=False)
        source = {"topic": topic, "partition": partition, "offset": offset}
        said = {
            "id": id, "taken": True, "source": source, "look": where,
            "detail": f"it is accepted, and its verdict was not there within {self.limits.answer_seconds:g} s",
        }  # fmt: skip
        return json.dumps(said, separators=(",", ":")).encode("ascii"), where

    def _id(self, record: Line, place: str) -> str | int | None:
        """The id of a sent document; None if it has no readable one."""
        one, key = self._one, (record.key or b"").decode("utf-8", "replace")
        if one.id_field == LINE_ID:
            return place
        try:
            if record.value is None:
                id = id_text(json_id(key) if one.key_is_id == "json" else key)
            elif one.document_format == "text":
                id = id_text(key)
            else:
                id = one.document_fields.extract(read_object(record.value)).id
        except Refused:
            return None
        found: str | int = json.loads(one.prefixed(id))
        return found

    async def document(self, id: str | int, *, text: bool = False) -> dict[str, Any]:
        found = self._known(id)
        return {**found, "text": (await self._originals.of(found["source"])).text} if text else found

    def _known(self, id: str | int) -> dict[str, Any]:
        try:
            id_text(id)
        except Refused as refused:
            raise Problem(422, refused.detail, field="id") from None
        found = self._verdicts.of(id)
        if found is not None:
            self._late.pop(id, None)
            if found["state"] != "rejected":
                return dict(found)
            said = {name: value for name, value in found.items() if name != "state"}
            raise Problem(
                404, f"the document was rejected: {found['detail']}", code="unknown_document", more={"verdict": said}
            )  # fmt: skip
        if id in self._late:
            raise Problem(404, "it is accepted, and its verdict is not there yet", code="unknown_document", after=1)
        raise Problem(
            404, f"no document with the id {shown(id)} is among the last "
            f"{self.limits.kept_events:,} whose verdicts this service stores (--keep-events), or it was deleted; the "
            f"verdicts topic may have it{as_number(id)}", code="unknown_document",
        )  # fmt: skip

    async def compared(self, a: str | int, b: str | int) -> dict[str, Any]:
        """A comparison by the records on the documents topic; as in `Interface`. Raises Problem also for tf-idf."""
        if self.settings.measure == "tf-idf":
            raise Problem(
                409, "with tf-idf the similarity of two documents depends on the document frequencies in a worker's "
                "shard; their verdicts have it, with the terms",
                field="measure",
            )  # fmt: skip
        found = [self._known(id) for id in (a, b)]
        with self.comparisons.place():
            one, other = await asyncio.gather(*(self._originals.of(document["source"]) for document in found))
            return await self.comparisons.run(
                self._compare, {**found[0], "text": one.text}, {**found[1], "text": other.text},
                one.within != other.within,
            )  # fmt: skip

    async def headlines(self, ids: Sequence[str | int]) -> list[Headline]:
        return await self._headlines.read(ids)

    def _compare(self, a: dict[str, Any], b: dict[str, Any], apart: bool) -> dict[str, Any]:
        return side_by_side(self.settings, a, b, compared_documents(self._signer, self.settings, a, b), apart)

    # -- groups and events ------------------------------------------------------------------------------------------

    async def groups(self, query: GroupQuery) -> Page:
        ranking = self._groups().ranking
        with self.tables.place():
            return Page(()) if ranking is None else await self.tables.run(ranking.page, query)

    async def alerts(self, before: str | None, limit: int, rule: str | None) -> list[RaisedAlert]:
        found = self.ring.backwards("alert", None if before is None else place_of(before))
        wanted = (event for event in found if rule is None or json.loads(event.data)["rule"] == rule)
        return [RaisedAlert(written(event.place), None, event.data) for event in islice(wanted, limit)]

    async def group(self, number: int, query: MemberQuery) -> tuple[bytes, int | None]:
        store = self._groups().store
        if store is None:
            raise UsageError(f"there is no group {number}: no worker has folded groups yet")
        return await asyncio.to_thread(group_json, store, number, query)

    def _groups(self) -> GroupCopy:
        """The groups. Raises Problem: the changelog is not read yet."""
        assert self._copy is not None, "`keeps_groups` says whether there are any"
        if self._groups_reader is None or not self._groups_reader.ever:
            raise Problem(503, "the groups are not read yet", after=5)
        return self._copy

    async def place(self, place: Place | None) -> Place:
        """The start of a listener that has all events up to a place; None = from now on. If another service is ahead of
        this one, it waits a moment to catch up."""
        if place is None:
            return self.ring.end
        end = time.monotonic() + PLACE_SECONDS
        while place > self.ring.end and time.monotonic() < end and not self.intake.stopping:
            await asyncio.sleep(0.05)
        return place

    # -- the whole --------------------------------------------------------------------------------------------------

    async def _held(self) -> dict[str, Any]:
        return {
            "documents": self._outputs.documents or 0, "next_seq": self.ring.end[0], "stream_time": None, "jumps": 0,
            "bytes": None, "checks": self._lookup is not None, "texts": True,
        }  # fmt: skip


def _refused(why: Rejection) -> bytes:
    """The verdict for a document that cannot be sent, and so has no seq."""
    said = orjson.dumps({"reason": why.reason, "detail": why.detail})[1:]
    return (
        b'{"id":null,"seq":null,"kind":"rejected","duplicate_of":null,"similarity":null,"group":null,"matches":[],%b'
        % said
    )

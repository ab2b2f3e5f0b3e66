"""The engine for Python programs: documents in, verdicts out, an index that stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import orjson

from stream_lsh.api.arrow import Rows, table_of_lists
from stream_lsh.api.feeding import Feeding, feeding
from stream_lsh.api.guard import Guard, uninterrupted
from stream_lsh.api.questions import BATCH, integer
from stream_lsh.api.verdict import Verdict
from stream_lsh.documents.document import Document, Time
from stream_lsh.documents.times import milliseconds
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.erasure import ENDING_SECONDS, erase_due
from stream_lsh.embedded.groups import opened
from stream_lsh.embedded.remote import is_remote
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import UsageError
from stream_lsh.index.index import Index
from stream_lsh.settings.model import Settings

MOST_FACTS = 64 * 1024  # bytes of the caller's facts as JSON


class Deduplicator(Feeding):
    """Finds near-duplicates in a stream of documents.

    Several threads may use one Deduplicator. The documents of a batch stay together, and batches follow each other in
    the order of arrival.

    Ctrl-C takes effect after the current batch. The documents of that batch are in the index, and you can continue to
    use the Deduplicator. Process a document again to get a verdict that was not delivered: it is `redelivered`, with
    the first verdict.

    A forked process cannot use the Deduplicator of its parent, and must end with `os._exit`, as processes of
    `multiprocessing` do.

    Args:
        settings: settings that you leave out are those of the index, or the defaults of a new index.
        index: folder of the persistent index. Without it the index is temporary.
        read_only: read the last commit at the time of opening, also while another process writes to the index.
        commit: "auto" makes everything durable within half a second, and at the end. "manual" makes it durable only
            with `commit()`: the rest is held in memory, and is lost after `close`, at the end of a `with`, or in a
            crash. A program that commits its own position as `facts` after it has used the verdicts continues there
            after a crash, and gets unused verdicts again.
        groups: whether a new index keeps groups. None means yes with `compare_with = "kept"`. An existing index stays
            as it was made. Groups cost time if many documents are duplicates, or arrive one by one.

    Attributes:
        settings: the settings of the index.

    Raises:
        StoreError: the folder is in use or damaged, or the index was made with other settings.
        UsageError: an argument has a wrong value.

    Examples:
        >>> from stream_lsh import Deduplicator, Document, Settings
        >>> documents = [
        ...     Document("a1", "The council has voted for the new bridge over the river; work begins in spring."),
        ...     Document("a2", "The harbour museum opens again on Saturday after a winter of repairs to the roof."),
        ...     Document("b1", "The council has voted for the new bridge over the river; work begins in autumn."),
        ... ]
        >>> with Deduplicator(Settings(threshold=0.7)) as deduplicator:
        ...     for verdict in deduplicator.process(documents):
        ...         print(verdict.id, verdict.kind, verdict.duplicate_of)
        a1 unique None
        a2 unique None
        b1 near_duplicate a1
    """

    def __init__(
        self,
        settings: Settings | None = None,
        index: str | Path | None = None,
        *,
        read_only: bool = False,
        commit: Literal["auto", "manual"] = "auto",
        groups: bool | None = None,
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(f"settings is a {type(settings).__name__}, not Settings; its folder is given as `index`")
        if commit not in ("auto", "manual"):
            raise UsageError(f"commit = {commit!r}: there are 'auto' and 'manual'")
        if read_only and index is None:
            raise UsageError("read_only = True is for an index that is there: give its folder as index")
        if isinstance(index, str) and is_remote(index):
            raise UsageError(f"index = {index!r} is an address; it has to be a folder of this machine")
        try:
            usable = index is None or b"\0" not in os.fsencode(index) != b""
        except UnicodeEncodeError:
            usable = False
        if not usable:
            raise UsageError(f"index = {str(index)!a} is no path of a folder")
        self._temporary = temporary_folder() if index is None else None
        folder = Path(index) if index is not None else Path(self._temporary.name if self._temporary else "")
        given = settings or Settings()
        opening: Index | None = None
        try:
            with uninterrupted():
                opening = Index(
                    given, folder, durable=index is not None, read_only=read_only, now=time.time(), clock=time.monotonic
                )
                engine = Engine(opening, opened(opening, False if read_only else groups, given.source_field))
                super().__init__(engine, Guard(folder), automatic=commit == "auto")
                if not read_only:
                    engine.check_finished()
        except BaseException:
            if opening is not None:
                opening.close()
            raise
        self._read_only = read_only

    # -- documents ----------------------------------------------------------------------------------------------------

    def process(
        self, documents: Iterable[Document | Mapping[str, Any]], *, batch: int | None = None
    ) -> Iterator[Verdict]:
        """The verdict on each document, in order. Each document is compared with those before it, and then stored.

        The work is done while you iterate. If `documents` raises an error, you get the verdicts on the documents
        before it first.

        Args:
            documents: each a `Document`, or a mapping with the fields that the settings name (`id_field`, `text_field`,
                `time_field` and so on), which is read like a JSON line.
            batch: documents processed at a time, 1,024 at most. The default is 1,024 for a sequence. For another
                iterable it is as many as have arrived, so that a live feed has each verdict at once and a fast one is
                not slowed down: a thread iterates over it, up to 1,280 documents ahead of the verdicts. If you break
                off, these are lost. A generator that is resumed cannot tell that its document is processed: use
                `batch=1` if it keeps a position, or commits offsets, after `yield`. With a number, or `commit="manual"`
                (then it is 1), your own thread takes each batch when the verdicts before it are
                delivered.

        Raises:
            TypeError: `documents`, one of them, or `batch` has a wrong type.
            UsageError: the Deduplicator is read-only; or there is a window, and the first document has no time; or a
                document deletes, and the index does not allow it.
            StoreError: the Deduplicator is closed, or an error has interrupted an earlier batch or commit.

        Examples:
            >>> with Deduplicator(Settings(text_field="title")) as deduplicator:
            ...     rows = [{"id": 1, "title": "Harbour museum opens again"}, {"id": 2, "title": None}]
            ...     for verdict in deduplicator.process(rows):
            ...         print(verdict.id, verdict.kind, verdict.detail)
            1 unique None
            2 rejected the field "title" is null, not a string
        """
        self._check_writable("stores nothing")
        listed = isinstance(documents, (list, tuple))  # asking for `Sequence` takes longer
        if not listed and (
            isinstance(documents, (str, bytes, Mapping, Document)) or not isinstance(documents, Iterable)
        ):
            raise TypeError(f"documents is a {type(documents).__name__}, not an iterable of documents")
        if batch is not None and (batch := integer("batch", batch)) < 1:
            raise UsageError(f"batch = {batch}: documents are taken one or more at a time")
        if batch is None and (listed or isinstance(documents, Sequence)):
            batch = BATCH
        elif batch is None and not self._automatic:  # the caller commits between two verdicts
            batch = 1
        return self._verdicts(iter(documents), batch)

    def process_batch(
        self, ids: Any, texts: Any, *, times: Any = None, sources: Any = None,
        within: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:  # fmt: skip
        """The verdicts on documents that are given as columns, as a `pyarrow.Table`. It is faster than `process`,
        because no Python object is made for a document. Needs the extra `arrow`.

        Args:
            ids, texts: a list, an array of NumPy or Arrow, or a series, of strings (ids: or of integers). times,
                sources: likewise. within: such columns by the fields of `match_within`.

        Returns:
            A row for each document: `id`, `seq`, `kind`, `first_kind`, `duplicate_of`, `similarity`, `group`,
            `matches`, `truncated`, `not_compared`, `replaces`, `new_representative`, `supersedes`, `reason` and
            `detail`, as in a `Verdict`. `duplicate_of` has the type of `id`, or is text if ids of another type are in
            the index.

        Raises:
            TypeError: the values of a column have no common type, or an integer does not fit in an int64. InputError: a
                column has a type that cannot be used.
            UsageError: columns have different lengths, the index has a `rank_field`, pyarrow is missing, or as in
                `process`.
            StoreError: as in `process`.

        Examples:
            >>> with Deduplicator(Settings(threshold=0.6)) as deduplicator:
            ...     text = "The museum opens again on Saturday after a winter of repairs to its roof"
            ...     table = deduplicator.process_batch([1, 2, 3], [text, text + " and walls", None])
            ...     print(table.select(["kind", "duplicate_of"]).to_pylist()[1])
            ...     print(table["reason"].to_pylist())
            {'kind': 'near_duplicate', 'duplicate_of': 1}
            [None, None, 'wrong_type']
        """
        table, fields = table_of_lists(self._engine.fields, ids, texts, times, sources, within)
        self._check_writable("stores nothing")
        return self._process_rows(Rows(table, fields))

    def process_arrow(self, table: Any) -> Any:
        """The verdicts on the rows of a table, as a `pyarrow.Table` with the columns of `process_batch`.

        The table is taken batch by batch, and each batch counts once it is processed. With `commit="manual"` nothing is
        durable before `commit`, so that a table and your position in the feed become durable in one step.

        Args:
            table: of pyarrow, polars, DuckDB, pandas or another library with the PyCapsule interface of Arrow
                (`__arrow_c_stream__`). The settings name its columns, as they name the fields of JSON lines.

        Raises:
            TypeError: it has no such interface. InputError: a column is missing, or has a type that cannot be used.
            UsageError: pyarrow is missing, or as in `process`. StoreError: as in `process`.
        """
        self._check_writable("stores nothing")
        return self._process_rows(Rows(table, self._engine.fields))

    def delete(self, id: str | int, *, time: Time | None = None) -> Verdict:
        """Delete a document. The verdict is `deleted`; its `replaces` is the number of the deleted document, None if
        there was none, and its `new_representative` now represents the group.

        Many at once: `process(Document(id, deleted=True) for id in ids)`.

        Args:
            time: event time of the deletion. A later document with an earlier time is `outdated`.

        Raises:
            TypeError: the id or the time has a wrong type.
            UsageError: the index has not `on_conflict = "update"`, or the Deduplicator is read-only.
            StoreError: as in `process`.

        Examples:
            >>> with Deduplicator(Settings(on_conflict="update")) as deduplicator:
            ...     _ = list(deduplicator.process([Document("a", "The museum opens again after a winter of repairs.")]))
            ...     print(deduplicator.delete("a").replaces, "a" in deduplicator)
            ...     print(deduplicator.delete("a").detail)
            0 False
            there is no document with this id
        """
        (verdict,) = self.process([Document(id, deleted=True, time=time)])
        return verdict

    def set_stream_time(self, time: Time) -> None:
        """Set stream time back, after wrong event times have moved it ahead, and commit. What the jump has removed from
        the window stays removed.

        Args:
            time: the event time of the documents that come now.

        Raises:
            UsageError: the time is none, or not after 1970; there is no window and no groups; stream time has not
                begun or is not later; or as in `commit`.
            StoreError: as in `process`.
        """
        self._check_commits("sets no stream time")
        try:
            to = milliseconds(time)
        except ValueError as error:
            raise UsageError(str(error)) from None
        with self._guard.whole():
            self._check_taken()
            self._engine.set_back(to)
            self._commit()

    # -- commits ------------------------------------------------------------------------------------------------------

    def commit(self, facts: dict[str, Any] | None = None) -> None:
        """Make everything processed so far durable. With `commit="auto"` this also happens by itself.

        Args:
            facts: a JSON object of yours, at most 64 KB, such as a position in the feed. It becomes durable in the same
                atomic step, and replaces the one before. None keeps the one before.

        Raises:
            UsageError: the facts are no JSON object or too large; the Deduplicator is read-only; or with
                `commit="manual"` you have not taken all verdicts of a batch from `process`; or a generator that is
                ahead of the verdicts calls this. Nothing is committed.
            StoreError: the Deduplicator is closed, or an error has interrupted an earlier batch or commit. Earlier
                commits are kept.

        Examples:
            >>> with Deduplicator(commit="manual") as deduplicator:
            ...     _ = list(deduplicator.process([Document("a", "The museum opens again after a winter of repairs.")]))
            ...     deduplicator.commit({"position": 1})
            ...     print(deduplicator.facts)
            {'position': 1}
        """
        self._check_commits("commits nothing")
        encoded = None if facts is None else _encoded(facts)
        with self._guard.whole():
            self._check_taken()
            self._commit(encoded)

    def _check_commits(self, what: str) -> None:
        self._check_writable(what)
        if self in feeding.get():
            raise UsageError(
                "this generator is ahead of the verdicts, and would commit a position before its documents are "
                "processed: call process(..., batch=1), or commit in the loop over the verdicts"
            )

    def _check_taken(self) -> None:
        untaken = sum(batch.left for batch in list(self._under_way))
        if untaken and not self._automatic:
            raise UsageError(
                f"{untaken:,} verdicts have not been taken from `process` yet, and would be lost in a crash: "
                "commit behind the loop over them, or let `process` take fewer documents at a time (batch=...)"
            )

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that were committed last, by this or an earlier Deduplicator; {} if there are none. They can be
        read after `close`, too."""
        value: dict[str, Any] = orjson.loads(self._facts)
        return value

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close, with `commit="auto"` after a last commit. An interrupted batch is not committed. A second call does
        nothing, nor does a call in a forked process."""
        guard = self._guard
        if guard.forked:
            return
        with guard.lock:
            if guard.closed:
                return
            try:
                if self._automatic and not (self._read_only or guard.torn):
                    with uninterrupted():
                        self._commit()
                if not (self._read_only or guard.torn or self._uncommitted):
                    erase_due(self._index, time.time(), ENDING_SECONDS)
            finally:
                with uninterrupted():
                    guard.closed = True
                    if self._timer is not None:
                        self._timer.cancel()
                    self._index.close()
                    if self._temporary is not None:
                        self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_writable(self, what: str) -> None:
        """Raise StoreError or UsageError unless documents and commits can be taken."""
        if self._read_only:
            raise UsageError(f"this Deduplicator is read-only: it answers questions and {what}")
        with self._guard.whole():
            pass


def _encoded(facts: dict[str, Any]) -> bytes:
    """The caller's facts as JSON.

    Raises:
        UsageError: they are not what a JSON object can hold, or too large.
    """
    if not isinstance(facts, dict):
        raise UsageError(f"facts: a JSON object is needed, a dict; this is a {type(facts).__name__}")
    try:
        json.dumps(facts, allow_nan=False)  # refuses what the other would quietly turn into something else
        encoded = orjson.dumps(facts)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"facts: they must be JSON: {error}") from None
    if len(encoded) > MOST_FACTS:
        raise UsageError(f"facts: {len(encoded):,} bytes as JSON, at most {MOST_FACTS:,} are kept")
    return encoded

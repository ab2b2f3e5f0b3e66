"""The outputs of a job: which lines each output gets, and the state of each that a commit records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.embedded.engine import Judged
from stream_lsh.embedded.lines import Batch, Lines
from stream_lsh.embedded.outputs import STANDARD, Output, file_at
from stream_lsh.embedded.table_input import Rows, taken
from stream_lsh.embedded.table_output import TableOutput
from stream_lsh.embedded.targets import Target, packed, place_of, targets_of
from stream_lsh.judging.verdicts import Judgement, Kind, pair_lines, verdict_lines

PlaceOf = Callable[[int, int], bytes | None]
"""The source position of a row of a shard, as JSON; None if it is unknown."""

Removal = tuple[int, bytes]
"""A line about a removed version, and the document of a batch that follows it."""


class Sink:
    """The open outputs. Those of an index resume at their recorded state; without an index files are overwritten.

    Args:
        targets: what each has already. known: the recorded states of outputs, by place. resuming: whether an
            interrupted run resumes: what was written after the last commit is truncated. folder: of the index.
        schema: of the output `unique` if that is a table.
    """

    def __init__(
        self, targets: Sequence[Target], known: Mapping[str, Any], resuming: bool, folder: Path | None, verified: str,
        schema: Any = None,
    ) -> None:  # fmt: skip
        self._known = dict(known)
        self._verified = verified
        self._letters = place_of(str(folder / DEAD_LETTERS)) if folder is not None else None
        self._targets = {target.name: target for target in targets}
        self._outputs: dict[str, Output | TableOutput] = {}
        self.piped = False
        """Whether something of a pipe was written, which cannot be read again."""
        try:
            for target in targets:
                self._outputs[target.name] = _opened(target, schema, resuming=resuming, indexed=folder is not None)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(
        cls, paths: Mapping[str, str], known: Mapping[str, Any], resuming: bool, folder: Path, verified: str
    ) -> Sink:
        """The outputs of an index that is not fed, after `check_outputs`."""
        return cls(targets_of(paths, known, folder, overwrite=False), known, resuming, folder, verified)

    @property
    def marks(self) -> list[str]:
        """The marks of the outputs."""
        return [target.mark for target in self._targets.values() if not target.complete]

    def files(self, names: Iterable[str]) -> list[str]:
        """The names of those outputs that are files and can be resumed."""
        return [name for name in names if self._outputs[name].regular]

    def is_known(self, mark: str) -> bool:
        """Whether there is an output of that mark."""
        return mark in self.marks or any(record.get("mark") == mark for record in self._known.values())

    def write(self, batch: Batch, judged: Judged, place_of: PlaceOf) -> tuple[list[Removal], dict[str, bytes]]:
        """Write the lines of a batch. Returns those of removed versions, and those of all outputs except `unique`."""
        judgement, events = judged.judgement, judged.events
        removed, lines = removals(judgement, place_of), dict[str, bytes]()
        if "unique" in self._outputs:
            self.put_kept(batch.lines, judgement.of_kind(Kind.UNIQUE), removed)
        if "pairs" in self._outputs:
            lines["pairs"] = pair_lines(judgement, self._verified)
        if "verdicts" in self._outputs:
            lines["verdicts"] = verdict_lines(judgement)
        if "groups" in self._outputs and events is not None:
            lines["groups"] = b"".join(events.lines(batch.ids, judgement.seqs))
        if "alerts" in self._outputs:
            lines["alerts"] = judged.alerts
        if "dead_letters" in self._outputs:
            letters = b"".join([batch.dead_letter(i, why) for i, why in sorted(judged.reasons.items())])
            if self._targets["dead_letters"].complete:
                self.put("dead_letters", letters)
            else:
                lines["dead_letters"] = letters
        for name, more in lines.items():
            self.put(name, more)
        return removed, lines

    def put_kept(self, documents: Lines, kept: NDArray[np.int64], removed: Iterable[Removal]) -> None:
        """Write the kept documents, by place, and before them the lines of deleted and replaced versions."""
        output = self._outputs["unique"]
        if isinstance(output, TableOutput):
            assert isinstance(documents, Rows)
            output.write_rows(taken(documents.rows, kept))
            return
        parts, done = [], 0
        for i, lines in groupby(removed, key=itemgetter(0)):
            end = int(np.searchsorted(kept, i))
            parts += [documents.raw_lines(kept[done:end]), *(line for _, line in lines)]
            done = end
        self.put("unique", b"".join([*parts, documents.raw_lines(kept[done:])]))

    def put(self, name: str, lines: bytes) -> None:
        """Write lines to an output, if there is one of that name."""
        output = self._outputs.get(name)
        if output is not None and lines:
            output.write(lines)

    def checkpoint(self, sync: bool, now: int) -> dict[str, Any]:
        """What the next commit of the index has to know of the outputs; now: seconds since 1970."""
        for name, output in self._outputs.items():
            target = self._targets[name]
            before = self._known.get(target.place, {})
            piped = self.piped or (before.get("mark") == target.mark and bool(before.get("piped")))
            record = packed(output.checkpoint(sync, now)) | {"name": name, "mark": target.mark, "piped": piped}
            if isinstance(output, TableOutput):
                record["part"] = output.part
            if target.path == STANDARD:
                record["file"] = file_at(STANDARD)
            if target.place == self._letters:
                del record["end"]  # of which something may be erased
            self._known[target.place] = record
        return self._known

    def let_go(self, time: int) -> None:
        """Keep nothing in the index that was to be written by this time, seconds since 1970: it is to be erased. So
        frames end."""
        for output in self._outputs.values():
            output.let_go(time)

    def finish(self) -> None:
        """Complete all files: nothing is pending any more."""
        for output in self._outputs.values():
            output.finish()

    def settle(self) -> None:
        """After the last commit: remove what complete tables make superfluous."""
        for output in self._outputs.values():
            if isinstance(output, TableOutput):
                output.settle()

    def close(self) -> None:
        for output in self._outputs.values():
            output.close()


def _opened(target: Target, schema: Any, *, resuming: bool, indexed: bool) -> Output | TableOutput:
    if schema is not None and target.name == "unique":
        return TableOutput(
            target.path, schema, target.there if indexed else None, part=target.part,
            overwrite=target.overwrite or not indexed, indexed=indexed,
        )  # fmt: skip
    if target.path == STANDARD:
        return Output.standard(target.there if resuming else None)
    if not indexed:
        return Output.create(target.path, overwrite=True)
    return (
        Output.create(target.path, target.overwrite)
        if target.there is None
        else Output.resume(target.path, target.there)
    )


def removals(judgement: Judgement, place_of: PlaceOf) -> list[Removal]:
    """The lines that precede those of a batch's documents: for each new representative, for each deleted or replaced
    version whose id is no longer live or that has a new representative, and for each superseded document."""
    j = judgement
    lines = [(i, _removal_line(j, b"null", (shard, row), place_of)) for i, _, shard, row, _ in j.later.tolist()]
    for i in j.removals.tolist():
        representative = tuple(j.representatives[i].tolist()) if j.representative_seqs[i] >= 0 else None
        lines.append((i, _removal_line(j, j.ids[i], representative, place_of)))
    lines += [(i, _removal_line(j, j.oldest(i), None, place_of)) for i in j.superseding.tolist()]
    return sorted(lines, key=itemgetter(0))


def _removal_line(judgement: Judgement, id: bytes, representative: tuple[int, int] | None, place_of: PlaceOf) -> bytes:
    """The line of a removed kept document: its id, its new representative, and the source position of that one."""
    name = b"null" if representative is None else judgement.names.id_of(*representative)
    place = None if representative is None else place_of(*representative)
    return b'{"id":%b,"deleted":true,"new_representative":%b,"at":%b}\n' % (id, name, place or b"null")

"""The outputs of a job: which lines go where, and where each stood at the last commit."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Batch
from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.embedded.engine import Judged
from stream_lsh.embedded.outputs import STANDARD_OUTPUT, Output, OutputState, check_distinct, end_of
from stream_lsh.errors import OutputError
from stream_lsh.judging.verdicts import Judgement, Kind, pair_lines, verdict_lines

PlaceOf = Callable[[int, int], bytes | None]
"""Where in the inputs a row of a shard stood, as JSON; None if that is not known."""

STANDARD = "-"
SPOOL = "standard-output"
COPY_BYTES = 1 << 20


class Sink:
    """The outputs, opened to go on where `known` says that they stood.

    Args:
        paths: `unique`, `pairs`, `verdicts`, `groups`, `alerts`, `dead_letters` to a path or "-". known: states by
            place, from the index.
        resuming: an interrupted run goes on: what was written after the last commit is cut off.
        folder: of the index; without one, files are overwritten. overwrite: also with one, unless the index
            knows them.
        finished: all inputs were read by earlier runs. If the last of these was killed after its last commit, what it
            kept of standard output is still there and is written again, as the shell's `>` has emptied the file.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        inputs: Iterable[str],
        known: Mapping[str, Any],
        resuming: bool,
        folder: Path | None,
        verified: str,
        *,
        overwrite: bool = False,
        finished: bool = False,
    ) -> None:
        check_distinct({f"--{name.replace('_', '-')}": path for name, path in paths.items()}, inputs)
        self._known = dict(known)
        self._verified = verified
        self._folder = folder
        self._spool: Output | None = None
        self._copied: int | None = known.get(STANDARD, {}).get("since")  # since when there is a copy, if it says so
        self._outputs: dict[str, Output] = {}
        try:
            for name, path in paths.items():
                before = _unpacked(known.get(_place(path)))
                if path == STANDARD:
                    kept = finished and folder is not None and (folder / SPOOL).exists()
                    self._outputs[name] = self._standard(before if resuming or kept else None)
                elif folder is None:
                    self._outputs[name] = Output.create(path, overwrite=True)
                elif before is not None and before.length >= 0 and (resuming or Path(path).exists()):
                    self._outputs[name] = Output.resume(path, before)
                else:
                    self._outputs[name] = Output.create(path, overwrite)
        except BaseException:
            self.close()
            raise
        self._places = {name: _place(path) for name, path in paths.items()}

    def _standard(self, before: OutputState | None) -> Output:
        """Standard output. With a index folder what goes into a file is also kept there until the job is done, because
        the shell's `>` empties the file when the same command line is run again."""
        if self._folder is None or not stat.S_ISREG(os.fstat(STANDARD_OUTPUT).st_mode):
            return Output.standard()
        path = self._folder / SPOOL
        if before is None or before.length < 0:
            self._spool, self._copied = Output.create(path, overwrite=True), None
            return Output.standard()
        if not path.exists():  # it had what was to be erased
            return Output.standard(before)
        self._spool = Output.resume(path, before)
        if os.fstat(STANDARD_OUTPUT).st_size == 0:
            output = Output.standard()
            with path.open("rb") as file:
                while block := file.read(COPY_BYTES):
                    output.write(block)
            return output
        return Output.standard(before)

    def write(self, batch: Batch, judged: Judged, place_of: PlaceOf) -> None:
        """Write what follows from a batch."""
        judgement, events = judged.judgement, judged.events
        if "unique" in self._outputs:
            self.put("unique", unique_lines(batch, judgement, place_of))
        if "pairs" in self._outputs:
            self.put("pairs", pair_lines(judgement, self._verified))
        if "verdicts" in self._outputs:
            self.put("verdicts", verdict_lines(judgement))
        if "groups" in self._outputs and events is not None:
            for lines in events.lines(batch.ids, judgement.seqs):
                self.put("groups", lines)
        self.put("alerts", judged.alerts)
        if "dead_letters" in self._outputs:
            letters = [batch.dead_letter(i, why) for i, why in sorted(judged.reasons.items())]
            self.put("dead_letters", b"".join(letters))

    def put(self, name: str, lines: bytes) -> None:
        """Write lines to an output, if there is one of that name."""
        output = self._outputs.get(name)
        if output is None or not lines:
            return
        output.write(lines)
        if self._spool is not None and output is not self._spool and output.name == "standard output":
            self._spool.write(lines)

    def checkpoint(self, sync: bool, now: int) -> dict[str, Any]:
        """Where the outputs stand, for the index's next commit; now: seconds since 1970."""
        for name, output in self._outputs.items():
            place = self._places[name]
            kept = self._spool if self._spool is not None and place == STANDARD else output
            self._known[place] = _packed(kept.checkpoint(sync, now))
            if kept is not output:
                self._copied = now if self._copied is None else self._copied
                self._known[place]["since"] = self._copied
                output.checkpoint(sync)
            elif self._folder is not None and place == _place(str(self._folder / DEAD_LETTERS)):
                del self._known[place]["end"]  # of which something may be erased
        return self._known

    def let_go(self, time: int) -> None:
        """Keep nothing in the index folder that was written by this time, seconds since 1970: it is to be erased. So
        frames end, and there is no copy of standard output any more."""
        for output in self._outputs.values():
            output.let_go(time)
        if self._spool is not None and self._copied is not None and self._copied <= time and self._folder is not None:
            self._spool.close()
            self._spool = None
            (self._folder / SPOOL).unlink(missing_ok=True)

    def finish(self) -> None:
        """Complete all files: nothing is pending any more."""
        for output in self._outputs.values():
            output.finish()

    def done(self) -> None:
        """The job is finished, committed, and nothing is left to do."""
        if self._spool is not None and self._folder is not None:
            (self._folder / SPOOL).unlink(missing_ok=True)

    def close(self) -> None:
        for output in (*self._outputs.values(), *([self._spool] if self._spool else [])):
            output.close()


def unique_lines(batch: Batch, judgement: Judgement, place_of: PlaceOf) -> bytes:
    """The bytes of what was kept, and before them the lines of what went."""
    at, parts, done = np.flatnonzero(judgement.kinds == Kind.UNIQUE), [], 0
    for i, lines in groupby(gone(judgement, place_of), key=itemgetter(0)):
        end = int(np.searchsorted(at, i))
        parts += [raw_lines(batch, at[done:end]), *(line for _, line in lines)]
        done = end
    return b"".join([*parts, raw_lines(batch, at[done:])])


def gone_lines(judgement: Judgement, place_of: PlaceOf) -> bytes:
    """The lines of what went."""
    return b"".join([line for _, line in gone(judgement, place_of)])


def gone(judgement: Judgement, place_of: PlaceOf) -> list[tuple[int, bytes]]:
    """The lines that documents of a batch have before their own: of heirs that others have left their places to before,
    and of what went with them, if it is not there any more under its id, or has an heir."""
    j = judgement
    lines = [(i, _gone_line(j, b"null", (shard, row), place_of)) for i, _, shard, row, _ in j.later.tolist()]
    for i in j.gone.tolist():
        heir = tuple(j.heirs[i].tolist()) if j.heir_seqs[i] >= 0 else None
        lines.append((i, _gone_line(j, j.ids[i], heir, place_of)))
    return sorted(lines, key=itemgetter(0))


def _gone_line(judgement: Judgement, id: bytes, heir: tuple[int, int] | None, place_of: PlaceOf) -> bytes:
    """That a kept document went, who stands in its place, and where that one's line is."""
    name = b"null" if heir is None else judgement.names.id_of(*heir)
    place = None if heir is None else place_of(*heir)
    return b'{"id":%b,"deleted":true,"heir":%b,"at":%b}\n' % (id, name, place or b"null")


def raw_lines(batch: Batch, at: NDArray[np.int64]) -> bytes:
    """The bytes of these documents as they came in, each with a newline; neighbours are copied in one piece."""
    if not len(at):
        return b""
    starts, ends = batch.line_starts[at], batch.line_ends[at]
    breaks = np.flatnonzero(starts[1:] != ends[:-1] + 1) + 1
    firsts = starts[np.concatenate(([0], breaks))].tolist()
    lasts = ends[np.concatenate((breaks - 1, [len(at) - 1]))].tolist()
    data = memoryview(batch.data)
    parts: list[bytes | memoryview] = []
    for first, last in zip(firsts, lasts, strict=True):
        parts += [data[first:last], b"\n"]
    return b"".join(parts)


def _place(path: str) -> str:
    return STANDARD if path == STANDARD else os.path.realpath(path)


def _packed(state: OutputState) -> dict[str, Any]:
    return {
        "length": state.length, "tail": base64.b64encode(state.tail).decode(), "end": state.end, "since": state.since,
    }  # fmt: skip


def _unpacked(value: Any) -> OutputState | None:
    if value is None:
        return None
    try:
        end = value.get("end", (0, ""))
        known = end_of(base64.b64decode(end)) if isinstance(end, str) else (int(end[0]), str(end[1]))  # str: of 0.1
        return OutputState(value["length"], base64.b64decode(value["tail"]), known, value.get("since", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"the index's record of an output is damaged ({error}); start with an empty index folder"
        ) from None

"""What was kept, where several shards have to say so: the replies to each frame -> matches that count, and decisions.

The shards learn them from the frame with which the block after the next begins (`sequence`); until then what became of
a document is known here only. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.batch import owners, parts
from stream_lsh.index.layout import NEW, UNIQUE
from stream_lsh.index.matches import Matches
from stream_lsh.index.settling import Fates, Settled, Settling
from stream_lsh.settings import Settings
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.replies import Reply, source_of
from stream_lsh.wire.sequenced import places_in_log
from stream_lsh.wire.source import Source, numbers


class Deciding:
    """Decides frame by frame.

    known: the decisions on the frames before, the last ones, as far as shards may still take their documents for
    undecided; documents: how many of the log have been decided with them.
    """

    def __init__(self, settings: Settings, known: Iterable[Decisions], documents: int) -> None:
        self._settings = settings
        self._settling = Settling()
        self._names: dict[int, bytes] = {}  # by number: what a document was dropped for
        self._documents = documents
        known = list(known)
        for decisions in known:
            self._name(decisions)
        if known:
            self._settling.restore(Fates.joined([decisions.fates for decisions in known]))
        self._forget(documents)

    def decide(self, replies: Sequence[Reply]) -> tuple[list[Reply], Decisions]:
        """The replies of all shards to a frame with what counts in them, and what is decided by them.

        Raises:
            FormatError: the replies do not fit together.
        """
        source, accepted = source_of(replies)
        n, offset = len(source), replies[0].offset
        seqs, at = numbers(offset, n), places_in_log(self._documents, accepted, n)
        settled = []
        for block, start, stop in parts(at, at // self._settings.block):
            self._forget(block * self._settings.block)
            found = [reply.matches.between(start, stop) for reply in replies]
            settled.append((start, stop, self._settling.settle(found, start, stop, seqs, at)))
        verdicts = Settled.joined(settled)
        self._documents += n if accepted is None else int(np.count_nonzero(accepted))
        new = np.flatnonzero(np.logical_and.reduce([reply.matches.status == NEW for reply in replies]))
        decisions = self._decisions(replies, source, new, verdicts, seqs, at)
        self._name(decisions)
        return [self._named(reply, found) for reply, found in zip(replies, verdicts.found, strict=True)], decisions

    def _decisions(
        self, replies: Sequence[Reply], source: Source, new: NDArray[np.int64], settled: Settled,
        seqs: NDArray[np.int64], at: NDArray[np.int64],
    ) -> Decisions:  # fmt: skip
        fates = Fates(seqs[new], at[new], settled.kind[new], settled.similarity[new], settled.group[new])
        dropped = new[fates.kind != UNIQUE]
        shards, rows = settled.shard[dropped].tolist(), settled.row[dropped].tolist()
        names = [replies[shard].names[row] for shard, row in zip(shards, rows, strict=True)]
        owner = owners(source.ids, len(replies))[dropped].astype(np.uint16)
        return Decisions(replies[0].offset, replies[0].predecessor, self._documents, fates, owner, names)

    def _name(self, decisions: Decisions) -> None:
        self._names.update(zip(decisions.fates.seq[decisions.dropped].tolist(), decisions.names, strict=True))

    def _named(self, reply: Reply, matches: Matches) -> Reply:
        """With what those documents were dropped for that come again and that the shard knows no fate of yet."""
        names, known = list(reply.names), matches.known.copy()
        again = np.flatnonzero(known >= 0)
        for i, seq in zip(again.tolist(), reply.matches.of_seq[again].tolist(), strict=True):
            if (name := self._names.get(seq)) is not None:
                known[i] = len(names)
                names.append(name)
        return replace(reply, matches=replace(matches, known=known), names=names)

    def _forget(self, place: int) -> None:
        """The next document is at this place of the log."""
        block = self._settings.block
        self._settling.forget((place // block - 1) * block)
        first = self._settling.first
        while self._names and (oldest := next(iter(self._names))) < first:
            del self._names[oldest]

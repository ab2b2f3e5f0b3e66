"""The resolution across shards: from the replies to each frame, the matches that count and the decisions. Pure.

Shards get the decisions on a block with the frame in which the block after the next begins (`sequence`). Until then
only the judge has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.batch import owners, parts
from stream_lsh.index.matches import Matches
from stream_lsh.index.resolution import Resolved, States
from stream_lsh.index.rows.layout import NEAR, NEW, UNIQUE
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions, restored
from stream_lsh.wire.replies import Reply, source_of
from stream_lsh.wire.sequenced import places_in_log
from stream_lsh.wire.source import Source, numbers


class Deciding:
    """Decides frame by frame.

    Args:
        known: the decisions on the last frames before, from the first document on that shards may still hold as
            provisional.
        documents: number of documents of the log that are decided, `known` included.
    """

    def __init__(self, settings: Settings, known: Iterable[Decisions], documents: int) -> None:
        self._settings = settings
        self._names: dict[int, tuple[int, bytes]] = {}  # by seq: place in the log, and id of `duplicate_of`
        self._documents = documents
        known = list(known)
        for decisions in known:
            self._name(decisions)
        self._resolution = restored(settings.keep, known)
        self._forget(documents)

    def decide(self, replies: Sequence[Reply]) -> tuple[list[Reply], Decisions]:
        """The replies of all shards to a frame, reduced to what counts in them, and the decisions that follow.

        Raises:
            FormatError: the replies do not fit together.
        """
        source, accepted = source_of(replies)
        n, offset = len(source), replies[0].offset
        seqs, at = numbers(offset, n), places_in_log(self._documents, accepted, n)
        resolved = []
        for block, start, stop in parts(at, at // self._settings.block):
            self._forget(block * self._settings.block)
            found = [reply.matches.between(start, stop) for reply in replies]
            resolved.append((start, stop, self._resolution.resolve(found, start, stop, seqs, at)))
        verdicts = Resolved.joined(resolved)
        self._documents += n if accepted is None else int(np.count_nonzero(accepted))
        new = np.flatnonzero(np.logical_and.reduce([reply.matches.status == NEW for reply in replies]))
        decisions = self._decisions(replies, source, new, verdicts, seqs, at)
        self._name(decisions)
        return [self._named(reply, found) for reply, found in zip(replies, verdicts.found, strict=True)], decisions

    def _decisions(
        self, replies: Sequence[Reply], source: Source, new: NDArray[np.int64], resolved: Resolved,
        seqs: NDArray[np.int64], at: NDArray[np.int64],
    ) -> Decisions:  # fmt: skip
        superseded = self._resolution.superseded
        states = States(seqs[new], at[new], resolved.kind[new], resolved.similarity[new], resolved.group[new])
        found = Decisions(
            replies[0].offset, replies[0].predecessor, self._documents, states, np.empty(0, np.uint16), [],
            self._resolution.take_deleted(), _representatives(replies, resolved, at),
            superseded[superseded[:, 0] >= at[0]],
        )  # fmt: skip
        joined = new[found.joined]
        shards, rows = resolved.shard[joined].tolist(), resolved.row[joined].tolist()
        names = [b"" if row < 0 else replies[shard].names[row] for shard, row in zip(shards, rows, strict=True)]
        return replace(found, shards=owners(source.ids, len(replies))[joined].astype(np.uint16), names=names)

    def _name(self, decisions: Decisions) -> None:
        states = decisions.states.at(decisions.joined)
        for seq, place, name in zip(states.seq.tolist(), states.place.tolist(), decisions.names, strict=True):
            if name:
                self._names[seq] = place, name

    def _named(self, reply: Reply, matches: Matches) -> Reply:
        """The reply, with the `duplicate_of` of redelivered documents on which the shard has no decision yet."""
        names, known = list(reply.names), matches.known.copy()
        again = np.flatnonzero(known >= 0)
        for i, seq in zip(again.tolist(), reply.matches.of_seq[again].tolist(), strict=True):
            if (found := self._names.get(seq)) is not None:
                known[i] = len(names)
                names.append(found[1])
        return replace(reply, matches=replace(matches, known=known), names=names)

    def _forget(self, place: int) -> None:
        """Drop what is not needed when the next document has this place in the log."""
        block = self._settings.block
        first = (place // block - 1) * block
        self._resolution.forget(first)
        self._resolution.take_superseded(first)
        while self._names and self._names[oldest := next(iter(self._names))][0] < first:
            del self._names[oldest]


def _representatives(replies: Sequence[Reply], resolved: Resolved, at: NDArray[np.int64]) -> States:
    """Decisions on new representatives, caused by documents of the frame. at: the places of its documents."""
    document, group, _, seq = np.concatenate([reply.matches.representatives for reply in replies]).T
    chosen = np.isin(seq, np.concatenate([found.representatives[:, 3] for found in resolved.found]))
    return States(seq.copy(), at[document], np.where(chosen, UNIQUE, NEAR), np.zeros(len(seq)), group.copy())

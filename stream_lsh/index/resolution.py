"""Resolution: which documents were kept, where several shards have to agree. Matches with dropped documents do not
count.

A shard compares a document with the rows that it has as kept, and with all provisional rows (`provisional`). The
resolution joins the matches of all shards in the order of the log. A document is kept if no shard matches it with a
kept document.

It also decides whether a deleted or replaced version was a representative. If so, the shards learn its group together
with the decisions of its block. Each shard then names the oldest possible representative, and the oldest of these is
chosen. Until then the new representative is provisional, as documents are, under its own number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit
from stream_lsh.index.matches import Matches
from stream_lsh.index.rows.layout import EXACT, LEFT, LIKE, NEAR, NEW, REPLACES, UNIQUE, UNKNOWN, WAS_REPRESENTATIVE

# Columns of `Matches.removed`.
_WAS_REPRESENTATIVE, _LEFT, _LIKE = WAS_REPRESENTATIVE - REPLACES, LEFT - REPLACES, LIKE - REPLACES


@dataclass(frozen=True, slots=True)
class Resolved:
    """Verdicts on the documents [start, stop) of a batch of n, in columns of n.

    Attributes:
        found: the shards' matches with kept documents.
        kind, similarity, group: of new documents.
        shard, row, seq: of the oldest match, -1 where there is none.
    """

    found: list[Matches]
    kind: NDArray[np.int64]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    similarity: NDArray[np.float64]
    group: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, int, Resolved]]) -> Resolved:
        """Join parts of a batch: start, stop, and the verdicts on the documents [start, stop)."""
        if len(parts) == 1:
            return parts[0][2]
        found = [
            Matches.joined([(start, stop, matches) for (start, stop, _), matches in zip(parts, shard, strict=True)])
            for shard in zip(*(part.found for _, _, part in parts), strict=True)
        ]
        names = [field.name for field in fields(cls)][1:]
        columns = {name: [getattr(part, name)[start:stop] for start, stop, part in parts] for name in names}
        return cls(found, **{name: np.concatenate(column) for name, column in columns.items()})


@dataclass(frozen=True, slots=True)
class States:
    """Verdicts on provisional documents, in columns, ascending by number.

    Attributes:
        place: number of documents of the log before it.
        kind: UNKNOWN if there is no verdict yet.
    """

    seq: NDArray[np.int64]
    place: NDArray[np.int64]
    kind: NDArray[np.int64]
    similarity: NDArray[np.float64]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, n: int) -> States:
        none = np.full(n, -1)
        return cls(none, none, np.full(n, UNKNOWN), np.zeros(n), none.copy())

    def __len__(self) -> int:
        return len(self.seq)

    def at(self, places: slice | NDArray[np.int64]) -> States:
        """The entries at some places."""
        return States(*(getattr(self, field.name)[places] for field in fields(self)))

    @classmethod
    def joined(cls, states: Sequence[States]) -> States:
        """All of them, in the order given."""
        return cls(*(np.concatenate([getattr(f, field.name) for f in states]) for field in fields(cls)))

    def and_of(self, seqs: NDArray[np.int64], places: NDArray[np.int64]) -> States:
        """With those of more documents, which have no verdict yet."""
        more = States.of(len(seqs))
        return States.joined((self, replace(more, seq=seqs, place=places)))

    def find(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of numbers, -1 where there is none."""
        at = np.searchsorted(self.seq, seqs)
        at[at == len(self)] = -1
        return np.where(self.seq[at] == seqs, at, -1) if len(self) else at


class Resolution:
    """The state of the resolution: verdicts on all documents that may be provisional in a shard."""

    def __init__(self) -> None:
        self._states = States.of(0)
        self._block = -1
        self._deleted: list[list[int]] = []

    @property
    def facts(self) -> dict[str, Any]:
        """Its state besides the verdicts, for JSON: the latest block, and places and groups of deleted representatives
        that the shards do not have yet."""
        return {"block": self._block, "deleted": self._deleted}

    def restore(self, states: States, facts: Mapping[str, Any] | None = None) -> None:
        """Begin with these verdicts, in any order, and with `facts`."""
        self._states = states.at(np.argsort(states.seq))
        if facts is not None:
            self._block, self._deleted = facts["block"], [list(item) for item in facts["deleted"]]

    def begin(self, block: int, place: int) -> NDArray[np.int64]:
        """The next document is in this block. If it begins the block: the groups of the representatives deleted before
        the place."""
        if block == self._block:
            return np.empty(0, np.int64)
        self._block = block
        groups = [group for at, group in self._deleted if at < place]
        self._deleted = [item for item in self._deleted if item[0] >= place]
        return np.array(groups, np.int64)

    def take_deleted(self) -> NDArray[np.int64]:
        """Places and groups int64[g, 2] of the representatives deleted since the last call."""
        deleted, self._deleted = self._deleted, []
        return np.array(deleted, np.int64).reshape(-1, 2)

    def forget(self, place: int) -> None:
        """Rows of documents before this place are provisional in no shard."""
        self._states = self._states.at(np.flatnonzero(self._states.place >= place))

    def resolve(
        self, found: Sequence[Matches], start: int, stop: int, seqs: NDArray[np.int64],
        places: NDArray[np.int64] | None,
    ) -> Resolved:  # fmt: skip
        """Resolve the shards' matches of the documents [start, stop) of a batch with these numbers and places. Without
        places it is a query, and the state does not change."""
        n, mine = len(seqs), slice(start, stop)
        if places is not None:
            found = self._choose_representatives(found, places)
        document = np.concatenate([matches.document for matches in found])
        shard = np.repeat(np.arange(len(found)), [len(matches.document) for matches in found])
        row, seq, similarity, same = (
            np.concatenate([getattr(matches, name) for matches in found])
            for name in ("row", "seq", "similarity", "same_text")
        )
        new = np.logical_and.reduce([matches.status == NEW for matches in found])
        states = self._states
        if places is not None:
            states = states.and_of(seqs[mine], places[mine])
        kept = np.concatenate((self._states.kind == UNIQUE, np.zeros(stop - start, np.bool_)))
        order = np.lexsort((seq, document))
        use = np.empty(len(order), np.bool_)
        at = states.find(seq[order])
        _resolve_matches(document[order], at, new, start, stop, kept, use)
        decided = np.zeros(n, np.bool_)
        decided[document[order[at < 0]]] = True
        order, at = order[use], at[use]
        counts = np.zeros(len(document), np.bool_)
        counts[order] = True
        kind, (shard_of, row_of, seq_of, similar) = _oldest(document, same, n, order, shard, row, seq, similarity)
        groups, removed = np.concatenate((self._states.group, seqs[mine])), _replaced(found)
        given = np.stack([matches.group for matches in found])[shard_of, np.arange(n)]
        _group(start, stop, seq_of, states.find(seq_of), given, new, removed, states.find(removed[:, 0]), kept, groups)
        group = seqs.copy()
        group[mine] = groups[len(self._states) :]
        if places is not None:
            for i in np.flatnonzero(
                (removed[mine, _WAS_REPRESENTATIVE] > 0) & ~_takes_over(new, seq_of, removed)[mine]
            ).tolist():
                self._deleted.append([int(places[start + i]), int(removed[start + i, _LEFT])])
            states.kind[len(self._states) :], states.group[len(self._states) :] = kind[mine], group[mine]
            states.similarity[len(self._states) :] = similar[mine]
            states.kind[len(self._states) :][~new[mine]] = UNKNOWN
            self._states = states
        # A match with a document that is known as kept drops the new one, whatever the provisional rows hold.
        found = [replace(m, more=m.more * 0, not_compared=m.not_compared + np.where(decided, 0, m.more)) for m in found]
        resolved = [_counted(m, counts[shard == number], new, group, removed, states) for number, m in enumerate(found)]
        return Resolved(resolved, kind, shard_of, row_of, seq_of, similar, group)

    def _choose_representatives(self, found: Sequence[Matches], places: NDArray[np.int64]) -> Sequence[Matches]:
        """Choose the oldest of the possible representatives of each group, from now on."""
        shard = np.repeat(np.arange(len(found)), [len(matches.representatives) for matches in found])
        if not len(shard):
            return found
        representatives = np.concatenate([matches.representatives for matches in found])
        document, group, _, seq = representatives.T
        order, chosen = np.lexsort((seq, group)), np.zeros(len(representatives), np.bool_)
        chosen[order[np.unique(group[order], return_index=True)[1]]] = True
        kinds = np.where(chosen, UNIQUE, NEAR)
        states = States.joined(
            (States(seq, places[document], kinds, np.zeros(len(representatives)), group), self._states)
        )
        self._states = states.at(np.argsort(states.seq))
        return [
            replace(m, representatives=representatives[chosen & (shard == number)]) for number, m in enumerate(found)
        ]


def _oldest(
    document: NDArray[np.int64], same: NDArray[np.bool_], n: int, order: NDArray[np.int64], *columns: NDArray[Any]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Kind of each of n documents by its matches, and columns of its oldest match: -1 (similarity 0) where there is
    none.

    Args:
        order: the matches that count, by document and number.
    """
    kind = np.full(n, UNIQUE)
    np.maximum.at(kind, document[order], np.where(same[order], EXACT, NEAR))
    backwards, found = order[::-1], [np.full(n, 0.0 if c.dtype == np.float64 else -1) for c in columns]
    for out, column in zip(found, columns, strict=True):
        out[document[backwards]] = column[backwards]  # the last write remains: the first match of each document
    return kind, found


def _counted(
    matches: Matches, use: NDArray[np.bool_], new: NDArray[np.bool_], group: NDArray[np.int64],
    removed: NDArray[np.int64], states: States,
) -> Matches:  # fmt: skip
    """A shard's matches without those that do not count. For redelivered documents, the first verdict."""
    order = np.flatnonzero(use)
    order = order[np.lexsort((matches.seq[order], matches.document[order]))]
    kind, (of, of_seq, similarity) = _oldest(
        matches.document, matches.same_text, len(new), order, matches.row, matches.seq, matches.similarity
    )
    if not new.all():
        group = np.where(new, group, matches.group)
        kind, similarity = np.where(new, kind, matches.kind), np.where(new, similarity, matches.of_similarity)
        again = np.flatnonzero((matches.known >= 0) & (matches.kind == UNKNOWN))
        place = states.find(matches.of_seq[again])
        again, place = again[place >= 0], place[place >= 0]
        kind[again], similarity[again], group[again] = (
            states.kind[place], states.similarity[place], states.group[place]
        )  # fmt: skip
    return replace(
        matches, document=matches.document[order], row=matches.row[order], seq=matches.seq[order],
        similarity=matches.similarity[order], same_text=matches.same_text[order], kind=kind, of=of, of_seq=of_seq,
        of_similarity=similarity, group=group, removed=np.where(matches.removed[:, :1] >= 0, removed, -1),
    )  # fmt: skip


def _replaced(found: Sequence[Matches]) -> NDArray[np.int64]:
    """The deleted and replaced versions, each from the shard that had it."""
    removed = found[0].removed.copy()
    for matches in found[1:]:
        theirs = matches.removed[:, 0] >= 0
        removed[theirs] = matches.removed[theirs]
    return removed


def _takes_over(new: NDArray[np.bool_], seq_of: NDArray[np.int64], removed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a new version becomes the representative in place of the version that it replaces."""
    takes_over: NDArray[np.bool_] = new & (seq_of < 0) & (removed[:, _WAS_REPRESENTATIVE] > 0) & (removed[:, _LIKE] > 0)
    return takes_over


@njit
def _group(start, stop, seq_of, of, given, new, removed, old, kept, groups):  # type: ignore[no-untyped-def]
    """Groups of the documents [start, stop), in order, and of the versions that they replace, where the shards do not
    have them.

    seq_of, of: number and place of each one's oldest match. -1 = there is none, or it is known as kept: then the group
    is `given`. old: places of replaced versions. kept, groups: by place; those of the documents are the last.
    """
    first = len(groups) - (stop - start)
    for i in range(start, stop):
        if seq_of[i] >= 0:
            groups[first + i - start] = groups[of[i]] if of[i] >= 0 else given[i]
        if removed[i, 0] < 0:
            continue
        if old[i] >= 0:
            removed[i, _WAS_REPRESENTATIVE], removed[i, _LEFT] = np.int64(kept[old[i]]), groups[old[i]]
        if new[i] and seq_of[i] < 0 and removed[i, _WAS_REPRESENTATIVE] > 0 and removed[i, _LIKE] > 0:
            groups[first + i - start] = removed[i, _LEFT]


@njit
def _resolve_matches(document, at, new, start, stop, kept, use):  # type: ignore[no-untyped-def]
    """Which matches, ordered by document, are with a kept document (`use`), and which documents are kept.

    at: for each match the place in `kept` of the older document, -1 = it is known as kept. The last places are those of
    the documents [start, stop).
    """
    first = len(kept) - (stop - start)
    m = np.int64(0)
    for i in range(start, stop):
        matched = False
        while m < len(document) and document[m] == i:
            use[m] = at[m] < 0 or kept[at[m]]
            matched = matched or use[m]
            m += 1
        kept[first + i - start] = new[i] and not matched

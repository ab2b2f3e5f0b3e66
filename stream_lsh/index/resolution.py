"""Resolution: which documents were kept, where several shards have to agree. Matches with dropped documents do not
count.

A shard compares a document with the rows that it has as kept, and with all provisional rows (`provisional`). The
resolution joins the matches of all shards in the order of the log. A document is kept if no shard matches it with a
kept document.

With `keep`, a document is dropped only for one that ranks at least as high. Otherwise it supersedes its kept match with
the same text, or without one the oldest. That is not kept any more from there on. The shards learn its row together
with the decisions of the block of the document that superseded it.

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
from stream_lsh.index.matches import OF_MATCHES, Matches
from stream_lsh.index.rows.layout import (
    DROPS,
    EXACT,
    LEFT,
    LIKE,
    NEAR,
    NEW,
    OUTRANKED,
    REPLACED_SINCE,
    REPLACES,
    UNIQUE,
    UNKNOWN,
    WAS_REPRESENTATIVE,
)

NO_SUPERSEDED = np.empty((0, 4), np.int64)
# Columns of `Matches.removed`.
_WAS_REPRESENTATIVE, _LEFT, _LIKE = WAS_REPRESENTATIVE - REPLACES, LEFT - REPLACES, LIKE - REPLACES


@dataclass(frozen=True, slots=True)
class Resolved:
    """Verdicts on the documents [start, stop) of a batch of n, in columns of n.

    Attributes:
        found: the shards' matches with kept documents.
        kind, similarity, group: of new documents.
        shard, row, seq: of the oldest match, -1 for kept documents.
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
    """The state of the resolution: verdicts on all documents that may be provisional in a shard.

    Args:
        keep: which copy is kept, as in the settings.

    Attributes:
        superseded: int64[s, 4], the superseded documents that the shards do not know of: the place of the document
            that superseded each, its number, shard and row.
    """

    def __init__(self, keep: str) -> None:
        self._keep = keep
        self._states = States.of(0)
        self._block = -1
        self._deleted: list[list[int]] = []
        self.superseded = NO_SUPERSEDED

    @property
    def facts(self) -> dict[str, Any]:
        """Its state besides the verdicts, for JSON: the latest block, and what the shards do not have yet, places and
        groups of deleted representatives and the superseded documents."""
        return {"block": self._block, "deleted": self._deleted, "superseded": self.superseded.tolist()}

    def restore(
        self, states: States, facts: Mapping[str, Any] | None = None, superseded: NDArray[np.int64] = NO_SUPERSEDED
    ) -> None:
        """Begin with these verdicts, in any order, and with `facts` or the superseded documents."""
        self._states, self.superseded = states.at(np.argsort(states.seq)), superseded
        if facts is not None:
            self._block, self._deleted = facts["block"], [list(item) for item in facts["deleted"]]
            self.superseded = np.array(facts.get("superseded", ()), np.int64).reshape(-1, 4)

    def begin(self, block: int, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The next document is in this block. If it begins the block: the groups of the representatives deleted before
        the place, and the documents superseded before it, as in `superseded`."""
        if block == self._block:
            return np.empty(0, np.int64), NO_SUPERSEDED
        self._block = block
        groups = [group for at, group in self._deleted if at < place]
        self._deleted = [item for item in self._deleted if item[0] >= place]
        return np.array(groups, np.int64), self.take_superseded(place)

    def take_superseded(self, place: int) -> NDArray[np.int64]:
        """The documents superseded before a place. The shards know of them from now on."""
        known = self.superseded[:, 0] < place
        found, self.superseded = self.superseded[known], self.superseded[~known]
        return found

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
        row, seq, similarity, same, effect, held = (
            np.concatenate([getattr(matches, name) for matches in found])
            for name in ("row", "seq", "similarity", "same_text", "effect", "held")
        )
        new = np.logical_and.reduce([matches.status == NEW for matches in found])
        states = self._states
        if places is not None:
            states = states.and_of(seqs[mine], places[mine])
        kept = np.concatenate((self._states.kind == UNIQUE, np.zeros(stop - start, np.bool_)))
        order, removed = np.lexsort((seq, document)), _replaced(found)
        uses, decides = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
        at, old = states.find(seq[order]), states.find(removed[:, 0])
        numbers = np.zeros(1, np.int64)
        slots = np.zeros(len(order) + n, np.int64)
        if self._keep != "first":
            numbers, slots = np.unique(np.concatenate((seq[order], removed[:, 0])), return_inverse=True)
        _resolve_matches(
            document[order], at, same[order], effect[order], slots, new, start, stop, removed, old, kept,
            np.isin(numbers, self.superseded[:, 1]), self._keep != "first", self._keep == "newest", places is not None,
            uses, decides,
        )  # fmt: skip
        decided = np.zeros(n, np.bool_)
        decided[document[order[decides & (at < 0) & (effect[order] == DROPS)]]] = True
        listed, decisive = np.zeros(len(order), np.bool_), order[decides]
        listed[order[uses]] = True
        kind, (shard_of, row_of, seq_of, similar, held_row, given) = _oldest(
            document, same, effect, n, decisive, shard, row, seq, similarity, *held.T
        )
        groups = np.concatenate((self._states.group, seqs[mine]))
        _group(start, stop, seq_of, states.find(seq_of), given, new, removed, old, groups)
        group = seqs.copy()
        group[mine] = groups[len(self._states) :]
        if places is not None:
            for i in np.flatnonzero(
                (removed[mine, _WAS_REPRESENTATIVE] > 0) & ~_takes_over(new, seq_of, removed)[mine]
            ).tolist():
                self._deleted.append([int(places[start + i]), int(removed[start + i, _LEFT])])
            superseding = np.flatnonzero((kind == UNIQUE) & (seq_of >= 0))
            more = np.column_stack([column[superseding] for column in (places, seq_of, shard_of, held_row)])
            self.superseded = np.concatenate((self.superseded, more))
            for column, nothing in ((shard_of, -1), (row_of, -1), (seq_of, -1), (similar, 0)):
                column[superseding] = nothing
            states.kind[len(self._states) :], states.group[len(self._states) :] = kind[mine], group[mine]
            states.similarity[len(self._states) :] = similar[mine]
            states.kind[len(self._states) :][~new[mine]] = UNKNOWN
            self._states = states
        # A match with a document that is known as kept drops the new one, whatever the provisional rows hold.
        found = [replace(m, more=m.more * 0, not_compared=m.not_compared + np.where(decided, 0, m.more)) for m in found]
        drops = np.zeros(len(order), np.bool_)
        drops[decisive] = True
        resolved = [
            _counted(m, listed[shard == number], drops[shard == number], new, group, removed, states)
            for number, m in enumerate(found)
        ]
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
    document: NDArray[np.int64], same: NDArray[np.bool_], effect: NDArray[np.int64], n: int, order: NDArray[np.int64],
    *columns: NDArray[Any],
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:  # fmt: skip
    """Kind of each of n documents by its matches, and columns of its oldest match: -1 (similarity 0) where there is
    none.

    Args:
        order: the matches that decide, by document and number.
    """
    kind = np.full(n, UNIQUE)
    np.maximum.at(kind, document[order], np.where(effect[order] != DROPS, UNIQUE, np.where(same[order], EXACT, NEAR)))
    backwards, found = order[::-1], [np.full(n, 0.0 if c.dtype == np.float64 else -1) for c in columns]
    for out, column in zip(found, columns, strict=True):
        out[document[backwards]] = column[backwards]  # the last write remains: the first match of each document
    return kind, found


def _counted(
    matches: Matches, use: NDArray[np.bool_], decides: NDArray[np.bool_], new: NDArray[np.bool_],
    group: NDArray[np.int64], removed: NDArray[np.int64], states: States,
) -> Matches:  # fmt: skip
    """A shard's matches without those that do not count. For redelivered documents, the first verdict."""
    order = np.lexsort((matches.seq, matches.document))
    kind, (of, of_seq, similarity) = _oldest(
        matches.document, matches.same_text, matches.effect, len(new), order[decides[order]], matches.row, matches.seq,
        matches.similarity,
    )  # fmt: skip
    order = order[use[order]]
    if not new.all():
        of = np.where(matches.of == REPLACED_SINCE, REPLACED_SINCE, of)
        group = np.where(new, group, matches.group)
        kind, similarity = np.where(new, kind, matches.kind), np.where(new, similarity, matches.of_similarity)
        again = np.flatnonzero((matches.known >= 0) & (matches.kind == UNKNOWN))
        place = states.find(matches.of_seq[again])
        again, place = again[place >= 0], place[place >= 0]
        kind[again], similarity[again], group[again] = (
            states.kind[place], states.similarity[place], states.group[place]
        )  # fmt: skip
    return replace(
        matches, **{field.name: getattr(matches, field.name)[order] for field in fields(matches)[:OF_MATCHES]},
        kind=kind, of=of, of_seq=of_seq, of_similarity=similarity, group=group,
        removed=np.where(matches.removed[:, :1] >= 0, removed, -1),
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


def rows_superseded(superseded: NDArray[np.int64], shard: int) -> NDArray[np.int64]:
    """A shard's rows of superseded documents (`Resolution.superseded`)."""
    rows: NDArray[np.int64] = superseded[superseded[:, 2] == shard, 3]
    return rows


@njit
def _group(start, stop, seq_of, of, given, new, removed, old, groups):  # type: ignore[no-untyped-def]
    """Groups of the documents [start, stop), in order, and of the versions that they replace, where the shards do not
    have them.

    seq_of, of: number and place of each one's oldest match. -1 = there is none, or it is known as kept: then the group
    is `given`. old: places of replaced versions. groups: by place; those of the documents are the last.
    """
    first = len(groups) - (stop - start)
    for i in range(start, stop):
        if seq_of[i] >= 0:
            groups[first + i - start] = groups[of[i]] if of[i] >= 0 else given[i]
        if removed[i, 0] < 0:
            continue
        if old[i] >= 0:
            removed[i, _LEFT] = groups[old[i]]
        if new[i] and seq_of[i] < 0 and removed[i, _WAS_REPRESENTATIVE] > 0 and removed[i, _LIKE] > 0:
            groups[first + i - start] = removed[i, _LEFT]


@njit
def _resolve_matches(  # type: ignore[no-untyped-def]
    document, at, same, effect, slots, new, start, stop, removed, old, kept, superseded, keep, newest, stores, use,
    decides,
):  # fmt: skip
    """Which matches, ordered by document, are with a kept document (`use`), for which of them their document is dropped
    or which one it supersedes (`decides`), which documents are kept, and which replaced versions were representatives.

    at, old: for each match and each replaced version the place in `kept`, -1 = it is known as kept, or there is none.
    The last places are those of the documents [start, stop). slots: places in `superseded`, first of the matches, then
    of the replaced versions. keep, newest: whether `keep` is given, and is "newest". stores: not a query.
    """
    first, slot = len(kept) - (stop - start), len(document)
    m = np.int64(0)
    for i in range(start, stop):
        begin, dropped, outranked, copy = m, False, np.int64(-1), np.int64(-1)
        while m < len(document) and document[m] == i:
            use[m] = (at[m] < 0 or kept[at[m]]) and not superseded[slots[m]]
            if use[m]:
                dropped = dropped or effect[m] == DROPS
                if outranked < 0 and effect[m] == OUTRANKED:
                    outranked = m
                if copy < 0 and same[m]:
                    copy = m
            m += 1
        if keep and copy >= 0:
            outranked = copy
            if newest or effect[copy] == DROPS:  # a single shard compares with no other document
                for k in range(begin, m):
                    use[k] = k == copy
        if removed[i, 0] >= 0:
            if old[i] >= 0:
                removed[i, _WAS_REPRESENTATIVE] = np.int64(kept[old[i]])
            if superseded[slots[slot + i]]:
                removed[i, _WAS_REPRESENTATIVE] = 0
        stays = new[i] and not dropped
        kept[first + i - start] = stays
        takes_over = removed[i, _WAS_REPRESENTATIVE] > 0 and removed[i, _LIKE] > 0
        if stays and outranked >= 0 and not takes_over:
            decides[outranked] = True
            if stores:
                superseded[slots[outranked]] = True
        for k in range(begin, m):
            if use[k] and effect[k] == DROPS:
                decides[k] = True

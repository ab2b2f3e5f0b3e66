"""The live documents of an index, counted row by row: kept and dropped, by time, similarity and size; and samples.

Rows are read in blocks. In memory: a byte for each document, the counts, and the samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stream_lsh.audit.superseded import pairs_of, read_superseded
from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.families.sketch import random_words
from stream_lsh.index.index import Index
from stream_lsh.index.represented import represented
from stream_lsh.index.resolution import rows_superseded
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.deleted_rows import MARK_DELETED, MARK_SUPERSEDED
from stream_lsh.index.shard import Shard

BLOCK = 16_384  # rows read together
BORDERLINE = 16  # drops nearest to the threshold
KEPT_SAMPLE = 1000  # kept documents that are searched for again
STRATA = 4  # of near-duplicates, by similarity; exact duplicates are another one
KEPT, NEAR, EXACT = (int(kind) + 1 for kind in (layout.UNIQUE, layout.NEAR, layout.EXACT))  # 0: no live document
STEPS = (1, 5, 15, 60, 180, 360, 720, 1440, 10_080, 40_320, 120_960, 483_840, 4_838_400)  # minutes of a bar
MOST_BARS = 60
DOCUMENT = np.dtype(
    [
        ("rank", "<f8"), ("seq", "<i8"), ("shard", "<i8"), ("row", "<i8"), ("similarity", "<f8"), ("kind", "u1"),
        ("text", "<u8"), ("by", "<i8"), ("by_shard", "<i8"), ("by_row", "<i8"),
    ]
)  # fmt: skip
"""text: of the hash of its text. by, by_shard, by_row: the document that superseded it, or -1."""


def ranks(seqs: NDArray[np.int64]) -> NDArray[np.float64]:
    """A random number in [0, 1) for each document, the same in each run."""
    return np.asarray(random_words(seqs.astype(np.uint64), 1)[:, 0] / np.float64(2**64))


class Sample:
    """The documents with the lowest ranks, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found = np.empty(0, DOCUMENT)

    def add(self, documents: NDArray[np.void]) -> None:
        found = np.concatenate([self._found, documents])
        if len(found) > self._most:
            found = found[np.argpartition(found["rank"], self._most)[: self._most]]
        self._found = found

    @property
    def documents(self) -> NDArray[np.void]:
        """Rows of DOCUMENT, the lowest rank first."""
        return self._found[np.lexsort((self._found["seq"], self._found["rank"]))]


class TimeBars:
    """Documents by event time: kept and dropped in each bar. Bars become wider as they become many."""

    def __init__(self) -> None:
        self.minutes = STEPS[0]
        self.bars: dict[int, NDArray[np.int64]] = {}

    def add(self, times: NDArray[np.int64], dropped: NDArray[np.bool_]) -> None:
        """times: ms since 1970."""
        bars, places = np.unique(times // (60_000 * self.minutes), return_inverse=True)
        counts = np.stack([np.bincount(places[which], minlength=len(bars)) for which in (~dropped, dropped)], axis=1)
        for bar, count in zip(bars.tolist(), counts, strict=True):
            self.bars[bar] = self.bars.get(bar, 0) + count
        while len(self.bars) > 64 * MOST_BARS:
            self._widen()

    def _widen(self) -> None:
        factor = STEPS[STEPS.index(self.minutes) + 1] // self.minutes
        self.minutes *= factor
        wide: dict[int, NDArray[np.int64]] = {}
        for bar, count in self.bars.items():
            wide[bar // factor] = wide.get(bar // factor, 0) + count
        self.bars = wide

    def shown(self) -> list[tuple[int, int, int]]:
        """Begin in ms since 1970, kept and dropped documents of each bar, from the first document to the last."""
        while self.bars and max(self.bars) - min(self.bars) >= MOST_BARS and self.minutes < STEPS[-1]:
            self._widen()
        bars = range(min(self.bars), max(self.bars) + 1) if self.bars else ()
        counts = ((bar, self.bars.get(bar, (0, 0))) for bar in bars)
        return [(60_000 * self.minutes * bar, int(kept), int(dropped)) for bar, (kept, dropped) in counts]


@dataclass
class Rows:
    """What the rows say. A superseded document is a drop. A dropped one that represents its group now is kept.

    Attributes:
        superseded: rows of PAIR. Superseded documents that are not among them have no similarity, and are in the counts
            only.
        states: uint8[n], by number of the document: KEPT, NEAR, EXACT, or 0.
        counts: live documents by state.
        removed, provisional, damaged: deleted or replaced versions; documents without a decision yet; rows that
            contradict themselves, which are counted nowhere else.
        smaller: for each of `thresholds`, the drops with a smaller similarity. edges: of the strata of near-duplicates.
        similarities: int64[101], drops by hundredths. sizes: int64[2, 65], kept and dropped by the bits of their size.
        strata: drops in each stratum, the exact ones last, and a sample of each.
        borderline: the drops with the lowest similarities. kept: a sample of kept documents. labelled: drops by number.
    """

    states: NDArray[np.uint8]
    thresholds: list[float]
    edges: list[float]
    sample: int
    wanted: Collection[int]
    superseded: NDArray[np.void]
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))
    removed: int = 0
    provisional: int = 0
    damaged: int = 0
    times: TimeBars = field(default_factory=TimeBars)
    untimed: int = 0

    def __post_init__(self) -> None:
        self.smaller = np.zeros(len(self.thresholds), np.int64)
        self.similarities, self.sizes = np.zeros(101, np.int64), np.zeros((2, 65), np.int64)
        self.in_strata = np.zeros(STRATA + 1, np.int64)
        each = -(-self.sample // (STRATA + 1))
        self.strata = [Sample(each) for _ in range(STRATA + 1)]
        self.borderline, self.kept = Sample(BORDERLINE), Sample(KEPT_SAMPLE)
        self.labelled = Sample(max(1, len(self.wanted)))
        self._wanted = np.array(sorted(self.wanted), np.int64)
        self._superseded, self._superseding = [np.empty(0, DOCUMENT)], [np.empty(0, DOCUMENT)]

    def stratum_of(self, similarities: NDArray[np.float64], exact: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The strata of drops."""
        near = np.clip(np.searchsorted(self.edges, similarities, "right") - 1, 0, STRATA - 1)
        return np.where(exact, STRATA, near)

    def add(
        self, shard: int, places: NDArray[np.int64], block: NDArray[np.uint64], kept: NDArray[np.bool_],
        superseded: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Count live rows. places: int64[n], their rows. block: uint64[n, width]. kept, superseded: which are that now,
        whatever their first verdict was."""
        flags = block[:, layout.FLAGS]
        kinds, sizes = (flags >> layout.KIND_BITS & np.uint64(0xFF)).astype(np.int64), flags >> layout.SIZE_BITS
        seqs, times = (block[:, word].astype(np.int64) for word in (layout.SEQ, layout.TIME))
        similarity = np.ascontiguousarray(block[:, layout.SIMILARITY]).view(np.float64)
        kinds[kept], kinds[superseded] = layout.UNIQUE, layout.NEAR
        pairs = pairs_of(self.superseded, seqs)
        similarity = np.where(superseded, pairs["similarity"], similarity)
        dropped = (kinds == layout.NEAR) | (kinds == layout.EXACT)
        sound = (seqs >= 0) & (seqs < len(self.states)) & (dropped | (kinds == layout.UNIQUE))
        sound &= ~dropped | ((similarity >= 0) & (similarity < 1 + 1e-6))  # no NaN either
        sound &= (times == NO_TIME) | ((times >= 0) & (times < LAST_TIME))
        unknown = kinds == layout.UNKNOWN
        self.provisional += int(np.count_nonzero(unknown))
        self.damaged += int(np.count_nonzero(~sound & ~unknown))
        found = np.empty(np.count_nonzero(sound), DOCUMENT)
        found["shard"], found["row"] = shard, places[sound]
        found["seq"], found["similarity"] = seqs[sound], np.minimum(similarity[sound], 1)
        found["kind"] = kinds[sound] + 1
        found["rank"], found["text"] = ranks(found["seq"]), block[sound, layout.TEXT]
        found["by"] = np.where(superseded, pairs["by"], -1)[sound]
        found["by_shard"] = found["by_row"] = -1
        dropped, times, sizes, superseded = dropped[sound], times[sound], sizes[sound], superseded[sound]
        self.states[found["seq"]] = found["kind"]
        self.counts += np.bincount(found["kind"], minlength=4)
        timed = times != NO_TIME
        self.untimed += int(np.count_nonzero(~timed))
        if timed.any():
            self.times.add(times[timed], dropped[timed])
        bits = np.ceil(np.log2(sizes.astype(np.float64) + 1)).astype(np.int64)
        for line, which in enumerate((~dropped, dropped)):
            self.sizes[line] += np.bincount(bits[which], minlength=65)
        self.kept.add(found[~dropped])
        self._superseded.append(found[superseded])
        self._add_drops(found[dropped & ~superseded])

    def add_superseding(self, shard: int, places: NDArray[np.int64], block: NDArray[np.uint64]) -> None:
        """Note which rows superseded others; they may be deleted."""
        seqs = block[:, layout.SEQ].astype(np.int64)
        chosen = np.isin(seqs, self.superseded["by"])
        found = np.empty(np.count_nonzero(chosen), DOCUMENT)
        found["shard"], found["row"], found["seq"] = shard, places[chosen], seqs[chosen]
        found["text"] = block[chosen, layout.TEXT]
        self._superseding.append(found)

    def finish(self) -> None:
        """Count the pairs of the superseded documents: all rows have been read."""
        drops, others = np.concatenate(self._superseded), np.sort(np.concatenate(self._superseding), order="seq")
        if not len(others):
            return
        at = np.minimum(np.searchsorted(others["seq"], drops["by"]), len(others) - 1)
        there = others["seq"][at] == drops["by"]
        drops, others = drops[there], others[at[there]]
        drops["by_shard"], drops["by_row"] = others["shard"], others["row"]
        exact = drops["text"] == others["text"]
        drops["kind"][exact] = EXACT
        self.counts[NEAR] -= np.count_nonzero(exact)
        self.counts[EXACT] += np.count_nonzero(exact)
        self._add_drops(drops)

    def _add_drops(self, drops: NDArray[np.void]) -> None:
        similarity = drops["similarity"]
        self.smaller += np.searchsorted(np.sort(similarity), self.thresholds)
        self.similarities += np.bincount((similarity * 100 + 1e-9).astype(np.int64), minlength=101)
        strata = self.stratum_of(similarity, drops["kind"] == EXACT)
        self.in_strata += np.bincount(strata, minlength=STRATA + 1)
        for number, sample in enumerate(self.strata):
            sample.add(drops[strata == number])
        self.labelled.add(drops[np.isin(drops["seq"], self._wanted)])
        near = drops[drops["kind"] == NEAR]
        near["rank"] = near["similarity"]
        self.borderline.add(near)

    @property
    def dropped(self) -> int:
        """Live documents that were dropped."""
        return int(self.counts[NEAR] + self.counts[EXACT])

    @property
    def documents(self) -> int:
        """Live documents with a decision."""
        return int(self.counts[KEPT]) + self.dropped


def read_rows(index: Index, sample: int, wanted: Collection[int]) -> Rows:
    """Read all rows of an index that is open.

    Args:
        sample: drops to be labelled, in all strata together.
        wanted: numbers of drops that have labels.

    Raises:
        DamagedError: a file has been truncated.
    """
    least = index.settings.least
    edges = [round(least + (1 - least) * i / STRATA, 9) for i in range(STRATA + 1)]
    hundredth = int(least * 100 + 1e-9)
    thresholds = [at / 100 for at in range(hundredth - hundredth % 5 + 5, 101, 5)]
    numbers = (index.store.named("job") or {}).get("next_seq", 0)
    found = Rows(np.zeros(numbers, np.uint8), thresholds, edges, sample, wanted, read_superseded(index.store))
    unmarked = np.array((index.store.named("resolution") or {}).get("superseded", ()), np.int64).reshape(-1, 4)
    for shard in index.shards:
        representatives, more = represented(shard), rows_superseded(unmarked, shard.number)
        for places, block, marks in _blocks(shard):
            documents = block[:, layout.FLAGS] & np.uint64(layout.DELETED | layout.REPRESENTATIVE) == 0
            live = documents & (marks & MARK_DELETED == 0)
            found.removed += int(np.count_nonzero(documents & ~live))
            found.add_superseding(shard.number, places[documents], block[documents])
            places, block, marks = places[live], block[live], marks[live]
            kept = np.isin(places, representatives)
            found.add(shard.number, places, block, kept, ~kept & ((marks == MARK_SUPERSEDED) | np.isin(places, more)))
    found.finish()
    return found


def _blocks(shard: Shard) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]]:
    """Rows, their words up to MASK, and their marks."""
    bounds = [*range(shard.first, shard.count, BLOCK), shard.count]
    for first, last in pairwise(bounds):
        places = np.arange(first, last)
        block = shard.stored.at(places)[:, : int(layout.MASK)]
        yield places, block, shard.rows.deleted_rows.marks_of(places)

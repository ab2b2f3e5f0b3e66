"""Pairs of documents for the report: a drop and the document that it was dropped for, with what differs.

Also what a lower threshold would drop: a sample of kept documents is searched for again, in the same index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.api.answers import matches_of
from stream_lsh.audit.estimates import wilson
from stream_lsh.audit.rows import BORDERLINE, EXACT
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import NO_TIME
from stream_lsh.index.index import Index
from stream_lsh.index.kernel.limits import limits_of
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import judge
from stream_lsh.serve.comparing import compare, compared_part

LOWER = (0.05, 0.1, 0.15, 0.2)  # below the threshold of the index
LEAST = 0.3  # the lowest threshold that is tried
SHOWN_CHARACTERS = 6000  # of a text
_AT_ONCE = 256


class Found(NamedTuple):
    """A document of the index. text: None if the index stores no texts."""

    shard: int
    row: int
    seq: int
    text: str | None


@dataclass
class Documents:
    """Reads documents of an index that is open."""

    index: Index

    def __post_init__(self) -> None:
        settings = self.index.settings
        self.texts = settings.verify == "exact" and settings.item is None and settings.set_field is None
        self.compared = self.texts and settings.measure in ("jaccard", "containment")

    def text(self, shard: int, row: int) -> str:
        return self.index.text(shard, row).decode("utf-8", "surrogatepass")

    def of_ids(self, ids: list[bytes]) -> Iterator[Found | None]:
        """The live documents with these ids (as JSON text); None where there is none."""
        for shard, row in self.index.look_up(ids).tolist() if ids else ():
            if row < 0:
                yield None
            else:
                seq = int(self.index.words(shard, row)[layout.SEQ].view(np.int64))
                yield Found(shard, row, seq, self.text(shard, row) if self.texts else None)

    def drops(self, drops: NDArray[np.void]) -> list[dict[str, Any]]:
        """Drops (rows of DOCUMENT) with what they were dropped for."""
        places = list(zip(drops["shard"].tolist(), drops["row"].tolist(), strict=True))
        superseding = zip(drops["by_shard"].tolist(), drops["by_row"].tolist(), strict=True)
        others = [
            self.index.id_of(*by) if by[1] >= 0 else self.index.first_of(*place)
            for place, by in zip(places, superseding, strict=True)
        ]  # fmt: skip
        known = dict(zip(others, self.of_ids(others), strict=True))
        found = []
        for (shard, row), other, drop in zip(places, others, drops, strict=True):
            newer = Found(shard, row, int(drop["seq"]), self.text(shard, row) if self.texts else None)
            id, similarity, by = self.index.id_of(shard, row), float(drop["similarity"]), int(drop["by"])
            pair = self.pair(newer, id, known[other], other, similarity, by)
            found.append({**pair, "kind": "exact_duplicate" if drop["kind"] == EXACT else "near_duplicate"})
        return found

    def pair(
        self, dropped: Found, id: bytes, kept: Found | None, other: bytes, similarity: float, by: int = -1
    ) -> dict[str, Any]:
        """Two documents side by side. A kept document that was replaced or deleted since has no text here.

        Args:
            by: number of the kept document if it came later and superseded the other, otherwise -1.
        """
        shown: dict[str, Any] = {
            "seq": dropped.seq, "id": plain(id), "duplicate_of": plain(other), "similarity": similarity,
            "superseded": by >= 0, "sides": None,
        }  # fmt: skip
        if kept is None or (kept.seq != by if by >= 0 else kept.seq > dropped.seq):
            return {**shown, "missing": "The other document was deleted or replaced, or it has left the window."}
        if dropped.text is None or kept.text is None:
            return {**shown, "missing": "The index does not store texts of this kind."}
        one, two = (compared_part(self.index.settings, text) for text in (kept.text, dropped.text))
        spans = compare(self.index.signer, one, two).spans if self.compared else None
        sides = [side(text, None if spans is None else spans[i]) for i, text in enumerate((one, two))]
        return {**shown, "sides": sides}

    # -- below the threshold ------------------------------------------------------------------------------------------

    @property
    def why_not_below(self) -> str | None:
        """Why nothing can be said of lower thresholds; None if something can."""
        settings = self.index.settings
        if settings.measure != "jaccard" or not self.texts:
            return "the index does not store the texts that it would compare (measure = jaccard, verify = exact)"
        if settings.compare_with != "kept":
            return "the index has compare_with = all"
        if settings.keep_per is not None:
            return "every source keeps a copy of its own (keep_per)"
        if settings.match_within:
            return "documents match within fields (match_within), which the index does not keep"
        return None

    def below(self, kept: NDArray[np.void]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What lower thresholds would drop, by a sample of kept documents; and the pairs just below the threshold.

        The bands of the index are made for its threshold: of the pairs at a lower one they find a part (`found`).
        """
        settings = self.index.settings
        lower = [round(settings.least - step, 6) for step in LOWER if settings.least - step >= LEAST]
        if not lower or not len(kept):
            return [], []
        tried = settings.model_copy(update={"threshold": lower[-1]})
        for shard in self.index.shards:
            shard.query_limits = limits_of(tried, shard.shape, shard.hashes.secret).replaced(store=False)
        matches = list(self._nearest(kept))
        best = np.array([match[2] for match in matches])
        rows = []
        for threshold in lower:
            estimate = wilson(int(np.count_nonzero(best >= threshold)), len(kept))
            rows.append({
                "threshold": threshold, "share_of_kept": estimate.share, "low": estimate.low, "high": estimate.high,
                "found": settings.curve.probability(threshold),
            })  # fmt: skip
        nearest = sorted(matches, key=lambda match: (-match[2], match[0].seq))[:BORDERLINE]
        others = self.of_ids([match[1] for match in nearest])
        pairs = [
            self.pair(newer, self.index.id_of(newer.shard, newer.row), older, other, similarity)
            for (newer, other, similarity), older in zip(nearest, others, strict=True)
        ]
        return rows, pairs

    def _nearest(self, kept: NDArray[np.void]) -> Iterator[tuple[Found, bytes, float]]:
        """For each kept document that has one: the nearest earlier kept document below the threshold."""
        least = self.index.settings.least
        kept = kept[np.lexsort((kept["row"], kept["shard"]))]
        for at in range(0, len(kept), _AT_ONCE):
            some = kept[at : at + _AT_ONCE]
            texts = [
                self.index.text(*place) for place in zip(some["shard"].tolist(), some["row"].tolist(), strict=True)
            ]
            ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
            columns = Columns([b'""'] * len(texts), b"".join(texts), ends, np.full(len(texts), NO_TIME))
            signed = self.index.sign(columns, want_texts=False)
            signed.documents.words[:, layout.TEXT] ^= np.uint64(1)  # a document is no exact copy of itself: look on
            judgement = judge(self.index.query(signed), columns.ids, np.full(len(texts), -1), 0, self.index)
            for i, document in enumerate(some):
                earlier = [
                    match for match in matches_of(judgement, self.index, i)
                    if match.seq < document["seq"] and match.similarity < least
                ]  # fmt: skip
                if earlier:
                    best = max(earlier, key=lambda match: match.similarity)
                    shard, row, seq = (int(document[name]) for name in ("shard", "row", "seq"))
                    newer = Found(shard, row, seq, texts[i].decode("utf-8", "surrogatepass"))
                    yield newer, id_text(best.id), best.similarity


def side(text: str, spans: Iterable[tuple[int, int]] | None) -> dict[str, Any]:
    """The beginning of a text, as the report shows it. spans: what is marked in it."""
    marked = None if spans is None else [(a, min(b, SHOWN_CHARACTERS)) for a, b in spans if a < SHOWN_CHARACTERS]
    return {"text": text[:SHOWN_CHARACTERS], "cut": len(text) > SHOWN_CHARACTERS, "spans": marked}


def plain(id: bytes) -> str | int | None:
    """An id or a source of JSON text; None for b""."""
    value: str | int | None = json.loads(id) if id else None
    return value

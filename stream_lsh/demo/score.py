"""How well a run did on the demo's feed: against exhaustive Jaccard, and against what was done to each document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.demo.feed import SHARES, UNRELATED, Entry, Feed
from stream_lsh.evaluation.exact import AllPairs, Ranked
from stream_lsh.evaluation.metrics import Quality
from stream_lsh.families.signer import Signer
from stream_lsh.settings.model import Settings

DUPLICATE = ("near_duplicate", "exact_duplicate")
NO_DOCUMENT = ("broken", "id reused", "redelivered")


@dataclass(frozen=True)
class Truth:
    """All pairs of the feed at the threshold or above (positions in the feed), and each document's shingles."""

    older: NDArray[np.int64]
    newer: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    shingles: Mapping[int, NDArray[np.uint64]]

    def similarity(self, first: int, second: int) -> float:
        """The Jaccard similarity of two documents of the feed."""
        a, b = self.shingles[first], self.shingles[second]
        common = len(np.intersect1d(a, b, assume_unique=True))
        return common / (len(a) + len(b) - common)


@dataclass(frozen=True)
class KindScore:
    """What became of the documents to which one thing was done.

    expected: how many the right answer reports: as near-duplicates where a document that was kept has a similarity at
    the threshold, as redelivered or rejected where that was the point, none for unrelated ones. right: how many of
    these were so reported. mistaken: documents reported for something that they are not. similarities: to what each was
    made from.
    """

    kind: str
    documents: int
    expected: int
    right: int
    mistaken: int
    similarities: tuple[float, ...]


@dataclass(frozen=True)
class Score:
    """The figures of a run. dropped: of documents, truth those that are similar to one that was kept before, found
    those that were dropped, correct those dropped for one that was kept and is similar."""

    dropped: Quality
    kinds: tuple[KindScore, ...]


def find_truth(feed: Feed, settings: Settings) -> Truth:
    """Compare all documents of the feed with all, exhaustively. Broken and repeated lines are not documents."""
    positions = [position for position, entry in enumerate(feed.entries) if entry.kind not in NO_DOCUMENT]
    documents = [feed.entries[position].document for position in positions]
    texts = ["\n".join(document[name] for name in settings.text_field).encode() for document in documents]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    signed = Signer(settings.signing).sign(b"".join(texts), ends, want_shingles=True)
    found = AllPairs(Ranked.of(signed.shingles, signed.offsets), settings.threshold).run()
    places = np.array(positions, dtype=np.int64)
    bounds = signed.offsets
    shingles = {
        position: signed.shingles[bounds[number] : bounds[number + 1]] for number, position in enumerate(positions)
    }
    return Truth(places[found.first], places[found.second], found.similarity, shingles)


def score(feed: Feed, truth: Truth, verdicts: Sequence[Mapping[str, Any]]) -> Score:
    """Compare verdicts, one for each line of the feed, as the job writes them, with the truth."""
    true_pairs = set(zip(truth.older.tolist(), truth.newer.tolist(), strict=True))
    kept = {place for place, verdict in enumerate(verdicts) if verdict["kind"] == "unique"}
    similar = {new for old, new in true_pairs if old in kept}
    dropped = {place for place, verdict in enumerate(verdicts) if verdict["kind"] in DUPLICATE}
    # The number of a group is that of the document that was kept, which the verdict names as `duplicate_of`.
    correct = {
        place
        for place in dropped
        if (first_member := verdicts[place]["group"]) in kept
        and feed.entries[first_member].id == verdicts[place]["duplicate_of"]
        and (first_member, place) in true_pairs
    }
    quality = Quality(truth=len(similar), found=len(dropped), correct=len(correct))
    position_of = {entry.id: position for position, entry in reversed(list(enumerate(feed.entries)))}
    rows = []
    for kind in ("story", *SHARES):
        entries = [(place, entry) for place, entry in enumerate(feed.entries) if entry.kind == kind]
        if entries:
            rows.append(_score_kind(kind, entries, verdicts, similar, true_pairs, truth, position_of))
    return Score(quality, tuple(rows))


def _score_kind(
    kind: str,
    entries: Sequence[tuple[int, Entry]],
    verdicts: Sequence[Mapping[str, Any]],
    similar: set[int],
    true_pairs: set[tuple[int, int]],
    truth: Truth,
    position_of: Mapping[str | None, int],
) -> KindScore:
    if kind in NO_DOCUMENT:
        wanted = "redelivered" if kind == "redelivered" else "rejected"
        right = sum(verdicts[place]["kind"] == wanted for place, _ in entries)
        return KindScore(kind, len(entries), len(entries), right, len(entries) - right, ())
    expected = {place for place, _ in entries if place in similar}
    reported = {place for place, _ in entries if verdicts[place]["kind"] in DUPLICATE}
    mistaken = sum(
        any((match["seq"], place) not in true_pairs for match in verdicts[place]["matches"]) for place in reported
    )
    similarities = tuple(
        truth.similarity(place, position_of[entry.parent])
        for place, entry in entries
        if entry.parent is not None and kind != "story"
    )
    return KindScore(kind, len(entries), len(expected), len(expected & reported), mistaken, similarities)


def is_edit(kind: str) -> bool:
    """Whether documents of this kind were made from another, so that they should be found."""
    return kind not in UNRELATED and kind not in NO_DOCUMENT

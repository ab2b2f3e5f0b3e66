"""What deduplication means, by exhaustive comparison: every dropped document has a similar one among the kept, and no
two kept ones are similar. (Real texts are in tests/test_exhaustive_truth.py.)"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.indexes import once

from stream_lsh.demo.feed import make_feed
from stream_lsh.demo.score import NO_DOCUMENT, find_truth
from stream_lsh.documents.columns import Document
from stream_lsh.settings.model import Settings


@pytest.mark.parametrize(("threshold", "shards"), [(0.8, 1), (0.6, 3)])
def test_every_dropped_document_has_a_kept_one_and_no_two_kept_ones_are_similar(
    tmp_path: Path, threshold: float, shards: int
) -> None:
    settings = Settings(
        threshold=threshold, text_field=("title", "text"), memory_documents=16, generation_documents=300, shards=shards,
        decided_after=100,
    )  # fmt: skip
    feed = make_feed(1200)
    documents = [
        Document(place, " ".join(entry.document[name] for name in settings.text_field))
        for place, entry in enumerate(feed.entries)
        if entry.kind not in NO_DOCUMENT
    ]
    pairs = find_truth(feed, settings)
    rows = zip(pairs.older.tolist(), pairs.newer.tolist(), pairs.jaccard.tolist(), strict=True)
    truth = {(older, newer): jaccard for older, newer, jaccard in rows}
    verdicts = once(documents, settings, tmp_path, 100)
    kept = {verdict["id"] for verdict in verdicts if verdict["kind"] == "unique"}
    dropped = [verdict for verdict in verdicts if verdict["kind"] in ("near_duplicate", "exact_duplicate")]
    assert dropped and len(kept) + len(dropped) == len(verdicts)
    for verdict in dropped:
        assert verdict["of"] in kept and documents[verdict["group"]].id == verdict["of"]
        assert truth[verdict["of"], verdict["id"]] == pytest.approx(verdict["similarity"], abs=1e-6)
    assert all(documents[verdict["group"]].id == verdict["id"] for verdict in verdicts if verdict["id"] in kept)
    assert not [pair for pair in truth if kept.issuperset(pair)]

"""What deduplication means, on real data with exhaustive truth: every dropped document has a similar one among the
kept, and no two kept ones are similar, up to the recall of the banding."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import fed, once
from support.long_form import pairwise

from stream_lsh.demo.feed import make_feed
from stream_lsh.demo.score import NO_DOCUMENT, find_truth
from stream_lsh.documents.columns import Document
from stream_lsh.index.index import Index
from stream_lsh.settings import Settings

# Lines, documents, their text, pairs of 0.5 and more.
CORPORA = {
    "posts": ("posts-120k.jsonl.xz", 40_000, ("title", "text"), "posts-40k.word3.pairs.tsv"),
    "terms": ("terms-3k.jsonl.xz", 3_000, ("text",), "terms-3k.word3.pairs.tsv.xz"),
}
Truth = dict[frozenset[int], float]


def corpus(data: Path, name: str, threshold: float) -> tuple[list[Document], Truth]:
    """Documents, and by their places the Jaccard of all pairs at the threshold."""
    lines, count, fields, pairs = CORPORA[name]
    with lzma.open(data / lines) as file:
        read = [json.loads(line) for line in islice(file, count)]
    documents = [Document(one["id"], " ".join(one[field] for field in fields)) for one in read]
    places = {str(document.id): place for place, document in enumerate(documents)}
    content = (data / pairs).read_bytes()
    rows = (lzma.decompress(content) if pairs.endswith(".xz") else content).decode().splitlines()
    split = (row.split("\t") for row in rows)
    truth = {frozenset((places[a], places[b])): float(value) for a, b, value in split if float(value) >= threshold}
    return documents, truth


def check_kept(documents: Sequence[Document], verdicts: Sequence[dict[str, Any]], truth: Truth, missed: float) -> None:
    """missed: the share of the true pairs that may be among the kept."""
    place_of = {verdict["id"]: verdict["seq"] for verdict in reversed(verdicts) if verdict["kind"] != "rejected"}
    kept = {verdict["seq"] for verdict in verdicts if verdict["kind"] == "unique"}
    dropped = [verdict for verdict in verdicts if verdict["kind"] in ("near_duplicate", "exact_duplicate")]
    assert dropped
    for verdict in dropped:
        of = place_of[verdict["of"]]
        assert of in kept and of < verdict["seq"]
        assert verdict["group"] == of
        assert truth[frozenset((of, verdict["seq"]))] == pytest.approx(verdict["similarity"], abs=1e-6)
    for verdict in verdicts:
        assert verdict["kind"] != "unique" or verdict["group"] == verdict["seq"]
    assert sum(pair <= kept for pair in truth) <= missed * len(truth)


@pytest.mark.parametrize(("name", "threshold", "shards"), pairwise(CORPORA, (0.8, 0.5), (1, 2, 4)))
def test_kept_and_dropped(shared_data: Path, tmp_path: Path, name: str, threshold: float, shards: int) -> None:
    """Generations are cut small, and everything is flushed several times."""
    documents, truth = corpus(shared_data, name, threshold)
    settings = Settings(
        shingles="words:3", threshold=threshold, memory_documents=500, generation_documents=len(documents) // 7,
        shards=shards, decided_after=1000,
    )  # fmt: skip
    verdicts = once(documents, settings, tmp_path, 1000)
    check_kept(documents, verdicts, truth, 0.01)


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("name", CORPORA)
def test_any_with_everything_verified_finds_what_exhaustive_comparison_finds(
    shared_data: Path, tmp_path: Path, name: str, shards: int
) -> None:
    documents, truth = corpus(shared_data, name, 0.8)
    settings = Settings(
        shingles="words:3", against="any", verify_matches=0, max_matches=0, shards=shards, memory_documents=500,
        bucket_size=4096, generation_documents=len(documents) // 7,
    )  # fmt: skip
    index, found, at = Index(settings, tmp_path, durable=False), Truth(), 0
    try:
        while at < len(documents):
            for verdict in fed(index, documents[at : at + 1000], at, 1000):
                assert "incomplete" not in verdict
                found |= {frozenset((verdict["seq"], m["seq"])): m["similarity"] for m in verdict["matches"]}
            index.commit({})
            at += 1000
    finally:
        index.close()
    wrong = [(pair, value) for pair, value in found.items() if abs(truth.get(pair, -1.0) - value) > 1e-6]
    assert wrong == []
    assert len(found) >= 0.999 * len(truth)


@pytest.mark.parametrize("threshold", [0.8, 0.6])
def test_the_demo_s_feed(tmp_path: Path, threshold: float) -> None:
    settings = Settings(threshold=threshold, text_field=("title", "text"), memory_documents=100)
    feed = make_feed(1200)
    truth = find_truth(feed, settings)
    pairs = zip(truth.older.tolist(), truth.newer.tolist(), truth.jaccard.tolist(), strict=True)
    found = {frozenset((older, newer)): value for older, newer, value in pairs}
    documents = [
        Document(place, " ".join(entry.document[name] for name in settings.text_field))
        for place, entry in enumerate(feed.entries)
        if entry.kind not in NO_DOCUMENT
    ]
    numbers = np.array([int(document.id) for document in documents])
    verdicts = once(documents, settings, tmp_path, 100)
    for verdict in verdicts:  # numbers of the feed
        verdict["seq"] = int(numbers[verdict["seq"]])
        verdict["group"] = int(numbers[verdict["group"]])
    check_kept(documents, verdicts, found, 0.0)

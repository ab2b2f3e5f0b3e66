"""The whole job against exhaustive truth: every pair reported is true, with its Jaccard, and hardly one is missed."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.jobs import read, run
from support.long_form import pairwise, rotating
from support.real_pairs import CORPORA, lines, true_pairs

from stream_lsh import Settings


def found_and_true(
    data: Path, folder: Path, corpus: str, threshold: float, output: str, **given: Any
) -> tuple[list[dict[str, Any]], dict[frozenset[str], float]]:
    """The lines of an output, and the true pairs."""
    documents = lines(data, corpus)
    (folder / "feed.jsonl").write_bytes(b"".join(documents))
    fields = CORPORA[corpus].fields
    # The truth compares texts as they are: some legal pages have decomposed accents.
    given |= {"shingles": "words:3", "normalize": "lower,space"}
    settings = Settings(threshold=threshold, text_field=fields, **given)
    run(folder, [folder / "feed.jsonl"], settings, [output])
    ids = {json.loads(document)["id"] for document in documents}
    return read(folder / output), true_pairs(data, corpus, ids, threshold)


@pytest.mark.parametrize(("corpus", "threshold", "shards"), pairwise(CORPORA, (0.8, 0.5), (1, 4)))
def test_the_pairs_are_those_of_exhaustive_comparison(
    shared_data: Path, tmp_path: Path, corpus: str, threshold: float, shards: int
) -> None:
    given = {"compare_with": "all", "max_verified_matches": 0, "max_matches": 0, "shards": shards}
    pairs, truth = found_and_true(shared_data, tmp_path, corpus, threshold, "pairs", **given)
    found = {}
    for pair in pairs:
        found[frozenset((pair["older"], pair["newer"]))] = pair["similarity"]
        assert pair["older_seq"] < pair["newer_seq"]
    wrong = [(pair, similarity) for pair, similarity in found.items() if abs(truth.get(pair, -1) - similarity) > 1e-6]
    assert wrong == []
    assert len(found) >= 0.999 * len(truth)


@pytest.mark.long
def test_signatures_alone_are_right_for_most(shared_data: Path, tmp_path: Path) -> None:
    """Recall and precision of at least 0.97 on posts, with the signature's size chosen by the settings."""
    given = {"verify": "signature", "compare_with": "all", "max_verified_matches": 0, "max_matches": 0}
    pairs, true = found_and_true(shared_data, tmp_path, "posts", 0.8, "pairs", **given)
    found, truth = {frozenset((pair["older"], pair["newer"])) for pair in pairs}, true.keys()
    assert len(found & truth) >= 0.97 * len(truth)
    assert len(found & truth) >= 0.97 * len(found)


@pytest.mark.parametrize(("corpus", "threshold", "shards"), rotating(product(CORPORA, (0.8, 0.5), (1, 2, 4)), 4))
def test_what_is_dropped_has_a_kept_one_and_no_two_kept_ones_are_similar(
    shared_data: Path, tmp_path: Path, corpus: str, threshold: float, shards: int
) -> None:
    """By the truth. A kept document with a similar one before it was missed within the recall, or its verdict says that
    it was not compared with everything. Segments and memory are small."""
    given = {"shards": shards, "decision_lag": 1000, "memtable_documents": 500, "segment_documents": 1500}
    verdicts, truth = found_and_true(shared_data, tmp_path, corpus, threshold, "verdicts", **given)
    kept = {verdict["id"] for verdict in verdicts if verdict["kind"] == "unique"}
    dropped = [verdict for verdict in verdicts if verdict["kind"] in ("near_duplicate", "exact_duplicate")]
    assert len(kept) + len(dropped) == len(verdicts)
    for verdict in dropped:
        assert verdict["duplicate_of"] in kept
        assert verdict["group"] == next(m["seq"] for m in verdict["matches"] if m["id"] == verdict["duplicate_of"])
        assert truth[frozenset((verdict["id"], verdict["duplicate_of"]))] == pytest.approx(
            verdict["similarity"], abs=1e-6
        )
    seqs = {verdict["id"]: verdict["seq"] for verdict in verdicts}
    cut = {verdict["id"] for verdict in verdicts if "not_compared" in verdict}
    newer = [max(pair, key=seqs.__getitem__) for pair in truth if pair <= kept]
    missed = [id for id in newer if id not in cut]
    assert len(missed) <= 0.005 * len(dropped)
    assert len(newer) <= 0.03 * len(dropped)

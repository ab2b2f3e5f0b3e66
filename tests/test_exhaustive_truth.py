"""The whole job against exhaustive truth: every pair reported is true, with its Jaccard, and hardly one is missed."""

from __future__ import annotations

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest
from support.long_form import pairwise

from stream_lsh import Settings
from stream_lsh.embedded.job import Job

CORPORA = {
    "posts": ("posts-120k.jsonl.xz", "posts-40k.word3.pairs.tsv", 40_000, ("title", "text")),
    "terms": ("terms-3k.jsonl.xz", "terms-3k.word3.pairs.tsv.xz", 3_000, ("text",)),
}


def read(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def unpacked(data: Path, corpus: str, folder: Path) -> Path:
    """The corpus as the truth has it, in a plain file."""
    feed = folder / "feed.jsonl"
    with lzma.open(data / CORPORA[corpus][0]) as lines, feed.open("wb") as file:
        file.writelines(islice(lines, CORPORA[corpus][2]))
    return feed


def true_pairs(data: Path, corpus: str, threshold: float) -> dict[frozenset[str], float]:
    """Jaccard of every true pair."""
    rows = [line.split("\t") for line in read(data / CORPORA[corpus][1]).decode().splitlines()]
    return {frozenset(row[:2]): float(row[2]) for row in rows if float(row[2]) >= threshold}


@pytest.mark.parametrize(("corpus", "threshold", "shards"), pairwise(CORPORA, (0.8, 0.5), (1, 4)))
def test_the_pairs_are_those_of_exhaustive_comparison(
    shared_data: Path, tmp_path: Path, corpus: str, threshold: float, shards: int
) -> None:
    feed, truth = unpacked(shared_data, corpus, tmp_path), true_pairs(shared_data, corpus, threshold)
    settings = Settings(
        shingles="words:3", threshold=threshold, against="any", verify_matches=0, max_matches=0, shards=shards,
        text_field=CORPORA[corpus][3],
    )  # fmt: skip
    Job(settings, [str(feed)], {"pairs": str(tmp_path / "pairs.jsonl")}, tmp_path / "state").run()
    found = {}
    for line in (tmp_path / "pairs.jsonl").read_text().splitlines():
        pair = json.loads(line)
        found[frozenset((pair["older"], pair["newer"]))] = pair["similarity"]
        assert pair["older_seq"] < pair["newer_seq"]
    wrong = [(pair, similarity) for pair, similarity in found.items() if abs(truth.get(pair, -1) - similarity) > 1e-6]
    assert wrong == []
    assert len(found) >= 0.999 * len(truth)


@pytest.mark.long
def test_signatures_alone_are_right_for_most(shared_data: Path, tmp_path: Path) -> None:
    """Recall and precision of at least 0.97 on posts, with the signature's size chosen by the settings."""
    feed, truth = unpacked(shared_data, "posts", tmp_path), set(true_pairs(shared_data, "posts", 0.8))
    settings = Settings(
        shingles="words:3", verify="signature", against="any", verify_matches=0, max_matches=0,
        text_field=CORPORA["posts"][3],
    )  # fmt: skip
    Job(settings, [str(feed)], {"pairs": str(tmp_path / "pairs.jsonl")}).run()
    lines_found = (tmp_path / "pairs.jsonl").read_text().splitlines()
    found = {frozenset((pair["older"], pair["newer"])) for pair in map(json.loads, lines_found)}
    assert len(found & truth) >= 0.97 * len(truth)
    assert len(found & truth) >= 0.97 * len(found)


@pytest.mark.long
@pytest.mark.parametrize("threshold", [0.8, 0.5])
@pytest.mark.parametrize("corpus", CORPORA)
def test_what_is_dropped_has_a_kept_one_and_no_two_kept_ones_are_similar(
    shared_data: Path, tmp_path: Path, corpus: str, threshold: float
) -> None:
    """By the truth: every `of` was kept and is as similar as the verdict says; who was kept in spite of a similar one
    that was kept before is within the recall."""
    feed, truth = unpacked(shared_data, corpus, tmp_path), true_pairs(shared_data, corpus, threshold)
    settings = Settings(shingles="words:3", threshold=threshold, text_field=CORPORA[corpus][3])
    Job(settings, [str(feed)], {"verdicts": str(tmp_path / "verdicts.jsonl")}, tmp_path / "state").run()
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    kept = {verdict["id"] for verdict in verdicts if verdict["kind"] == "unique"}
    dropped = [verdict for verdict in verdicts if verdict["kind"] in ("near_duplicate", "exact_duplicate")]
    assert len(kept) + len(dropped) == len(verdicts)
    for verdict in dropped:
        assert verdict["of"] in kept
        assert verdict["group"] == next(m["seq"] for m in verdict["matches"] if m["id"] == verdict["of"])
        assert truth[frozenset((verdict["id"], verdict["of"]))] == pytest.approx(verdict["similarity"], abs=1e-6)
    missed = [pair for pair in truth if pair <= kept]
    assert len(missed) <= 0.005 * len(dropped)

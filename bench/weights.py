"""Sets with weights beside datasketch's WeightedMinHash: documents a second, what is found, what was not compared.

Baskets of 3 to 12 of 1,000 products, each with a weight; a quarter of them are copies of an earlier basket with some
products or amounts changed. Two feeds: in `tags` all products are bought equally often, in `groceries` the k-th one
once in k (Zipf), so that most baskets have a few products in common.

All pairs: whatever is at the threshold, by exhaustive comparison. The engine compares with every earlier basket,
without limits (`max_verified_matches = 0`), and verifies; datasketch has MinHashLSH with 128 samples, is asked before
each insertion, and reports what it meets (it has no verification).

As a stream: the default settings, and `max_bucket_rows` and `max_candidates` of most other measures. Recall: of the
baskets that are similar enough to one that was kept before them, by exhaustive comparison, those that were dropped.

Without weights: lists of the same products, as `sets` and as `copies` with `set_field`, as streams.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench import report
from stream_lsh import Deduplicator, Document, Settings, Verdict
from stream_lsh.documents.weights import weights_text
from stream_lsh.evaluation.lists import EveryList, Lists
from stream_lsh.families.family import signer_of
from stream_lsh.families.measure import Measure

EXAMPLE = "python -m bench.weights --documents 5000 --out results"
PRODUCTS = 1000
Basket = dict[str, float]
Pairs = set[tuple[int, int]]
LIMITS = {"max_bucket_rows": 64, "max_candidates": 32}
FEEDS = {"tags": 0.0, "groceries": 1.0}  # the k-th product is bought once in k to this power
COLUMNS = {
    "feed": "feed", "threshold": "threshold", "system": "system", "rate": "documents/s", "pairs": "pairs",
    "recall": "recall", "precision": "precision",
}  # fmt: skip
STREAM_COLUMNS = {
    "feed": "feed", "threshold": "threshold", "bucket": "max_bucket_rows", "max_candidates": "max_candidates",
    "rate": "documents/s", "kept": "kept %", "due": "due", "recall": "recall", "not_compared": "not compared %",
    "doubtful": "of the kept %",
}  # fmt: skip
LIST_COLUMNS = {
    "feed": "feed", "threshold": "threshold", "measure": "measure", "rate": "documents/s", "kept": "kept %",
    "not_compared": "not compared %",
}  # fmt: skip


def baskets(documents: int, power: float = 1.0, seed: int = 12) -> list[Basket]:
    """The baskets of the recipe: weights by product. power: as in FEEDS."""
    chance = np.random.default_rng(seed)
    shares = 1 / np.arange(1, PRODUCTS + 1) ** power
    shares /= shares.sum()
    made: list[Basket] = []
    for i in range(documents):
        if i and chance.random() < 0.25:
            old = made[int(chance.integers(i))]
            basket = {k: w * float(chance.choice([1, 1, 1.5])) for k, w in old.items() if chance.random() < 0.9} or old
        else:
            chosen = chance.choice(PRODUCTS, int(chance.integers(3, 13)), replace=False, p=shares)
            basket = {str(k): float(chance.integers(1, 9)) / 2 for k in chosen.tolist()}
        made.append(basket)
    return made


def true_pairs(made: list[Basket], threshold: float) -> Pairs:
    """(older, newer) of all that are similar enough."""
    texts = [weights_text(basket, "", b"").encode() for basket in made]
    signer = signer_of(Settings(measure="weighted-jaccard").signing)
    words, offsets = signer.shingle(b"".join(texts), np.cumsum([len(text) for text in texts]))
    found = EveryList(Lists(False, words, offsets, np.zeros(len(made), np.uint64)), threshold).run()
    return set(zip(found.first.tolist(), found.second.tolist(), strict=True))


def taken(made: Sequence[Basket | list[str]], settings: Settings) -> tuple[list[Verdict], float]:
    """Verdicts, and seconds."""
    documents = [Document(i, set=basket) for i, basket in enumerate(made)]
    with Deduplicator(settings) as deduplicator:
        list(deduplicator.process(documents[:50]))  # compiling is not what is timed
    with Deduplicator(settings) as deduplicator:
        began = time.perf_counter()
        verdicts = list(deduplicator.process(documents))
        return verdicts, time.perf_counter() - began


def ours(made: list[Basket], threshold: float) -> tuple[Pairs, float]:
    """All pairs, and seconds."""
    settings = Settings(
        measure="weighted-jaccard", threshold=threshold, compare_with="all", max_verified_matches=0, max_matches=0
    )
    verdicts, seconds = taken(made, settings)
    return {(match.seq, verdict.seq) for verdict in verdicts for match in verdict.matches}, seconds


def streamed(made: list[Basket], true: Pairs, threshold: float, **limits: int) -> dict[str, Any]:
    """What was kept and dropped with default settings, but for those given."""
    settings = Settings.load(measure="weighted-jaccard", threshold=threshold, **limits)
    verdicts, seconds = taken(made, settings)
    kept = {verdict.seq for verdict in verdicts if verdict.kind == "unique"}
    cut = {verdict.seq for verdict in verdicts if verdict.not_compared}
    due = {newer for older, newer in true if older in kept}
    return {
        "threshold": threshold, "bucket": settings.max_bucket_rows, "max_candidates": settings.max_candidates,
        "rate": len(made) / seconds,
        "kept": 100 * len(kept) / len(made), "due": len(due), "recall": len(due - kept) / max(1, len(due)),
        "not_compared": 100 * len(cut) / len(made), "doubtful": 100 * len(cut & kept) / len(kept),
    }  # fmt: skip


def listed(made: list[Basket], threshold: float) -> Iterator[dict[str, Any]]:
    """Baskets without their weights, as both measures take them."""
    lists = [list(basket) for basket in made]
    given: dict[Measure, dict[str, Any]] = {"weighted-jaccard": {}, "jaccard": {"set_field": "set"}}
    for measure, more in given.items():
        verdicts, seconds = taken(lists, Settings(measure=measure, threshold=threshold, **more))
        yield {
            "threshold": threshold, "measure": measure, "rate": len(made) / seconds,
            "kept": 100 * sum(verdict.kind == "unique" for verdict in verdicts) / len(made),
            "not_compared": 100 * sum(verdict.not_compared > 0 for verdict in verdicts) / len(made),
        }  # fmt: skip


def theirs(made: list[Basket], threshold: float) -> tuple[Pairs, float]:
    """The same of datasketch."""
    from datasketch import MinHashLSH, WeightedMinHashGenerator

    generator = WeightedMinHashGenerator(PRODUCTS, sample_size=128)
    table, pairs = MinHashLSH(threshold=threshold, num_perm=128), Pairs()
    began = time.perf_counter()
    for i, basket in enumerate(made):
        vector = np.zeros(PRODUCTS)
        vector[[int(k) for k in basket]] = list(basket.values())
        sketch = generator.minhash(vector)
        pairs |= {(older, i) for older in table.query(sketch)}
        table.insert(i, sketch)
    return pairs, time.perf_counter() - began


def scored(found: Pairs, true: Pairs) -> dict[str, Any]:
    """Recall and precision."""
    right = len(found & true)
    return {"pairs": len(true), "recall": right / max(1, len(true)), "precision": right / max(1, len(found))}


def beside(made: list[Basket], true: Pairs, threshold: float) -> Iterator[dict[str, Any]]:
    """All pairs of both at a threshold."""
    for system, find in (("stream-lsh", ours), ("datasketch", theirs)):
        pairs, seconds = find(made, threshold)
        yield {"threshold": threshold, "system": system, "rate": len(made) / seconds, **scored(pairs, true)}


def main() -> None:
    parser = report.parser("weights", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=5000, help="baskets (%(default)s)")
    parser.add_argument("--thresholds", default="0.2,0.3,0.5,0.8", help="comma list (%(default)s)")
    given = parser.parse_args()
    where = report.environment(("numpy", "numba", "rocksdict", "datasketch"))
    pairs, streams, lists = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for feed, power in FEEDS.items():
        made = baskets(given.documents, power)
        for threshold in map(float, given.thresholds.split(",")):
            true = true_pairs(made, threshold)
            pairs += ({"feed": feed, **row} for row in beside(made, true, threshold))
            for limits in ({}, LIMITS):
                streams.append({"feed": feed, **streamed(made, true, threshold, **limits)})
            lists += ({"feed": feed, **row} for row in listed(made, threshold))
            print(f"{feed} {threshold:g}: {pairs[-2:]}, {streams[-1]}", file=sys.stderr, flush=True)
    tables = (
        ("All pairs", COLUMNS, pairs),
        ("As a stream", STREAM_COLUMNS, streams),
        ("Without weights", LIST_COLUMNS, lists),
    )
    for title, columns, rows in tables:
        print(f"\n{title}\n{report.table(columns, rows)}", flush=True)
    texts = [f"{title}\n\n{report.table(columns, rows, markdown=True)}" for title, columns, rows in tables]
    report.write(given.out, "weights", where, [*pairs, *streams, *lists], "\n\n".join(texts))


if __name__ == "__main__":
    main()

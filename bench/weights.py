"""Sets with weights beside datasketch's WeightedMinHash: documents a second, pairs found, pairs that are none.

Baskets of 3 to 12 of 1,000 products, bought as often as the k-th one in k (Zipf), each with a weight; a quarter of
them are copies of an earlier basket with some products or amounts changed. All pairs at the threshold are wanted, by
exhaustive comparison. The engine compares with every earlier basket and verifies; datasketch has MinHashLSH with 128
samples, is asked before each insertion, and reports what it meets (it has no verification).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench import report
from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.documents.weights import weights_text
from stream_lsh.evaluation.weights import EverySet, WeightedSets
from stream_lsh.families.family import signer_of

EXAMPLE = "python -m bench.weights --documents 5000 --out results"
PRODUCTS = 1000
Basket = dict[str, float]
COLUMNS = {
    "threshold": "threshold", "system": "system", "rate": "documents/s", "pairs": "pairs", "recall": "recall",
    "precision": "precision", "incomplete": "incomplete documents",
}  # fmt: skip


def baskets(documents: int, seed: int = 12) -> list[Basket]:
    """The baskets of the recipe: weights by product."""
    chance = np.random.default_rng(seed)
    shares = 1 / np.arange(1, PRODUCTS + 1)
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


def true_pairs(made: list[Basket], threshold: float) -> set[tuple[int, int]]:
    """(older, newer) of all that are similar enough."""
    texts = [weights_text(basket, "", b"").encode() for basket in made]
    signer = signer_of(Settings(likeness="sets").signing)
    words, offsets = signer.shingle(b"".join(texts), np.cumsum([len(text) for text in texts]))
    found = EverySet(WeightedSets(words, offsets, np.zeros(len(made), np.uint64)), threshold).run()
    return set(zip(found.older.tolist(), found.newer.tolist(), strict=True))


def ours(made: list[Basket], threshold: float) -> tuple[set[tuple[int, int]], float, int]:
    """Pairs, seconds, verdicts that are incomplete."""
    settings = Settings(likeness="sets", threshold=threshold, against="any", verify_matches=0, max_matches=0)
    documents = [Document(i, set=basket) for i, basket in enumerate(made)]
    with Deduplicator(settings) as deduplicator:
        list(deduplicator.process(documents[:50]))  # compiling is not what is timed
    with Deduplicator(settings) as deduplicator:
        began = time.perf_counter()
        verdicts = list(deduplicator.process(documents))
        seconds = time.perf_counter() - began
    pairs = {(match.seq, verdict.seq) for verdict in verdicts for match in verdict.matches}
    return pairs, seconds, sum(verdict.incomplete > 0 for verdict in verdicts)


def theirs(made: list[Basket], threshold: float) -> tuple[set[tuple[int, int]], float]:
    """The same of datasketch."""
    from datasketch import MinHashLSH, WeightedMinHashGenerator

    generator = WeightedMinHashGenerator(PRODUCTS, sample_size=128)
    table, pairs = MinHashLSH(threshold=threshold, num_perm=128), set[tuple[int, int]]()
    began = time.perf_counter()
    for i, basket in enumerate(made):
        vector = np.zeros(PRODUCTS)
        vector[[int(k) for k in basket]] = list(basket.values())
        sketch = generator.minhash(vector)
        pairs |= {(older, i) for older in table.query(sketch)}
        table.insert(i, sketch)
    return pairs, time.perf_counter() - began


def scored(found: set[tuple[int, int]], true: set[tuple[int, int]]) -> dict[str, Any]:
    """Recall and precision."""
    right = len(found & true)
    return {"pairs": len(true), "recall": right / max(1, len(true)), "precision": right / max(1, len(found))}


def beside(made: list[Basket], threshold: float) -> Iterator[dict[str, Any]]:
    """Both at a threshold."""
    true = true_pairs(made, threshold)
    pairs, seconds, cut = ours(made, threshold)
    yield {"threshold": threshold, "system": "stream-lsh", "rate": len(made) / seconds, **scored(pairs, true),
           "incomplete": cut}  # fmt: skip
    pairs, seconds = theirs(made, threshold)
    yield {"threshold": threshold, "system": "datasketch", "rate": len(made) / seconds, **scored(pairs, true)}


def main() -> None:
    parser = report.parser("weights", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=10_000, help="baskets (%(default)s)")
    parser.add_argument("--thresholds", default="0.3,0.5,0.8", help="comma list (%(default)s)")
    given = parser.parse_args()
    where = report.environment(("numpy", "numba", "rocksdict", "datasketch"))
    made = baskets(given.documents)
    rows = [row for threshold in given.thresholds.split(",") for row in beside(made, float(threshold))]
    print(report.table(COLUMNS, rows), flush=True)
    report.write(given.out, "weights", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()

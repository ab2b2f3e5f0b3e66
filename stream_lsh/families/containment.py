"""Containment: which shingles of a text are keys, and how many keys two texts must share.

Minhashing estimates the Jaccard similarity (MMDS 3.3.2), which is small for a post and a book even if the whole post is
in the book.

A shingle is a key if its hash is below a bound: one in `sampling`. The bound is the same for all texts, so that a
shingle that two texts share is sampled in both or in neither, whatever their sizes (Broder, On the resemblance and
containment of documents, 1997: sketches modulo m). If a share x of a text's n shingles is in another text, the number
of keys that they share is binomial(xn, 1/sampling). A pair is a candidate if this number is at least what the threshold
requires of the keys of either text, less four sigma.

Plain arithmetic, as in `tuning`.
"""

from __future__ import annotations

import math

from stream_lsh.families.tuning import Banding

OF_SAMPLING = ("sampling", "min_passage_words")
"""Settings of `containment` that cannot change once an index exists."""
IDLE = (
    "set_field",
    "verify",
    "signature_size",
    "bands",
    "rows",
    "max_distance",
    "dimensions",
    "vector_field",
    "bits_field",
)
"""Settings that `containment` does not use."""
SIGMAS = 4.0
MOST_SAMPLING = 64
KEYS = 29
"""Keys assumed of a document where room is allocated; a document with more of them takes more."""
LEAST_THRESHOLD = 0.01
SIGNATURE_BYTES = 16
"""Size of what takes the place of a signature: a word of the scope, and the number of keys."""
SEGMENT = 1 << 22
"""Documents of a segment by default: at a thousand keys each they fill the postings that it can have."""


def layout() -> Banding:
    """Values in place of K, b and r, for the layout of rows and for room; signatures are not compared."""
    return Banding(SIGNATURE_BYTES, KEYS, 1)


def check(threshold: float, normalize: str, *, several_keep: bool) -> None:
    """Raise ValueError if `containment` cannot have these settings. several_keep: several shards and `kept`."""
    if threshold < LEAST_THRESHOLD:
        raise ValueError(f"threshold: {threshold:g} is too small a share; {LEAST_THRESHOLD:g} is the least")
    for step in ("markup", "nfkc"):
        if step in (part.strip() for part in normalize.split(",")):
            raise ValueError(
                f"normalize: {step} is not used with measure = containment, whose passages are places in the original "
                "texts; leave it out"
            )
    if several_keep:
        raise ValueError(
            "measure = containment needs compare_with = 'all' with several shards, or shards = 1: a document that "
            "contains another one is kept, and shards see of each other's documents only whether they match"
        )


def slack(threshold: float, sampling: int) -> float:
    """Keys that may be missing of those that the threshold requires, in square roots of their number. Keys are sampled
    without replacement: where all shingles are keys, none is missing."""
    return SIGMAS * math.sqrt(threshold * (1 - threshold) * (1 - 1 / sampling))


def needed(keys: int, threshold: float, sampling: int) -> int:
    """How many of a text's keys another text has at least, if it has the threshold's share of its shingles."""
    return max(1, math.ceil(threshold * keys - slack(threshold, sampling) * math.sqrt(keys) - 1e-9))


def probability(share: float, shingles: int, threshold: float, sampling: int) -> float:
    """P(candidate) of a text of this many shingles, of which this share is in a longer text."""
    common = round(share * shingles)
    inside, outside = _binomial(common, 1 / sampling), _binomial(shingles - common, 1 / sampling)
    # For each number of shared keys, the number of other keys that is still small enough.
    total, behind, reached = 0.0, 0, 0.0
    for shared, p in enumerate(inside):
        while shared and behind < len(outside) and needed(shared + behind, threshold, sampling) <= shared:
            reached += outside[behind]
            behind += 1
        total += p * reached if shared else 0.0
    return min(1.0, total)


def sampling_of(threshold: float, recall: float, least: int) -> int:
    """The largest sampling with which texts of at least `least` shingles are found with `target_recall`. With all
    shingles as keys none is missed."""
    common = math.ceil(threshold * least - 1e-9)
    for sampling in range(MOST_SAMPLING, 1, -1):
        if probability(common / least, least, threshold, sampling) >= recall - 1e-12:
            return sampling
    return 1


def _binomial(n: int, p: float) -> list[float]:
    """P(0), P(1), ... of n trials, as far as they are not negligible."""
    if p >= 1:
        return [0.0] * n + [1.0]
    most = min(n, math.ceil(n * p + 12 * math.sqrt(n * p * (1 - p)) + 12))
    log = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
        for k in range(most + 1)
    ]
    return [math.exp(value) for value in log]

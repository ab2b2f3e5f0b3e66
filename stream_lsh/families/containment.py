"""Containment: which shingles of a text are keys, and how many of them two texts share (MMDS 3.3.2 sees why minhashing
does not say it: a post and a book have a small Jaccard similarity however much of the post is in the book).

A shingle is a key if its hash lies below a bound, one in `sampling`. The bound is the same for all texts, so that what
two of them share is sampled alike in both, whatever their sizes (Broder, On the resemblance and containment of
documents, 1997: sketches modulo m). Of a text of n shingles of which a share x is in another, the keys that they share
are binomial(xn, 1/sampling), and a pair is a candidate if they are as many as the threshold asks of the keys of either
text, less four sigma.

Plain arithmetic, as in `tuning`.
"""

from __future__ import annotations

import math

from stream_lsh.families.tuning import Banding

QUOTATIONS = ("sampling", "min_passage_words")
"""Settings of quotations that fix answers."""
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
"""Settings that quotations do not use."""
SIGMAS = 4.0
MOST_SAMPLING = 64
KEYS = 29
"""Keys that a document is reckoned with where room is made; who has more takes more of it."""
LEAST_THRESHOLD = 0.01
SIGNATURE_BYTES = 16
"""What stands for a signature: a word that a salt changes, and the number of keys."""
SEGMENT = 1 << 22
"""Documents of a segment, if nothing else is said: a thousand keys each come to the postings that it can have."""


def layout() -> Banding:
    """What stands for K, b and r where rows are laid out and room is made: no signature is compared."""
    return Banding(SIGNATURE_BYTES, KEYS, 1)


def check(threshold: float, normalize: str, *, several_keep: bool) -> None:
    """Raise ValueError if quotations cannot have these. several_keep: shards under `kept`."""
    if threshold < LEAST_THRESHOLD:
        raise ValueError(f"threshold: {threshold:g} is too small a share; {LEAST_THRESHOLD:g} is the least")
    for step in ("markup", "nfkc"):
        if step in (part.strip() for part in normalize.split(",")):
            raise ValueError(
                f"normalize: {step} is not used with measure = containment, whose passages are places in the texts as "
                "they came; leave it out"
            )
    if several_keep:
        raise ValueError(
            "measure = containment needs compare_with = 'all' with several shards: what contains another one is kept, "
            "and "
            "shards say of each other's documents only whether they match; or shards = 1"
        )


def slack(threshold: float, sampling: int) -> float:
    """What may be missing of the keys that the threshold asks for: so many times the root of their number. The keys of
    a text are drawn from its shingles without putting back, so that with all of them as keys nothing is missing."""
    return SIGMAS * math.sqrt(threshold * (1 - threshold) * (1 - 1 / sampling))


def needed(keys: int, threshold: float, sampling: int) -> int:
    """How many of a text's keys another one has at the least, if it has the threshold of its shingles."""
    return max(1, math.ceil(threshold * keys - slack(threshold, sampling) * math.sqrt(keys) - 1e-9))


def probability(share: float, shingles: int, threshold: float, sampling: int) -> float:
    """P(candidate) of a text of so many shingles, of which this share is in a longer one."""
    common = round(share * shingles)
    inside, outside = _binomial(common, 1 / sampling), _binomial(shingles - common, 1 / sampling)
    # So many keys outside are still few enough, for each number of keys inside.
    total, behind, reached = 0.0, 0, 0.0
    for shared, p in enumerate(inside):
        while shared and behind < len(outside) and needed(shared + behind, threshold, sampling) <= shared:
            reached += outside[behind]
            behind += 1
        total += p * reached if shared else 0.0
    return min(1.0, total)


def sampling_of(threshold: float, recall: float, least: int) -> int:
    """The largest sampling with which texts of `least` shingles and more are found as `target_recall` asks; with all
    shingles as keys nothing is missed."""
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

"""Measures: what makes two documents similar, how often a component of their signatures is then equal, and the bands
for a threshold and a recall (MMDS 3.6: families (d1, d2, p1, p2), amplified by AND and OR).

Plain arithmetic and no slow imports, as in `tuning`.

- jaccard: similarity of the shingles of texts, or of sets. Minhashing (3.3), p = s.
- weighted-jaccard: similarity of sets whose elements have weights. Consistent weighted sampling (Ioffe, ICDM 2010), p =
  s.
- cosine: of vectors. The side of a random hyperplane (3.7.2), p = 1 - angle / pi.
- euclidean: distance of vectors. The place along a random line, in buckets of a width (3.7.4; Datar, Immorlica, Indyk,
  Mirrokni 2004).
- hamming: distance of bit vectors, by blocks (3.7.1 takes single bits). Of d + c blocks, two vectors that differ in d
  bits share at least c. They meet with certainty if each choice of c blocks is a key (pigeonhole; Manku, Jain, Das
  Sarma, WWW 2007).
- levenshtein: distance of short texts, in inserted, deleted or replaced characters (3.5.5), by pieces. Of d + 1 pieces
  of a text, d edits leave one whole. It is in the other text, at a place that the lengths of both narrow down
  (pigeonhole; Li, Deng, Wang, Feng, PVLDB 5(3), 2011).
- containment: of texts, the share of the shingles of one that are in the other. Sampled shingles, see `containment`.
- tf-idf: texts that report the same event in other words. Terms, weighted by their document frequency (`terms`). The
  keys are the heaviest terms, which are not random.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from stream_lsh.errors import UsageError
from stream_lsh.families.containment import IDLE, layout
from stream_lsh.families.tuning import MOST_BANDS, Banding, choose, most_rows

Measure = Literal[
    "jaccard", "cosine", "euclidean", "hamming", "levenshtein", "containment", "tf-idf", "weighted-jaccard"
]
MEASURES: tuple[Measure, ...] = get_args(Measure)
BY_DISTANCE = ("euclidean", "hamming", "levenshtein")
"""Measures with a distance instead of a threshold."""
CERTAIN = ("hamming", "levenshtein")
"""Measures whose keys are parts of a document, of which some stay whole: all documents within the distance are
found."""
MEASURE_SETTINGS = ("measure", "dimensions", "max_distance", "vector_field", "bits_field")
"""Settings of the measure; they cannot change once an index exists, where it is not `jaccard`."""
STORY_TERMS, STORY_KEYS = 64, 16
"""Terms that a row has under `tf-idf`, the heaviest; and how many of these are keys."""
STORY_THRESHOLD = 0.26
"""Default under `tf-idf`: chosen on news (docs/explanation/measures/tf-idf.md)."""
OF_CONTAINMENT = ("sampling", "min_passage_words", "min_shingles")
"""Settings of `containment` only."""
OF_TEXTS = ("text_field", "normalize")
"""Settings of `jaccard`, `levenshtein`, `containment` and `tf-idf` only."""
OF_JACCARD = ("shingles", "bag", "tokens", "verify")
"""Settings of `jaccard` only."""
LEAST_DISTANCE = 1e-6
"""Least distance of vectors."""
OF_BITS = ("cosine", "hamming")
"""Measures whose signatures have components of a single bit."""
WIDTH = 4.0
"""Width of a bucket on a random line, in units of max_distance. p is then 0.80 at that distance, and 0.47 at three
times the distance. Narrower buckets need more bands for a smaller gain."""
MOST_COMPONENTS = 1024
"""Most components of a vector's signature by default. Unrelated vectors agree in half of their bits (cosine), vectors
at three times the distance in nearly half of their places (euclidean). Bands therefore need many rows: 83 of 11 at a
cosine of 0.8, 77 of 11 for all distances."""
DEFAULTS: dict[Measure, dict[str, float]] = {
    "euclidean": {"max_bucket_rows": 1024},
    "weighted-jaccard": {"max_bucket_rows": 1024, "max_candidates": 128},
    "tf-idf": {"max_bucket_rows": 256, "threshold": STORY_THRESHOLD},
}
"""Defaults that differ from those of other measures.

- euclidean: buckets of lines are not equally full. Vectors within a few times the distance of their mean are in two or
  three buckets of each line, so that one key in many has one in 200 of them.
- weighted-jaccard: buckets of common elements are as full. Sets with common elements meet many that are nearly as
  similar as the threshold, and a comparison is cheap.
- tf-idf: buckets of the weightiest words have all sizes.
"""
MOST_SAMPLES = 384
"""Most components of a weighted set's signature by default. At thresholds of baskets and tags, 0.2 to 0.5, one more row
in a key avoids most false candidates: 74 bands of 2 at 0.3, 170 of 2 at 0.2."""
ENOUGH_BITS = 24
"""Bits of a bit vector's key from which more are of no use: 2^24 buckets."""
MOST_KEYS = 128
"""Most keys of a bit vector that are made for the sake of longer keys."""
EXPLAINED: tuple[Measure, ...] = ("containment", "tf-idf")
"""Measures with evidence in verdicts (`family.explainer_of`)."""
MOST_EDITS = 8
"""At this distance a text is looked up under 489 keys (`lookups`); at 3 edits under 44."""
COUNT_BITS = 1024
"""Bits before the keys in a short text's signature, which encode how often it has which characters. Candidates are
ranked by these only (`layout.HEAD_WORDS`)."""
PIECE_BITS = 32
"""Bits of a key in such a signature."""
SCOPE_BITS = 64
"""Bits behind a signature of bits where there is a scope, which changes them. They are in every key, so that documents
of different scopes do not meet. By the other bits alone they could, because half of these are equal in any two
documents."""


def unused(measure: Measure) -> set[str]:
    """The settings that a measure does not use."""
    if measure == "jaccard":
        return {*MEASURE_SETTINGS, *OF_CONTAINMENT} - {"measure"}
    if measure == "containment":
        return {*IDLE}
    if measure == "tf-idf":
        idle = {
            *MEASURE_SETTINGS,
            *OF_JACCARD,
            *OF_CONTAINMENT,
            *Banding._fields,
            "target_recall",
            "max_verified_matches",
            "keep",
            "keep_per",
        }
        return (idle | {"set_field"}) - {"measure", "tokens"}
    if measure == "hamming":
        idle = {*OF_TEXTS, *OF_JACCARD, *OF_CONTAINMENT, *Banding._fields}
        return idle | {"threshold", "target_recall", "set_field", "vector_field"}
    if measure == "levenshtein":
        idle = {*OF_JACCARD, *OF_CONTAINMENT, *Banding._fields}
        return idle | {"threshold", "target_recall", "dimensions", "set_field", "vector_field", "bits_field"}
    idle = {*OF_TEXTS, *OF_JACCARD, *OF_CONTAINMENT}
    if measure == "weighted-jaccard":
        return idle | {"max_distance", "dimensions", "vector_field", "bits_field"}
    return idle | {"set_field", "bits_field", "threshold" if measure in BY_DISTANCE else "max_distance"}


def check_extent(measure: Measure, dimensions: int, distance: float) -> None:
    """Raise ValueError if a measure cannot have these; 0 = not given."""
    if measure == "hamming":
        if dimensions % 8:
            raise ValueError(f"dimensions: {dimensions} bits are no whole bytes; measure = hamming needs them")
        if distance % 1:
            raise ValueError(f"max_distance: {distance} bits; measure = hamming needs a whole number")
    if measure == "levenshtein" and (distance % 1 or distance > MOST_EDITS):
        raise ValueError(
            f"max_distance: {distance:g} edits; measure = levenshtein takes whole numbers from 0 to {MOST_EDITS}"
        )
    if measure == "euclidean" and distance < LEAST_DISTANCE:
        raise ValueError(
            f"max_distance: {distance:g} is too small for similarities of 1 / (1 + distance); {LEAST_DISTANCE:g} is "
            "the least; multiply the vectors and the distance by the same number"
        )


def check_order(measure: Measure, shards: int, compare_with: str) -> None:
    """Raise ValueError if a measure cannot have these."""
    if measure == "tf-idf" and (shards > 1 or compare_with == "all"):
        name, other = ("shards", "1") if shards > 1 else ("compare_with", "kept")
        raise ValueError(
            f"{name}: measure = tf-idf needs {name} = {other}; stories depend on one order of all documents"
        )


def collision(measure: Measure, threshold: float, distance: float = 0.0) -> float:
    """P(a component is equal) of two documents at the threshold, or at a distance.

    Args:
        threshold: a similarity (jaccard, weighted-jaccard, cosine).
        distance: in units of max_distance (euclidean).

    Raises:
        ValueError: components of this measure are not random.
    """
    if measure in ("jaccard", "weighted-jaccard"):
        return threshold
    if measure == "cosine":
        return 1 - math.acos(max(-1.0, min(1.0, threshold))) / math.pi
    if measure == "euclidean":
        if distance == 0:
            return 1.0
        t = WIDTH / distance
        return math.erf(t / math.sqrt(2)) - math.sqrt(2 / math.pi) / t * -math.expm1(-t * t / 2)
    raise ValueError(f"the components of {measure} are no random ones")


def similarity_at(measure: Measure, distance: float, dimensions: int) -> float:
    """The similarity of a distance, as in verdicts: 1 / (1 + distance), or the share of equal bits."""
    return 1 - distance / dimensions if measure == "hamming" else 1 / (1 + distance)


def banding_of(
    measure: Measure,
    threshold: float,
    recall: float,
    signature_size: int | None,
    bands: int | None,
    rows: int | None,
    *,
    distance: float = 0.0,
    dimensions: int = 0,
    error: float | None = None,
) -> Banding:
    """K, b and r of a measure; see `tuning.choose`. For bit vectors K is the number of bits, b that of keys, r the
    blocks of a key. For short texts K is the bits of a signature, b the pieces that a text is posted under.

    Raises:
        UsageError: no choice satisfies the threshold and the recall.
    """
    if measure == "jaccard":
        return choose(threshold, recall, signature_size, bands, rows, error=error)
    if measure == "containment":
        return layout()
    if measure == "hamming":
        return Banding(dimensions, *keys_of_blocks(int(distance), dimensions))
    if measure == "levenshtein":
        return Banding(COUNT_BITS + PIECE_BITS * lookups(int(distance)), int(distance) + 1, 1)
    if measure == "tf-idf":
        return Banding(STORY_TERMS, STORY_KEYS, 1)
    p = collision(measure, threshold, 1.0)
    most = signature_size or (MOST_SAMPLES if measure == "weighted-jaccard" else MOST_COMPONENTS)
    if bands is None and rows is None and (found := most_rows(p, recall, most)):
        whole = 64 if measure == "cosine" else 8
        chosen = Banding(signature_size or -(-found[0] * found[1] // whole) * whole, *found)
    elif measure == "weighted-jaccard":
        chosen = choose(p, recall, signature_size, bands, rows)
    else:
        asked = f"a cosine of {threshold:g}" if measure == "cosine" else f"a distance of {distance:g}"
        chosen = choose(
            p, recall, signature_size, bands, rows,
            at=f"{asked}, where a component is the same with probability {p:.3f},",
            remedies=("raise the threshold",) if measure == "cosine" else (),
        )  # fmt: skip
    return chosen._replace(signature_size=-(-chosen.signature_size // 8) * 8) if measure == "cosine" else chosen


def keys_of_blocks(distance: int, dimensions: int) -> tuple[int, int]:
    """Number of keys of a bit vector, and c: each key is made of c of its distance + c blocks.

    The least c with which keys have ENOUGH_BITS, or the largest that MOST_KEYS allow.

    Raises:
        UsageError: the distance is as large as the vectors, or needs more than MOST_BANDS keys.
    """
    if distance + 1 > min(dimensions, MOST_BANDS):
        raise UsageError(
            f"max_distance is {distance}: of {dimensions} bits set at most {min(dimensions, MOST_BANDS) - 1}; vectors "
            "that differ in more have no block in common."
        )
    c = 1
    while (
        distance > 0
        and c * dimensions / (distance + c) < ENOUGH_BITS
        and distance + c < dimensions
        and math.comb(distance + c + 1, c + 1) <= MOST_KEYS
    ):
        c += 1
    return math.comb(distance + c, c), c


def shifts(piece: int, longer: int, distance: int) -> range:
    """The range of places, relative to its own, where a piece of a text is looked up in a text that is `longer`
    characters longer.

    At least one piece has no edit itself, at most as many edits before it as there are pieces before it, and at most
    the others behind it (Li and others, section 4.2).
    """
    left = distance - piece
    return range(max(-piece, longer - left), min(piece, longer + left) + 1)


def lookups(distance: int) -> int:
    """Keys that a short text is looked up under, including those of its own pieces."""
    lengths = range(-distance, distance + 1)
    return sum(len(shifts(piece, longer, distance)) for piece in range(distance + 1) for longer in lengths)

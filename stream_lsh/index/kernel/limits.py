"""The limits of a shard's kernels, from its settings."""

from __future__ import annotations

import numpy as np

from stream_lsh.families.components import masks_of
from stream_lsh.families.containment import slack
from stream_lsh.families.measure import COUNT_BITS, PIECE_BITS, collision
from stream_lsh.index.kernel.work import EVERYTHING
from stream_lsh.index.rows.layout import FULL, HALF, Limits
from stream_lsh.index.rows.row_file import Shape
from stream_lsh.settings.model import Settings


def _agreements(settings: Settings, ranked: int) -> tuple[int, int]:
    """Of `ranked` components, the number that is equal at the threshold: at least, and typically."""
    if settings.measure in ("hamming", "levenshtein"):  # all differing bits may be among the ranked ones
        bits = int(settings.signing.max_distance)  # an edit changes at most two counts of characters, by one each
        return (max(1, ranked - (2 * bits if settings.measure == "levenshtein" else bits)),) * 2
    if settings.measure == "tf-idf":  # ranked by the weights of shared keys
        return 1, 1
    p = collision(settings.measure, settings.threshold, 1.0)
    sigma = (p * (1 - p) / ranked) ** 0.5
    return max(1, int(np.ceil((p - 4 * sigma) * ranked - 1e-9))), max(1, int(np.ceil(p * ranked - 1e-9)))


def limits_of(settings: Settings, shape: Shape, secret: np.uint64) -> Limits:
    """The limits. secret: of the keys of bands.

    A candidate is discarded below p - 4 sigma. The number of differing components is a metric: a document that agrees
    with a follower as much as a candidate must, agrees with the follower's leader in at least `expand` components.
    """
    size, bits = settings.signing.signature_size, shape.components.bits
    per_word = 64 // bits
    ranked = min(size, shape.head_words * per_word)
    padding = shape.head_words * per_word - ranked
    containment = settings.measure == "containment"
    floor, follow = (1, EVERYTHING) if containment else _agreements(settings, ranked)
    every, matches = EVERYTHING, settings.max_verified_matches or EVERYTHING
    return Limits(
        unique=settings.compare_with == "kept",
        stories=settings.measure == "tf-idf",
        exact=settings.verify == "exact",
        alone=settings.shards == 1,
        late=settings.late,
        store=True,
        update=settings.on_conflict == "update",
        window=settings.window_ms,
        keep=settings.keep != "first",
        newest=settings.keep == "newest",
        rank_at=shape.rank_at,
        source_at=shape.source_at,
        threshold=settings.least,
        full=FULL if containment else ranked + padding,
        floor=floor if containment else floor + padding,
        likely=HALF + int(HALF * (1 + settings.threshold) / 2) if containment else (ranked + follow) // 2 + padding,
        follow=follow + padding,
        expand=max(1, floor + follow - ranked) + padding,
        bucket=settings.max_bucket_rows if settings.max_verified_matches else every,
        behind=max(settings.max_bucket_rows, matches),
        max_candidates=settings.max_candidates if settings.max_verified_matches else every,
        matches=matches,
        copies=settings.max_matches or every,
        head=shape.head_words,
        signature=shape.signature_words,
        components=size,
        bits=bits,
        bands=shape.bands,
        rows=settings.signing.rows,
        secret=secret,
        padding=shape.signature_words * per_word - size,
        accident=2.0**-bits,
        tops=np.uint64(sum(1 << (bits * k + bits - 1) for k in range(per_word))),
        samples=containment,
        slack=slack(settings.threshold, settings.sampled) if containment else 0.0,
        masks=masks_of(settings.signing),
        pieces=COUNT_BITS // PIECE_BITS if settings.measure == "levenshtein" else 0,
    )

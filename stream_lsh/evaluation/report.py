"""What a run found against what there is: the figures of `evaluate`, without files and terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_lsh.evaluation.collection import Compared
from stream_lsh.evaluation.exact import Pairs
from stream_lsh.evaluation.metrics import Bucket, Quality, by_similarity, compare, edges_from, pair_keys
from stream_lsh.families.curve import Curve
from stream_lsh.families.measure import CERTAIN
from stream_lsh.families.tuning import Banding

DISTANCES = 8
"""Buckets up to the distance that is asked for, where a distance is."""


@dataclass(frozen=True)
class Report:
    """Figures of an evaluation. Similarities of missed and false pairs are the true ones, of the shingles."""

    quality: Quality
    expected_recall: float | None  # mean P(candidate | s) over the true pairs, 0 below the threshold
    below_threshold: int  # true pairs whose shingles are less similar than the threshold: not there to be found
    buckets: list[Bucket]  # by true similarity
    expected: list[float | None]  # expected recall of each bucket
    missed: Pairs  # most similar first
    false: Pairs  # least similar first
    mean_error: float | None  # of the similarities reported
    largest_error: float | None


def report(
    documents: Compared,
    found: Pairs,
    truth: Pairs,
    banding: Banding | Curve,
    threshold: float,
    inner: Sequence[float] | None = None,
) -> Report:
    """Compare the pairs found with the true ones; the similarity of `truth` is not used, but that of the shingles.

    inner: where the buckets above the threshold end, ascending, instead of at twentieths.
    """
    found_keys, truth_keys = pair_keys(found.first, found.second), pair_keys(truth.first, truth.second)
    found_true = documents.similarities(found.first, found.second)
    truth_true = documents.similarities(truth.first, truth.second)
    comparison = compare(found_keys, truth_keys)
    below = truth_true < threshold
    lowest = float(min(truth_true.min(initial=threshold), found_true.min(initial=threshold)))
    edges = edges_from(threshold) if inner is None else [threshold, *inner, 1.0]
    if lowest < threshold:
        tenths = range(math.floor(lowest * 10), 11)
        edges = [*(tenth / 10 for tenth in tenths if tenth < threshold * 10 - 1e-9), *edges]
    promised = np.array([banding.probability(similarity) for similarity in truth_true.tolist()]) * ~below
    errors = np.abs(found.similarity - found_true)
    missed = Pairs(truth.first, truth.second, truth_true).take(comparison.missed)
    false = Pairs(found.first, found.second, found_true).take(comparison.false)
    buckets = by_similarity(found_keys, found_true, truth_keys, truth_true, edges)
    expected = []
    for bucket in buckets:
        inside = (truth_true >= bucket.low) & ((truth_true < bucket.high) | (bucket.high == 1.0))
        expected.append(float(promised[inside].mean()) if inside.any() else None)
    return Report(
        quality=comparison.quality,
        expected_recall=float(promised.mean()) if len(promised) else None,
        below_threshold=int(below.sum()),
        buckets=buckets,
        expected=expected,
        missed=missed.take(np.argsort(-missed.similarity, kind="stable")),
        false=false.take(np.argsort(false.similarity, kind="stable")),
        mean_error=float(errors.mean()) if len(errors) else None,
        largest_error=float(errors.max()) if len(errors) else None,
    )


def edges_of_distance(curve: Curve) -> list[float]:
    """Similarities at which buckets end that are even in the distance: up to DISTANCES of them, none below a bit or an
    edit."""
    if curve.measure in CERTAIN:
        # Half-way between two whole numbers, so that rounding decides nothing.
        steps = min(DISTANCES, int(curve.asked) + 1)
        ends = sorted({int((curve.asked + 1) * step / steps) - 0.5 for step in range(1, steps)}, reverse=True)
    else:
        ends = [curve.asked * step / DISTANCES for step in range(DISTANCES - 1, 0, -1)]
    return [curve.similarity_of(end) for end in ends]

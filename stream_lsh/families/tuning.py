"""From a threshold and the recall at it to signature size K, bands b and rows r (MMDS 3.4.2-3.4.3).

Plain arithmetic and no slow imports: settings call `choose` at each start. The actual curve of the signature is
slightly steeper than 1-(1-s^r)^b, so that the recall is at least the one promised.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stream_lsh.errors import UsageError

USUAL_SIGNATURE_SIZE = 128
"""Least number of components of a signature, whatever the bands use: a similarity estimated from it has a standard
error of at most 0.5 / sqrt(128) = 0.044."""

SIGNATURE_ERROR = 1 / 80
"""The standard error at the threshold at which an estimate decides (`verify = "signature"`): K = 1024 at 0.8, 1600 at
0.5. Measured on posts at 0.8 (bench/defaults.py): precision 0.96 with K = 128, 0.99 with K = 1024."""

LIMIT = 160
"""Most components of a signature by default."""

LARGEST_SIGNATURE_SIZE = 4096
MOST_BANDS = 1024
MOST_ROWS = 64

FEWEST_GOOD_ROWS = 3
"""Below 3 rows a band is a weak filter: unrelated documents meet often, and components need 32 bits. The signature
grows from 128 up to the limit to avoid it."""


def component_bytes(rows: int) -> int:
    """Bytes of a component of a signature with bands of this many rows (b-bit minwise hashing, Li and Koenig 2010).

    Unrelated documents must not meet by chance. The probability is 2^-32 for a band of 4 rows of a byte, 2^-48 for 3
    rows of two bytes, 2^-32 for a row of four bytes.
    """
    return 1 if rows > FEWEST_GOOD_ROWS else 2 if rows == FEWEST_GOOD_ROWS else 4


_EPSILON = 1e-12  # tolerance: a recall met exactly counts as met in floating point


class _Unreachable(Exception):
    """What cannot reach the threshold and the recall, and the remedies."""


class Banding(NamedTuple):
    """K components of a signature, of which the first b * r form b bands of r rows."""

    signature_size: int
    bands: int
    rows: int

    def probability(self, similarity: float) -> float:
        """P(candidate) of a pair of this Jaccard similarity: 1 - (1 - s^r)^b."""
        return probability(similarity, self.bands, self.rows)

    @property
    def halfway(self) -> float:
        """(1/b)^(1/r): the similarity around which the curve rises most steeply (MMDS 3.4.2)."""
        return float((1.0 / self.bands) ** (1.0 / self.rows))


def probability(similarity: float, bands: int, rows: int) -> float:
    """P(candidate | s) = 1 - (1 - s^r)^b (MMDS 3.4.2), accurate down to the smallest probabilities."""
    hit = similarity**rows
    return 1.0 if hit >= 1.0 else -math.expm1(bands * math.log1p(-hit))


def bands_needed(threshold: float, recall: float, rows: int) -> int:
    """The fewest bands of `rows` rows with which a pair at the threshold becomes a candidate with P >= recall.

    `threshold**rows` must not underflow to 0.
    """
    hit = threshold**rows
    if hit >= 1.0:
        return 1
    bands = max(1, math.floor(math.log1p(-recall) / math.log1p(-hit)) - 1)
    while probability(threshold, bands, rows) < recall - _EPSILON:
        bands += 1
    return bands


def choose(
    threshold: float,
    recall: float,
    signature_size: int | None = None,
    bands: int | None = None,
    rows: int | None = None,
    *,
    error: float | None = None,
    at: str | None = None,
    remedies: tuple[str, ...] = ("raise the threshold",),
) -> Banding:
    """K, b and r for a threshold and the recall at it. Values that the caller gives are kept.

    Recall is a condition, because missed pairs are lost and false candidates cost only a verification. Among the
    choices that satisfy it the largest r is taken, because unrelated documents meet in about b * s^r of the bands.
    Bands use up to 128 components, and up to 160 (or the larger K that is given) where 128 leave fewer than 3 rows. K
    is 128 or what the bands need. For example, 0.8 at 0.999 gives 18 bands of 5 rows with K = 128, and 0.5 at 0.999
    gives 52 of 3 with K = 156. If bands and rows are both given, the recall follows from them.

    All values are in the ranges of `Settings`.

    Args:
        error: increases a K that is not given until the estimate has this standard error at the threshold (see
            SIGNATURE_ERROR).
        at, remedies: for messages, where the probability of a component is not the threshold that was set.

    Raises:
        UsageError: no choice satisfies threshold and recall; the message has what can be reached and the remedies.
    """
    try:
        chosen = _choose(threshold, recall, signature_size, bands, rows)
    except _Unreachable as unreachable:
        what, others = unreachable.args
        raise UsageError(
            f"recall {recall:g} at {at or f'threshold {threshold:g}'} cannot be reached with {what}: "
            f"{', or '.join((*others, *remedies))}."
        ) from None
    if error is None or signature_size is not None:
        return chosen
    # The variance of K components that agree with probability s is s (1-s) / K; fast similarity sketching has no more.
    needed = min(LARGEST_SIGNATURE_SIZE, math.ceil(threshold * (1 - threshold) / error**2 - _EPSILON))
    return chosen._replace(signature_size=max(chosen.signature_size, -(-needed // 4) * 4))


def _choose(
    threshold: float, recall: float, signature_size: int | None, bands: int | None, rows: int | None
) -> Banding:
    if bands is not None and rows is not None:
        return _sized(signature_size, bands, rows)
    if rows is not None:
        return _with_rows(threshold, recall, signature_size, rows)
    if bands is not None:
        return _with_bands(threshold, recall, signature_size, bands)
    limits = [USUAL_SIGNATURE_SIZE, LIMIT]
    if signature_size is not None:
        # A larger K is for a better estimate; more bands cost time, and are used only where needed.
        limits = [*(limit for limit in limits if limit < signature_size), signature_size]
    best = None
    for limit in limits:
        best = most_rows(threshold, recall, limit) or best
        if best is not None and best[1] >= FEWEST_GOOD_ROWS:
            break
    if best is None:
        raise _too_small(threshold, recall, limits[-1], 1)
    return _sized(signature_size, *best)


def alternatives(threshold: float, recall: float, chosen: Banding) -> list[Banding]:
    """The bandings with up to two rows fewer or more that keep the recall at the threshold; the chosen one is
    unchanged."""
    found = []
    for rows in range(max(1, chosen.rows - 2), chosen.rows + 3):
        if rows == chosen.rows:
            found.append(chosen)
            continue
        bands = _fit(threshold, recall, rows, LARGEST_SIGNATURE_SIZE)
        if bands is not None and rows <= MOST_ROWS:
            found.append(_sized(None, bands, rows))
    return found


def _fit(threshold: float, recall: float, rows: int, limit: int) -> int | None:
    """The bands that `rows` rows need, if they fit into `limit` components."""
    # 1 - (1-p)^b <= b p: with too small a probability per band there is nothing to search.
    if threshold**rows * MOST_BANDS < recall:
        return None
    bands = bands_needed(threshold, recall, rows)
    return bands if bands <= MOST_BANDS and bands * rows <= limit else None


def most_rows(threshold: float, recall: float, limit: int) -> tuple[int, int] | None:
    """(b, r) with the largest r that keeps b * r within the limit. b * r usually grows with r, but not always."""
    for rows in range(min(limit, MOST_ROWS), 0, -1):
        bands = _fit(threshold, recall, rows, limit)
        if bands is not None:
            return bands, rows
    return None


def _with_rows(threshold: float, recall: float, signature_size: int | None, rows: int) -> Banding:
    limit = signature_size if signature_size is not None else LARGEST_SIGNATURE_SIZE
    bands = _fit(threshold, recall, rows, limit)
    if bands is None:
        raise _too_small(threshold, recall, limit, rows)
    return _sized(signature_size, bands, rows)


def _with_bands(threshold: float, recall: float, signature_size: int | None, bands: int) -> Banding:
    limit = signature_size if signature_size is not None else max(LIMIT, bands)
    if bands > limit:
        return _sized(signature_size, bands, 1)  # raises: not even one row a band
    for rows in range(min(limit // bands, MOST_ROWS), 0, -1):
        if probability(threshold, bands, rows) >= recall - _EPSILON:
            return _sized(signature_size, bands, rows)
    needed = _fit(threshold, recall, 1, LARGEST_SIGNATURE_SIZE)
    raise _unreachable(threshold, f"bands = {bands}", bands, 1, [f"set bands to {needed} or more"] if needed else [])


def _sized(signature_size: int | None, bands: int, rows: int) -> Banding:
    used = bands * rows
    if signature_size is None:
        if used > LARGEST_SIGNATURE_SIZE:
            raise UsageError(
                f"bands = {bands} of rows = {rows} need {used:,} signature components, and {LARGEST_SIGNATURE_SIZE:,} "
                "is the most there can be: set fewer bands or rows."
            )
        signature_size = max(USUAL_SIGNATURE_SIZE, -(-used // 4) * 4)
    elif used > signature_size:
        raise UsageError(
            f"bands = {bands} of {rows} row{'s' if rows > 1 else ''} need {used:,} signature components, but "
            f"signature_size is {signature_size:,}: set it to {used:,} or more, or fewer bands or rows."
        )
    return Banding(signature_size, bands, rows)


def _too_small(threshold: float, recall: float, limit: int, rows: int) -> _Unreachable:
    """The error for a signature of `limit` components, which has too few bands of `rows` rows: what it reaches, and the
    remedies."""
    remedies = []
    needed = _fit(threshold, recall, rows, LARGEST_SIGNATURE_SIZE)
    if needed is not None and limit < needed * rows:
        remedies.append(f"set signature_size to {-(-needed * rows // 4) * 4} or more")
    if rows > 1:
        fewer = most_rows(threshold, recall, limit)
        if fewer is not None and fewer[1] < rows:
            remedies.append(f"set rows to {fewer[1]} or less")
    what = f"{limit:,} signature components" + (f" in bands of {rows} rows" if rows > 1 else "")
    return _unreachable(threshold, what, min(limit // rows, MOST_BANDS), rows, remedies)


def _unreachable(threshold: float, what: str, bands: int, rows: int, remedies: list[str]) -> _Unreachable:
    # Rounded down, so that following the advice literally works.
    reachable = math.floor(probability(threshold, bands, rows) * 1e5) / 1e5 if bands else 0.0
    return _Unreachable(
        what, [f"ask for recall {reachable:g} or less, which is reachable"] * (reachable > 0) + remedies
    )  # fmt: skip

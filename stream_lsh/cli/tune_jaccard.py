"""`stream-lsh tune` for `jaccard`: K, b, r for a threshold and a recall, their cost on a sample, the shingles."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stream_lsh.cli.tune_items import others_of as others_of
from stream_lsh.cli.tune_sample import described
from stream_lsh.families.curve import Curve
from stream_lsh.families.tuning import Banding, component_bytes, false_candidates
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, size

if TYPE_CHECKING:
    from stream_lsh.evaluation.advice import Length
    from stream_lsh.evaluation.sample import Background, Sample

SIMILARITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST = 10**9  # documents of a sample: as many as are asked for
ADVICE_DOCUMENTS = 2000
"""Shingle lengths are compared on so many documents: two million pairs tell them apart, and it takes a second."""


def over(_: Settings) -> str:
    """What the curve is over."""
    return "similarity"


def background_of(drawn: Sample, settings: Settings) -> Background:
    """How similar the pairs of a sample are."""
    from stream_lsh.evaluation import advice  # here, because it takes numba with it

    return advice.background_of(drawn, settings.signing)


def choice(settings: Settings) -> list[str]:
    """What was chosen."""
    from stream_lsh.evaluation.shares import percent

    size_, bands, rows = settings.banding
    found = settings.banding.probability(settings.threshold)
    missed = 1 - found
    odds = f", 1 pair in {1 / missed:,.0f}" if missed > 1e-12 else ""
    error = math.sqrt(settings.threshold * (1 - settings.threshold) / size_)
    lines = [
        f"Threshold {settings.threshold:g}, recall {settings.target_recall:g}:",
        f"  K = {size_} components, of which b = {bands} bands of r = {rows} rows use {bands * rows}",
        f"  found at the threshold   {percent(found)}",
        f"  missed at the threshold  {percent(missed)}{odds}",
        f"  (1/b)^(1/r)              {settings.banding.halfway:.3f}  (the curve is steepest around it)",
        f"  estimated similarity     ± {error:.3f} at the threshold (standard error)",
    ]
    if found < settings.target_recall - 1e-12:
        lines.append(
            f"  The bands and rows given miss the recall of {settings.target_recall:g}; leave one of them out to meet "
            f"it."
        )
    return lines


def table(settings: Settings, found: Background | None) -> list[str]:
    """The curve at some similarities."""
    from stream_lsh.evaluation.shares import odds, percent

    head = f"  {'similarity':>10}  {'found':>10}  {'missed':>10}"
    lines = [head + (f"  {'pairs of sample >=':>18}" if found is not None else "")]
    for similarity in sorted({*SIMILARITIES, settings.threshold}):
        probability = settings.banding.probability(similarity)
        line = f"  {similarity:>10.4g}  {percent(probability):>10}  {percent(1 - probability):>10}"
        if found is not None:
            line += f"  {odds(found.above(similarity), found.pairs):>18}"
        lines.append(line + ("  <- threshold" if similarity == settings.threshold else ""))
    return lines


def beside(settings: Settings, others: list[Curve], found: Background | None, documents: int) -> list[str]:
    """Alternatives."""
    from stream_lsh.evaluation.shares import few, percent

    head = f"  {'rows':>4}  {'bands':>5}  {'K':>4}  {'signature':>9}  {'found':>8}  {'at s=0.3':>8}"
    lines = [
        f"Alternatives{f' (false candidates a document among {documents:,})' if found is not None else ''}",
        head + (f"  {'false candidates':>16}" if found is not None else ""),
    ]
    for banding in (other.banding for other in others):
        octets = banding.signature_size * component_bytes(banding.rows)
        line = (
            f"  {banding.rows:>4}  {banding.bands:>5}  {banding.signature_size:>4}  {size(octets):>9}"
            f"  {percent(banding.probability(settings.threshold)):>8}  {percent(banding.probability(0.3)):>8}"
        )
        if found is not None:
            line += f"  {few(false_candidates(banding, documents, found.histogram(), settings.threshold)):>16}"
        lines.append(line + ("  <- chosen" if banding == settings.banding else ""))
    return lines


def sampled(
    settings: Settings, drawn: Sample, found: Background, documents: int, rejected: Counter[str]
) -> Iterator[str]:
    """What the sample says: false candidates, and the length of the shingles."""
    from stream_lsh.evaluation.advice import advise, continuous_share, current_length
    from stream_lsh.evaluation.shares import few, percent

    yield from described(settings, drawn, rejected, found.pairs)
    if found.pairs == 0:
        return
    cost = _cost(settings, found, documents)
    yield f"  mean similarity below the threshold  {found.mean(settings.threshold):.5f}"
    yield f"  false candidates a document          {few(cost)}  (among {documents:,} documents)"
    # A rate that no pair of the sample shows can still be 3 / pairs (the rule of three, 95 %).
    unseen = 3 / found.pairs * documents
    if unseen >= 1:
        yield f"  pairs too rare for this sample could add {few(unseen)} (95 %): use a larger --sample"
    part = drawn.first(ADVICE_DOCUMENTS)
    share = continuous_share(part)
    lengths: list[Length] = []
    for length in _lengths(settings, drawn, documents):
        if not lengths:
            yield ""
            yield f"Length of the shingles, on {count(len(part), 'document')}"
            yield (f"  {'shingles':<11}  {'in another':>10}  {'mean similarity':>15}  {'false candidates':>16}")
        lengths.append(length)
        here = "  <- set" if length.shingles == current_length(settings, share) else ""
        yield (
            f"  {length.shingles:<11}  {percent(length.chance):>10}  {length.mean:>15.5f}  "
            f"{few(length.candidates):>16}{here}"
        )
    if lengths:
        yield "  in another: share of a document's shingles in a typical other document"
        text = advise(lengths, current_length(settings, share))
        yield textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  ")


def as_object(
    settings: Settings, others: list[Curve], drawn: Sample | None, found: Background | None, documents: int
) -> dict[str, Any]:
    """All of it for machines."""
    at = settings.banding.probability
    made: dict[str, Any] = {
        "measure": settings.measure, "threshold": settings.threshold, "target_recall": settings.target_recall,
        **_banding(settings.banding), "found": at(settings.threshold),
        "curve": [{"similarity": s, "found": at(s)} for s in sorted({*SIMILARITIES, settings.threshold})],
        "alternatives": [{**_banding(other.banding), "found": other.at(settings.threshold)} for other in others],
        "documents": documents,
    }  # fmt: skip
    if drawn is not None and found is not None:
        made["sample"] = {
            "documents": len(drawn), "of": drawn.seen, "pairs": found.pairs,
            "false_candidates": _cost(settings, found, documents) if found.pairs else None,
            "shingles": [
                {
                    "shingles": length.shingles, "in_another": length.chance, "mean_similarity": length.mean,
                    "false_candidates": length.candidates,
                }
                for length in (_lengths(settings, drawn, documents) if found.pairs else ())
            ],
        }  # fmt: skip
    return made


def _banding(banding: Banding) -> dict[str, int]:
    return {**banding._asdict(), "signature_bytes": banding.signature_size * component_bytes(banding.rows)}


def _cost(settings: Settings, found: Background, documents: int) -> float:
    return false_candidates(settings.banding, documents, found.histogram(), settings.threshold)


def _lengths(settings: Settings, drawn: Sample, documents: int) -> Iterator[Length]:
    from stream_lsh.evaluation.advice import measure_lengths

    return measure_lengths(drawn.first(ADVICE_DOCUMENTS), settings, documents)

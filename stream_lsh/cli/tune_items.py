"""`stream-lsh tune` for vectors, bit vectors and short texts: keys, what they find and miss, what a sample says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stream_lsh.cli.tune_sample import described
from stream_lsh.families.curve import Curve
from stream_lsh.families.measure import CERTAIN, lookups
from stream_lsh.families.tuning import alternatives, component_bytes
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, size

if TYPE_CHECKING:
    from stream_lsh.evaluation.items import ItemBackground
    from stream_lsh.evaluation.sample import Sample

COSINES = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
DISTANCES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""In units of the one that is asked for."""
FAR = 3.0
"""The farther of the two distances of which a family is sensitive, in the same units."""
UNKNOWN = ("euclidean", "levenshtein", "weighted-jaccard")
"""Measures for which the distance of unrelated documents is unknown."""
SIMILARITIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MOST = 4000
"""Of a sample: eight million pairs, and a second or two."""


def background_of(drawn: Sample, settings: Settings) -> ItemBackground:
    """How similar the pairs of a sample are."""
    import numpy as np

    from stream_lsh.evaluation.items import Items, background
    from stream_lsh.evaluation.lists import Lists
    from stream_lsh.families.family import signer_of

    words, offsets = signer_of(settings.signing).shingle(drawn.texts, drawn.ends)
    scopes = np.zeros(len(drawn), np.uint64)
    if settings.measure in ("levenshtein", "weighted-jaccard"):
        lists = Lists(settings.measure == "levenshtein", words, offsets, scopes)
        return lists.background(2 * int(settings.curve.asked) + 2)
    words = words.reshape(len(drawn), -1 if len(drawn) else 0)
    items = Items(settings.measure, settings.dimensions or 0, words, scopes)
    return background(items, settings.curve)


def others_of(settings: Settings) -> list[Curve]:
    """What the choice can be compared with; of bit vectors and short texts there is one choice
    only."""
    curve = settings.curve
    if curve.measure in CERTAIN:
        return [curve]
    p = curve.component(curve.asked)
    return [replace(curve, banding=banding) for banding in alternatives(p, settings.target_recall, curve.banding)]


def values_of(curve: Curve) -> list[float]:
    """The similarities or distances of the table, ascending."""
    if curve.measure == "cosine":
        return sorted({*COSINES, curve.asked})
    if curve.measure == "weighted-jaccard":
        return sorted({*SIMILARITIES, curve.asked})
    if curve.measure == "euclidean":
        return [curve.asked * times for times in DISTANCES]
    asked = int(curve.asked)
    if curve.measure == "levenshtein":
        return [float(edits) for edits in range(2 * asked + 3)]
    more = (0, asked // 2, asked, asked + 1, asked + 2, asked + 4, 2 * asked, 3 * asked, curve.dimensions // 2)
    return [float(bits) for bits in sorted(set(more)) if bits <= max(asked, curve.dimensions // 2)]


def sensitive(curve: Curve) -> tuple[float, float, float, float] | None:
    """(d1, d2, p1, p2) of a single component (MMDS 3.6.1): angles in degrees, or distances (of sets 1 - s); None of
    bit vectors and short texts, whose keys are no random ones."""
    if curve.measure == "cosine":
        return math.degrees(math.acos(curve.asked)), 90.0, curve.component(curve.asked), curve.component(0.0)
    if curve.measure == "weighted-jaccard":
        return 1 - curve.asked, 1.0, curve.asked, 0.0
    if curve.measure == "euclidean":
        near, far = curve.asked, FAR * curve.asked
        return near, far, curve.component(near), curve.component(far)
    return None


def choice(settings: Settings) -> Iterator[str]:
    """What was chosen."""
    from stream_lsh.evaluation.shares import percent

    curve, banding = settings.curve, settings.banding
    keys = {"hamming": _keys_of_bits, "levenshtein": _keys_of_pieces}.get(curve.measure)
    yield from _bands(settings) if keys is None else keys(curve)
    found = curve.at(curve.asked)
    if curve.measure not in CERTAIN:
        missed = 1 - found
        odds = f", 1 pair in {1 / missed:,.0f}" if missed > 1e-12 else ""
        where = "at the distance " if curve.by_distance else "at the threshold"
        yield f"  found {where}   {percent(found)}"
        yield f"  missed {where}  {percent(missed)}{odds}"
        if found < settings.target_recall - 1e-12:
            lost = f"the recall of {settings.target_recall:g}"
            yield f"  The bands and rows given miss {lost}; leave one of them out to meet it."
    own = {"hamming": curve.dimensions // 8, "levenshtein": 0, "weighted-jaccard": 0}.get(
        curve.measure, 4 * curve.dimensions
    )
    what = {"hamming": "bits", "levenshtein": "text", "weighted-jaccard": "set"}.get(curve.measure, "vector")
    behind = f" and {size(own)} of {what}" if own else f", and the {what}"
    yield f"  bytes of a document         {size(signature_bytes(curve))} of signature{behind}"
    yield f"  keys of a document          {banding.bands}"


def _bands(settings: Settings) -> Iterator[str]:
    curve = settings.curve
    size_, bands, rows = curve.banding
    lines = f"lines, in buckets {4 * curve.asked:g} wide"
    what = {"cosine": "hyperplanes", "weighted-jaccard": "samples"}.get(curve.measure, lines)
    extent = f" {curve.dimensions} dimensions," if curve.dimensions else ""
    asked = "Threshold" if not curve.by_distance else "Distance"
    yield f"{asked} {curve.asked:g} ({curve.measure}),{extent} recall {settings.target_recall:g}:"
    yield f"  K = {size_} {what}"
    yield f"  b = {bands} bands of r = {rows} rows use {bands * rows} of them"
    family = sensitive(curve)
    assert family is not None
    near, far, p1, p2 = family
    unit = " deg" if curve.measure == "cosine" else ""
    one, other = (near, far) if curve.by_distance else (curve.asked, 0.0)
    for name, first, second in (("one", p1, p2), ("all bands", curve.at(one), curve.at(other))):
        yield f"  {name:<9}  ({near:.4g}{unit}, {far:.4g}{unit}, {first:.4g}, {second:.4g})-sensitive"


def _keys_of_bits(curve: Curve) -> Iterator[str]:
    rows = curve.banding.rows
    bits = curve.dimensions * rows / curve.blocks
    yield f"Distance {curve.asked:g} (hamming), {curve.dimensions} bits:"
    yield f"  {count(curve.blocks, 'block')}: each choice of {rows} is a key of about {bits:.0f} bits"
    yield f"  found within the distance   all: {curve.asked:g} changed bits leave {count(rows, 'block')} unchanged"


def _keys_of_pieces(curve: Curve) -> Iterator[str]:
    pieces = curve.banding.bands
    yield f"Distance {curve.asked:g} (levenshtein):"
    yield f"  {count(pieces, 'piece')} of a text: {count(int(curve.asked), 'edit')} leave at least one unchanged"
    yield f"  {lookups(int(curve.asked))} lookups for a text, by length of the other text and position in it"
    yield "  found within the distance   all, except for `not_compared` in verdicts"


def _measure(curve: Curve) -> str:
    """What the curve of a measure is over."""
    return {"cosine": "cosine", "weighted-jaccard": "similarity"}.get(curve.measure, "distance")


def signature_bytes(curve: Curve) -> int:
    """Bytes of a signature with the K of this curve."""
    size_, _, rows = curve.banding
    return size_ * component_bytes(rows) if curve.measure in ("euclidean", "weighted-jaccard") else size_ // 8


def over(settings: Settings) -> str:
    """What the curve is over."""
    return "distance" if settings.curve.by_distance else "cosine"


def table(settings: Settings, found: ItemBackground | None) -> Iterator[str]:
    """The curve at some similarities or distances."""
    from stream_lsh.evaluation.shares import odds, percent

    curve = settings.curve
    bits, cosine = curve.measure in CERTAIN, curve.measure == "cosine"
    head = f"  {_measure(curve):>10}" + (f"  {'angle':>7}" if cosine else "")
    head += "" if bits else f"  {'component':>9}  {'band':>9}"
    head += f"  {'found':>10}" + (f"  {'missed':>10}" if bits else "")
    yield head + (f"  {'pairs of sample ' + ('<=' if curve.by_distance else '>='):>18}" if found is not None else "")
    for value in values_of(curve):
        line = f"  {value:>10.4g}"
        if cosine:
            line += f"  {math.degrees(math.acos(value)):>7.1f}"
        if not bits:
            line += f"  {percent(curve.component(value)):>9}  {percent(curve.band(value)):>9}"
        line += f"  {percent(curve.at(value)):>10}"
        line += f"  {percent(1 - curve.at(value)):>10}" if bits else ""
        if found is not None:
            line += f"  {odds(found.alike(value), found.pairs):>18}"
        mark = "  <-" + ("" if found is not None else " distance" if curve.by_distance else " threshold")
        yield line + (mark if value == curve.asked else "")


def beside(
    settings: Settings, others: Sequence[Curve], found: ItemBackground | None, documents: int
) -> Iterator[str]:  # fmt: skip
    """Alternatives, and candidates that are none."""
    from stream_lsh.evaluation.shares import few, percent

    chosen = settings.curve
    if chosen.measure not in CERTAIN:
        far = FAR * chosen.asked if chosen.by_distance else 0.0
        yield "Alternatives" + (f" (false candidates a document among {documents:,})" if found is not None else "")
        head = f"  {'rows':>4}  {'bands':>5}  {'K':>5}  {'signature':>9}  {'found':>8}  "
        head += f"{f'at {far:.4g}' if chosen.by_distance or chosen.measure == 'weighted-jaccard' else 'at cos 0':>8}"
        yield head + (f"  {'false candidates':>16}" if found is not None else "")
        for curve in others:
            banding = curve.banding
            line = (
                f"  {banding.rows:>4}  {banding.bands:>5}  {banding.signature_size:>5}"
                f"  {size(signature_bytes(curve)):>9}  {percent(curve.at(curve.asked)):>8}"
                f"  {percent(curve.at(far)):>8}"
            )
            if found is not None:
                line += f"  {few(curve.false_candidates(documents, found.histogram())):>16}"
            yield line + ("  <- chosen" if curve == chosen else "")
        yield ""
    if chosen.measure in UNKNOWN:
        if found is None:
            yield "False candidates depend on your data: give an INPUT to measure them."
        return
    share = chosen.by_chance()
    what = "random bit vectors" if chosen.measure == "hamming" else "vectors of random directions"
    yield f"Unrelated documents ({what})"
    yield f"  share a key by chance       {percent(share)}{f', 1 in {1 / share:,.0f}' if share else ''}"
    yield f"  candidates a document       {few(documents * share)}  (among {documents:,} documents)"
    if found is None:
        yield "  Real data are not random: give an INPUT to measure a sample."


def sampled(
    settings: Settings, drawn: Sample, found: ItemBackground, documents: int, rejected: Counter[str]
) -> Iterator[str]:
    """What the sample says of false candidates."""
    from stream_lsh.evaluation.shares import few

    curve = settings.curve
    yield from described(settings, drawn, rejected, found.pairs)
    if found.pairs == 0:
        return
    name = _measure(curve)
    places = [found.quantile(share) for share in (0.01, 0.5, 0.99)]
    said = [f"{x:.4g}" if math.isfinite(x) else f"> {found.measures[-2]:.0f}" for x in places]
    yield f"  {name} of 1 %, 50 %, 99 % of the pairs is at most  {', '.join(said)}"
    cost = curve.false_candidates(documents, found.histogram())
    yield f"  false candidates a document    {few(cost)}  (among {documents:,} documents)"
    alike = found.alike(curve.asked) / found.pairs * documents
    yield f"  similar documents of a document {few(alike)}"
    unseen = 3 / found.pairs * documents  # the rule of three, 95 %
    if unseen >= 1:
        yield f"  pairs too rare for this sample could add {few(unseen)} (95 %): use a larger --sample"


def as_object(
    settings: Settings, others: Sequence[Curve], drawn: Sample | None, found: ItemBackground | None, documents: int
) -> dict[str, Any]:
    """All of it for machines. Angles are in degrees."""
    curve, bits = settings.curve, settings.measure in CERTAIN
    name = _measure(curve)
    family = sensitive(curve)
    far = (FAR * curve.asked if curve.by_distance else 0.0) if family is not None else None
    made: dict[str, Any] = {
        "measure": curve.measure, "dimensions": curve.dimensions,
        "max_distance" if curve.by_distance else "threshold": curve.asked,
        **({} if bits else {"target_recall": settings.target_recall}), **_banding(curve),
        **({"blocks": curve.blocks} if bits else {}),
        "found": curve.at(curve.asked),
        "component": None if family is None else dict(zip(("d1", "d2", "p1", "p2"), family, strict=True)),
        "amplified": None if family is None or far is None else dict(
            zip(("d1", "d2", "p1", "p2"), (*family[:2], curve.at(curve.asked), curve.at(far)), strict=True)
        ),
        "curve": [{name: value, "found": curve.at(value)} for value in values_of(curve)],
        "alternatives": [{**_banding(other), "found": other.at(other.asked)} for other in others],
        "documents": documents,
        "share_by_chance": None if curve.measure in UNKNOWN else curve.by_chance(),
    }  # fmt: skip
    if drawn is not None and found is not None:
        made["sample"] = {
            "documents": len(drawn), "of": drawn.seen, "pairs": found.pairs,
            "false_candidates": curve.false_candidates(documents, found.histogram()) if found.pairs else None,
        }  # fmt: skip
    return made


def _banding(curve: Curve) -> dict[str, int]:
    return {**curve.banding._asdict(), "signature_bytes": signature_bytes(curve)}

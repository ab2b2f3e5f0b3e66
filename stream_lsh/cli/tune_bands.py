"""`stream-lsh tune` for measures with bands or keys: what they find and miss, what a sample says."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stream_lsh.cli.tune_sample import described
from stream_lsh.families.curve import Curve
from stream_lsh.families.measure import CERTAIN, MOST_COMPONENTS, lookups
from stream_lsh.families.tuning import LARGEST_SIGNATURE_SIZE, Banding, alternatives, component_bytes
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, few, odds, percent, size

if TYPE_CHECKING:
    from stream_lsh.evaluation.advice import Length
    from stream_lsh.evaluation.items import ItemBackground
    from stream_lsh.evaluation.sample import Background, Sample

JACCARDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
COSINES = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
DISTANCES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""In units of the one that is asked for."""
FAR = 3.0
"""The farther of the two distances of which a family is sensitive, in the same units."""
UNKNOWN = ("euclidean", "levenshtein", "weighted-jaccard")
"""Measures for which the distance of unrelated documents is unknown."""
SIMILARITIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MOST = 4000
"""Documents of a sample: eight million pairs, and a second or two. For `jaccard` as many as are asked for."""
MOST_FALSE = 250
"""False candidates of a vector from which a larger signature is chosen. Among a million vectors at a cosine of 0.9,
1,024 components have 2,070, 2,048 have 490, and 4,096 have 100."""
ADVICE_DOCUMENTS = 2000
"""Shingle lengths are compared on so many documents: two million pairs tell them apart, and it takes a second."""


def background_of(drawn: Sample, settings: Settings) -> Background | ItemBackground:
    """How similar the pairs of a sample are."""
    if settings.measure == "jaccard":
        from stream_lsh.evaluation import advice  # here, because it takes numba with it

        return advice.background_of(drawn, settings.signing)
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


def sized(settings: Settings, found: Background | ItemBackground | None, documents: int) -> Settings:
    """The settings with a signature size for this many vectors. It is doubled while a vector has more than MOST_FALSE
    false candidates, and twice the size halves them: longer keys have fewer, but take more of them. The same settings
    for other measures, and where the size, bands or rows are given.

    Args:
        found: of a sample. Without pairs, vectors have random directions; of euclidean nothing is known then.
    """
    if settings.model_fields_set & {*Banding._fields} or settings.measure not in ("cosine", "euclidean"):
        return settings
    pairs = [] if found is None else list(found.histogram())
    if not pairs and settings.measure in UNKNOWN:
        return settings

    def false(settings: Settings) -> float:
        curve = settings.curve
        return curve.false_candidates(documents, pairs) if pairs else documents * curve.by_chance()

    size, chosen, candidates = MOST_COMPONENTS, settings, false(settings)
    while size < LARGEST_SIGNATURE_SIZE and candidates > MOST_FALSE:
        size *= 2
        larger = settings.where_not_given(signature_size=size)
        before, candidates = candidates, false(larger)
        if candidates > before / 2:
            break
        chosen = larger
    return chosen


def others_of(settings: Settings) -> list[Curve]:
    """What the choice can be compared with; of bit vectors and short texts there is one choice only."""
    curve = settings.curve
    if curve.measure in CERTAIN:
        return [curve]
    p = curve.component(curve.asked)
    return [replace(curve, banding=banding) for banding in alternatives(p, settings.target_recall, curve.banding)]


def values_of(curve: Curve) -> list[float]:
    """The similarities or distances of the table, ascending."""
    similarities = {"jaccard": JACCARDS, "cosine": COSINES, "weighted-jaccard": SIMILARITIES}
    if curve.measure in similarities:
        return sorted({*similarities[curve.measure], curve.asked})
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
    curve, banding = settings.curve, settings.banding
    heads = {"hamming": _keys_of_bits, "levenshtein": _keys_of_pieces}
    yield from heads[curve.measure](curve) if curve.measure in heads else _bands(settings)
    if curve.measure not in CERTAIN:
        yield from _found(settings)
    if curve.measure == "jaccard":
        return
    own = {"hamming": curve.dimensions // 8, "levenshtein": 0, "weighted-jaccard": 0}.get(
        curve.measure, 4 * curve.dimensions
    )
    what = {"hamming": "bits", "levenshtein": "text", "weighted-jaccard": "set"}.get(curve.measure, "vector")
    behind = f" and {size(own)} of {what}" if own else f", and the {what}"
    yield f"  bytes of a document         {size(signature_bytes(curve))} of signature{behind}"
    yield f"  keys of a document          {banding.bands}"


def _found(settings: Settings) -> Iterator[str]:
    """What the bands find and miss."""
    curve = settings.curve
    found = curve.at(curve.asked)
    missed = 1 - found
    rarely = f", 1 pair in {1 / missed:,.0f}" if missed > 1e-12 else ""
    where = "at the distance " if curve.by_distance else "at the threshold"
    yield f"  found {where}   {percent(found)}"
    yield f"  missed {where}  {percent(missed)}{rarely}"
    if curve.measure == "jaccard":
        error = math.sqrt(curve.asked * (1 - curve.asked) / curve.banding.signature_size)
        yield f"  (1/b)^(1/r)              {curve.banding.halfway:.3f}  (the curve is steepest around it)"
        yield f"  estimated similarity     ± {error:.3f} at the threshold (standard error)"
    if found < settings.target_recall - 1e-12:
        lost = f"the recall of {settings.target_recall:g}"
        yield f"  The bands and rows given miss {lost}; leave one of them out to meet it."


def _bands(settings: Settings) -> Iterator[str]:
    curve = settings.curve
    size_, bands, rows = curve.banding
    if curve.measure == "jaccard":
        yield f"Threshold {curve.asked:g}, recall {settings.target_recall:g}:"
        yield f"  K = {size_} components, of which b = {bands} bands of r = {rows} rows use {bands * rows}"
        return
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


def over(settings: Settings) -> str:
    """What the curve is over."""
    return _measure(settings.curve)


def _measure(curve: Curve) -> str:
    return {"cosine": "cosine", "jaccard": "similarity", "weighted-jaccard": "similarity"}.get(
        curve.measure, "distance"
    )


def signature_bytes(curve: Curve) -> int:
    """Bytes of a signature with the K of this curve."""
    size_, _, rows = curve.banding
    return size_ // 8 if curve.measure in ("cosine", *CERTAIN) else size_ * component_bytes(rows)


def table(settings: Settings, found: Background | ItemBackground | None) -> Iterator[str]:
    """The curve at some similarities or distances."""
    curve = settings.curve
    plain, cosine = curve.measure in ("jaccard", *CERTAIN), curve.measure == "cosine"
    head = f"  {_measure(curve):>10}" + (f"  {'angle':>7}" if cosine else "")
    head += "" if plain else f"  {'component':>9}  {'band':>9}"
    head += f"  {'found':>10}" + (f"  {'missed':>10}" if plain else "")
    yield head + (f"  {'pairs of sample ' + ('<=' if curve.by_distance else '>='):>18}" if found is not None else "")
    for value in values_of(curve):
        line = f"  {value:>10.4g}"
        if cosine:
            line += f"  {math.degrees(math.acos(value)):>7.1f}"
        if not plain:
            line += f"  {percent(curve.component(value)):>9}  {percent(curve.band(value)):>9}"
        line += f"  {percent(curve.at(value)):>10}"
        line += f"  {percent(1 - curve.at(value)):>10}" if plain else ""
        if found is not None:
            line += f"  {odds(found.alike(value), found.pairs):>18}"
        short = found is not None and curve.measure != "jaccard"
        mark = "  <-" + ("" if short else " distance" if curve.by_distance else " threshold")
        yield line + (mark if value == curve.asked else "")


def beside(
    settings: Settings, others: Sequence[Curve], found: Background | ItemBackground | None, documents: int
) -> Iterator[str]:
    """Alternatives, and candidates that are none."""
    chosen = settings.curve
    if chosen.measure not in CERTAIN:
        yield from _alternatives(chosen, others, found, documents)
    if chosen.measure == "jaccard":
        return
    if chosen.measure not in CERTAIN:
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


def _alternatives(
    chosen: Curve, others: Sequence[Curve], found: Background | ItemBackground | None, documents: int
) -> Iterator[str]:
    far = 0.3 if chosen.measure == "jaccard" else FAR * chosen.asked if chosen.by_distance else 0.0
    at = {"jaccard": "at s=0.3", "cosine": "at cos 0"}.get(chosen.measure, f"at {far:.4g}")
    wide = 4 if chosen.measure == "jaccard" else 5  # columns of K
    yield "Alternatives" + (f" (false candidates a document among {documents:,})" if found is not None else "")
    head = f"  {'rows':>4}  {'bands':>5}  {'K':>{wide}}  {'signature':>9}  {'found':>8}  {at:>8}"
    yield head + (f"  {'false candidates':>16}" if found is not None else "")
    for curve in others:
        banding = curve.banding
        line = (
            f"  {banding.rows:>4}  {banding.bands:>5}  {banding.signature_size:>{wide}}"
            f"  {size(signature_bytes(curve)):>9}  {percent(curve.at(curve.asked)):>8}  {percent(curve.at(far)):>8}"
        )
        if found is not None:
            line += f"  {few(curve.false_candidates(documents, found.histogram())):>16}"
        yield line + ("  <- chosen" if curve == chosen else "")


def sampled(
    settings: Settings, drawn: Sample, found: Background | ItemBackground, documents: int, rejected: Counter[str]
) -> Iterator[str]:
    """What the sample says of false candidates; for `jaccard` also of the length of the shingles."""
    from stream_lsh.evaluation.sample import Background

    curve = settings.curve
    yield from described(settings, drawn, rejected, found.pairs)
    if found.pairs == 0:
        return
    cost = f"{few(curve.false_candidates(documents, found.histogram()))}  (among {documents:,} documents)"
    if isinstance(found, Background):
        yield f"  mean similarity below the threshold  {found.mean(curve.asked):.5f}"
        yield f"  false candidates a document          {cost}"
    else:
        places = [found.quantile(share) for share in (0.01, 0.5, 0.99)]
        said = [f"{x:.4g}" if math.isfinite(x) else f"> {found.measures[-2]:.0f}" for x in places]
        yield f"  {_measure(curve)} of 1 %, 50 %, 99 % of the pairs is at most  {', '.join(said)}"
        yield f"  false candidates a document    {cost}"
        yield f"  similar documents of a document {few(found.alike(curve.asked) / found.pairs * documents)}"
    # A rate that no pair of the sample shows can still be 3 / pairs (the rule of three, 95 %).
    unseen = 3 / found.pairs * documents
    if unseen >= 1:
        yield f"  pairs too rare for this sample could add {few(unseen)} (95 %): use a larger --sample"
    if curve.measure == "jaccard":
        yield from _advice(settings, drawn, documents)


def _advice(settings: Settings, drawn: Sample, documents: int) -> Iterator[str]:
    """Whether the shingles have the right length."""
    from stream_lsh.evaluation.advice import advise, continuous_share, current_length, measure_lengths

    part = drawn.first(ADVICE_DOCUMENTS)
    current = current_length(settings, continuous_share(part))
    lengths: list[Length] = []
    for length in measure_lengths(part, settings, documents):
        if not lengths:
            yield ""
            yield f"Length of the shingles, on {count(len(part), 'document')}"
            yield f"  {'shingles':<11}  {'in another':>10}  {'mean similarity':>15}  {'false candidates':>16}"
        lengths.append(length)
        here = "  <- set" if length.shingles == current else ""
        yield (
            f"  {length.shingles:<11}  {percent(length.chance):>10}  {length.mean:>15.5f}  "
            f"{few(length.candidates):>16}{here}"
        )
    if lengths:
        yield "  in another: share of a document's shingles in a typical other document"
        yield textwrap.fill(advise(lengths, current), 78, initial_indent="  ", subsequent_indent="  ")


def as_object(
    settings: Settings, others: Sequence[Curve], drawn: Sample | None, found: Background | ItemBackground | None,
    documents: int,
) -> dict[str, Any]:  # fmt: skip
    """All of it for machines. Angles are in degrees."""
    curve, bits, jaccard = settings.curve, settings.measure in CERTAIN, settings.measure == "jaccard"
    recall = {} if bits else {"target_recall": settings.target_recall}
    made: dict[str, Any] = {
        "measure": curve.measure, **({} if jaccard else {"dimensions": curve.dimensions}),
        "max_distance" if curve.by_distance else "threshold": curve.asked, **recall, **_banding(curve),
        **({"blocks": curve.blocks} if bits else {}), "found": curve.at(curve.asked),
        **({} if jaccard else _sensitivity(curve)),
        "curve": [{_measure(curve): value, "found": curve.at(value)} for value in values_of(curve)],
        "alternatives": [{**_banding(other), "found": other.at(other.asked)} for other in others],
        "documents": documents,
    }  # fmt: skip
    if not jaccard:
        made["share_by_chance"] = None if curve.measure in UNKNOWN else curve.by_chance()
    if drawn is not None and found is not None:
        cost = curve.false_candidates(documents, found.histogram()) if found.pairs else None
        made["sample"] = {"documents": len(drawn), "of": drawn.seen, "pairs": found.pairs, "false_candidates": cost}
        if jaccard:
            from stream_lsh.evaluation.advice import measure_lengths

            lengths = measure_lengths(drawn.first(ADVICE_DOCUMENTS), settings, documents) if found.pairs else ()
            made["sample"]["shingles"] = [
                {
                    "shingles": length.shingles, "in_another": length.chance, "mean_similarity": length.mean,
                    "false_candidates": length.candidates,
                }
                for length in lengths
            ]  # fmt: skip
    return made


def _sensitivity(curve: Curve) -> dict[str, Any]:
    """(d1, d2, p1, p2) of a component, and amplified, by name; None where `sensitive` is."""
    family = sensitive(curve)
    if family is None:
        return {"component": None, "amplified": None}
    names, far = ("d1", "d2", "p1", "p2"), FAR * curve.asked if curve.by_distance else 0.0
    amplified = (*family[:2], curve.at(curve.asked), curve.at(far))
    return {"component": dict(zip(names, family, strict=True)), "amplified": dict(zip(names, amplified, strict=True))}


def _banding(curve: Curve) -> dict[str, int]:
    return {**curve.banding._asdict(), "signature_bytes": signature_bytes(curve)}

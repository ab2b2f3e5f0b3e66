"""`stream-lsh tune` for `containment`: how many shingles are keys, and what that finds of texts of which length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stream_lsh.cli.tune_sample import described
from stream_lsh.families.containment import needed, probability
from stream_lsh.families.curve import Curve
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, odds, percent

if TYPE_CHECKING:
    from stream_lsh.evaluation.sample import Sample

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LENGTHS = (1, 4, 16)
"""Lengths of the table's texts, in units of the shortest that recall is promised for."""
SAMPLINGS = (1, 2, 3, 4, 6, 8, 12, 16)
FAR = 0.5
"""The smaller of the two shares of which the family is sensitive, in units of the threshold."""


def over(settings: Settings) -> str:
    """What the curve is over."""
    return f"the share, of {settings.min_shingles} shingles"


def others_of(settings: Settings) -> list[Curve]:
    """The same keys, of longer texts."""
    return [replace(settings.curve, shingles=n) for n in lengths_of(settings)]


def lengths_of(settings: Settings) -> list[int]:
    """Shingles of the texts of the table."""
    return [settings.min_shingles * times for times in LENGTHS]


def found(settings: Settings, share: float, shingles: int, sampling: int | None = None) -> float:
    """P(candidate) of a text of so many shingles, of which another one has this share."""
    return probability(share, shingles, settings.threshold, sampling or settings.sampled)


def family(settings: Settings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(d1, d2, p1, p2) of a single key, and of all keys of the shortest text (MMDS 3.6): the distance of a text from
    another one is the share of it that is not there."""
    near, far = settings.threshold, FAR * settings.threshold
    least = settings.min_shingles
    both = found(settings, near, least), found(settings, far, least)
    return (1 - near, 1 - far, near, far), (1 - near, 1 - far, *both)


def choice(settings: Settings) -> Iterator[str]:
    """What was chosen."""
    sampling, least, threshold = settings.sampled, settings.min_shingles, settings.threshold
    yield f"Threshold {threshold:g} (containment), recall {settings.target_recall:g}, texts from {least} shingles:"
    yield f"  one shingle in {sampling} is a key" if sampling > 1 else "  every shingle is a key"
    for keys in sorted({max(1, round(n / sampling)) for n in lengths_of(settings)}):
        yield f"  a candidate shares {needed(keys, threshold, sampling)} or more of {count(keys, 'key')}"
    for name, figures in zip(("one key", "all keys"), family(settings), strict=True):
        yield f"  {name:<9}  ({', '.join(f'{figure:.4g}' for figure in figures)})-sensitive"
    share = found(settings, threshold, least)
    yield f"  found at the threshold   {percent(share)}"
    yield f"  missed at the threshold  {percent(1 - share)}"
    if share < settings.target_recall - 1e-12:
        yield f"  The sampling given misses the recall of {settings.target_recall:g}; leave it out to meet it."


def table(settings: Settings, _: list[int] | None = None) -> Iterator[str]:
    """The curve at some shares, for texts of some lengths."""
    lengths = lengths_of(settings)
    yield f"  {'share':>6}  " + "  ".join(f"{f'found of {n:,}':>16}" for n in lengths)
    for share in sorted({*SHARES, settings.threshold}):
        cells = "  ".join(f"{percent(found(settings, share, n)):>16}" for n in lengths)
        yield f"  {share:>6.4g}  {cells}" + ("  <- threshold" if share == settings.threshold else "")


def beside(settings: Settings, *_: object) -> Iterator[str]:
    """Alternatives."""
    yield "Alternatives"
    yield (f"  {'sampling':>8}  {'keys of 1,000':>13}  {'found':>8}  {'shortest text':>13}  {'at half of it':>13}")
    for sampling in sorted({*SAMPLINGS, settings.sampled}):
        least = shortest(settings, sampling)
        mine = "  <- chosen" if sampling == settings.sampled else ""
        found_ = percent(found(settings, settings.threshold, settings.min_shingles, sampling))
        half = percent(found(settings, FAR * settings.threshold, settings.min_shingles, sampling))
        yield f"  {sampling:>8}  {1000 / sampling:>13,.0f}  {found_:>8}  {least:>13,}  {half:>13}{mine}"
    yield "  shortest text: least shingles of a text for which the recall is met"
    yield "  at half of it: false candidates at half of the threshold"


def shortest(settings: Settings, sampling: int) -> int:
    """Shingles of the shortest text that is found at the threshold as recall asks."""
    step = max(1, round(1 / settings.threshold))
    for shingles in range(step, 4096, step):
        if found(settings, settings.threshold, shingles, sampling) >= settings.target_recall - 1e-12:
            return shingles
    return 4096


def sampled(
    settings: Settings, drawn: Sample, sizes: list[int], _: int, rejected: Counter[str]
) -> Iterator[str]:  # fmt: skip
    """What a sample says."""
    yield from described(settings, drawn, rejected)
    if not sizes:
        return
    short = sum(size < settings.min_shingles for size in sizes)
    mean = sum(sizes) / len(sizes)
    yield f"  shingles of a document   {mean:,.0f} on average, {max(sizes):,} at most"
    yield f"  keys of a document       {mean / settings.sampled:,.0f} on average"
    yield f"  too short for the recall {odds(short, len(sizes))} (fewer than {settings.min_shingles} shingles)"


def background_of(drawn: Sample, settings: Settings) -> list[int]:
    """Shingles of the documents of a sample."""
    import numpy as np

    from stream_lsh.families.family import signer_of

    _, offsets = signer_of(settings.signing).shingle(drawn.texts, drawn.ends)
    return [int(size) for size in np.diff(offsets) if size]


def as_object(
    settings: Settings, _: list[Curve], drawn: Sample | None, sizes: list[int] | None, __: int
) -> dict[str, Any]:  # fmt: skip
    """All of it for machines."""
    one, all_ = (dict(zip(("d1", "d2", "p1", "p2"), figures, strict=True)) for figures in family(settings))
    made: dict[str, Any] = {
        "measure": settings.measure, "threshold": settings.threshold, "target_recall": settings.target_recall,
        "min_shingles": settings.min_shingles, "sampling": settings.sampled,
        "found": found(settings, settings.threshold, settings.min_shingles), "key": one, "amplified": all_,
        "curve": [
            {"share": share, "shingles": n, "found": found(settings, share, n)}
            for n in lengths_of(settings) for share in sorted({*SHARES, settings.threshold})
        ],
        "alternatives": [
            {"sampling": s, "found": found(settings, settings.threshold, settings.min_shingles, s),
             "shortest": shortest(settings, s)}
            for s in sorted({*SAMPLINGS, settings.sampled})
        ],
    }  # fmt: skip
    if drawn is not None and sizes is not None:
        made["sample"] = {
            "documents": len(drawn), "of": drawn.seen, "mean_shingles": sum(sizes) / max(1, len(sizes)),
            "too_short": sum(size < settings.min_shingles for size in sizes),
        }  # fmt: skip
    return made

"""Two documents compared: of texts the shared shingles and their positions, of other documents the similarity; and the
evidence of a match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import orjson

from stream_lsh.families.distances import MOST_COUNTED, similarity
from stream_lsh.families.family import Signs
from stream_lsh.families.measure import BY_DISTANCE
from stream_lsh.families.passages import Passages
from stream_lsh.settings.model import Settings
from stream_lsh.text.forms import located
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.tokens import Placing

Span = tuple[int, int]
SEPARATOR = "\x1f"  # of a set's elements
MOST_CHARACTERS = 200_000  # limit of the compared part of a text


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        similarity: as in verdicts.
        shared: number of shared shingles; None if the measure has no shingles.
        sizes: number of shingles of each document.
        spans: in each text the ranges of characters covered by shared shingles, ascending and disjoint.
        evidence: the passages of `containment`, the terms of `tf-idf`.
    """

    similarity: float
    shared: int | None = None
    sizes: tuple[int | None, int | None] = (None, None)
    spans: tuple[list[Span], list[Span]] = ([], [])
    evidence: dict[str, Any] = field(default_factory=dict)


def compared_part(settings: Settings, text: str) -> str:
    """The part of a text that is compared: its beginning; for `weighted-jaccard` all of it."""
    return text if settings.measure == "weighted-jaccard" else text[:MOST_CHARACTERS]


def compare(signer: Signs, one: str, other: str, *, later: bool = False) -> Compared:
    """Compare two texts, or the text forms of other documents, as the index does. (The similarity of `tf-idf`
    depends on the index: see `index.comparison`.)

    A span is found by the rules of tokens and counts only if its hash is that of a shingle of the other text. So a
    marked span is right, whichever way the text is normalised.

    Args:
        later: the first text is of the newer document.
    """
    settings = signer.settings
    if settings.measure not in ("jaccard", "containment"):
        a, b = (signer.shingle(data, np.array([len(data)]))[0] for data in map(_encoded, (one, other)))
        return Compared(similarity(settings.measure, a, b, settings.dimensions))
    found = [set(signer.shingle(data, np.array([len(data)]))[0].tolist()) for data in map(_encoded, (one, other))]
    shared, sizes = found[0] & found[1], (len(found[0]), len(found[1]))
    spans = tuple(spans_of(signer, text, shared) for text in (one, other))
    quoted = settings.measure == "containment"
    whole = min(sizes) if quoted else len(found[0] | found[1])
    return Compared(
        len(shared) / whole if whole else 0.0, len(shared), sizes, (spans[0], spans[1]),
        _passages(settings, one, other, later) if quoted else {},
    )  # fmt: skip


def _passages(settings: SigningSettings, one: str, other: str, later: bool) -> dict[str, Any]:
    """The passages of two texts, as in verdicts, with their positions in both."""
    newer, older, sides = (one, other, "ab") if later else (other, one, "ba")
    (said,) = Passages(settings)(_encoded(newer), [_encoded(older)])
    found = orjson.loads(b"{" + said[1:] + b"}")
    passages = [
        {"words": part["words"], sides[0]: part["newer"], sides[1]: part["older"]} for part in found["passages"]
    ]
    return {"passages": passages, **{name: found[name] for name in ("more_passages",) if name in found}}


def compared_documents(signer: Signs, settings: Settings, a: Mapping[str, Any], b: Mapping[str, Any]) -> Compared:
    """Compare two documents with their texts."""
    texts = (compared_part(settings, document["text"]) for document in (a, b))
    return compare(signer, *texts, later=(a["seq"] or 0) > (b["seq"] or 0))


def side_by_side(
    settings: Settings, a: Mapping[str, Any], b: Mapping[str, Any], found: Compared, apart: bool
) -> dict[str, Any]:
    """Two documents with their texts, as the API shows them.

    Args:
        found: the comparison of the parts that are compared.
        apart: whether the documents are of different scopes.
    """
    match = found.similarity >= settings.least and not apart
    if apart:
        why = f"their values of {', '.join(settings.match_within)} differ (match_within)"
    else:
        why = _why(found.similarity, match, settings)
    sides = []
    for document, spans, size in zip((a, b), found.spans, found.sizes, strict=True):
        text = compared_part(settings, document["text"])
        cut = len(text) < len(document["text"])
        sides.append({**document, "text": text, "spans": spans, "cut": cut, "shingles": size})
    return {
        "a": sides[0], "b": sides[1],
        "shared": found.shared, "similarity": found.similarity, "threshold": settings.least, "match": match, "why": why,
        "same_group": a["group"] is not None and a["group"] == b["group"], **found.evidence,
    }  # fmt: skip


def _why(similarity: float, match: bool, settings: Settings) -> str:
    """Why the documents match or do not, by the settings."""
    if settings.measure not in BY_DISTANCE:
        said = f"similarity {similarity:.3f} is {'not ' * match}below the threshold of {settings.least:g}"
        if settings.measure == "tf-idf":
            said += (
                ", with the current document frequencies; a document joins a story by its three most similar members"
            )
        return said
    if settings.measure == "hamming":
        apart = f"{round((1 - similarity) * (settings.dimensions or 0))} bits"
    elif similarity:
        apart = f"{1 / similarity - 1:.4g}"
    else:
        apart = f"more than {MOST_COUNTED}" if settings.measure == "levenshtein" else "infinite"
    return f"a distance of {apart} is {'not ' * match}above that of {settings.max_distance:g}"


def spans_of(signer: Signs, text: str, shared: set[int]) -> list[Span]:
    """The ranges of characters of a text that are covered by these shingles, ascending and disjoint."""
    return _joined(_marked(signer, text, shared))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _marked(signer: Signs, text: str, shared: set[int]) -> Iterator[Span]:
    """The spans of a text that are shared shingles."""
    spans = list(_windows(text, signer.settings))
    if not spans or not shared:
        return
    # White space at the ends of a text is dropped. To keep it, a letter is put before and after each piece; the wanted
    # shingle is then the second of three.
    padded = signer.settings.kind == "chars" and spans[0] != (0, len(text))
    pad, place = ("x", 1) if padded else ("", 0)
    pieces = [_encoded(pad + text[begin:end] + pad) for begin, end in spans]
    ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
    hashes, offsets = signer.shingle(b"".join(pieces), ends)
    for span, first, last in zip(spans, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if last == first + 1 + 2 * place and int(hashes[first + place]) in shared:
            yield span


def _windows(text: str, settings: SigningSettings) -> Iterator[Span]:
    """The spans that may be shingles."""
    if settings.kind == "chars":
        units = list(_characters(text, settings))
        yield from _runs(units, [1] * len(units), settings.k)
        return
    if settings.kind == "set":
        begin = 0
        for element in text.split(SEPARATOR):
            yield begin, begin + len(element)
            begin += len(element) + 1
        return
    tokens = Placing(settings)(_encoded(text))
    units = list(zip(tokens.begins.tolist(), tokens.ends.tolist(), strict=True))
    if not units:
        yield 0, len(text)
    weights = np.where(tokens.continuous, settings.k, settings.continuous_k).tolist()
    yield from _runs(units, weights, settings.k * settings.continuous_k)


def _runs(units: Sequence[Span], weights: Sequence[int], needed: int) -> Iterator[Span]:
    """From each unit on, the shortest run of at least this weight; if all together weigh less, all."""
    weight, last = 0, 0
    for first in range(len(units)):
        while last < len(units) and weight < needed:
            weight += weights[last]
            last += 1
        if weight < needed:
            if first == 0:
                yield units[0][0], units[-1][1]
            return
        yield units[first][0], units[last - 1][1]
        weight -= weights[first]


def _characters(text: str, settings: SigningSettings) -> Iterator[Span]:
    """The characters that remain when invisible ones are removed and white space is squeezed."""
    found = located(_encoded(text), settings)
    places: Iterable[Span] = ((i, i + 1) for i in range(len(text)))
    if found is not None:
        text = bytes(found.text).decode("utf-8", "surrogatepass")
        places = zip(found.begins.tolist(), found.ends.tolist(), strict=True)
    blank = False
    for character, place in zip(text, places, strict=True):
        white = settings.space and character.isspace()
        if not (white and blank):
            yield place
        blank = white


def _joined(spans: Iterator[Span]) -> list[Span]:
    """Merges spans that touch or overlap."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found

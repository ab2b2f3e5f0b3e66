"""What each measure means, as the book defines it, and the verdicts of a whole feed by exhaustive comparison."""

import base64
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from stream_lsh import Settings
from support.measure_feeds import FIELDS, normal
from support.models.changes import Model, Seen, model_of
from support.models.distances import weighted_jaccard
from support.models.stories import Stories


@lru_cache(maxsize=4096)
def decoded(item: str) -> NDArray[np.float64]:
    """The item that a text stands for: numbers, or bits."""
    if len(item) == 16:
        return np.array([int(bit) for bit in f"{int(item, 16):064b}"], np.float64)
    return np.frombuffer(base64.b64decode(item), "<f4").astype(np.float64)


@lru_cache(maxsize=65536)
def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Three words each, or the whole text."""
    words = text.split()
    return frozenset(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def share(one: str, other: str) -> float:
    """|A & B| / |A|: how much of a text is in the other one."""
    return len(shingles(one) & shingles(other)) / len(shingles(one))


def similarity(measure: str, one: str, other: str) -> float:
    """Of two items by the texts that stand for them."""
    if measure == "containment":
        return max(share(one, other), share(other, one))
    if one == other:
        return 1.0
    if measure == "weighted-jaccard":
        return weighted_jaccard(json.loads(one), json.loads(other))
    if measure == "levenshtein":
        return 1 / (1 + Levenshtein.distance(one, other))
    a, b = decoded(one), decoded(other)
    if measure == "cosine":
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))
    if measure == "euclidean":
        return float(1 / (1 + np.sqrt((a - b) @ (a - b))))
    return float(1 - np.abs(a - b).sum() / len(a))


def stands_for(value: Any, settings: Settings) -> str:
    """The text that stands for what a document holds."""
    if settings.item is not None:
        return settings.item.text(value, "", b"")
    return normal(value) if settings.measure == "levenshtein" else str(value)


def model(settings: Settings) -> Model:
    """Texts begin with their language, without which nothing matches; but not those of stories."""
    if settings.measure == "tf-idf":
        return Stories(settings)

    def apart(one: Seen, other: Seen) -> tuple[bool, str, str]:
        mine, _, first = one.text.partition(" ")
        theirs, _, second = other.text.partition(" ")
        return mine != theirs, first, second

    def compare(one: Seen, other: Seen) -> float:
        strange, first, second = apart(one, other)
        return -1.0 if strange else similarity(settings.measure, first, second)

    def stays(new: Seen, old: Seen) -> bool:
        """Beside what it contains."""
        strange, first, second = apart(new, old)
        return strange or share(first, second) < settings.threshold

    return model_of(settings, compare, stays if settings.measure == "containment" else None)


def modelled(records: Sequence[dict[str, Any]], settings: Settings) -> list[Any]:
    """The verdicts on a feed."""
    judge, field, out = model(settings), FIELDS.get(settings.measure, "text"), []
    for seq, record in enumerate(records):
        time = 1000 * record["ts"] if "ts" in record and settings.time_field else None
        if record.get("deleted"):
            out.append(judge.delete(seq, record["id"], time))
        else:
            text = stands_for(record[field], settings)
            if settings.measure != "tf-idf":
                text = f"{record.get('lang')} {text}"
            out.append(judge.judge(seq, record["id"], text, time))
    return out


def compared(verdicts: Sequence[dict[str, Any]], truth: Sequence[Any], settings: Settings) -> None:
    """Every verdict of a run is that of the model, to the last match."""
    assert settings.measure == "tf-idf" or not any("not_compared" in verdict for verdict in verdicts)
    for verdict, true in zip(verdicts, truth, strict=True):
        found, wanted = _told(verdict), _expected(true)
        if settings.shards > 1 and not settings.late and wanted[0] == "redelivered":
            found, wanted = found[:1], wanted[:1]  # none of them knows the first verdict
        assert (verdict["seq"], *found) == (verdict["seq"], *wanted)


def _rounded(value: Any) -> Any:
    return None if value is None else round(value, 9)


def _expected(verdict: Any) -> tuple[Any, ...]:
    kind, first, of, similarity, group, matches, replaces, representative, representatives, _ = verdict
    listed = [(id, seq, _rounded(value)) for id, seq, value in matches]
    return kind, first, of, _rounded(similarity), group, listed, replaces, representative, list(representatives)


def _told(line: dict[str, Any]) -> tuple[Any, ...]:
    representative = line.get("new_representative")
    return (
        line["kind"], line.get("first_kind"), line["duplicate_of"], _rounded(line["similarity"]), line["group"],
        [(match["id"], match["seq"], _rounded(match["similarity"])) for match in line["matches"]],
        line.get("replaces"), (representative["id"], representative["seq"]) if representative else None,
        [(one["group"], one["id"], one["seq"]) for one in line.get("new_representatives", ())],
    )  # fmt: skip

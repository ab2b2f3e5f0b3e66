"""The audit of an index: all that the report shows, as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from stream_lsh.audit.groups import LEAST_OF_SOURCE, SHOWN, Groups, read_groups, shown_groups
from stream_lsh.audit.labels import Labels, wrong_drops
from stream_lsh.audit.pairs import Documents, plain
from stream_lsh.audit.rows import EXACT, KEPT, NEAR, Rows, read_rows
from stream_lsh.audit.shared_texts import shared_texts
from stream_lsh.embedded.preparation import prepare
from stream_lsh.errors import InputError
from stream_lsh.index.index import Index
from stream_lsh.settings.model import Settings

_NOT_COMPARED = b',"not_compared":'  # in a JSON string the quotes would be escaped


def audit(
    settings: Settings, folder: Path, *, sample: int = 100, labels: Labels | None = None, verdicts: Path | None = None
) -> dict[str, Any]:
    """Audit the index in a folder, as it was committed last; another process may be writing to it.

    Args:
        settings: those of the index.
        sample: drops to be labelled.
        labels: given so far. verdicts: a file of verdicts, whose `not_compared` is counted.

    Raises:
        StoreError: the index cannot be read. InputError: the verdicts cannot be read.
    """
    prepare(settings)
    index = Index(settings, folder, read_only=True)
    try:
        return _report(index, sample, labels or {}, None if verdicts is None else not_compared(verdicts))
    finally:
        index.close()


def _report(index: Index, sample: int, labels: Labels, compared: Mapping[str, int] | None) -> dict[str, Any]:
    rows = read_rows(index, sample, labels)
    groups = read_groups(index.store, rows.states, rows.superseded)
    documents, settings = Documents(index), index.settings
    samples = [
        [{**pair, "stratum": number} for pair in documents.drops(stratum.documents)]
        for number, stratum in enumerate(rows.strata)
    ]  # fmt: skip
    mixed = [pair for turn in zip_longest(*samples) for pair in turn if pair is not None]  # each stratum comes early
    why = documents.why_not_below
    lower, just_below = ([], []) if why else documents.below(rows.kept.documents)
    wrong = wrong_drops(index, rows, labels)
    bars = rows.times.shown()
    return {
        "index": str(index.folder), "measure": settings.measure, "threshold": settings.least,
        "compare_with": settings.compare_with, "window": settings.window,
        "documents": {
            "live": rows.documents, "kept": int(rows.counts[KEPT]), "dropped": rows.dropped,
            "near_duplicates": int(rows.counts[NEAR]), "exact_duplicates": int(rows.counts[EXACT]),
            "removed": rows.removed, "provisional": rows.provisional, "damaged": rows.damaged,
        },
        "figures": _figures(rows, groups, wrong, compared),
        "sources": None if groups is None or groups.source_field is None else _sources(rows, groups),
        "times": {"minutes": rows.times.minutes, "without": rows.untimed, "bars": bars},
        "similarities": [(at / 100, int(n)) for at, n in enumerate(rows.similarities) if n],
        "sizes": [
            (1 << bits - 1 if bits else 0, int(kept), int(dropped))
            for bits, (kept, dropped) in enumerate(rows.sizes.T) if kept or dropped
        ],
        "groups": None if groups is None else {
            "largest": list(shown_groups(index.store, groups.largest, "drops")),
            "fastest": list(shown_groups(index.store, groups.fastest, "drops_in_an_hour")),
        },
        "shared_texts": [] if groups is None else list(shared_texts(documents, groups, rows.states, rows.superseded)),
        "thresholds": {
            "higher": [
                {"threshold": threshold, "drops": rows.dropped - int(n), "fewer": int(n)}
                for threshold, n in zip(rows.thresholds, rows.smaller, strict=True)
            ],
            "lower": lower, "sampled": len(rows.kept.documents), "lower_unknown": why,
        },
        "not_compared": compared,
        "wrong_drops": wrong,
        "pairs": {"above": documents.drops(rows.borderline.documents), "below": just_below, "sample": mixed},
    }  # fmt: skip


def _figures(
    rows: Rows, groups: Groups | None, wrong: Mapping[str, Any], compared: Mapping[str, int] | None
) -> dict[str, float | None]:
    of_sources = [] if groups is None else [
        groups.share(source) for source in groups.sources if groups.documents(source) >= LEAST_OF_SOURCE
    ]  # fmt: skip
    largest = max((number for number, _ in groups.largest), default=0) if groups is not None else None
    return {
        "dropped_share": rows.dropped / rows.documents if rows.documents else None,
        "dropped_share_of_source": max(of_sources, default=None),
        "group_share": largest / rows.documents if largest is not None and rows.documents else None,
        "group_share_of_source": next((share for share, _, _ in groups.largest_shares()), 0.0)
        if groups is not None and of_sources else None,
        "not_compared_share": compared["not_compared"] / compared["verdicts"]
        if compared is not None and compared["verdicts"] else None,
        "wrong_drop_share": wrong["share"],
        "wrong_drop_share_high": wrong["high"] if wrong["labelled"] else None,
    }  # fmt: skip


def _sources(rows: Rows, groups: Groups) -> dict[str, Any]:
    """The sources with the most drops, those with the largest share of drops, and the rest together."""

    def shown(source: bytes) -> dict[str, Any]:
        return {
            "source": plain(source), "documents": groups.documents(source), "dropped": groups.dropped[source],
            "dropped_share": groups.share(source),
        }  # fmt: skip

    names = groups.sources
    large = [source for source in names if groups.documents(source) >= LEAST_OF_SOURCE]
    first = names[:SHOWN]
    named = sum(map(groups.documents, names))
    return {
        "field": groups.source_field, "number": len(names),
        "most": [shown(source) for source in first],
        "rest": {
            "sources": len(names) - len(first),
            "documents": named - sum(map(groups.documents, first)),
            "dropped": sum(groups.dropped[source] for source in names[SHOWN:]),
        },
        "highest": [shown(source) for source in sorted(large, key=lambda source: (-groups.share(source), source))[:10]],
        "uncounted": groups.unnamed, "without": rows.documents - named - groups.unnamed,
    }  # fmt: skip


def not_compared(path: Path) -> dict[str, int]:
    """Verdicts of a file, those with `not_compared`, and what was not compared in all of them.

    Raises:
        InputError: it cannot be read, or a line is no verdict.
    """
    found = {"verdicts": 0, "not_compared": 0, "buckets_and_candidates": 0}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.startswith(b'{"') or b'"matches":[' not in line:
                    raise InputError(f"{path}:{number} is no verdict; give a file that dedup --verdicts wrote")
                found["verdicts"] += 1
                if (at := line.rfind(_NOT_COMPARED)) >= 0:
                    digits = line[at + len(_NOT_COMPARED) :].split(b",")[0].rstrip(b"}\n")
                    found["not_compared"] += 1
                    found["buckets_and_candidates"] += int(digits)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return found

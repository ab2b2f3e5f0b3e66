"""Labels of drops, as the report saves them: a JSON line for each, `{"seq": 7, "id": "b", "wrong": false}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_lsh.audit.estimates import CONFIDENCE, stratified, wilson
from stream_lsh.audit.pairs import plain
from stream_lsh.audit.rows import EXACT, STRATA, Rows
from stream_lsh.errors import InputError
from stream_lsh.index.index import Index

Labels = Mapping[int, tuple[str | int, bool]]
"""By the number of a drop: its id, and whether dropping it was wrong."""


def read_labels(path: Path) -> Labels:
    """The labels in a file; of two for one document the later counts.

    Raises:
        InputError: it cannot be read, or a line is no label.
    """
    found: dict[int, tuple[str | int, bool]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            label = json.loads(line)
            seq, id, wrong = label["seq"], label["id"], label["wrong"]
            if type(seq) is not int or not isinstance(id, str | int) or type(wrong) is not bool or abs(seq) >= 2**63:
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f'{path}:{number} is no label: it must be a JSON object with "seq", "id" and "wrong" (true or false), '
                "as the report saves it"
            ) from None
        found[seq] = id, wrong
    return found


def wrong_drops(index: Index, rows: Rows, labels: Labels) -> dict[str, Any]:
    """The share of wrong drops: in each stratum, and in all. Labels of other documents count as `unused`."""
    drops = rows.labelled.documents
    of = rows.stratum_of(drops["similarity"], drops["kind"] == EXACT).tolist()
    labelled, wrong, unused = [0] * (STRATA + 1), [0] * (STRATA + 1), len(labels)
    for drop, stratum in zip(drops, of, strict=True):
        id, is_wrong = labels[int(drop["seq"])]
        if plain(index.id_of(int(drop["shard"]), int(drop["row"]))) == id:
            labelled[stratum] += 1
            wrong[stratum] += is_wrong
            unused -= 1
    parts = [wilson(*counts) for counts in zip(wrong, labelled, strict=True)]
    sizes = [int(size) for size in rows.in_strata]
    whole = stratified(sizes, parts)
    strata = [
        {
            "from": rows.edges[number] if number < STRATA else 1.0, "to": rows.edges[min(number + 1, STRATA)],
            "exact": number == STRATA, "drops": sizes[number], "labelled": labelled[number], "wrong": wrong[number],
            **parts[number]._asdict(),
        }
        for number in range(STRATA + 1)
    ]  # fmt: skip
    return {"confidence": CONFIDENCE, "labelled": sum(labelled), "unused": unused, **whole._asdict(), "strata": strata}

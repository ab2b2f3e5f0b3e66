"""Shingles that most documents of a group share: a footer that is most of each document makes them all similar.

Looked at are the largest groups, and those that a large part of one source was dropped in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.audit.groups import Groups, drops_of, leading
from stream_lsh.audit.pairs import Documents, Found, plain, side
from stream_lsh.embedded.group_store import row
from stream_lsh.serve.comparing import compared_part, spans_of

GROUPS = 10  # of each kind
SAMPLE = 100  # drops of a group that are read
MOST = 0.9  # the share of them that have a shingle which is shared
SUSPECT = 0.2  # of the documents of a source, dropped in one group


def shared_texts(
    documents: Documents, groups: Groups, states: NDArray[np.uint8], superseded: NDArray[np.void]
) -> Iterator[dict[str, Any]]:
    """The groups, suspect ones first, with what their documents share."""
    if not documents.compared:
        return
    store = documents.index.store
    chosen: dict[int, tuple[float, bytes] | None] = {}
    for share, group, source in groups.largest_shares():
        if share >= SUSPECT and len(chosen) < GROUPS:
            chosen.setdefault(group, (share, source))
    for _, group in leading(groups.largest)[:GROUPS]:
        chosen.setdefault(group, None)
    for group, suspect in chosen.items():
        stored = row(store, group)
        if stored is None:
            continue
        ids, similarities = drops_of(store, states, superseded, group, SAMPLE)
        first, *members = documents.of_ids([stored.id, *ids])
        some = [member for member in members if member is not None]
        if first is not None and some:
            said = _shared(documents, first, some)
            yield {
                "group": group, "drops": len(similarities), "source": plain(suspect[1]) if suspect else None,
                "share_of_source": suspect[0] if suspect else None, **said,
                "set": _advice(said, similarities, documents.index.settings.measure) if suspect else None,
            }  # fmt: skip


def _shared(documents: Documents, first: Found, members: list[Found]) -> dict[str, Any]:
    """What a representative and drops of its group share."""
    signer, settings = documents.index.signer, documents.index.settings
    texts = [compared_part(settings, one.text or "") for one in (first, *members)]
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    hashes, offsets = signer.shingle(b"".join(data), np.fromiter(accumulate(map(len, data)), np.int64, len(data)))
    sets = [np.unique(hashes[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    each, counts = np.unique(np.concatenate(sets), return_counts=True)
    shared = each[counts >= MOST * len(sets)]
    common, total = (int(values.sum()) for values in (counts[counts >= MOST * len(sets)], counts))
    alone = [np.setdiff1d(one, shared, assume_unique=True) for one in sets]
    still = sum(_similarity(settings.measure, alone[0], one) >= settings.least for one in alone[1:])
    spans = spans_of(signer, texts[0], set(shared.tolist()))
    return {
        "sampled": len(members), "shared_share": common / total if total else 0.0, "similar_without": still,
        **side(texts[0], spans),
    }  # fmt: skip


def _similarity(measure: str, one: NDArray[Any], other: NDArray[Any]) -> float:
    """Of two sets of shingles; two empty ones are equal."""
    both = len(np.intersect1d(one, other, assume_unique=True))
    whole = min(len(one), len(other)) if measure == "containment" else len(one) + len(other) - both
    return both / whole if whole else float(len(one) == len(other))


def _advice(said: dict[str, Any], similarities: NDArray[np.float64], measure: str) -> str:
    """What to set, if the group is no real one."""
    words = "If these documents are different ones, remove the marked text before they are fed."
    if measure != "jaccard":
        return words
    limit = float(similarities[int(0.9 * (len(similarities) - 1))])
    above = int(limit * 100 + 1) / 100
    if above >= 1:
        return f"{words} No threshold below 1 keeps them apart."
    return f"{words} Or set threshold = {above:g}: 90 % of these drops are less similar."

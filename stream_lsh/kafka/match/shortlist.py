"""What the judge needs of a shard's matches: a document in a crowd of copies may have many thousands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stream_lsh.index.matches import Matches


def shortlist(matches: Matches, most: int) -> Matches:
    """Of each document's matches the best `most`; the others count as `more`.

    `judge` with `max_matches` <= most says the same of it as of all of them, whatever other shards have found: kind,
    group and oldest match are columns of their own.
    """
    n, document = len(matches.more), matches.document
    counts = np.bincount(document, minlength=n)
    if not len(document) or counts.max() <= most:
        return matches
    starts = np.cumsum(counts) - counts
    best = np.lexsort((matches.seq, -matches.similarity, document))
    keep = np.zeros(len(document), np.bool_)
    keep[best[np.arange(len(best)) - starts[document[best]] < most]] = True
    columns = {
        name: getattr(matches, name)[keep] for name in ("document", "row", "seq", "similarity", "same_text")
    }  # fmt: skip
    left = np.bincount(columns["document"], minlength=n)
    return replace(matches, **columns, more=matches.more + counts - left)

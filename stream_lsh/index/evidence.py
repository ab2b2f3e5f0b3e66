"""Evidence of matches, from the texts of both documents, for measures whose number alone does not explain a match."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stream_lsh.families.family import Explains
from stream_lsh.index.batch import Shingles
from stream_lsh.index.matches import Matches, shortlist
from stream_lsh.index.rows.texts import ALL
from stream_lsh.index.shard import Shard


def explained(matches: Matches, shingles: Shingles, shard: Shard, explain: Explains, most: int) -> Matches:
    """A shard's matches with their evidence, the best `most` of each document (0 = all).

    Args:
        shingles: of the batch.
    """
    matches = shortlist(matches, most or max(1, len(matches.document)))
    evidence, sets = np.full(len(matches.document), b"", np.object_), shingles.known()
    for i in np.unique(matches.document).tolist():
        first, last = np.searchsorted(matches.document, (i, i + 1)).tolist()
        places = first + np.argsort(matches.row[first:last])
        rows = matches.row[places].tolist()
        others = shard.texts.read(rows, ALL) if explain.of_texts else map(shard.stored.signature, rows)
        own = sets.shingles[sets.offsets[i] : sets.offsets[i + 1]] if sets.have[i] else None
        evidence[places] = explain(shingles.text(i), list(others), own)
    return replace(matches, evidence=evidence)

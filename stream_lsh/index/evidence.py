"""What matches rest on, found in the texts of both: of likenesses where a number does not tell a reader why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stream_lsh.families.family import Explains
from stream_lsh.families.terms import StoryWords
from stream_lsh.index.batch import Shingles
from stream_lsh.index.matches import Matches, shortlist
from stream_lsh.index.shard import Shard

_ALL = 1 << 62  # bytes of texts read at a time: those of the matches listed for one document


def explained(
    matches: Matches, shingles: Shingles, shard: Shard, explain: Explains | StoryWords | None, most: int
) -> Matches:
    """A shard's matches, of each document the best `most` (0 = all), with what they rest on; as they are if nobody can
    explain them. shingles: of the batch."""
    if explain is None:
        return matches
    matches = shortlist(matches, most or max(1, len(matches.document)))
    evidence = np.full(len(matches.document), b"", np.object_)
    for i in np.unique(matches.document).tolist():
        first, last = np.searchsorted(matches.document, (i, i + 1)).tolist()
        places = first + np.argsort(matches.row[first:last])
        rows = matches.row[places].tolist()
        if isinstance(explain, StoryWords):  # by what the rows keep of their texts
            evidence[places] = explain(shingles.text(i), [shard.stored.signature(row) for row in rows])
        else:
            evidence[places] = explain(shingles.text(i), shard.texts.read(rows, _ALL))
    return replace(matches, evidence=evidence)

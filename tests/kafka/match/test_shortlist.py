"""The judge says the same of the shards' shortlists as of everything they found."""

from __future__ import annotations

import numpy as np
import pytest

from stream_lsh.index import layout
from stream_lsh.index.shard import Matches
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines
from stream_lsh.kafka.match.shortlist import shortlist

N = 12


def crowd(chance: np.random.Generator, shard: int, shards: int) -> Matches:
    """Matches of N documents, some of them with hundreds, many of equal similarity."""
    counts = chance.choice([0, 1, 2, 5, 300], N)
    document = np.repeat(np.arange(N), counts)
    seq = np.concatenate([chance.choice(1000, count, replace=False) for count in counts]) * shards + shard
    same = chance.random(len(document)) < 0.01
    similarity = np.where(same, 1.0, chance.choice([0.8, 0.9, 0.95, 1.0], len(document)))
    status = np.full(N, layout.NEW, np.uint8)
    for at, other in ((0, layout.REDELIVERED), (1, layout.ID_REUSED)):
        if shard == 0:
            status[at] = other
    return Matches(
        document, np.arange(len(document)), seq.astype(np.int64), similarity, same, status, np.full(N, -1, np.int64),
        chance.choice([0, 0, 3], N).astype(np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [1, 2, 10, 100])
def test_the_judge_sees_no_difference(seed: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    found = [crowd(chance, shard, 3) for shard in range(3)]
    short = [shortlist(matches, most) for matches in found]
    assert max(np.bincount(matches.document).max() for matches in short) <= most + 2
    ids, seqs = [b"%d" % i for i in range(N)], np.arange(5000, 5000 + N)
    for limit in {1, most}:
        said = []
        for parts in (found, short):
            judgement = judge(parts, ids, seqs, limit, lambda shard, row: b"%d" % found[shard].seq[row])
            said.append(verdict_lines(judgement) + pair_lines(judgement, "exact"))
        assert said[0] == said[1]

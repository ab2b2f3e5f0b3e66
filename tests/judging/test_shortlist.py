"""The judge says the same of the shards' shortlists as of everything they found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pytest

from stream_lsh.index.matches import Matches, shortlist
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines

N = 12


def crowd(chance: np.random.Generator, shard: int, shards: int) -> Matches:
    """Matches of N documents, some of them with hundreds, many of equal similarity."""
    counts = chance.choice([0, 1, 2, 5, 300], N)
    document = np.repeat(np.arange(N), counts)
    seq = np.concatenate([chance.choice(1000, count, replace=False) for count in counts]) * shards + shard
    same = chance.random(len(document)) < 0.01
    similarity = np.where(same, 1.0, chance.choice([0.8, 0.9, 0.95, 1.0], len(document)))
    status, known, kind = np.full(N, layout.NEW), np.full(N, -1), np.full(N, layout.UNIQUE)
    of, of_seq, of_similarity = np.full(N, -1), np.full(N, -1), np.zeros(N)
    for i in np.unique(document).tolist():  # as the kernel says it of all matches
        mine = np.flatnonzero(document == i)
        oldest = mine[seq[mine].argmin()]
        kind[i] = layout.EXACT if same[mine].any() else layout.NEAR
        of[i], of_seq[i], of_similarity[i] = oldest, seq[oldest], similarity[oldest]
    for at, other in ((0, layout.REDELIVERED), (1, layout.ID_REUSED)):
        if shard == 0:
            status[at], known[at] = other, 0
    return Matches(
        document=document, row=np.arange(len(document)), seq=seq.astype(np.int64), similarity=similarity,
        same_text=same, status=status, known=known, row_of=np.full(N, -1), kind=kind, of=of, of_seq=of_seq,
        of_similarity=of_similarity, group=np.full(N, layout.NO_GROUP),
        more=chance.choice([0, 0, 3], N).astype(np.int64), not_compared=chance.choice([0, 2], N).astype(np.int64),
        removed=np.full((N, layout.REMOVED_COLUMNS), -1),
        evidence=np.array([b',"rests_on":%d' % number for number in seq], np.object_),
    )  # fmt: skip


@dataclass
class Numbers:
    """Rows are called by their numbers."""

    found: Sequence[Matches]

    def id_of(self, shard: int, row: int) -> bytes:
        return b"%d" % self.found[shard].seq[row]

    first_of = id_of


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [1, 2, 10, 100])
def test_the_judge_sees_no_difference(seed: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    found = [crowd(chance, shard, 3) for shard in range(3)]
    short = [shortlist(matches, most) for matches in found]
    assert max(np.bincount(matches.document).max() for matches in short) <= most
    ids, seqs = [b"%d" % i for i in range(N)], np.arange(5000, 5000 + N)
    for limit in {1, most}:
        said = []
        for parts in (found, short):
            judgement = judge(parts, ids, seqs, limit, Numbers(found))
            said.append(verdict_lines(judgement) + pair_lines(judgement, "exact"))
        assert said[0] == said[1]
        first = orjson.loads(said[1].splitlines()[2])["matches"]
        assert all(match["rests_on"] == match["seq"] for match in first)

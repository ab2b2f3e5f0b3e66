"""One verdict a document from what the shards found or their shortlists, and how it is written down."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pytest

from stream_lsh.index.matches import Matches, shortlist
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import Judgement, Kind, judge, pair_lines, verdict_lines

N = 5
Match = tuple[int, int, int, float]  # document, row, number, similarity


def shard(matches: list[Match] = [], n: int = N, **columns: list[Any]) -> Matches:  # noqa: B006  # it is not changed
    """What a shard found for n new documents that nothing of it matches, but for what is given."""
    values: dict[str, Any] = {
        "status": [layout.NEW] * n, "known": [-1] * n, "row_of": [-1] * n, "kind": [0] * n, "of": [-1] * n,
        "of_seq": [-1] * n, "group": [-1] * n, "more": [0] * n, "not_compared": [0] * n, **columns,
    }  # fmt: skip
    similarity = np.array(values.pop("of_similarity", [0.0] * n), float)
    found = np.array([match[:3] for match in matches], np.int64).reshape(len(matches), 3).T.copy()
    return Matches(
        document=found[0], row=found[1], seq=found[2], similarity=np.array([match[3] for match in matches], float),
        same_text=np.zeros(len(matches), np.bool_), effect=np.zeros(len(matches), np.int64),
        held=np.zeros((len(matches), 2), np.int64), of_similarity=similarity,
        removed=np.full((n, layout.REMOVED_COLUMNS), -1),
        **{name: np.array(value, np.int64) for name, value in values.items()},
    )  # fmt: skip


class Names:
    """Row r of shard s has the id "s.r", and was dropped for "s.r'"."""

    def id_of(self, shard: int, row: int) -> bytes:
        return b'"%d.%d"' % (shard, row)

    def first_of(self, shard: int, row: int) -> bytes:
        return b"" if row == 0 else b'"%d.%d\'"' % (shard, row)


def judged(*found: Matches, most: int = 10) -> Judgement:
    n = len(found[0].status)
    return judge(found, [b"%d" % i for i in range(n)], np.arange(100, 100 + n), most, Names())


def said(judgement: Judgement) -> list[dict[str, Any]]:
    return [json.loads(line) for line in verdict_lines(judgement).splitlines()]


NOTHING = {"duplicate_of": None, "similarity": None, "group": None, "matches": []}


def test_what_the_only_shard_found() -> None:
    found = shard(
        [(1, 7, 17, 0.8), (1, 9, 19, 0.9), (2, 3, 13, 1.0)],
        kind=[0, 1, 2, 0, 0], of=[-1, 7, 3, -1, -1], of_seq=[-1, 17, 13, -1, -1], of_similarity=[0, 0.8, 1.0, 0, 0],
        group=[100, 17, 5, 103, -1], more=[0, 0, 4, 0, 0], not_compared=[2, 1, 0, 0, 0],
        status=[layout.NEW] * 4 + [layout.INVALID],
    )  # fmt: skip
    assert said(judged(found)) == [
        {"id": 0, "seq": 100, "kind": "unique", **NOTHING, "group": 100, "not_compared": 2},
        {
            "id": 1, "seq": 101, "kind": "near_duplicate", "duplicate_of": "0.7", "similarity": 0.8, "group": 17,
            "matches": [
                {"id": "0.9", "seq": 19, "similarity": 0.9}, {"id": "0.7", "seq": 17, "similarity": 0.8},
            ], "not_compared": 1,
        },
        {
            "id": 2, "seq": 102, "kind": "exact_duplicate", "duplicate_of": "0.3", "similarity": 1.0, "group": 5,
            "matches": [{"id": "0.3", "seq": 13, "similarity": 1.0}], "truncated": 4,
        },
        {"id": 3, "seq": 103, "kind": "unique", **NOTHING, "group": 103},
        {"id": 4, "seq": 104, "kind": "rejected", **NOTHING},
    ]  # fmt: skip


def test_fields_have_an_order() -> None:
    again = shard(n=1, status=[layout.REDELIVERED], known=[4], kind=[1], group=[3], of_similarity=[0.9])
    near = shard([(0, 7, 17, 0.8), (0, 8, 18, 0.8)], n=1, kind=[1], of=[7], of_seq=[17], not_compared=[1])
    names = ["id", "seq", "kind", "duplicate_of", "similarity", "group", "matches"]
    assert list(said(judged(again))[0]) == [*names[:3], "first_kind", *names[3:]]
    assert list(said(judged(near, most=1))[0]) == [*names, "truncated", "not_compared"]


def test_the_oldest_of_all_shards_and_the_best_of_their_matches() -> None:
    """Kind is the strongest; counts are sums; equal similarities are listed by number."""
    found = [
        shard(
            [(0, 1, 30, 0.9), (0, 2, 40, 0.8), (3, 6, 60, 0.9)], kind=[1, 0, 0, 1, 0], of=[1, -1, -1, 6, -1],
            of_seq=[30, -1, -1, 60, -1], of_similarity=[0.9, 0, 0, 0.9, 0], more=[1, 0, 0, 0, 0],
            not_compared=[2, 0, 1, 0, 0],
        ),
        shard(),
        shard(
            [(0, 5, 20, 0.85), (0, 6, 25, 0.9), (3, 9, 50, 1.0)], kind=[1, 0, 0, 2, 0], of=[5, -1, -1, 9, -1],
            of_seq=[20, -1, -1, 50, -1], of_similarity=[0.85, 0, 0, 1.0, 0], more=[2, 0, 0, 0, 0],
            not_compared=[3, 0, 0, 0, 0],
        ),
    ]  # fmt: skip
    first, second, third, fourth, _ = said(judged(*found, most=3))
    assert (first["kind"], first["duplicate_of"], first["similarity"]) == ("near_duplicate", "2.5", 0.85)
    assert [(m["id"], m["seq"]) for m in first["matches"]] == [("2.6", 25), ("0.1", 30), ("2.5", 20)]
    assert (first["truncated"], first["not_compared"]) == (1 + 1 + 2, 5)
    assert second == {"id": 1, "seq": 101, "kind": "unique", **NOTHING}
    assert third["not_compared"] == 1 and third["kind"] == "unique"
    assert (fourth["kind"], fourth["duplicate_of"], fourth["similarity"]) == ("exact_duplicate", "2.9", 1.0)
    assert len(said(judged(*found, most=0))[0]["matches"]) == 4


@pytest.mark.parametrize(("kind", "row", "of"), [(0, 0, None), (1, 6, "0.6'"), (2, 6, "0.6'")])
def test_a_redelivered_document_hears_its_first_verdict_again(kind: int, row: int, of: str | None) -> None:
    """Not its matches, and nothing that was not compared."""
    found = shard(
        n=1, status=[layout.REDELIVERED], known=[row], kind=[kind], of_similarity=[0.9 if kind else 0.0], group=[4],
        not_compared=[7], more=[3],
    )  # fmt: skip
    (verdict,) = said(judged(found))
    assert verdict == {
        "id": 0, "seq": 100, "kind": "redelivered", "first_kind": Kind(kind).label, "duplicate_of": of,
        "similarity": 0.9 if of else None, "group": 4, "matches": [],
    }  # fmt: skip


def test_pairs_name_the_older_first() -> None:
    found = shard([(1, 7, 17, 0.8), (1, 9, 19, 0.9)], n=2, kind=[0, 1], of=[-1, 7], of_seq=[-1, 17])
    lines = [json.loads(line) for line in pair_lines(judged(found), "signature").splitlines()]
    assert lines == [
        {
            "older": f"0.{row}", "newer": 1, "older_seq": number, "newer_seq": 101, "similarity": similarity,
            "verified": "signature",
        }
        for row, number, similarity in ((9, 19, 0.9), (7, 17, 0.8))
    ]  # fmt: skip
    assert pair_lines(judged(shard()), "exact") == b""


CROWD = 12


def crowd(chance: np.random.Generator, shard: int, shards: int) -> Matches:
    """Matches of CROWD documents, some of them with hundreds, many of equal similarity."""
    counts = chance.choice([0, 1, 2, 5, 300], CROWD)
    document = np.repeat(np.arange(CROWD), counts)
    seq = np.concatenate([chance.choice(1000, count, replace=False) for count in counts]) * shards + shard
    same = chance.random(len(document)) < 0.01
    similarity = np.where(same, 1.0, chance.choice([0.8, 0.9, 0.95, 1.0], len(document)))
    status, known, kind = np.full(CROWD, layout.NEW), np.full(CROWD, -1), np.full(CROWD, layout.UNIQUE)
    of, of_seq, of_similarity = np.full(CROWD, -1), np.full(CROWD, -1), np.zeros(CROWD)
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
        same_text=same, effect=np.full(len(document), layout.DROPS), held=np.zeros((len(document), 2), np.int64),
        status=status, known=known, row_of=np.full(CROWD, -1), kind=kind, of=of, of_seq=of_seq,
        of_similarity=of_similarity, group=np.full(CROWD, layout.NO_GROUP),
        more=chance.choice([0, 0, 3], CROWD).astype(np.int64),
        not_compared=chance.choice([0, 2], CROWD).astype(np.int64),
        removed=np.full((CROWD, layout.REMOVED_COLUMNS), -1),
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
    ids, seqs = [b"%d" % i for i in range(CROWD)], np.arange(5000, 5000 + CROWD)
    for limit in {1, most}:
        said = []
        for parts in (found, short):
            judgement = judge(parts, ids, seqs, limit, Numbers(found))
            said.append(verdict_lines(judgement) + pair_lines(judgement, "exact"))
        assert said[0] == said[1]
        first = orjson.loads(said[1].splitlines()[2])["matches"]
        assert all(match["rests_on"] == match["seq"] for match in first)

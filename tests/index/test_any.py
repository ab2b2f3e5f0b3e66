"""`compare_with = "all"`: with all verified, all similar pairs of a bucket; with limits, always the same ones."""

import random
from pathlib import Path
from typing import Any

import pytest
from support.feeds import WORDS, edited, nasty
from support.indexes import fed, in_pieces, once, same, take_key
from support.long_form import seeds
from support.models.matching import agreement, any_pairs, entries, floor_of, similarity_of

from stream_lsh.documents.document import Document
from stream_lsh.index.postings.bucket import COPIES, key_behind
from stream_lsh.index.rows.keys import Hashes, posting_key
from stream_lsh.settings.model import Settings


def any_settings(seed: int, **changes: Any) -> Settings:
    chance = random.Random(seed)
    return Settings(
        **{
            "compare_with": "all", "threshold": chance.choice((0.3, 0.5, 0.8)), "bands": chance.choice((2, 5, 12)),
            "rows": chance.choice((1, 3, 4)), "signature_size": chance.choice((50, 64, 200)),
            "shingles": chance.choice(("words:1", "words:2", "words:3/8")), "max_bucket_rows": 2, "max_candidates": 1,
            "max_verified_matches": 0, "max_matches": 0, "shards": chance.choice((1, 3)), "memtable_documents": 16,
            "verify": chance.choice(("exact", "exact", "signature")),
            "segment_documents": chance.choice((None, 100, 150)), **changes,
        }
    )  # fmt: skip


def pairs(verdicts: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
    return {(v["seq"], match["seq"]): match["similarity"] for v in verdicts for match in v["matches"]}


@pytest.mark.parametrize("seed", seeds(1, 4, 40))
def test_everything_verified_finds_all_pairs_that_share_a_bucket(tmp_path: Path, seed: int) -> None:
    """And says nothing that is not true. (Behind a leader one may be met that shares no bucket: it is true too.)"""
    settings, chance = any_settings(seed), random.Random(seed + 1000)
    documents = nasty(seed + 500, 300, words=chance.choice((WORDS, WORDS[:40])))
    expected, stored = any_pairs(documents, settings)
    reported = entries(documents, settings)
    verdicts = in_pieces(documents, settings, tmp_path, chance, feed=lambda *given: fed(*given, batch=64))
    found = pairs(verdicts)
    assert expected.items() <= found.items()
    for (newer, older), similarity in found.items():
        one, other = reported[newer], reported[older]
        assert similarity == similarity_of(one, other, settings) >= settings.threshold
        assert agreement(one, other) >= floor_of(settings)
        assert (newer, older) in expected or not set(one.bands) & set(other.bands)
    for verdict in verdicts:
        mine = {older: value for (newer, older), value in found.items() if newer == verdict["seq"]}
        entry = reported[verdict["seq"]]
        assert "truncated" not in verdict and "not_compared" not in verdict and verdict["group"] is None
        if verdict["seq"] in stored:
            same = any(reported[older].text == entry.text for older in mine)
            assert verdict["kind"] == ("exact_duplicate" if same else "near_duplicate" if mine else "unique")
            if mine:
                oldest = min(mine)
                assert (verdict["duplicate_of"], verdict["similarity"]) == (documents[oldest].id, mine[oldest])
        else:
            assert verdict["kind"] in ("rejected", "redelivered") and not mine


@pytest.mark.parametrize("seed", seeds(1, 4, 40))
def test_answers_do_not_depend_on_batches_flushes_or_restarts(tmp_path: Path, seed: int) -> None:
    """Whatever the limits."""
    chance = random.Random(seed)
    settings = any_settings(
        seed, max_bucket_rows=chance.choice((2, 5, 64)), max_verified_matches=chance.choice((1, 3, 10)),
        max_candidates=chance.choice((1, 4, 32)), max_matches=chance.choice((0, 1, 5)), memtable_documents=65536,
    )  # fmt: skip
    documents = nasty(seed, 400, words=chance.choice((WORDS, WORDS[:40])))
    whole = once(documents, settings, tmp_path / "whole", 400)
    small = settings.model_copy(update={"memtable_documents": 16})
    same(in_pieces(documents, small, tmp_path / "pieces", chance, feed=lambda *given: fed(*given, batch=37)), whole)


KEY = bytes(range(16))
FIRST, OTHER = "x528846", "y957387"  # with KEY, copies of FIRST are posted under the key of the id OTHER
TEXT, OTHER_TEXT = "a b c d e f g h i j", "k l m n o p q r s t"


def asked(folder: Path, feed: list[tuple[str, str, int]], **changes: Any) -> dict[str, Any]:
    """The verdict on the last document of a feed of ids, texts and hours, in an index with KEY."""
    settings = Settings(compare_with="all", shingles="words:1", **changes)
    take_key(settings, folder, KEY)
    ids = Hashes(settings.signing, KEY).of_ids([f'"{id}"'.encode() for id in (FIRST, OTHER)])[:, 0]
    assert key_behind(ids[0], COPIES) == posting_key(ids[1])
    documents = [Document(id, text, time=1.6e9 + 3600 * hour) for id, text, hour in feed]
    return once(documents, settings, folder)[-1]


def test_a_collision_of_keys_lists_no_other_document_as_a_copy(tmp_path: Path) -> None:
    feed = [(FIRST, TEXT, 0), ("copy", TEXT, 0), (OTHER, OTHER_TEXT, 0), ("query", TEXT, 0)]
    verdict = asked(tmp_path, feed)
    assert [match["id"] for match in verdict["matches"]] == [FIRST, "copy"] and verdict["duplicate_of"] == FIRST


@pytest.mark.parametrize("copy", [True, False])
def test_a_collision_of_keys_makes_no_other_document_the_oldest_copy(tmp_path: Path, copy: bool) -> None:
    """Of a document that was replaced or has left the window, with and without a live copy."""

    def passed(hour: int) -> list[tuple[str, str, int]]:
        return [(f"{hour} {n}", f"{n}a {n}b {n}c {n}d {hour}", hour) for n in range(100)]

    other, query = (OTHER, OTHER_TEXT, 5), ("query", TEXT, 11)
    live, early = ([("copy", TEXT, 5)], []) if copy else ([], [("copy", TEXT, 0)])
    left = [(FIRST, TEXT, 0), *early, *passed(5), other, *live, *passed(11), query]
    ended = [(id, "u v w", 6) for id in (FIRST, "copy")[: 2 - copy]]
    replaced = [(FIRST, TEXT, 5), *early, other, *live, *ended, query]
    for name, feed in (("left", left), ("replaced", replaced)):
        verdict = asked(tmp_path / name, feed, window="10h", time_field="time", on_conflict="update")
        assert [match["id"] for match in verdict["matches"]] == ["copy"] * copy, name
        assert verdict["duplicate_of"] == ("copy" if copy else None)


def test_copies_are_counted_and_the_oldest_is_named(tmp_path: Path) -> None:
    """Of many copies and followers as many are listed as are asked for; none is lost from the count of a copy."""
    chance = random.Random(2)
    base = WORDS[:60]
    documents = [Document(i, " ".join(base if i % 3 else edited(base, 1, chance))) for i in range(240)]
    settings = Settings(compare_with="all", max_verified_matches=0, max_matches=0, memtable_documents=16)
    every = once(documents, settings, tmp_path / "every", 50)
    short = once(documents, settings.model_copy(update={"max_matches": 4}), tmp_path / "short", 50)
    for few, full in zip(short, every, strict=True):
        assert len(few["matches"]) == min(4, len(full["matches"]))
        assert len(few["matches"]) + few.get("truncated", 0) == len(full["matches"])
        assert [match["similarity"] for match in few["matches"]] == [m["similarity"] for m in full["matches"][:4]]
        assert all(few[name] == full[name] for name in ("kind", "duplicate_of", "similarity"))

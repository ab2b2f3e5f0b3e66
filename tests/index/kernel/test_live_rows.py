"""Ranges of deleted rows in buckets are passed over, and not read again."""

import random
from pathlib import Path

import numpy as np
from support.feeds import WORDS
from support.indexes import asked, fed, opened

from stream_lsh.documents.document import Document
from stream_lsh.index.rows.deleted_ranges import BITS, DeletedRanges, pass_over, remember
from stream_lsh.settings.model import Settings


def test_deleted_rows_are_skipped_and_not_read_again(tmp_path: Path) -> None:
    """Three thousand in every bucket, in memory and in files: a newcomer meets the one that lives behind them."""
    settings = Settings(
        shingles="words:1", threshold=0.9, bands=4, rows=1, signature_size=64, max_bucket_rows=2, on_conflict="update",
        memtable_documents=1000, max_candidates=5,
    )  # fmt: skip
    chance, base = random.Random(3), WORDS[:20]
    documents = [Document(i, " ".join([*base, *chance.sample(WORDS[20:], 4)])) for i in range(3000)]
    with opened(settings, tmp_path) as index:
        fed(index, documents, 0, 500)
        fed(index, [Document(i, deleted=True) for i in range(1, 3000)], 3000, 500)
        deleted_ranges = index.shards[0].rows.deleted_rows.deleted_ranges
        for _ in range(3):
            (answer,) = asked(index, [Document("new", documents[0].text)])
            assert (answer["duplicate_of"], answer.get("not_compared")) == (0, None)
            (near,) = asked(index, [Document("new", f"{documents[0].text} more")])
            assert (near["duplicate_of"], near.get("not_compared")) == (0, None)
            known = deleted_ranges.slots[deleted_ranges.slots[:, 0] != 0]
            assert np.all(known[:, 1] > known[:, 2]) and len(known) >= 4
            index.shards[0].flush()
        assert int((known[:, 1] - known[:, 2]).max()) > 2900


def test_a_stretch_is_found_by_its_key_and_newest_row_only() -> None:
    """One whose place is taken by another is not found, and no other is found in its place."""
    deleted_ranges, known = DeletedRanges.of(), dict[tuple[int, int], int]()
    chance = random.Random(1)
    for _ in range(1 << BITS):
        key, newest = chance.randrange(1, 50) << 16, chance.randrange(20, 1 << 40)
        known[key, newest] = chance.randrange(newest)
        remember(deleted_ranges, np.uint64(key), np.int64(newest), np.int64(known[key, newest]))
        assert pass_over(deleted_ranges, np.uint64(key), np.int64(newest)) == known[key, newest]
    found = [pass_over(deleted_ranges, np.uint64(key), np.int64(row)) for key, row in known]
    assert all(row in (-1, oldest) for row, oldest in zip(found, known.values(), strict=True))
    assert 0.5 < np.mean(np.array(found) >= 0) < 0.8
    assert pass_over(deleted_ranges, np.uint64(1 << 32), np.int64(5)) == -1

"""Deleted rows in buckets are passed over; texts of old rows are read for many documents at once."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import WORDS
from support.indexes import asked, fed, opened

from stream_lsh.documents.document import Document
from stream_lsh.index import batch_run
from stream_lsh.index.rows.deleted_ranges import BITS, DeletedRanges, pass_over, remember
from stream_lsh.index.rows.texts import Texts
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


def test_a_deleted_range_is_found_by_its_key_and_newest_row_only() -> None:
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


N = 400


def feed(seed: int) -> tuple[list[Document], list[Document]]:
    """Texts, and each again with a word replaced, or as it was, some under the old ids."""
    chance = random.Random(seed)
    old = [Document(i, " ".join(chance.choices(WORDS, k=60))) for i in range(N)]
    new = []
    for document in old:
        words = document.text.split()
        if chance.random() < 0.8:
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        new.append(Document(document.id if chance.random() < 0.5 else f"again-{document.id}", " ".join(words)))
    return old, new


def run(folder: Path, settings: Settings, documents: tuple[list[Document], list[Document]]) -> list[dict[str, Any]]:
    """The verdicts on the second half, given by an index that has nothing of the first half at hand."""
    first, second = documents
    with opened(settings, folder) as index:
        fed(index, first, 0, N)
        index.commit({})
    with opened(settings, folder) as index:
        return fed(index, second, N, N)


@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_reading_ahead_changes_no_answer_and_reads_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compare_with: str
) -> None:
    settings = Settings(
        threshold=0.7, compare_with=compare_with, on_conflict="update" if compare_with == "kept" else "reject"
    )
    reads: list[int] = []
    read = Texts.read

    def counted(texts: Texts, rows: Any, most: int) -> Any:
        found = read(texts, rows, most)
        reads.append(len(found))
        return found

    monkeypatch.setattr(Texts, "read", counted)
    ahead = run(tmp_path / "ahead", settings, feed(1))
    many = list(reads)
    reads.clear()
    monkeypatch.setattr(batch_run, "GUESSED", 1)
    assert run(tmp_path / "one by one", settings, feed(1)) == ahead
    assert sum(verdict["kind"] != "unique" or "replaces" in verdict for verdict in ahead) > 0.9 * N
    assert len(reads) > 0.9 * N / 2 > 10 * len(many)
    assert max(many) > 100

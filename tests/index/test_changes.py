"""What was deleted or replaced is known to readers and later processes; what cannot be deleted is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import START
from support.in_memory import temporary_folder
from support.indexes import opened, verdicts_of
from support.long_form import rotating

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.rows.deleted_rows import CHUNK
from stream_lsh.index.store.rocksdb import DELETED_MARKS, Store, rows_key
from stream_lsh.settings.model import Settings

FEED = [Document(str(i), f"{i} {i} {i + 1}", time=START) for i in range(CHUNK + 5)]
SAID = "the marks of deleted rows of shard 0 are damaged; restore the folder from a backup"


def met(index: Index, text: str) -> int:
    """How many documents are similar to a text."""
    (found,) = index.query(index.sign(columns([Document("new", text)])))
    return len(found.row)


@pytest.fixture(scope="module")
def gone() -> Iterator[Path]:
    """An index in whose first and second chunk of bits something was deleted, before its last commit."""
    settings = Settings(
        shingles="words:1", bands=4, rows=1, signature_size=16, segment_documents=1000, on_conflict="update"
    )
    with temporary_folder() as folder:
        with opened(settings, folder) as index:
            verdicts_of(index, [*FEED, Document("7", "x y z"), Document(str(CHUNK + 1), deleted=True)], 0)
            index.commit({})
            verdicts_of(index, [Document("8", deleted=True)], CHUNK + 7)
            with opened(Settings(), folder, read_only=True) as reader:
                assert (reader.count, index.count) == (CHUNK + 4, CHUNK + 3)
                texts = [FEED[7].text or "", FEED[8].text or "", FEED[CHUNK + 1].text or "", "x y z"]
                assert [met(reader, text) for text in texts] == [0, 1, 0, 1]
                assert [met(index, text) for text in texts] == [0, 0, 0, 1]
        yield folder


def test_deleted_rows_are_deleted_in_later_processes(gone: Path) -> None:
    with opened(Settings(), gone) as index:
        assert index.count == CHUNK + 4
        assert [met(index, FEED[i].text or "") for i in (6, 7, 8, CHUNK, CHUNK + 1)] == [1, 0, 1, 1, 0]
    facts: Any = information(gone, check=True)
    assert (facts["documents"]["stored"], facts["health"]["problems"]) == (CHUNK + 4, [])


@pytest.mark.parametrize("damage", ["lost", *rotating(["changed", "of rows that are not there"], 1)])
def test_damaged_marks_of_deleted_rows(gone: Path, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(gone, tmp_path / "index")
    store = Store(folder / "db")
    ((row, bits),) = store.rows_of(DELETED_MARKS, 0, 4)
    assert row == CHUNK
    key = rows_key(DELETED_MARKS, 0, 4, row)
    if damage == "lost":
        store.write({}, ranges=[(key, key + b"\0")])
    else:
        store.write({key: bits + b"\1" if damage == "changed" else b"\0" * CHUNK + b"\1"})
    store.close()
    facts: Any = information(folder, check=True)
    assert [SAID in problem for problem in facts["health"]["problems"]] == [True]
    for more in ({}, {"read_only": True}):
        with pytest.raises(DamagedError, match=SAID), opened(Settings(), folder, **more):
            pass


@pytest.mark.parametrize("shards", [1, 2])
def test_an_empty_batch_may_come_first(tmp_path: Path, shards: int) -> None:
    with opened(Settings(on_conflict="update", shards=shards), tmp_path) as index:
        for batch in ([], [Document("a", "one two three four five six seven")], []):
            found = index.match(index.sign(columns(batch)), np.arange(index.count, index.count + len(batch)))
            assert [len(matches.status) for matches in found] == [len(batch)] * shards
        assert index.count == 1


def test_what_cannot_be_deleted_yet_is_refused(tmp_path: Path) -> None:
    for name, settings in (("all", Settings(compare_with="all")), ("two", Settings(shards=2))):
        with opened(settings, tmp_path / name) as index:
            verdicts_of(index, [Document("a", "a b c", time=START)], 0)
            with pytest.raises(UsageError, match="nothing can be deleted from the index in"):
                verdicts_of(index, [Document("b", "a b c"), Document("a", deleted=True)], 1)
            assert index.count == 1

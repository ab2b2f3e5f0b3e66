"""An index of a writer: where documents are found, what a commit brings, and whole files against it."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from support import jobs
from support.models.dense import dense
from support.waiting import until

from stream_lsh import Deduplicator, Settings
from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.erasure import erasure
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.querying import query
from stream_lsh.embedded.report import Progress
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.rows.layout import SEQ


def documents(*names: str, version: int = 0) -> Columns:
    return columns([Document(name, f"{name} has said that {name} {version} will come and {name} go") for name in names])


def numbers(engine: Engine, *names: str) -> list[int]:
    """The numbers of the documents with these ids, -1 where there is none."""
    found = engine.index.look_up([f'"{name}"'.encode() for name in names]).tolist()
    return [-1 if row < 0 else int(engine.index.words(shard, row)[SEQ]) for shard, row in found]


@pytest.mark.parametrize(
    "given", [{}, {"shards": 3}, {"compare_with": "all", "shards": 2}, {"segment_documents": 4}], ids=str
)
def test_documents_are_found_by_their_ids_before_and_after_a_commit(tmp_path: Path, given: dict[str, Any]) -> None:
    names = [f"d{i}" for i in range(10)]
    engine = Engine.open(Settings(**given), tmp_path)
    engine.add(documents(*names[:6]))
    assert numbers(engine, *names, "d1") == [0, 1, 2, 3, 4, 5, -1, -1, -1, -1, 1]
    engine.commit()
    engine.add(documents(*names[6:]))
    assert numbers(engine, *names) == list(range(10))
    engine.close()
    engine = Engine.open(Settings(), tmp_path)  # what was not committed is gone
    assert numbers(engine, *names) == [0, 1, 2, 3, 4, 5, -1, -1, -1, -1]
    assert engine.seq == 6
    engine.close()


def test_of_an_id_the_version_that_is_there_is_found(tmp_path: Path) -> None:
    engine = Engine.open(Settings(on_conflict="update"), tmp_path, groups=True)
    engine.add(documents("a", "b"))
    engine.add(documents("a", version=1))
    engine.add(columns([Document("b", deleted=True)]))
    assert numbers(engine, "a", "b") == [2, -1]
    engine.add(documents("b", version=2))
    assert numbers(engine, "a", "b") == [2, 4]
    engine.close()


def test_what_left_the_window_is_not_found(tmp_path: Path) -> None:
    engine = Engine.open(Settings(window="1h", time_field="ts"), tmp_path)
    for hour in range(3):
        engine.add(columns([Document(f"{hour}", f"what {hour} is and {hour} was", time=1_700_000_000 + 5400 * hour)]))
    assert numbers(engine, "0", "1", "2") == [-1, -1, 2]
    engine.close()


def test_what_cannot_be_judged_changes_nothing(tmp_path: Path) -> None:
    engine = Engine.open(Settings(compare_with="all"), tmp_path)
    with pytest.raises(UsageError, match="nothing can be deleted"):
        engine.add(columns([Document("a", deleted=True)]))
    assert engine.seq == 0
    assert engine.add(documents("a")).judgement.seqs.tolist() == [0]
    engine.close()


def test_an_interrupted_run_is_finished_first(tmp_path: Path) -> None:
    engine = Engine.open(Settings(), tmp_path)
    engine.index.commit({"job": {"next_seq": 3, "open": True, "done_in_job": 3, "outputs": {}}})
    engine.close()
    with pytest.raises(StoreError, match="finish that run first"):
        Engine.open(Settings(), tmp_path)


def test_what_was_deleted_is_erased_though_nothing_more_is_committed(tmp_path: Path) -> None:
    engine = Engine.open(Settings(on_conflict="update", erase_hours=0), tmp_path)
    engine.add(documents("a", "b"))
    engine.add(columns([Document("a", deleted=True)]))
    engine.commit()

    def erased() -> bool:
        engine.erase()
        return not erasure(engine.index.store).waiting

    until(erased)
    assert erasure(engine.index.store)[:2] == (1, 0)
    assert numbers(engine, "a", "b") == [-1, 1]
    engine.close()


def write(path: Path, documents: list[dict[str, Any]]) -> Path:
    jobs.write(path, *documents)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def files(folder: Path) -> dict[str, bytes]:
    """All that an index is made of, but what RocksDB logs."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("LOG", "LOCK"))]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("settings", [Settings(), Settings(compare_with="all", shards=2)], ids=["kept", "all"])
def test_each_document_gets_the_verdict_that_it_would_get_next(tmp_path: Path, settings: Settings) -> None:
    documents = [{"id": f"d{d.id}", "text": d.text} for d in dense(300)]
    feed, asked = write(tmp_path / "feed.jsonl", documents[:200]), write(tmp_path / "asked.jsonl.gz", documents[150:])
    state = tmp_path / "state"
    Job(settings, [str(feed)], {}, state).run()
    before, reports = files(state), list[Progress]()
    summary = query(Settings(), [str(asked)], str(tmp_path / "out.jsonl"), state, reports.append)
    assert files(state) == before
    found = jobs.read(tmp_path / "out.jsonl")
    assert [verdict["id"] for verdict in found] == [document["id"] for document in documents[150:]]
    assert [verdict["kind"] for verdict in found[:50]] == ["redelivered"] * 50
    with Deduplicator(index=state, read_only=True) as deduplicator:
        for document, verdict in zip(documents[150:], found, strict=True):
            assert verdict["seq"] is None
            if document["id"] in {f"d{number}" for number in range(200)}:
                continue
            matches = deduplicator.query(document["text"])
            assert [(match["id"], match["similarity"]) for match in verdict["matches"]] == [
                (match.id, match.similarity) for match in matches
            ]
            assert verdict["duplicate_of"] == (min(matches, key=lambda match: match.seq).id if matches else None)
            unique = settings.compare_with == "kept" and matches
            assert verdict["group"] == (min(match.seq for match in matches) if unique else None)
    assert (summary.documents, summary.redelivered, summary.index_documents) == (150, 50, 200)
    assert summary.near_duplicates > 20
    assert reports[-1].documents == 150 and reports[-1].bytes_read == reports[-1].bytes_total == asked.stat().st_size

"""A whole file against an index: nothing is added, and every document gets the verdict that it would get."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from support import jobs
from support.models.dense import dense

from stream_lsh import Deduplicator, Settings
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.querying import query
from stream_lsh.embedded.report import Progress


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

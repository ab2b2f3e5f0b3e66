"""Backups of an index that is being written: each is the index at one commit."""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import run
from support.feeds import changing
from support.serving import JSON, Serving

from stream_lsh.api.deduplicator import Deduplicator
from stream_lsh.documents.document import Document
from stream_lsh.embedded.backups import WEBHOOKS, backup_of, restore
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.postings.run import EARLIER_MAGIC
from stream_lsh.settings.model import Settings

SETTINGS: Mapping[str, Any] = {"on_conflict": "update", "memtable_documents": 128, "deleted_field": "gone"}
OPTIONS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
BACKUPS = 4


def said(document: Document) -> dict[str, Any]:
    return {"id": document.id, "gone": True} if document.deleted else {"id": document.id, "text": document.text}


def verdicts(index: Path, documents: Sequence[dict[str, Any]]) -> list[str]:
    """What an index says of documents that are added to it."""
    with Deduplicator(Settings(**SETTINGS, erase_hours=None), index=index) as deduplicator:
        return [repr(verdict) for verdict in deduplicator.process(documents)]


@pytest.mark.long
def test_backups_during_writes_are_the_index_at_a_commit(tmp_path: Path) -> None:
    documents = [said(document) for document in changing(5, 4000)]
    lines = [json.dumps(document).encode() + b"\n" for document in documents]
    folders: list[Path] = []
    with Serving(tmp_path / "index", *OPTIONS, "--erase-hours", "0", "--backup-folder", str(tmp_path)) as serving:
        parts = iter(range(0, len(lines), 50))

        def write() -> None:
            for at in parts:
                content = b"".join(lines[at : at + 50])
                answer = serving.client.post(
                    "/v1/documents", headers={"content-type": "application/x-ndjson"}, content=content
                )
                assert answer.text.count("\n") == 50

        writing = threading.Thread(target=write)
        writing.start()
        seqs: list[int] = []
        while len(folders) < BACKUPS:
            answer = serving.client.post("/v1/backups", headers=JSON, json={"name": f"b{len(folders)}"}).json()
            folders.append(Path(answer["folder"]))
            seqs.append(answer["next_seq"])
        writing.join()
        misspelt = serving.client.post("/v1/backups", headers=JSON, json={"nmae": "b0"})
        assert (misspelt.status_code, misspelt.json()["field"]) == (422, "nmae")
        again = serving.client.post("/v1/backups", headers=JSON, json={"name": "b0"})
        assert (again.status_code, again.json()["code"]) == (409, "backup_exists")
    model = verdicts(tmp_path / "model", documents)
    assert seqs == sorted(seqs) and seqs[0] < len(lines)
    for folder, seq in zip(folders, seqs, strict=True):
        restored = restore(folder, tmp_path / f"from {folder.name}")
        assert restored.next_seq == seq and not information(folder, check=True)["health"]["problems"]  # type: ignore[index]
        assert verdicts(restored.folder, documents[seq:]) == model[seq:]


def test_commands_back_up_and_restore(tmp_path: Path) -> None:
    index, feed = tmp_path / "index", tmp_path / "feed.jsonl"
    feed.write_text("".join(json.dumps({"id": i, "text": f"the text number {i} of a feed"}) + "\n" for i in range(200)))
    run("dedup", feed, "--index", index, "--memtable-documents", "64", "-q")
    (index / WEBHOOKS).mkdir()
    (index / WEBHOOKS / "desk.json").write_text("{}")
    assert "has the index after 200 documents" in run("backup", tmp_path / "a", "--index", index).stderr
    assert (tmp_path / "a" / WEBHOOKS / "desk.json").read_text() == "{}"
    assert not list((tmp_path / "a" / "db").glob("OPTIONS-*"))  # they have no checksum
    with pytest.raises(UsageError, match="in the folder of the index"):
        backup_of(index, index / "segments" / "backup")
    assert not (index / "segments" / ".backup.part").exists()
    with Serving(index) as serving:
        serving.add({"id": "new", "text": "another text, which is added by a service"})
        assert "has the index after 201 documents" in run("backup", tmp_path / "b", "--index", index).stderr
        assert serving.client.post("/v1/backups", headers=JSON, json={}).json()["field"] == "backup_folder"
        elsewhere = serving.client.post("/v1/backups", headers=JSON, json={"folder": str(tmp_path / "c")})
        assert elsewhere.status_code == 409 and not (tmp_path / "c").exists()
    run("restore", tmp_path / "b", "--index", tmp_path / "restored")
    with Deduplicator(index=tmp_path / "restored") as deduplicator:
        assert deduplicator.get("new") is not None and deduplicator.get(7) is not None
    with pytest.raises(UsageError, match="there is something in"):
        restore(tmp_path / "a", tmp_path / "restored")
    rows = next((tmp_path / "a").rglob("rows-0.bin"))
    rows.write_bytes(rows.read_bytes().replace(b"\x01", b"\x02"))
    with pytest.raises(StoreError, match="damaged"):
        restore(tmp_path / "a", tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()


def test_backups_of_an_earlier_revision_are_restored(tmp_path: Path) -> None:
    """Their runs are built again from the rows when the index is opened for writing."""
    documents = [said(document) for document in changing(5, 600)]
    model = verdicts(tmp_path / "model", documents)
    assert verdicts(tmp_path / "index", documents[:500]) == model[:500]
    runs = [*(tmp_path / "index").glob("segments/*/postings/run-*")]
    for path in runs:
        with path.open("r+b") as file:
            file.write(EARLIER_MAGIC)
    assert runs
    backup_of(tmp_path / "index", tmp_path / "copy")
    restored = restore(tmp_path / "copy", tmp_path / "restored").folder
    assert run("info", "--index", restored, "--check").stdout.endswith("problems                none\n")
    assert verdicts(restored, documents[500:]) == model[500:]


@pytest.mark.parametrize("memtable", [64, 65536])
def test_damaged_row_files_are_not_restored(tmp_path: Path, memtable: int) -> None:
    """Also if they have no rows yet."""
    with Deduplicator(Settings(memtable_documents=memtable), index=tmp_path / "index") as deduplicator:
        list(deduplicator.process(Document(i, f"the text number {i} of a feed") for i in range(200)))
    backup_of(tmp_path / "index", tmp_path / "copy")
    rows = tmp_path / "copy" / "segments" / "000000" / "rows-0.bin"
    rows.write_bytes(b"XXXXXXXX" + rows.read_bytes()[8:])
    with pytest.raises(StoreError, match="is damaged"):
        restore(tmp_path / "copy", tmp_path / "restored")

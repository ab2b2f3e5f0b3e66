"""Reads are answered while documents are judged, as of the last commit."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE

from stream_lsh.embedded.lines import Lines
from stream_lsh.serve import intake
from stream_lsh.serve.interface import MOST_COMPARISONS
from stream_lsh.serve.lines import one_line
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.service import Service
from stream_lsh.serve.writer import PART, Add, Check, Delete, joined
from stream_lsh.settings.model import Settings


def lines(*ids: str) -> Lines:
    return joined([one_line(json.dumps({"id": id, "text": f"a text of {id} alone " * 3}).encode()) for id in ids])


async def test_reads_do_not_wait_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered between its parts. A document of the import is shown after the commit, never before."""
    service = Service(Settings(on_conflict="update"), tmp_path / "index")
    await service.start()
    await service.answer(Add(lines("old", "other")))
    assert (await service.document("other"))["seq"] == 1  # reads are expected from now on
    began, asked, read = asyncio.Event(), threading.Event(), threading.Event()
    loop, add, parts = asyncio.get_running_loop(), service.engine.add, 0

    def slow(*given: Any, **named: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts == 2:
            loop.call_soon_threadsafe(began.set)
            assert asked.wait(PATIENCE)
        if parts == 3:
            assert read.wait(PATIENCE)
        return add(*given, **named)

    monkeypatch.setattr(service.engine, "add", slow)
    ids = ["other", *(f"d{i}" for i in range(3 * PART))]
    adding = asyncio.create_task(service.answer(Add(lines(*ids))))
    await began.wait()
    wanted = (service.document("old"), service.answer(Check(lines("old"))), service.stats(1))
    reads = [asyncio.create_task(each) for each in wanted]
    early = [asyncio.create_task(service.document(id)) for id in ("d0", "other")]
    await asyncio.sleep(0)  # all of them begin
    asked.set()
    document, check, _ = await asyncio.gather(*reads)
    assert document["seq"] == 0 and json.loads(check.lines[0])["kind"] == "redelivered"
    assert not any(task.done() for task in early), "they are of the import"
    read.set()
    assert [found["seq"] for found in await asyncio.gather(*early)] == [3, 1]
    assert service.engine.index.store.named("job")["next_seq"] == 2 + len(ids)
    await adding
    await service.answer(Delete(["d0"]))
    with pytest.raises(Problem, match="there is no document"):
        await service.document("d0")
    await service.stop()


async def test_reads_have_a_limit_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(Settings(), tmp_path / "index")
    await service.start()
    service.writer.waiting += service.limits.waiting_documents
    with pytest.raises(Problem, match="documents wait for their verdicts") as refused:
        service.intake.admit()
    service.intake.admit_read()
    monkeypatch.setattr(intake, "MOST_READS", 1)
    service.writer.reading += 1
    with pytest.raises(Problem, match="1 reads wait for their answers") as refused:
        service.intake.admit_read()
    assert refused.value.status == 429
    service.writer.waiting = 0
    service.intake.admit()
    await service.stop()


async def test_comparisons_are_made_one_at_a_time_and_few_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(Settings(), tmp_path / "index")
    await service.start()
    await service.answer(Add(lines("a", "b")))
    release, compare, under_way = threading.Event(), service._compare, 0

    def slow(*given: Any, **named: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert release.wait(PATIENCE) and under_way == 1
        under_way -= 1
        return compare(*given)

    monkeypatch.setattr(service, "_compare", slow)
    asked = [asyncio.create_task(service.compared("a", "b")) for _ in range(MOST_COMPARISONS)]
    await asyncio.sleep(0)  # all of them have their places
    with pytest.raises(Problem, match="8 comparisons wait already") as refused:
        await service.compared("a", "b")
    assert refused.value.status == 429 and service.tally.refused == 1
    release.set()
    assert {found["a"]["id"] for found in await asyncio.gather(*asked)} == {"a"}
    await service.compared("a", "b")
    await service.stop()

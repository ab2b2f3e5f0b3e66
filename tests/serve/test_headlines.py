"""What lists show of documents: headline, source and time, by id."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.raw_clients import asking, serving

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve import intake
from stream_lsh.serve.headline import MOST_CHARACTERS, Headline, headline
from stream_lsh.serve.lines import one_line
from stream_lsh.serve.pipeline import originals
from stream_lsh.serve.pipeline.originals import Original, Originals
from stream_lsh.serve.pipeline.service import PipelineService
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.writer import Add, joined

BRIDGE = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
NONE = {"headline": None, "source": None, "time": None}


async def test_headlines_are_the_first_text_field(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"text_field": ("title", "body"), "source_field": "from", "time_field": "ts"}
    async with serving(tmp_path, **fields) as (port, _), asking(port) as client:
        for n, id in enumerate((2**63 + 1, "a", "b")):
            said = {"id": id, "title": f"Bridge  number {n}", "body": BRIDGE, "from": f"paper-{n}"}
            said["ts"] = 1_700_000_000 + n
            assert (await client.post("/v1/documents", json=said)).status_code == 200
        assert (await client.post("/v1/headlines", json=["b", "missing", 2**63 + 1])).json() == {
            "documents": [
                {"id": "b", "headline": "Bridge number 2", "source": "paper-2", "time": 1_700_000_002_000},
                {"id": "missing", **NONE},
                {"id": 2**63 + 1, "headline": "Bridge number 0", "source": "paper-0", "time": 1_700_000_000_000},
            ]
        }
        for body in ({}, ["a", None], [True], [["a"]], ["a"] * 101, [1.5]):
            assert (await client.post("/v1/headlines", json=body)).status_code == 422
        plain = {"content-type": "text/plain"}
        assert (await client.post("/v1/headlines", content=b'["a"]', headers=plain)).status_code == 415


async def test_vectors_have_no_headline(tmp_path: Path) -> None:
    async with serving(tmp_path, measure="cosine", dimensions=4) as (_, service):
        await service.answer(Add(joined([one_line(b'{"id": "v", "vector": [1, 0, 0, 0]}')])))
        assert await service.headlines(["v"]) == [Headline()]


def test_headlines_are_short_lines() -> None:
    assert headline("\n\n  One\ttwo  \nthree") == "One two"
    assert headline(" \n ") is None
    long = headline("word " * 99)
    assert long is not None and long.endswith("word…") and len(long) <= MOST_CHARACTERS
    assert headline("字" * 999) == "字" * (MOST_CHARACTERS - 1) + "…"


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> PipelineService:
    """A pipeline in which the record of `late` is never read, and that of `lost` cannot be read."""

    async def read(_: Originals, topic: str, partition: int, offset: int) -> Original:
        if topic == "late":
            await asyncio.Event().wait()
        if topic == "lost":
            raise BrokerError("no broker")
        return Original("One\ntwo")

    def known(_: PipelineService, id: str) -> dict[str, Any]:
        return {"source": {"topic": id, "partition": 0, "offset": 0}, "time": 7}

    monkeypatch.setattr(Originals, "_record", read)
    monkeypatch.setattr(PipelineService, "_known", known)
    return PipelineService(KafkaSettings())


async def test_headlines_of_a_pipeline_do_not_wait_for_all(
    pipeline: PipelineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "LIST_SECONDS", 0)
    assert [one.headline for one in await pipeline.headlines(["late", "a", "lost"])] == [None, "One", None]


async def test_reads_of_a_pipeline_that_wait_are_limited(
    pipeline: PipelineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "MOST_HEADLINES", 2)
    monkeypatch.setattr(intake, "MOST_READS", 1)
    pipeline.intake.ready = True
    waiting = [asyncio.create_task(pipeline.headlines(["late", "late"]))]
    await asyncio.sleep(0)
    with pytest.raises(Problem, match="2 headlines wait"):
        await pipeline.headlines(["a"])
    pipeline.intake.admit_read()  # texts do not wait for headlines
    waiting.append(asyncio.create_task(pipeline.document("late", text=True)))
    await asyncio.sleep(0)
    with pytest.raises(Problem, match="1 reads wait"):
        pipeline.intake.admit_read()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [one.headline for one in await pipeline.headlines(["a", "b"])] == ["One", "One"]

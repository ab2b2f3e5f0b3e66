"""Lists over HTTP: pages, filters and cursors, while documents arrive; the headlines and counts in them."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.raw_clients import asking, serving
from support.serving import Serving, events

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve import intake
from stream_lsh.serve.counts import Tally
from stream_lsh.serve.headline import MOST_CHARACTERS, Headline, headline
from stream_lsh.serve.lines import one_line
from stream_lsh.serve.pipeline import originals
from stream_lsh.serve.pipeline.originals import Original, Originals
from stream_lsh.serve.pipeline.service import PipelineService
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.work import Add, joined

TEXT = "In {0} the council has voted for the {0} bridge over the {0} river; work in {0} takes {1}."
LAST = "two years", "two winters", "ten months", "a week"
HOUR = 3600


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("lists") / "index", "--source-field", "from", "--time-field", "ts") as it:
        yield it


def add(served: Serving, name: str, sources: str, hour: int = 0) -> list[dict[str, Any]]:
    """A group with a member an hour, each of the source that a letter names. Returns the verdicts."""
    return served.add_all(
        {"id": f"{name}{n}", "text": TEXT.format(name, LAST[n]), "from": source, "ts": (hour + n) * HOUR}
        for n, source in enumerate(sources)
    )


def get(served: Serving, path: str, **query: Any) -> dict[str, Any]:
    answer = served.client.get(f"/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_groups_are_listed_once_while_documents_arrive(served: Serving) -> None:
    begun = [add(served, f"once{n}", "ab", 10)[0]["group"] for n in range(5)]
    query, found, cursor = {"order": "newest", "limit": 2}, list[int](), dict[str, str]()
    while len(found) < len(begun):
        page = get(served, "groups", **query, **cursor)
        found += [row["group"] for row in page["groups"]]
        cursor = {"cursor": page["next_cursor"]}
        add(served, f"new{len(found)}", "ab", 10)
        add(served, "once0", "abcd"[: 2 + len(found) // 2], 10)
    assert found[: len(begun)] == begun[::-1]
    first = get(served, "groups", order="growing", limit=1, since="5h")
    add(served, "late", "ab", 1000)  # at the next page, five hours before the latest event would be later
    second = get(served, "groups", order="growing", limit=1, since="5h", cursor=first["next_cursor"])
    assert len(second["groups"]) == 1 and second["groups"][0]["joined_since"] > 0


def test_groups_and_members_are_filtered(served: Serving) -> None:
    small, large = (add(served, name, sources, 2000)[0]["group"] for name, sources in (("p", "xy"), ("q", "xyzz")))

    def groups(**query: Any) -> set[int]:
        return {small, large} & {row["group"] for row in get(served, "groups", limit=1000, **query)["groups"]}

    def members(**query: Any) -> list[str]:
        return [member["id"] for member in get(served, f"groups/{large}", **query)["members"]]

    assert groups(source="z") == groups(min_total=3) == groups(since=str(2002 * HOUR)) == {large}
    assert groups(min_similarity=0.5) == {small, large} and groups(min_similarity=1) == set()
    assert groups(q="Q RIVER; x") == groups(q="q0") == {large} and groups(q="q nowhere") == set()
    assert groups(until="1970-03-01") == set() and groups(since="3h", until=str(2000 * HOUR)) == {small, large}
    assert members(source="z") == members(since=str(2002 * HOUR)) == ["q2", "q3"]
    assert members(until=str(2001 * HOUR), min_similarity=0.2) == ["q1"]
    page = get(served, f"groups/{large}", limit=3)
    assert get(served, f"groups/{large}", cursor=page["next_cursor"])["members"][0]["id"] == "q3"


def test_pairs_are_filtered_and_continued(served: Serving) -> None:
    for name, sources in (("s", "opoq"), ("t", "oq")):
        add(served, name, sources, 3000)

    def newer(**query: Any) -> set[str]:
        return {pair["newer"] for pair in get(served, "pairs", **query)["pairs"]} & {"s1", "s2", "s3", "t1"}

    def walk(**query: Any) -> list[tuple[int, int]]:
        found, cursor = list[tuple[int, int]](), dict[str, Any]()
        while cursor != {"cursor": None}:
            page = get(served, "pairs", **query, **cursor)
            assert len(page["pairs"]) <= query["limit"]
            found += [(pair["newer_seq"], pair["older_seq"]) for pair in page["pairs"]]
            cursor = {"cursor": page["next_cursor"]}
        return found

    assert newer(q="S3 The s River; q") == newer(source="q", until="1970-05-06T03:00Z", q="s3") == {"s3"}
    assert newer(source="q") == {"s3", "t1"} and newer(since="1h") == newer(since="1970-05-06T02:00Z") == {"s2", "s3"}
    assert newer(min_similarity=1) == newer(q="s t nothing") == set()
    add(served, "u", "ab", 3000)
    served.add_all([{"id": n, "text": TEXT.format("Bestham", "x" * n), "from": "z"} for n in (1, 2, 3)])
    everything = walk(limit=1000)
    assert walk(limit=2) == everything == sorted(everything, key=lambda pair: -pair[0])
    assert walk(limit=3, best=True) == list({newer: (newer, older) for newer, older in everything}.values())
    assert walk(limit=1, source="q") == walk(limit=1000, source="q") != []


def test_events_are_filtered(served: Serving) -> None:
    seq = add(served, "e", "mnmn")[0]["seq"]

    def ids(end: int, **query: Any) -> list[Any]:
        headers = {"Last-Event-ID": f"{seq}.0"}
        with served.client.stream("GET", "/v1/events", params=query, headers=headers) as answer:
            some = (event["data"] for event in events(answer.iter_lines()) if "event" in event)
            return [next(some)["id"] for _ in range(end)]

    assert ids(2, kinds="verdict", source="n") == ["e1", "e3"]
    assert ids(3, kinds="verdict", min_similarity=0.1) == ["e1", "e2", "e3"]
    assert ids(2, kinds="group", min_total=3) == ["e2", "e3"]


def test_wrong_cursors_are_refused(served: Serving) -> None:
    for n in range(2):
        add(served, f"h{n}", "ab")
    good = get(served, "groups", limit=1)["next_cursor"]
    said = json.loads(base64.urlsafe_b64decode(good + "=" * (-len(good) % 4)))

    def cursor(*parts: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    others = [
        "", "x", "\u00e9", "A" * 300, good[:-3], good + "AAAA", cursor(), cursor(*said[:-1]),
        cursor("other", *said[1:]), *(cursor(*said[:-1], wrong) for wrong in (None, -1, 2**64, 1.5, True)),
        base64.urlsafe_b64encode(b"[" * 90).decode(), base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ]  # fmt: skip
    asked = [("groups", {"cursor": other}) for other in others]
    asked += [("groups", {"cursor": good, "order": "newest"}), ("groups", {"cursor": good, "source": "a"})]
    asked += [("groups/0", {"cursor": good}), ("pairs", {"cursor": good}), ("alerts", {"cursor": "x"})]
    for path, query in asked:
        answer = served.client.get(f"/v1/{path}", params=query)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), query
    growing = get(served, "groups", order="growing", limit=1)["next_cursor"]
    (digest, *_) = json.loads(base64.urlsafe_b64decode(growing + "=" * (-len(growing) % 4)))
    for far in (-(2**62), 2**62):
        for times in ((far, far), (None, far), (far, None)):
            get(served, "groups", order="growing", cursor=cursor(digest, *times, 2**62, 2**62))


def test_sources_of_events_need_a_source_field(tmp_path: Path) -> None:
    with Serving(tmp_path / "index") as serving:
        assert serving.client.get("/v1/events?source=x").json()["field"] == "source_field"


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


def test_latencies_have_their_true_maximum() -> None:
    tally = Tally(lambda: 0, lambda: 0, lambda: 0)
    tally.answered(0.0123)
    (second,) = tally.history(60)
    assert [second[name] for name in ("p50_ms", "p99_ms", "max_ms")] == [12.3, 12.3, 12.3]
    tally.answered(7.5)  # beyond the last class
    last = tally.history(60)[-1]
    assert (last["p99_ms"], last["max_ms"]) == (7500, 7500)
    tally.verdict({"kind": "unique"})
    assert all(second["max_ms"] is not None for second in tally.history(60) if second["p50_ms"] is not None)

"""The client, with and without asyncio, of a real service, also over a connection that loses answers."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isasyncgen
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from pydantic import BaseModel
from support.listening import Quiet, listening
from support.raw_clients import serving
from support.serving import JSON, Serving

from stream_lsh.client import AsyncClient, Client, RequestError, Unreachable, VerdictPending, calls
from stream_lsh.client.calls import KEYED_BYTES, add_lines
from stream_lsh.client.retries import Retries

TEXT = "The council has voted for the {0} bridge over the {0} river; work begins in {0} and takes two {1}."


class Waiting:
    """An `AsyncClient` whose methods wait for their results."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(url)

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            found = getattr(self._client, name)(*given, **named)
            if isasyncgen(found):
                return self._each(found)
            return self._loop.run_until_complete(found)

        return call

    def _each(self, found: Any) -> Iterator[Any]:
        try:
            while True:
                yield self._loop.run_until_complete(anext(found))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run_until_complete(found.aclose())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("client")
    options = ("--on-conflict=update", "--source-field=from", "--time-field=ts", f"--backup-folder={folder}")
    with Serving(folder / "index", *options) as it:
        yield it


@pytest.fixture(params=[Client, Waiting])
def kind(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    made: Callable[[str], Any] = request.param
    return made


def document(id: str | int, name: str, last: str = "years") -> dict[str, Any]:
    return {"id": id, "text": TEXT.format(name, last), "from": "herald", "ts": 1_700_000_000}


def known(found: Any) -> Any:
    """A result, of which the models have every field."""
    if isinstance(found, list):
        return [known(one) for one in found]
    if isinstance(found, BaseModel):
        assert not found.model_extra, found
        for value in dict(found).values():
            known(value)
    return found


def test_operations_have_typed_results(served: Serving, kind: Callable[[str], Any]) -> None:
    client, name = kind(served.url), kind.__name__
    first = known(client.add(document(f"{name}/1", name)))
    second, bad = known(list(client.add_many([document(f"{name} 2", name, "winters"), {"id": 3, "ts": 1}])))
    assert (second.kind, second.duplicate_of, second.matches[0].seq) == ("near_duplicate", f"{name}/1", first.seq)
    assert (bad.kind, bad.reason) == ("rejected", "missing_field")
    assert known(client.check(document("x", name, "days"))).duplicate_of == f"{name}/1"
    assert [one.seq for one in client.check_many([document("x", name)] * 2)] == [None, None]
    found = known(client.get(f"{name}/1", text=True))
    assert (found.seq, found.text) == (first.seq, TEXT.format(name, "years"))
    assert [one and one.seq for one in known(list(client.get_many(["?", f"{name}/1"])))] == [None, first.seq]
    assert client.get("?") is None
    assert known(client.compare(f"{name}/1", f"{name} 2")).match
    assert first.group in [row.group for row in known(list(client.groups(order="growing", since="7d")))]
    assert [member.id for member in known(client.group(first.group)).members] == [f"{name}/1", f"{name} 2"]
    assert known(client.stats(60)).totals.documents >= 3
    assert known(client.backup(f"of-{name}")).next_seq > second.seq
    assert [(event.kind, event.data["seq"]) for event in islice(client.events("verdict", after="0.0"), 1)] == [
        ("verdict", 0)
    ]
    with pytest.raises(RequestError) as refused:
        client.add(document(f"{name}/1", name, "months"), version=first.seq + 1000)
    assert (refused.value.status, refused.value.code) == (412, "version_changed")
    with pytest.raises(RequestError) as refused:
        client.add({"id": "no text", "ts": 1})
    assert refused.value.problem.verdict is not None and refused.value.problem.verdict.reason == "missing_field"
    assert client.delete(f"{name}/1", version=first.seq).deleted
    assert [one.deleted for one in client.delete_many([f"{name}/1", f"{name} 2"])] == [False, True]


def test_lists_are_read_page_after_page(
    served: Serving, kind: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ROWS", 2)
    client, name = kind(served.url), kind.__name__
    texts = [document(f"{name} {n} {copy}", f"{name}{n}", f"years{copy}") for n in range(5) for copy in range(3)]
    source = f"{name} daily"
    groups = [verdict.group for verdict in client.add_many([{**text, "from": source} for text in texts])][::3]
    assert [row.group for row in client.groups(order="newest", source=source)] == groups[::-1]
    assert [row.group for row in client.groups(order="newest", source=source, limit=3)] == groups[:1:-1]
    found = client.groups(order="newest", source=source, q=f"{name}3 {source}", min_similarity=0.1)
    assert [row.group for row in found] == [groups[3]]
    pairs = [(pair.newer, pair.older) for pair in client.pairs(q=f"{name}1", source=source, best=True)]
    assert pairs == [(f"{name} 1 2", f"{name} 1 0"), (f"{name} 1 1", f"{name} 1 0")]
    assert [member.id for member in client.members(groups[0])] == [f"{name} 0 {copy}" for copy in range(3)]
    assert [member.id for member in client.members(groups[0], min_similarity=0.1)] == [f"{name} 0 1", f"{name} 0 2"]
    events = client.events("verdict", after=f"{groups[0]}.0", source=source, min_similarity=0.1)
    assert [event.data["id"] for event in islice(events, 2)] == [f"{name} 0 1", f"{name} 0 2"]
    assert list(client.alerts()) == []


def test_events_of_ids_with_other_ends_of_lines(served: Serving, kind: Callable[[str], Any]) -> None:
    ids = [f"{kind.__name__}{end}b" for end in ("\u2028", "\x85", "\x1e", "\r")]
    seqs = [kind(served.url).add(document(id, "events")).seq for id in ids]
    events = kind(served.url).events("verdict", after=f"{seqs[0]}.0")
    assert [event.data["id"] for event in islice(events, len(ids))] == ids


@contextmanager
def losing(url: str, lost: Callable[[], object]) -> Iterator[str]:
    """A proxy that loses the first answer to each path; lost: called then."""
    seen: set[str] = set()

    class Proxy(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            answer = httpx.post(url + self.path, content=body, headers=headers)
            if self.path not in seen:
                seen.add(self.path)
                lost()
                self.close_connection = True
                return
            self.send_response(answer.status_code)
            for name in ("content-type", "content-length", "retry-after"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            if "content-length" not in answer.headers:
                self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    with listening(Proxy) as found:
        yield found


def test_lost_answer_counts_once(served: Serving, kind: Callable[[str], Any]) -> None:
    """Also if another client has written a later version meanwhile."""
    id, before = f"lost {kind.__name__}", served.client.get("/v1/stats").json()["index"]["next_seq"]
    later = json.dumps(document(id, "other"))

    def another() -> None:
        assert served.client.post("/v1/documents", headers=JSON, content=later).status_code == 200

    with losing(served.url, another) as url:
        said = kind(url).add(document(id, "first"))
    assert said.seq == before
    found = served.client.get(f"/v1/documents/{id}?text=true").json()
    assert (found["text"], found["seq"]) == (TEXT.format("other", "years"), before + 1)


def test_requests_are_repeated_with_pauses() -> None:
    def refused(status: int, **headers: str) -> RequestError:
        problem = {"type": "/problems/x", "title": "x", "status": status, "code": "x", "detail": "x"}
        return calls.problem_of(httpx.Response(status, json=problem, headers=headers))

    retries = Retries("GET /v1/stats", 3, lambda: 1.0)
    assert retries.pause(httpx.ConnectError("no")) == 0.25
    assert retries.pause(refused(429, **{"Retry-After": "7"})) == 7.5
    with pytest.raises(Unreachable, match=r"GET /v1/stats: ReadTimeout\('late'\)"):
        retries.pause(httpx.ReadTimeout("late"))
    with pytest.raises(RequestError):
        Retries("GET /v1/stats", 3).pause(refused(403))
    with pytest.raises(RequestError) as error:
        Retries("GET /v1/stats", 1).pause(calls.problem_of(httpx.Response(502, text="<html>")))
    assert (error.value.status, error.value.code) == (502, "unknown")


async def test_lines_are_sent_in_parts_and_large_ones_with_a_key(tmp_path: Path) -> None:
    """Of lines the service takes a key only up to KEYED_BYTES."""
    large = "word " * (KEYED_BYTES // 5 + 1)
    async with serving(tmp_path) as (port, _), AsyncClient(f"http://127.0.0.1:{port}") as client:
        texts = ({"id": i, "text": f"{i} {TEXT.format(i, i)}"} for i in range(2500))
        assert [verdict.seq async for verdict in client.add_many(texts)] == list(range(2500))
        same = [{"id": "large", "text": begin + large} for begin in ("one ", "another ")]
        said = [(verdict.kind, verdict.reason) async for verdict in client.add_many(same)]
    assert said == [("unique", None), ("rejected", "id_reused")]


def test_late_verdict_is_given_with_the_other_answers() -> None:
    verdict = {"id": 1, "seq": 0, "kind": "unique", "duplicate_of": None, "similarity": None, "group": 0, "matches": []}
    source = {"topic": "documents", "partition": 0, "offset": 7}
    late = {"id": 2, "taken": True, "source": source, "look": "/v1/documents/2?id_type=json", "detail": "late"}
    content = "".join(json.dumps(line) + "\n" for line in (verdict, late, {**verdict, "id": 3}))
    with pytest.raises(VerdictPending) as pending:
        add_lines([b"{}\n"] * 3, True).read(httpx.Response(200, content=content))
    assert (pending.value.accepted.id, [answer.id for answer in pending.value.answers]) == (2, [1, 2, 3])


def test_addresses_are_short_and_tokens_are_those_of_a_file() -> None:
    assert len(unquote(calls.path_of("日" * 683))) < 800
    assert calls.authorization("lsh_abc\n") == {"Authorization": "Bearer lsh_abc"}
    with pytest.raises(ValueError, match="token add") as caught:
        calls.authorization("not a token")
    assert "not a" not in str(caught.value)

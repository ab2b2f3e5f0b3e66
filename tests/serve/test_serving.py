"""The interface over HTTP, of a real process."""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner
from support.commands import run
from support.json_lines import read_lines, write_lines
from support.pages import METRICS, rows
from support.serving import JSON, NDJSON, Serving, entry, events, write
from support.waiting import until

from stream_lsh.cli import main
from stream_lsh.serve.problems import MEDIA_TYPE

BRIDGE = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
AGAIN = BRIDGE.replace("years", "winters")
MUSEUM = "The harbour museum opens its doors again on Saturday after a winter of repairs to the roof."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service that many tests use: their ids and texts are their own."""
    state = tmp_path_factory.mktemp("served") / "index"
    with Serving(state, "--on-conflict", "update", "--source-field", "from", "--time-field", "ts") as it:
        yield it


def text(name: str, last: str = "years") -> str:
    """A text that belongs to one test."""
    return f"In {name} the council has voted for the {name} bridge over the {name} river; work takes two {last}."


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """What a problem says."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE), answer.text
    found: dict[str, Any] = answer.json()
    assert found["status"] == status and found["detail"] and found["type"] == f"/problems/{found['code']}"
    return found


def test_the_health_of_a_container_is_that_of_its_service(served: Serving) -> None:
    port = served.client.base_url.port
    for words, code, said in ((["--port", str(port)], 0, "ready"), (["--port", str(port), "--https"], 1, "not live")):
        result = CliRunner().invoke(main, ["health", *words])
        assert result.exit_code == code and said in result.output, result.output


def test_a_document_gets_its_verdict_and_is_found_again(served: Serving) -> None:
    first = served.add({"id": "a1", "text": text("a"), "from": "x", "ts": 1_700_000_000})
    assert first == {
        "id": "a1", "seq": first["seq"], "kind": "unique", "duplicate_of": None, "similarity": None,
        "group": first["seq"],
        "matches": [],
    }  # fmt: skip
    second = served.add({"id": "a2", "text": text("a", "winters"), "from": "y", "ts": 1_700_000_060})
    assert (second["kind"], second["duplicate_of"], second["group"]) == ("near_duplicate", "a1", first["seq"])
    assert [match["id"] for match in second["matches"]] == ["a1"]
    assert served.client.get("/v1/documents/a2", params={"text": "true"}).json() == {
        "id": "a2", "seq": second["seq"], "kind": "near_duplicate", "duplicate_of": "a1",
        "similarity": second["similarity"],
        "group": first["seq"], "time": 1_700_000_060_000, "state": "dropped", "text": text("a", "winters"),
    }  # fmt: skip
    group = served.client.get(f"/v1/groups/{first['seq']}").json()
    assert (group["live_members"], [member["id"] for member in group["members"]]) == (2, ["a1", "a2"])
    assert group["first_sources"] == ["x", "y"]
    for order in ("largest", "newest", "growing"):
        listed = served.client.get("/v1/groups", params={"order": order, "limit": 1000}).json()["groups"]
        assert first["seq"] in [row["group"] for row in listed]


def test_the_same_again_gets_the_answer_of_the_first_time(served: Serving) -> None:
    first = served.add({"id": "r1", "text": text("r"), "ts": 1})
    second = served.add({"id": "r2", "text": text("r", "winters"), "ts": 2})
    assert second["matches"]
    for document, answer in (("r1", first), ("r2", second)):
        again = served.add({"id": document, "text": text("r", "years" if document == "r1" else "winters"), "ts": 3})
        assert again == {**answer, "matches": [], "redelivered": again["redelivered"]}
        assert again["redelivered"] > second["seq"]


def test_lines_are_answered_line_by_line(served: Serving) -> None:
    documents = [
        {"id": "n1", "text": text("n"), "ts": 1}, {"id": "n2", "ts": 1},
        {"id": "n3", "text": text("n", "weeks"), "ts": 1},
    ]  # fmt: skip
    said = served.add_all(documents)
    assert [verdict["kind"] for verdict in said] == ["unique", "rejected", "near_duplicate"]
    assert said[1]["reason"] == "missing_field" and said[1]["seq"] == said[0]["seq"] + 1
    body = b'\n{"id": "n4"\n  \n{"id": "n5", "ts": 1, "text": "\xff"}\n[1]\n"x"'
    answer = served.client.post("/v1/documents", headers=NDJSON, content=body)
    assert [line["reason"] for line in read_lines(answer.text)] == [
        "not_json", "not_utf8", "not_json", "not_json"
    ]  # fmt: skip
    assert served.client.post("/v1/documents", headers=NDJSON, content=b"").text == ""


def test_a_check_adds_nothing(served: Serving) -> None:
    served.add({"id": "c1", "text": text("c"), "ts": 1})
    for _ in range(2):
        (said,) = served.add_all([{"id": "c2", "text": text("c", "weeks"), "ts": 1}], "/v1/check")
        assert (said["seq"], said["kind"], said["duplicate_of"]) == (None, "near_duplicate", "c1")
    problem(served.client.get("/v1/documents/c2"), 404)


def test_a_deleted_document_is_removed_and_has_a_new_representative(served: Serving) -> None:
    first = served.add({"id": "d1", "text": text("d"), "ts": 1})
    served.add_all([{"id": name, "text": text("d", "weeks"), "ts": 1} for name in ("d2", "d3")])
    gone = served.client.delete("/v1/documents/d1").json()
    assert (gone["kind"], gone["replaces"], gone["new_representative"]["id"]) == ("deleted", first["seq"], "d2")
    problem(served.client.get("/v1/documents/d1"), 404)
    assert served.client.get("/v1/documents/d2").json()["state"] == "kept"
    assert served.client.get("/v1/documents/d3").json()["state"] == "dropped"
    said = served.client.post("/v1/deletions", headers=NDJSON, content=b'"d2"\n"nobody"\n17\n').text.splitlines()
    assert [json.loads(line).get("new_representative", {}).get("id") for line in said] == ["d3", None, None]
    assert [json.loads(line)["deleted"] for line in said] == [True, False, False]


ODD_IDS = ("17", "007", "1e3", "null", '"17"', "a/b c?", "a\nb", "ü 中", "..", "")


def path_of(id: str) -> str:
    return f"/v1/documents/{quote(id, safe='').replace('.', '%2E')}"


def test_ids_in_a_path_are_text_unless_json_is_asked_for(served: Serving) -> None:
    served.add_all([{"id": id, "text": text(f"p{i}"), "ts": 1} for i, id in enumerate((*ODD_IDS, 17))])
    for id in ODD_IDS:
        assert served.client.get(path_of(id)).json()["id"] == id
        assert served.client.get(path_of(json.dumps(id)), params={"id_type": "json"}).json()["id"] == id
    assert served.client.get(path_of("17"), params={"id_type": "json"}).json()["id"] == 17
    for id in ("a", "1e3", "null", "007", "[1]"):
        assert problem(served.client.get(path_of(id), params={"id_type": "json"}), 422)["field"] == "id"
    numbers = {"a": "17", "b": '"17"', "id_type": "json"}
    found = served.client.get("/v1/compare", params=numbers).json()
    assert (found["a"]["id"], found["b"]["id"]) == (17, "17")
    assert problem(served.client.get("/v1/compare", params={**numbers, "b": "x"}), 422)["field"] == "b"


def test_a_deletion_says_whether_something_was_deleted(served: Serving) -> None:
    served.add_all([{"id": id, "text": text(f"o{i}"), "ts": 1} for i, id in enumerate((*ODD_IDS, 18, "18"))])
    gone = served.client.delete("/v1/documents/18").json()
    assert (gone["id"], gone["deleted"]) == ("18", True)
    assert served.client.delete("/v1/documents/18").json()["deleted"] is False
    assert "id_type=json" in problem(served.client.get("/v1/documents/18"), 404)["detail"]
    gone = served.client.delete("/v1/documents/18", params={"id_type": "json"}).json()
    assert (gone["id"], gone["deleted"]) == (18, True)
    for id in ODD_IDS:
        assert served.client.delete(path_of(id)).json()["deleted"] is True
        problem(served.client.get(path_of(id)), 404)


def test_many_documents_are_looked_up(served: Serving) -> None:
    served.add_all([{"id": id, "text": text(f"q{i}"), "ts": 1} for i, id in enumerate(("q", 19))])
    said = served.client.post("/v1/lookups?text=true", headers=NDJSON, content=b'"q"\n"19"\n19\n').text.splitlines()
    one, none, other = map(json.loads, said)
    assert (one["text"], none["id"], none["problem"]["code"]) == (text("q0"), "19", "unknown_document")
    assert other == served.client.get("/v1/documents/19?id_type=json&text=true").json()


def test_an_id_that_is_too_long_is_no_id(served: Serving) -> None:
    problem(served.client.get("/v1/documents/" + "[" * 4000), 404)
    problem(served.client.get("/v1/documents/" + "é" * 4000), 422)


def test_two_documents_side_by_side(served: Serving) -> None:
    served.add_all([{"id": "s1", "text": text("s"), "ts": 1}, {"id": "s2", "text": text("s", "winters"), "ts": 1}])
    served.add({"id": "s3", "text": MUSEUM, "ts": 1})
    found = served.client.get("/v1/compare", params={"a": "s1", "b": "s2"}).json()
    for side, last in (("a", " years."), ("b", " winters.")):
        (span,) = found[side]["spans"]
        assert found[side]["text"][slice(*span)] + last == found[side]["text"]
    assert found["match"] and found["same_group"] and "not below the threshold of 0.8" in found["why"]
    other = served.client.get("/v1/compare", params={"a": "s1", "b": "s3"}).json()
    assert (other["match"], other["shared"], other["a"]["spans"]) == (False, 0, [])
    assert "is below the threshold" in other["why"]
    problem(served.client.get("/v1/compare", params={"a": "s1", "b": "nobody"}), 404)


def test_events_are_sent_once_and_from_the_last_position(served: Serving) -> None:
    with served.client.stream("GET", "/v1/events", params={"kinds": "verdict,pair,group"}) as answer:
        reported = events(answer.iter_lines())
        place = next(reported)["id"]
        served.add_all([{"id": "e1", "text": text("e"), "ts": 1}, {"id": "e2", "text": text("e", "weeks"), "ts": 1}])
        found = [next(reported) for _ in range(4)]
    assert [event["event"] for event in found] == ["verdict", "verdict", "pair", "group"]
    assert [event["data"].get("id", event["data"].get("newer")) for event in found] == ["e1", "e2", "e2", "e2"]
    assert [event["data"]["seq"] for event in found[:2]] == [int(place.split(".")[0]) + i for i in range(2)]
    for behind in range(4):
        headers = {"Last-Event-ID": found[behind]["id"]}
        with served.client.stream("GET", "/v1/events?kinds=verdict,pair,group", headers=headers) as answer:
            reported = events(answer.iter_lines())
            assert next(reported)["id"] == found[behind]["id"]
            assert [next(reported) for _ in found[behind + 1 :]] == found[behind + 1 :]
    with served.client.stream("GET", "/v1/events?kinds=pair", headers={"Last-Event-ID": "0.0"}) as answer:
        assert next(event for event in events(answer.iter_lines()) if "event" in event)["event"] == "pair"


@pytest.mark.parametrize(
    ("request_of", "field", "said"),
    [
        ("DELETE /v1/documents/q1?idtype=json", "idtype", "did you mean id_type?"),
        ("DELETE /v1/documents/q1?id_type=text&id_type=json", "id_type", "give it once"),
        ("DELETE /v1/documents/q1?durable=false&durable=false", "durable", "give it once"),
        ("DELETE /v1/documents/q1?cascade", "cascade", "leave it out"),
        ("POST /v1/deletions?id_type=json", "id_type", "leave it out"),
        ("POST /v1/documents?durible=false", "durible", "did you mean durable?"),
        ("POST /v1/alerts/test?webhok=desk", "webhok", "did you mean webhook?"),
        ("POST /v1/webhooks/desk/resend?durable=true", "durable", "leave it out"),
        ("POST /v1/backups?name=monday", "name", "leave it out"),
    ],
)
def test_a_write_refuses_parameters_that_it_does_not_have(
    served: Serving, request_of: str, field: str, said: str
) -> None:
    served.add({"id": "q1", "text": text("q1"), "ts": 1})
    before = served.client.get("/v1/stats").json()["index"]["next_seq"]
    found = problem(served.client.request(*request_of.split(), headers=NDJSON, content=b'"q1"\n'), 422)
    assert found["field"] == field and found["detail"].startswith(f"{field}: ") and said in found["detail"]
    assert served.client.get("/v1/stats").json()["index"]["next_seq"] == before
    assert served.client.get("/v1/documents/q1?unknown=1").status_code == 200  # a read ignores it


def test_what_is_wrong_is_a_problem_with_its_name(served: Serving) -> None:
    post = served.client.post
    assert problem(post("/v1/documents", content=b"{}"), 415)["field"] == "Content-Type"
    said = problem(post("/v1/documents", headers=JSON, content=b'{"id": "w1", "text": 5, "ts": 1}'), 422)
    assert (said["verdict"]["reason"], said["verdict"]["id"]) == ("wrong_type", "w1")
    assert problem(post("/v1/documents?durable=perhaps", headers=JSON, content=b"{}"), 422)["field"] == "durable"
    assert problem(served.client.get("/v1/groups?since=soon"), 422)["field"] == "since"
    for query, said in (
        ("groups?order=best", "order: give 'largest', 'newest' or 'growing'"),
        ("groups?limit=0", "limit: give at least 1"), ("groups?limit=x", "limit: give an integer"),
        ("compare?a=b", "b: give a value, as it is not there"),
        ("documents/a?id_type=xml", "id_type: give 'text' or 'json'"), ("stats?seconds=99999", "seconds: give at most"),
    ):  # fmt: skip
        found = problem(served.client.get(f"/v1/{query}"), 422)
        assert found["field"] == said.partition(":")[0] and found["detail"].startswith(said), found
    assert problem(served.client.get("/v1/events?kinds=all"), 422)["field"] == "kinds"
    assert problem(served.client.get("/v1/events", headers={"Last-Event-ID": "x"}), 422)["field"] == "Last-Event-ID"
    problem(served.client.get("/v1/groups/999999"), 404)
    assert problem(post("/v1/lookups", headers=NDJSON, content=b"null\n"), 422)["detail"].startswith("'null' is no id")
    unknown = problem(served.client.get("/v1/nothing"), 404)
    assert served.client.get(unknown["type"]).text.startswith(unknown["title"])
    problem(served.client.put("/v1/documents"), 405)


def test_gzip_bodies_are_inflated_up_to_the_limit(served: Serving) -> None:
    lines = b"".join(json.dumps({"id": f"g{i}", "text": text(f"g{i}"), "ts": 1}).encode() + b"\n" for i in range(3))
    halves = gzip.compress(lines[:50]) + gzip.compress(lines[50:])

    def send(kind: dict[str, str], body: bytes, encoding: str = "gzip") -> httpx.Response:
        headers = {**kind, "Content-Encoding": encoding}
        return served.client.post("/v1/documents", headers=headers, content=body)

    assert [json.loads(line)["id"] for line in send(NDJSON, halves).text.splitlines()] == ["g0", "g1", "g2"]
    for kind, size in ((JSON, 17 << 20), (NDJSON, 65 << 20)):
        bomb = gzip.compress(b"\n" * size, 1)
        assert len(bomb) < 1 << 19 and problem(send(kind, bomb), 413)["code"] == "too_large"
    for body in (halves[:30], b"text", b""):
        assert problem(send(NDJSON, body), 400)["field"] == "body"
    assert problem(send(NDJSON, halves, "br"), 415)["field"] == "Content-Encoding"


def test_head_allow_and_date(served: Serving) -> None:
    for path in ("/v1/groups?limit=1", "/", "/v1/events", "/page/page.js"):
        head = served.client.head(path)
        assert (head.status_code, head.content) == (200, b"") and head.headers["Date"].endswith(" GMT")
    get = served.client.get("/v1/groups?limit=1")
    assert served.client.head("/v1/groups?limit=1").headers["Content-Length"] == get.headers["Content-Length"]
    for path, methods in (("/v1/documents/x", "DELETE, GET, HEAD"), ("/v1/documents", "POST"), ("/", "GET, HEAD")):
        answer = served.client.put(path)
        assert problem(answer, 405)["code"] == "method_not_allowed" and answer.headers["Allow"] == methods
    assert 'method="HEAD",route="/v1/events",status="200"' in served.client.get("/metrics").text


def test_pages_of_other_sites_get_nothing(served: Serving) -> None:
    get = served.client.get
    assert problem(get("/v1/stats", headers={"Host": "evil.example"}), 403)["field"] == "Host"
    assert problem(get("/v1/stats", headers={"Origin": "https://evil.example"}), 403)["field"] == "Origin"
    own = get("/v1/stats", headers={"Origin": served.url})
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers
    assert "default-src 'none'" in own.headers["content-security-policy"]
    page = get("/")
    assert page.headers["content-type"].startswith("text/html") and "http" not in page.text.replace("http-equiv", "")


def test_the_counts_are_those_of_what_was_done(served: Serving) -> None:
    before = served.client.get("/v1/stats").json()
    served.add_all([{"id": f"k{i}", "text": text("k", last), "ts": 1} for i, last in enumerate(("days", "weeks"))])
    after = served.client.get("/v1/stats").json()
    for kind in ("unique", "near_duplicate"):
        assert after["totals"]["kinds"][kind] == before["totals"]["kinds"][kind] + 1
    assert after["index"]["next_seq"] == before["index"]["next_seq"] + 2
    shown = served.client.get("/metrics").text
    assert f'stream_lsh_serve_verdicts_total{{kind="unique"}} {after["totals"]["kinds"]["unique"]}.0' in shown
    assert f"stream_lsh_serve_next_seq {after['index']['next_seq']}.0" in shown
    assert f"stream_lsh_serve_index_documents {after['index']['documents']}.0" in shown
    for route in ("nothing", "everything"):
        served.client.get(f"/v1/{route}")
    served.client.request("PURGE", "/v1/documents/k0")
    counted = "stream_lsh_serve_requests_total{"
    labels = [line for line in served.client.get("/metrics").text.splitlines() if line.startswith(counted)]
    assert {f'{counted}method="GET",route="/v1/stats",status="200"}}' in line for line in labels} == {True, False}
    assert len([line for line in labels if 'route="other",status="404"' in line]) == 1
    assert any('method="other",route="/v1/documents/{id}",status="405"' in line for line in labels)
    assert served.client.get("/health/live").json() == {"status": "live"}
    assert served.client.get("/health/ready").json() == {"status": "ready"}


def test_every_metric_of_a_service_is_described(served: Serving) -> None:
    names = re.findall(
        r"^# TYPE (stream_lsh_\w+) (?:counter|gauge|histogram)$", served.client.get("/metrics").text, re.M
    )
    described = {row[0].strip("`") for row in rows(METRICS, "metric of serve") if row[1] != "webhook"}
    assert {name for name in names if not name.endswith("_created")} == described


def test_the_command_line_deletes_through_the_service(served: Serving) -> None:
    served.add({"id": "l1", "text": text("l"), "ts": 1})
    command = ("delete", "l1", "nobody", "--index", served.state)
    done = run(*command)
    assert done.stderr == "stream-lsh: 1 document deleted, 1 id not found\n"
    assert [verdict["kind"] for verdict in read_lines(done.stdout)] == ["deleted", "deleted"]
    problem(served.client.get("/v1/documents/l1"), 404)
    assert "a service has the index" in run(*command, "--unique", "x", code=2).stderr


@pytest.mark.parametrize("command", ["dedup", pytest.param("pairs", marks=pytest.mark.long)])
def test_an_index_is_served_as_it_was_made(tmp_path: Path, command: str) -> None:
    """By a command that keeps no groups: nothing has to be given; what only groups can do is refused."""
    state = tmp_path / "index"
    feed = write_lines(tmp_path / "feed.jsonl", [{"id": 1, "text": BRIDGE}])
    run(command, feed, "--index", state, "-q", *(["--no-groups"] if command == "dedup" else []))
    with Serving(state) as serving:
        assert serving.add({"id": 2, "text": AGAIN})["duplicate_of"] == 1
        problem(serving.client.get("/v1/groups"), 409)
    for option in ("--groups", "--source-field=from"):
        refused = CliRunner().invoke(main, ["serve", "--index", str(state), "--port", "0", option])
        assert refused.exit_code in (2, 3) and "groups" in refused.stderr, refused.output


@pytest.mark.long
def test_an_index_with_updates_is_served_as_one(tmp_path: Path) -> None:
    """Nobody has to say it again for a field that deletes."""
    state, feed = tmp_path / "index", write_lines(tmp_path / "feed.jsonl", [{"id": 1, "text": BRIDGE}])
    run("dedup", feed, "--index", state, "--on-conflict", "update", "--deleted-field", "gone", "-q")
    with Serving(state, "--deleted-field", "gone") as serving:
        assert serving.add({"id": 1, "gone": True})["kind"] == "deleted"


@pytest.mark.long
def test_a_restart_continues_without_a_gap(tmp_path: Path) -> None:
    """And what was answered at once, before it was on the disk, is there after SIGTERM."""
    serving = Serving(tmp_path / "index", "--compare-with", "all", "--no-groups")
    with serving:
        serving.add({"id": 1, "text": BRIDGE}, durable="false")
        with serving.client.stream("GET", "/v1/events", headers={"Last-Event-ID": "0.0"}) as answer:
            reported = events(answer.iter_lines())
            assert next(reported)["id"] == "0.0"
            assert next(reported)["data"]["id"] == 1
            assert serving.stop()[0] == 0
            last = [event["id"] for event in reported][-1]
        assert last == "1.0"
        serving.start()
        headers = {"Last-Event-ID": last}
        with serving.client.stream("GET", "/v1/events?kinds=verdict", headers=headers) as answer:
            reported = events(answer.iter_lines())
            assert next(reported)["id"] == last
            serving.add({"id": 2, "text": AGAIN})
            found = next(reported)
        assert (found["event"], found["data"]["seq"], found["data"]["duplicate_of"]) == ("verdict", 1, 1)
        assert problem(serving.client.get("/v1/groups"), 409)["field"] == "compare_with"
        assert problem(serving.client.delete("/v1/documents/1"), 409)["field"] == "on_conflict"


def test_tokens_say_what_is_allowed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    desk = entry("desk", "secret-desk", "read", "write", "delete")
    feed = entry("feed", "secret-feed", "write")
    tokens.write_text(desk + feed + entry("screen", "secret-screen", "read"))

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    updates = ("--on-conflict", "update", "--deleted-field", "gone")
    with Serving(tmp_path / "index", "--token-file", str(tokens), "--host", "0.0.0.0", *updates) as serving:
        client = serving.client
        document = json.dumps({"id": 1, "text": BRIDGE})
        assert problem(client.get("/v1/stats"), 401)["field"] == "Authorization"
        assert problem(client.get("/v1/stats", headers=bearer("secret")), 401)
        assert problem(client.get("/metrics"), 401)
        assert client.get("/v1/stats", headers=bearer("secret-screen")).status_code == 200
        # With a field that deletes, `write` alone does not suffice.
        for token, status in (("secret-screen", 403), ("secret-feed", 403), ("secret-desk", 200)):
            answer = client.post("/v1/documents", headers={**JSON, **bearer(token)}, content=document)
            assert answer.status_code == status
            assert client.delete("/v1/documents/0", headers=bearer(token)).status_code == status
            answer = client.post("/v1/deletions", headers={**NDJSON, **bearer(token)}, content=b"0\n")
            assert answer.status_code == status
        assert client.get("/").status_code == client.get("/health/live").status_code == 200
        with ExitStack() as streams:
            opened = []
            for token in ("secret-desk", "secret-screen"):
                answer = streams.enter_context(client.stream("GET", "/v1/events", headers=bearer(token)))
                opened.append(events(answer.iter_lines()))
                assert next(opened[-1])["id"] == "3.0"
            write(tokens, entry("desk", "secret-new", "read") + entry("screen", "secret-screen", "write"))
            assert [list(reported) for reported in opened] == [[], []]  # both have ended
        assert client.get("/v1/stats", headers=bearer("secret-new")).status_code == 200
        assert problem(client.get("/v1/stats", headers=bearer("secret-desk")), 401)
        assert b"secret" not in b"".join(path.read_bytes() for path in serving.state.rglob("*") if path.is_file())
        code, said = serving.stop()
        assert (code, "was read again: 2 tokens" in said, "secret" in said) == (0, True, False)


def test_a_revoked_token_adds_nothing_more(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write(tokens, entry("desk", "secret-desk", "write") + entry("screen", "secret-screen", "read"))
    desk, screen = ({"Authorization": f"Bearer secret-{name}"} for name in ("desk", "screen"))
    with Serving(tmp_path / "index", "--token-file", str(tokens)) as serving:

        def lines() -> Iterator[bytes]:
            yield json.dumps({"id": "before", "text": BRIDGE}).encode() + b"\n"
            write(tokens, entry("screen", "secret-screen", "read"))
            until(lambda: serving.client.delete("/v1/documents/0", headers=desk).status_code == 401)
            yield json.dumps({"id": "after", "text": BRIDGE}).encode() + b"\n"

        said = serving.client.post("/v1/documents", headers={**NDJSON, **desk}, content=lines()).text.splitlines()
        assert json.loads(said[0])["id"] == "before" and json.loads(said[1])["problem"]["status"] == 401
        assert serving.client.get("/v1/documents/after", headers=screen).status_code == 404
        assert "was read again: 1 token" in serving.stop()[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--host", "0.0.0.0"), "without tokens only this machine may reach it"),
        (("--tls-key", "key.pem"), "TLS needs both"),
        (("--token-file", "nothing.toml"), "tokens file nothing.toml: No such file"),
        (("--id-field", "@line"), "documents over HTTP have no line numbers"),
        (("--groups", "--compare-with", "all"), "only under --compare-with kept there are groups"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    assert says in run("serve", "--index", tmp_path / "index", "--port", "0", *options, code=2).stderr

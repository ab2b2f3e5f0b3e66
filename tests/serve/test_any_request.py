"""Whatever is asked: an answer that the description of the interface knows, and all that was taken is there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.long_form import LONG
from support.serving import JSON, Serving

pytestmark = [pytest.mark.long, pytest.mark.first, pytest.mark.xdist_group("any request")]  # of one service
CASES = 900 if LONG else 40  # of each of the twelve operations
WHATEVER = settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))

ids = st.sampled_from(["a", "b", 17, "17"]) | st.text(max_size=4) | st.integers()
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5,
)  # fmt: skip
documents = st.fixed_dictionaries(
    {}, optional={"id": ids | values, "text": st.text(max_size=60) | values, "gone": values, "ts": values}
)  # fmt: skip
lines = st.one_of(documents.map(json.dumps).map(str.encode), ids.map(json.dumps).map(str.encode), st.binary())


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    state = tmp_path_factory.mktemp("asked") / "index"
    options = ("--on-conflict", "update", "--deleted-field", "gone", "--source-field", "from", "--time-field", "ts")
    with Serving(state, *options) as it:
        yield it
        # After all of that: the next one has the next number, and waits for a commit: then each was told of that was
        # taken, also of those that were answered before they were on the disk.
        last = it.client.get("/v1/stats").json()["index"]["next_seq"]
        assert it.add({"id": "the last one", "text": "a text of its own", "ts": 1})["seq"] == last
        stats = it.client.get("/v1/stats").json()
        assert stats["totals"]["documents"] == stats["index"]["next_seq"] == last + 1


def test_every_operation_answers_as_it_is_described(asked: Serving) -> None:
    import schemathesis  # here: it takes long to import
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance, checks.response_headers_conformance,
    ]  # fmt: skip
    schemathesis.openapi.media_type("application/x-ndjson", st.lists(lines, max_size=5).map(b"\n".join))
    described = schemathesis.openapi.from_url(f"{asked.url}/v1/openapi.json").exclude(path="/v1/events")  # has no end
    seen = set()
    for operation in (found.ok() for found in described.get_all_operations()):
        varied = operation.body or operation.path_parameters or operation.query or operation.headers
        modes = list(GenerationMode) if varied else [GenerationMode.POSITIVE]

        @given(case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes]))
        @WHATEVER
        def ask(case: Any) -> None:
            case.call_and_validate(checks=wanted)

        ask()
        seen.add(operation.label)
    assert len(seen) >= 12


@given(
    st.lists(st.sampled_from(["verdict", "pair", "group", "alert", ""]) | st.text(max_size=5), max_size=4),
    st.none() | st.tuples(st.integers(-1, 50), st.integers(-1, 5)).map(lambda place: f"{place[0]}.{place[1]}")
    | st.text("0123456789.-x", max_size=8),
)  # fmt: skip
@WHATEVER
def test_events_begin_anywhere_or_say_why_not(asked: Serving, kinds: list[str], place: str | None) -> None:
    headers = {} if place is None else {"Last-Event-ID": place}
    with asked.client.stream("GET", "/v1/events", params={"kinds": ",".join(kinds)}, headers=headers) as answer:
        assert answer.status_code in (200, 422)
        if answer.status_code == 422:
            assert json.loads(answer.read())["field"] in ("kinds", "Last-Event-ID")


@given(st.binary(max_size=60) | documents.map(json.dumps).map(str.encode))
@WHATEVER
def test_any_body_is_a_document_or_a_problem(asked: Serving, body: bytes) -> None:
    answer = asked.client.post("/v1/documents", headers=JSON, content=body)
    assert answer.status_code in (200, 409, 422)
    found = answer.json()
    assert (found if answer.status_code == 200 else found["verdict"])["seq"] >= 0

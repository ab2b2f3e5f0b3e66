"""What a verdict says of a kept document that went, as a record of the unique documents."""

from typing import Any

import orjson
import pytest
from aiokafka.structs import ConsumerRecord

from stream_lsh.errors import ForeignError
from stream_lsh.kafka.forward.join import Joined
from stream_lsh.kafka.forward.partition import forwarded, read_verdict, tombstone
from stream_lsh.kafka.settings import KafkaSettings

SOURCE = {"topic": "docs", "partition": 3, "offset": 70}
REPRESENTATIVE = {
    "new_representative": {"id": 17, "seq": 4096},
    "new_representative_source": {"topic": "docs", "partition": 1, "offset": 5},
}
WHERE = [
    ("new-representative-topic", b"docs"),
    ("new-representative-partition", b"1"),
    ("new-representative-offset", b"5"),
]


def record(value: bytes | None, key: bytes | None, timestamp: int = 7, **more: Any) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("docs", 3, 9, timestamp, 0, key, value, None, -1, -1, more.get("headers", ()))


def said(**more: Any) -> ConsumerRecord[Any, Any]:
    return record(orjson.dumps({"id": "ä", "kind": "deleted", "source": SOURCE, **more}), "ä".encode(), 8)


@pytest.mark.parametrize("key", [b"another key", None])
@pytest.mark.parametrize(
    ("more", "new_representative"), [({}, []), (REPRESENTATIVE, [*WHERE, ("new-representative", b"17")])]
)
def test_its_headers_name_the_removed_document_and_the_representative(
    key: bytes | None, more: dict[str, Any], new_representative: list[Any]
) -> None:
    # As another pipeline passed it on, which had a new representative.
    theirs = (("id", b'"other"'), ("new-representative", b"4"), *WHERE)
    document = record(b"whatever", key, headers=(("traceparent", b"00"), *theirs))
    verdict = read_verdict(said(tombstone=True, **more), "docs")
    found_key, value, headers, timestamp = tombstone(document, verdict)
    assert (found_key, value, timestamp) == (key or "ä".encode(), None, 7)
    assert headers[0] == ("traceparent", b"00")
    assert sorted(headers[1:]) == sorted([("id", '"ä"'.encode()), *new_representative])
    # Of a document that was compacted away there is the verdict.
    assert tombstone(None, verdict) == ("ä".encode(), None, headers[1:], 8)


def test_representatives_that_are_known_later_have_tombstones_under_their_own_keys() -> None:
    places = [{"topic": "docs", "partition": 1, "offset": 5}, {"topic": "docs", "partition": 2, "offset": 6}]
    named = [{"group": 3, "id": 17, "seq": 4096}, {"group": 4, "id": 'ü"', "seq": 5}]
    verdict = read_verdict(said(new_representatives=named, new_representative_sources=places), "docs")
    assert not verdict.tombstone
    document = record(b"whatever", b"k", headers=(("traceparent", b"00"),))
    rows = forwarded([Joined(document, verdict)], KafkaSettings())[0]
    assert [(key, value, timestamp) for key, value, _, timestamp in rows] == [
        (b"17", None, 7), ('ü"'.encode(), None, 7)
    ]  # fmt: skip
    assert sorted(rows[0][2]) == sorted([("new-representative", b"17"), *WHERE])
    assert dict(rows[1][2])["new-representative"] == '"ü\\""'.encode()
    assert [timestamp for *_, timestamp in forwarded([Joined(None, verdict)], KafkaSettings())[0]] == [8, 8]


@pytest.mark.parametrize(("json_keys", "key"), [(False, "ö".encode()), (True, '"ö"'.encode())])
def test_a_superseded_document_has_a_tombstone_under_its_own_id(json_keys: bool, key: bytes) -> None:
    verdict = read_verdict(said(kind="unique", supersedes="ö"), "docs")
    document = record(b"whatever", b"k", headers=(("traceparent", b"00"),))
    settings = KafkaSettings(on_conflict="update", key_is_id="json") if json_keys else KafkaSettings()
    found, _ = forwarded([Joined(document, verdict)], settings)
    assert found == [
        (key, None, [("id", '"ö"'.encode())], 7), (b"k", b"whatever", [("traceparent", b"00")], 7),
    ]  # fmt: skip
    # Also if the document was compacted away.
    assert forwarded([Joined(None, verdict)], settings)[0] == [(key, None, [("id", '"ö"'.encode())], 8)]


def test_most_verdicts_have_no_tombstone() -> None:
    assert not read_verdict(said(), "docs").tombstone
    assert not read_verdict(said(**REPRESENTATIVE), "docs").tombstone


@pytest.mark.parametrize(
    "more",
    [
        {"new_representative": {"id": 1}},
        {"new_representatives": [{"id": 1}]},
        {"new_representative": {}, "new_representative_source": {}},
        {"id": 1.5},
    ],
)
def test_what_is_no_verdict(more: dict[str, Any]) -> None:
    with pytest.raises(ForeignError, match="a record is no verdict"):
        read_verdict(said(**{"tombstone": True, **more}), "docs")

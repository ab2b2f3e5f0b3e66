"""What stands in verdicts and pairs: the embedded ones, and where the document came from."""

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.kafka.judge_play import PARTITIONS, answered, decoded
from support.schemas import checker

from stream_lsh.documents.fields import plain
from stream_lsh.errors import FormatError
from stream_lsh.kafka.judge import records as module
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.output_schemas import schema_of


def test_what_was_put_out_is_counted(tmp_path: Path) -> None:
    """What it is: test_same_answers.py compares all records with the embedded engine."""
    settings = KafkaSettings(verify="signature", max_matches=3, on_conflict="update", time_field="ts")
    records = Records()
    for frame in answered(settings, tmp_path, 600):
        records.add(decoded(frame, settings), settings)
    every = [json.loads(value) for rows in records.verdicts.values() for _, value, *_ in rows]
    assert set(records.verdicts) == set(range(PARTITIONS)) and records.documents == len(every)
    kinds = Counter(value["kind"] for value in every)
    assert {kind.label: number for kind, number in records.kinds.items()} == kinds
    rows = [row for kind in (records.verdicts, records.pairs) for found in kind.values() for row in found]
    sizes = [len(key or b"") + len(value) + sum(len(n) + len(v) for n, v in headers) for key, value, headers, _ in rows]
    checks = [checker(schema_of(output)) for output in ("verdict", "pair")]
    for found, check in zip((records.verdicts, records.pairs), checks, strict=True):
        for _, value, *_ in (row for rows in found.values() for row in rows):
            check(json.loads(value))
    assert 0 <= records.size - sum(sizes) <= 6 * len(every)  # ids are counted with quotes and escapes
    assert sum(bool(headers) for found in records.pairs.values() for *_, headers, _ in found) > 5


@pytest.mark.parametrize(
    ("id", "key"),
    [
        (b'"a1"', b"a1"),
        (b'""', b""),
        (b"17", b"17"),
        (b"-3", b"-3"),
        (b"null", None),
        (b'"a\\"b\\\\c\\n"', b'a"b\\c\n'),
        ('"ä 中"'.encode(), "ä 中".encode()),
        (b'"\\ud800"', b"\xed\xa0\x80"),
    ],
)
def test_the_key_is_the_plain_id(id: bytes, key: bytes | None) -> None:
    assert plain(id) == key


def test_replies_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    settings = KafkaSettings(shards=2, compare_with="all", verify="signature")
    frames = answered(settings, tmp_path, 60)
    one, other = decoded(frames[0], settings), decoded(next(f for f in frames if len(f.places) > 5), settings)
    for replies in ([one[0], other[1]], [replace(one[0], source=None), replace(one[1], source=None)]):
        with pytest.raises(FormatError, match="do not fit together"):
            Records().add(replies, settings)


def test_a_verdict_of_any_crowd_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit on matches as many as a record can hold are listed, and the others counted."""
    settings = KafkaSettings(compare_with="all", verify="signature", max_matches=0, max_verified_matches=0)
    frames = answered(settings, tmp_path, 600)

    def values() -> list[bytes]:
        records = Records()
        for frame in frames:
            records.add(decoded(frame, settings), settings)
        return [value for rows in records.verdicts.values() for _, value, *_ in rows]

    whole = values()
    monkeypatch.setattr(module, "VERDICT_BYTES", 600)
    short = values()
    assert max(map(len, whole)) > 1500 and max(map(len, short)) < 1000
    less = 0
    for value, other in zip(map(json.loads, short), map(json.loads, whole), strict=True):
        assert value["kind"] == other["kind"] and value["duplicate_of"] == other["duplicate_of"]
        assert value["matches"] == other["matches"][: len(value["matches"])]
        assert len(value["matches"]) + value.get("truncated", 0) == len(other["matches"]) + other.get("truncated", 0)
        less += "truncated" in value
    assert less > 10


def test_headers_name_the_kind_and_make_outputs_events(tmp_path: Path) -> None:
    given: dict[str, Any] = {"verify": "signature", "max_matches": 3, "trace_headers": ("traceparent",)}
    uri = {"cloudevents_source": "/news", "cloudevents_schemas": "https://schemas.example/"}
    plain, events = KafkaSettings(**given), KafkaSettings(**given, **uri)
    both = []
    for settings in (plain, events):
        both.append(Records())
        for frame in answered(settings, tmp_path / str(len(both)), 300):
            both[-1].add(decoded(frame, settings), settings)
    ids = []
    for output in ("verdict", "pair"):
        without, found = ([row for rows in getattr(one, f"{output}s").values() for row in rows] for one in both)
        assert [row[:2] for row in without] == [row[:2] for row in found] != []
        for (_, value, own, _), (_, _, headers, _) in zip(without, found, strict=True):
            said, kept = dict(headers[len(own) :]), dict(own)
            if output == "verdict":
                assert (kept["kind"].decode(), kept["schema-version"]) == (json.loads(value)["kind"], b"1")
            assert headers[: len(own)] == own and len(said) == 7 and said["ce_source"] == b"/news"
            assert said["ce_type"] == b"stream-lsh." + output.encode() and said["ce_specversion"] == b"1.0"
            assert said["ce_dataschema"] == b"https://schemas.example/%b.json" % output.encode()
            when = datetime.fromisoformat(said["ce_time"].decode()).timestamp()
            assert round(1000 * when) == json.loads(value)["detected_at"]
            ids.append(said["ce_id"])
    assert len(ids) == len(set(ids))

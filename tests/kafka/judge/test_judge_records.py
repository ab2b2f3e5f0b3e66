"""What stands in verdicts and pairs: the embedded ones, and where the document came from."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.kafka.judge_play import PARTITIONS, answered, decoded

from stream_lsh.documents.fields import plain
from stream_lsh.errors import FormatError
from stream_lsh.kafka.judge import records as module
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.settings import KafkaSettings


def test_what_was_put_out_is_counted(tmp_path: Path) -> None:
    """What it is: test_same_answers.py compares all records with the embedded engine."""
    settings = KafkaSettings(verify="signature", max_matches=3, on_conflict="update", time_field="ts")
    records = Records()
    for frame in answered(settings, tmp_path, 600):
        records.add(decoded(frame, settings), "the.documents", settings)
    every = [json.loads(value) for rows in records.verdicts.values() for _, value, *_ in rows]
    assert set(records.verdicts) == set(range(PARTITIONS)) and records.documents == len(every)
    kinds = Counter(value["kind"] for value in every)
    assert {kind.label: number for kind, number in records.kinds.items()} == kinds
    rows = [row for kind in (records.verdicts, records.pairs) for found in kind.values() for row in found]
    sizes = [len(key or b"") + len(value) + sum(len(n) + len(v) for n, v in headers) for key, value, headers, _ in rows]
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
            Records().add(replies, "t", settings)


def test_a_verdict_of_any_crowd_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit on matches as many as a record can hold are listed, and the others counted."""
    settings = KafkaSettings(compare_with="all", verify="signature", max_matches=0, max_verified_matches=0)
    frames = answered(settings, tmp_path, 600)

    def values() -> list[bytes]:
        records = Records()
        for frame in frames:
            records.add(decoded(frame, settings), "t", settings)
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

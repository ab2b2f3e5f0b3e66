"""What stands in verdicts and pairs: the embedded ones, and where the document came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kafka.judge_play import PARTITIONS, Place, answered, decoded

from stream_lsh.documents.columns import NO_TIME
from stream_lsh.documents.fields import plain
from stream_lsh.errors import FormatError
from stream_lsh.judging.verdicts import Kind, judge, pairs, reasons, verdicts
from stream_lsh.kafka.judge import records as module
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.replies import ReplyNames
from stream_lsh.wire.source import numbers

KINDS = [kind for kind in Kind if kind <= Kind.REJECTED]


@pytest.mark.parametrize(
    ("shards", "compare_with", "on_conflict"),
    [(1, "kept", "reject"), (1, "all", "reject"), (3, "all", "reject"), (1, "kept", "update")],
)
def test_records_are_the_embedded_ones_with_their_source(
    tmp_path: Path, shards: int, compare_with: str, on_conflict: Any
) -> None:
    settings = KafkaSettings(
        shards=shards,
        compare_with=compare_with,
        verify="signature",
        max_matches=3,
        on_conflict=on_conflict,
        time_field="ts",
    )
    representatives, places = 0, dict[int, Place]()
    frames = answered(settings, tmp_path, 600)
    records = Records()
    expected: dict[int, list[tuple[bytes | None, dict[str, object], list[tuple[str, bytes]]]]] = {}
    expected_pairs: dict[int, list[tuple[bytes | None, dict[str, object], list[tuple[str, bytes]]]]] = {}
    for frame in frames:
        replies = decoded(frame, settings)
        records.add(replies, "the.documents", settings)
        source = next(reply.source for reply in replies if reply.source is not None)
        judgement = judge(
            [reply.matches for reply in replies], source.ids, numbers(frame.offset, len(source)), 3,
            ReplyNames(replies),
        )  # fmt: skip
        why = reasons(judgement, source.rejected)
        extra = []
        places.update(zip(judgement.seqs.tolist(), frame.places, strict=True))
        for i, (place, verdict) in enumerate(zip(frame.places, verdicts(judgement), strict=True)):
            where = {"topic": "the.documents", "partition": place.partition, "offset": place.offset}
            extra.append({"source": where, "detected_at": source.signed_at})
            if place.counted:
                value = json.loads(verdict + b"}") | extra[i]
                value["time"] = None if place.time == NO_TIME else place.time
                if i in why:
                    value |= {"reason": why[i].reason, "detail": why[i].detail}
                if judgement.was_representative[i] and (value["kind"] != "unique" or "new_representative" in value):
                    value["tombstone"] = True
                if "new_representative" in value:
                    representative = places[value["new_representative"]["seq"]]
                    assert json.loads(representative.id) == value["new_representative"]["id"]
                    place_of = {
                        "topic": "the.documents",
                        "partition": representative.partition,
                        "offset": representative.offset,
                    }
                    value["new_representative_source"], representatives = place_of, representatives + 1
                text = json.loads(place.id)
                key = None if text is None else str(text).encode("utf-8", "surrogatepass")
                expected.setdefault(place.partition, []).append((key, value, place.headers))
        for i, older, pair in pairs(judgement, "signature"):
            assert frame.places[i].counted
            value = json.loads(pair + b"}") | extra[i]
            key = b"[%b,%b]" % (older, frame.places[i].id)
            expected_pairs.setdefault(frame.places[i].partition, []).append((key, value, frame.places[i].headers))

    for found, wanted in ((records.verdicts, expected), (records.pairs, expected_pairs)):
        assert {
            p: [(key, json.loads(value), headers) for key, value, headers, _ in rows] for p, rows in found.items()
        } == (wanted)
    assert set(records.verdicts) == set(range(PARTITIONS))
    for partition, rows in records.verdicts.items():
        offsets = [json.loads(value)["source"]["offset"] for _, value, *_ in rows]
        assert offsets == list(range(len(rows))), partition
    every = [json.loads(value) for rows in records.verdicts.values() for _, value, *_ in rows]
    assert records.documents == len(every)
    assert {kind.label: number for kind, number in records.kinds.items()} == {
        kind.label: number for kind in Kind if (number := sum(value["kind"] == kind.label for value in every))
    }
    changing = settings.updates
    assert set(records.kinds) == ({*Kind} if changing else {*KINDS})
    reasons_given = {value["reason"] for value in every if "reason" in value}
    assert reasons_given == {"not_json", "empty", *(() if changing else ("id_reused",))}
    assert (representatives > 3) == changing == any(value.get("tombstone") for value in every)
    assert sum(map(len, records.pairs.values())) > 20
    sizes = [
        len(key or b"") + len(value) + sum(len(name) + len(content) for name, content in headers)
        for kind in (records.verdicts, records.pairs)
        for rows in kind.values()
        for key, value, headers, _ in rows
    ]
    assert sum(bool(headers) for rows in records.pairs.values() for *_, headers, _ in rows) > 5
    assert 0 <= records.size - sum(sizes) <= 6 * len(every)  # ids are counted with quotes and escapes


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

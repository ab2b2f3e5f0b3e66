"""What should come out of the pipeline: the embedded index over the order that was recorded, compared line for line."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.alerts.rules import read_rules
from stream_lsh.documents.columns import NO_TIME, Columns, Fields, Rejection
from stream_lsh.documents.lines import parse_lines
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.index import Index
from stream_lsh.index.rows.layout import DELETION, TIME, VALID
from stream_lsh.judging.verdicts import judge, pair_lines, reasons, verdict_lines
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.parts import Adjacent
from stream_lsh.wire.sequenced import Sequenced, split_frames
from support.indexes import take_key
from support.kafka.feeding import Record, Source
from support.kafka.group_play import Teller


@dataclass(slots=True)
class Outputs:
    """All records of the outputs, and of the documents, as they were read (committed ones only)."""

    documents: list[Record]
    verdicts: list[Record]
    pairs: list[Record]
    unique: list[Record]
    dead_letters: list[Record]
    groups: list[Record] = field(default_factory=list)
    alerts: list[Record] = field(default_factory=list)


@dataclass(slots=True)
class Expected:
    """What the embedded engine says to the recorded order: lines, and of each document its kind, why it was rejected,
    when it was signed, its time where that is its own, and the headers that say with it that a kept one
    was removed, which new representatives it has, and whom it supersedes; events of groups and alerts, if there are
    groups."""

    verdicts: list[bytes] = field(default_factory=list)
    pairs: list[bytes] = field(default_factory=list)
    kinds: dict[Source, str] = field(default_factory=dict)
    reasons: dict[Source, Rejection] = field(default_factory=dict)
    signed_at: dict[Source, int] = field(default_factory=dict)
    times: dict[Source, int | None] = field(default_factory=dict)
    tombstones: dict[Source, list[tuple[str, bytes]]] = field(default_factory=dict)
    representatives: dict[Source, list[list[tuple[str, bytes]]]] = field(default_factory=dict)
    superseded: dict[Source, Any] = field(default_factory=dict)
    groups: list[bytes] = field(default_factory=list)
    alerts: list[bytes] = field(default_factory=list)


def order(settings: KafkaSettings, records: Iterable[Record]) -> list[tuple[Sequenced, Frame]]:
    """The frames as they were sequenced, each once, from the records of one partition of the frames topic."""
    found: list[tuple[Sequenced, Frame]] = []
    seen: dict[int, bytes] = {}
    last = -1
    adjacent = Adjacent(settings)
    for record in records:
        assert record.value is not None
        whole = adjacent.add(record.offset, record.value)
        for value in () if whole is None else map(bytes, split_frames(whole[1], settings)):
            sequenced = Sequenced.decode(value, settings)
            if sequenced.offset in seen:
                assert seen[sequenced.offset] == value, f"frame {sequenced.offset} was sequenced in two ways"
            elif sequenced.predecessor == last:
                seen[sequenced.offset] = value
                last = sequenced.offset
                found.append((sequenced, Frame.decode(sequenced.frame, settings)))
    return found


def answers(
    settings: KafkaSettings, folder: Path, frames: Iterable[tuple[Sequenced, Frame]], documents: Iterable[Record]
) -> Expected:
    """What the embedded engine says, over the order that was recorded; folder: for its index."""
    records = {record.source: record for record in documents}
    expected, count = Expected(), 0
    places: dict[int, Source] = {}
    topic = Topics.of(settings).documents
    rules = () if settings.alerts is None else read_rules(settings.alerts)
    teller = None
    if settings.groups:
        teller = Teller(folder / "groups", settings.source_field, rules, settings.window_ms)
    frames = list(frames)
    if frames and settings.measure == "tf-idf" and settings.match_within:
        take_key(settings, folder, frames[0][0].key)
    index = _Stamped(settings, folder, durable=False)
    try:
        for sequenced, frame in frames:
            n = len(frame.source)
            accepted = np.ones(n, np.bool_) if sequenced.accepted is None else sequenced.accepted
            rows = np.flatnonzero(accepted).tolist()
            if not rows:
                continue
            partitions, offsets = frame.source.partitions.tolist(), frame.source.offsets.tolist()
            sources = [(int(partitions[i]), int(offsets[i])) for i in rows]
            columns = _parsed(settings, [records[source] for source in sources])
            seqs = sequenced.numbers(n)[rows]
            signed, clock = index.sign(columns), sequenced.appended
            signed.documents.words[columns.stamped, TIME] = np.int64(NO_TIME).view(np.uint64)
            index.times = columns.times
            matches = index.match(signed, seqs, count + np.arange(len(rows)), clock=clock)
            if index.window is not None:
                assert sequenced.log is not None and index.window.now == sequenced.log[rows[-1]]
            count += len(rows)
            judgement = judge(matches, columns.ids, seqs, settings.max_matches, index)
            if teller is not None:
                valid = signed.documents.what & np.uint8(VALID | DELETION) != 0
                teller.add(judgement, frame.source.times[rows], valid, signed.documents.log, columns.sources)
            if index.full:
                index.commit({})
            found = verdict_lines(judgement).splitlines()
            expected.verdicts += found
            expected.pairs += pair_lines(judgement, settings.verify).splitlines()
            why = reasons(judgement, columns.rejected)
            places.update(zip(seqs.tolist(), sources, strict=True))
            for i, (source, line) in enumerate(zip(sources, found, strict=True)):
                assert source not in expected.kinds, f"document {source} was accepted twice"
                expected.kinds[source] = json_of(line)["kind"]
                expected.signed_at[source] = frame.source.signed_at
                if i in why:
                    expected.reasons[source] = why[i]
                if settings.time_field is not None:
                    time = int(columns.times[i])
                    expected.times[source] = None if time == NO_TIME else time
                if (superseded := json_of(line).get("supersedes")) is not None:
                    expected.superseded[source] = superseded
                if later := json_of(line).get("new_representatives"):
                    expected.representatives[source] = [
                        _representative(representative, places, topic) for representative in later
                    ]
                if judgement.was_representative[i] and (
                    expected.kinds[source] != "unique" or "new_representative" in json_of(line)
                ):
                    expected.tombstones[source] = _headers_of(json_of(line), places, topic)
    finally:
        index.close()
        if teller is not None:
            teller.close()
            expected.groups, expected.alerts = teller.events, teller.alerts
    return expected


class _Stamped(Index):
    """Its stream time goes by times that are not all the documents' own."""

    times: NDArray[np.int64]

    def _segments(self, batch: SignedBatch, places: NDArray[np.int64], clock: int | None) -> NDArray[np.int64]:
        if self.window is None:
            return super()._segments(batch, places, clock)
        counts = batch.documents.what & np.uint8(VALID | DELETION) != 0
        batch.documents.log[:], segments = self.window.enter(self.times, counts, places, clock)
        return segments


def _headers_of(verdict: Any, places: Mapping[int, Source], topic: str) -> list[tuple[str, bytes]]:
    """The headers of a tombstone."""
    headers = [("id", json.dumps(verdict["id"], ensure_ascii=False).encode())]
    return (
        headers + _representative(verdict["new_representative"], places, topic)
        if "new_representative" in verdict
        else headers
    )


def _representative(representative: Any, places: Mapping[int, Source], topic: str) -> list[tuple[str, bytes]]:
    """Those of them that name a new representative."""
    partition, offset = places[representative["seq"]]
    headers = {
        "new-representative": json.dumps(representative["id"], ensure_ascii=False), "new-representative-topic": topic,
        "new-representative-partition": str(partition),
        "new-representative-offset": str(offset),
    }  # fmt: skip
    return [(name, value.encode()) for name, value in headers.items()]


def _parsed(settings: KafkaSettings, records: Sequence[Record]) -> Columns:
    s = settings
    fields = Fields(
        s.id_field, s.text_field, s.time_field, s.set_field, s.max_document_bytes, s.source_field,
        match_within=s.match_within, timed=s.window is None, item=s.item,
        deleted_field=s.deleted_field or ("deleted" if s.key_is_id else None),
        rank_field=s.rank_field, rank_order=s.rank_order,
    )  # fmt: skip
    values = [record.value for record in records]
    if s.key_is_id == "string":  # a tombstone is a line that says so
        values = [
            json.dumps({"id": (r.key or b"").decode(), "deleted": True}).encode()
            if r.value is None and r.key
            else r.value
            for r in records
        ]
    # What has no line in a file, which cannot be empty either.
    without = {i: _without(s, record) for i, record in enumerate(records) if not values[i]}
    data = [value or b"" for value in values]
    lengths = np.array([len(value) for value in data], np.int64)
    stops = np.cumsum(lengths)
    found = parse_lines(b"".join(data), stops - lengths, stops, fields, rejected=without)
    if settings.window is None:
        return found
    stamps, stamped = np.array([record.timestamp for record in records], np.int64), found.times == NO_TIME
    return replace(found, times=np.where(stamped, stamps, found.times), stamped=np.flatnonzero(stamped).tolist())


def _without(settings: KafkaSettings, record: Record) -> Rejection:
    if record.value is None and settings.key_is_id:
        what = "no key" if record.key is None else "an empty key"
        return Rejection("no_key", f"the record has {what}, and the key is the id")
    return Rejection(
        "no_value", f"the record has {'no value (a tombstone)' if record.value is None else 'an empty value'}"
    )


def json_of(value: bytes | None) -> Any:
    """JSON that may have lone surrogates, which orjson refuses."""
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return json.loads(value or b"")


def strip(line: bytes) -> bytes:
    """A verdict or pair of the Kafka pipeline as the embedded engine writes it: without source and what follows."""
    # Inside a JSON string the quotes would be escaped.
    return line.partition(b',"source":{')[0] + b"}"


def places_of(verdicts: Iterable[bytes]) -> dict[int, int]:
    """How many documents were judged before the one with a number, by all verdicts there are."""
    return {seq: place for place, seq in enumerate(sorted(json_of(line)["seq"] for line in verdicts))}


def renumbered(line: bytes, places: Mapping[int, int]) -> bytes:
    """A verdict or pair with places instead of numbers, which have gaps on Kafka."""
    found = json_of(line)
    for part in (
        found,
        found.get("new_representative", {}),
        *found.get("new_representatives", ()),
        *found.get("matches", ()),
    ):
        for name in ("seq", "older_seq", "newer_seq", "group", "replaces"):
            if part.get(name) is not None:
                part[name] = places[part[name]]
    return json.dumps(found).encode()


def same(ours: Iterable[bytes], theirs: Iterable[bytes], what: str) -> None:
    """Both have the same lines, each as often; says which ones differ."""
    mine, other = Counter(ours), Counter(theirs)
    more, less = mine - other, other - mine
    assert not more and not less, (
        f"{what}: {more.total()} of {mine.total()} lines too many, {less.total()} of {other.total()} missing;"
        f"\ntoo many: {_some(more)}\nmissing: {_some(less)}"
    )


def _some(lines: Iterable[object]) -> str:
    return "".join(f"\n  {str(line)[:300]}" for line in sorted(map(str, islice(lines, 2000)))[:5])


def check(found: Outputs, expected: Expected, topic: str) -> None:
    """Everything that must hold of the outputs, whatever has happened; topic: of the documents."""
    check_verdicts(found, expected, topic)
    # The pairs that the oracle gives, none twice.
    values = [json_of(record.value) for record in found.pairs]
    twice = Counter((pair["older_seq"], pair["newer_seq"]) for pair in values)  # ids come again with updates
    assert not twice or twice.most_common(1)[0][1] == 1, f"pairs twice: {twice.most_common(5)}"
    same((strip(record.value or b"") for record in found.pairs), expected.pairs, "pairs")
    for record, pair in zip(found.pairs, values, strict=True):
        assert json_of(record.key or b"") == [pair["older"], pair["newer"]]
        assert record.partition == pair["source"]["partition"]
    check_passed_on(found, expected, topic)
    assert [record.value for record in found.groups if record.value is not None] == expected.groups
    ended = [event["group"] for event in map(json_of, expected.groups) if event["event"] == "ended"]
    assert [int(record.key or b"") for record in found.groups if record.value is None] == ended
    assert [record.value for record in found.alerts] == expected.alerts


def check_verdicts(found: Outputs, expected: Expected, topic: str) -> None:
    """Exactly one verdict for each document, in the order of its partition, and the one that the oracle gives."""
    assert sorted(expected.kinds) == sorted(record.source for record in found.documents), "not each document has a seq"
    documents = {record.source: record for record in found.documents}
    sources = defaultdict(list)
    for record in found.verdicts:
        verdict = json_of(record.value)
        source = (verdict["source"]["partition"], verdict["source"]["offset"])
        sources[record.partition].append(source)
        assert verdict["source"]["topic"] == topic
        assert verdict["detected_at"] == expected.signed_at[source]
        assert verdict["time"] == expected.times.get(source, documents[source].timestamp)
        headers = dict(expected.tombstones.get(source, ()))
        assert verdict.get("tombstone") == (True if headers else None)
        place = {
            name: headers.get(f"new-representative-{name}", b"").decode() for name in ("topic", "partition", "offset")
        }
        assert {name: str(part) for name, part in verdict.get("new_representative_source", {}).items()} == (
            place if "new-representative" in headers else {}
        )
        places = [
            {name: str(part) for name, part in representative.items()}
            for representative in verdict.get("new_representative_sources", ())
        ]
        assert places == [
            {name: dict(headers)[f"new-representative-{name}"].decode() for name in ("topic", "partition", "offset")}
            for headers in expected.representatives.get(source, ())
        ]
        kept = [header for header in documents[source].headers if header[0] == "traceparent"]
        assert [header for header in record.headers if header[0] == "traceparent"] == kept
        why = expected.reasons.get(source)
        assert (verdict.get("reason"), verdict.get("detail")) == ((why.reason, why.detail) if why else (None, None)), (
            verdict
        )
        assert record.key == _key(verdict["id"])
    for partition, each in _by_partition(found.documents).items():
        wanted = [record.source for record in each]
        if sources[partition] != wanted:
            twice = [source for source, n in Counter(sources[partition]).items() if n > 1]
            missing = sorted(set(wanted) - set(sources[partition]))
            raise AssertionError(
                f"verdicts of partition {partition}: {len(sources[partition])} for {len(wanted)} documents; "
                f"{len(twice)} twice {twice[:5]}, {len(missing)} missing {missing[:5]}, or out of order"
            )
    same((strip(record.value or b"") for record in found.verdicts), expected.verdicts, "verdicts")


def check_passed_on(found: Outputs, expected: Expected, topic: str) -> None:
    """`unique` has the unique documents as they came, in order, and tombstones of removed ones; `dead-letters` has the
    rejected ones, and why."""
    unique, dead = _by_partition(found.unique), _by_partition(found.dead_letters)
    for partition, documents in _by_partition(found.documents).items():
        wanted = [
            row
            for record in documents
            for row in (
                *(
                    (_key(json_of(dict(headers)["new-representative"])), None, tuple(headers), record.timestamp)
                    for headers in expected.representatives.get(record.source, ())
                ),
                *(
                    [_tombstone(record, expected.tombstones[record.source])]
                    if record.source in expected.tombstones
                    else ()
                ),
                *(
                    [_superseded_tombstone(record, expected.superseded[record.source])]
                    if record.source in expected.superseded
                    else ()
                ),
                *([record.original] if expected.kinds[record.source] == "unique" else ()),
            )
        ]
        passed = [record.original for record in unique.get(partition, [])]
        if passed != wanted:
            first = next((i for i, (a, b) in enumerate(zip(passed, wanted, strict=False)) if a != b), "the end")
            raise AssertionError(f"unique, partition {partition}: {len(passed)} for {len(wanted)}, other from {first}")
        rejected = [record for record in documents if expected.kinds[record.source] == "rejected"]
        letters = [letter.original for letter in dead.get(partition, [])]
        asked = [_letter(record, expected.reasons[record.source], topic) for record in rejected]
        first = next((i for i, (a, b) in enumerate(zip(letters, asked, strict=False)) if a != b), "the end")
        wrong = letters != asked
        assert not wrong, f"dead letters, partition {partition}: {len(letters)} for {len(asked)}, other from {first}"
    assert {*unique, *dead} <= {record.partition for record in found.documents}


def _tombstone(record: Record, headers: Sequence[tuple[str, bytes]]) -> tuple[object, ...]:
    key = _key(json_of(dict(headers)["id"])) if record.key is None else record.key
    brought = (header for header in record.headers if not header[0].startswith(("new-representative", "id")))
    return key, None, (*brought, *headers), record.timestamp


def _superseded_tombstone(record: Record, id: Any) -> tuple[object, ...]:
    return _key(id), None, (("id", json.dumps(id, ensure_ascii=False).encode()),), record.timestamp


def _letter(record: Record, why: Rejection, topic: str) -> tuple[object, ...]:
    """A rejected document as it is in the dead letters: as it came, with headers added."""
    added = {
        "reason": why.reason, "detail": why.detail, "topic": topic, "partition": str(record.partition),
        "offset": str(record.offset),
    }  # fmt: skip
    headers = (*record.headers, *((name, value.encode("utf-8", "surrogatepass")) for name, value in added.items()))
    return record.key, record.value, headers, record.timestamp


def _by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found


def _key(id: object) -> bytes | None:
    return None if id is None else str(id).encode("utf-8", "surrogatepass")

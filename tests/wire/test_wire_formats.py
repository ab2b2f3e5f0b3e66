"""Binary records: what is packed comes back; anything else is refused with a sentence, never guessed at."""

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import NO_TIME, Columns, Rejection
from stream_lsh.documents.document import Document
from stream_lsh.errors import ForeignError, FormatError
from stream_lsh.families.signer import Signer
from stream_lsh.index.batch import sign_batch
from stream_lsh.index.matches import Matches
from stream_lsh.index.resolution import States
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import DELETION, FLAGS, NO_GROUP, REMOVED_COLUMNS, SEQ, TIME, VALID
from stream_lsh.index.store import rocksdb
from stream_lsh.index.store.rocksdb import IDS, ROWS, rows_key
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import HAS_ROWS, Base, Mark, is_base
from stream_lsh.wire.changes import Change
from stream_lsh.wire.decisions import Decisions, decisions_of_shard
from stream_lsh.wire.envelope import pack, unpack
from stream_lsh.wire.frames import Frame, Places
from stream_lsh.wire.replies import Reply, head
from stream_lsh.wire.sequenced import Sequenced, join_frames, split_frames
from stream_lsh.wire.signed import TextShingles, signed_batch
from stream_lsh.wire.source import Source

KEY = bytes(range(16))
SETTINGS = Settings(shards=2, compare_with="all")
OTHER = Settings(shards=3, compare_with="all")
SIGNER = Signer(SETTINGS.signing, KEY)
TEXTS = ["the quick brown fox jumps over the lazy dog", "", "ein anderer Text mit ganz anderen Wörtern", "x y z " * 90]


@cache
def hashes() -> Hashes:
    return Hashes(SETTINGS.signing, KEY)  # when it is needed: it loads a kernel


def parsed() -> Columns:
    return columns([Document(f"d{i}", text) for i, text in enumerate(TEXTS)])


def source() -> Source:
    found = parsed()
    headers = {0: [("traceparent", b"00-\xff")], 3: [("a", b""), ("a", b"2")]}
    rejected = found.rejected | {1: Rejection("empty", "nothing there", 12)}
    places = np.array([0, 0, 7, 7], np.int32), np.array([5, 6, 1 << 40, 2 << 40])
    return Source(*places, found.ids, found.times, 1_700_000_000_000, rejected, headers)


SOURCED = SETTINGS.model_copy(update={"source_field": "outlet"})
TIMED = Settings(shards=2, compare_with="all", window="1h", time_field="t", source_field="outlet")


def with_sources(record: Any, n: int = 4) -> Any:
    """A frame or a reply whose documents have sources."""
    return replace(record, source=replace(source(), sources=[b'"wire"', b"", b"7", b'"\\ud800"'][:n]))


def test_sources_and_log_times_are_read_where_there_is_a_field_for_them() -> None:
    made, said = with_sources(frame()), replace(with_sources(reply()), log=np.array([3, 3, 4, 5]))
    assert Frame.decode(made.encode(SETTINGS), SETTINGS).source.sources == []
    assert Reply.decode(replace(said, source=None, accepted=None).encode(TIMED), TIMED).log is None
    with pytest.raises(FormatError, match="parts"):
        Frame.decode(made.encode(SETTINGS), SOURCED)
    with pytest.raises(FormatError, match="3 sources of 4"):
        Frame.decode(with_sources(frame(), 3).encode(SOURCED), SOURCED)


def test_a_reply_carries_what_matches_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.wire.replies.EXPLAINED", ("jaccard",))
    evidence = [b',"because":"\xc3\xa4"', b"", b',"because":[1]']
    made = replace(reply(), matches=replace(reply().matches, evidence=np.array(evidence, np.object_)))
    found = Reply.decode(made.encode(SETTINGS), SETTINGS)
    assert found.matches.evidence.tolist() == evidence
    assert found.source is not None and found.source.ids == source().ids
    short = replace(made, matches=replace(made.matches, evidence=made.matches.evidence[:2]))
    with pytest.raises(FormatError, match="do not fit together"):
        Reply.decode(short.encode(SETTINGS), SETTINGS)


def frame() -> Frame:
    return Frame.of(SIGNER, SETTINGS, parsed(), np.array([[0, 5, 7, 1], [7, 1 << 40, (2 << 40) + 1, 0]]), source())


def sequenced(accepted: np.ndarray | None = None) -> Sequenced:
    return Sequenced(9, 8, 70, KEY, accepted, memoryview(frame().encode(SETTINGS)))


def matches_of(n: int, **columns: object) -> Matches:
    """Matches of four documents; without `columns` none of them has any."""
    nothing = np.empty(0, np.int64)
    given: dict[str, object] = {
        "document": nothing, "row": nothing, "seq": nothing, "similarity": np.empty(0), "same_text": nothing != 0,
        "effect": nothing, "held": np.empty((0, 2), np.int64),
        "status": np.zeros(n, np.int64), "known": np.full(n, -1), "row_of": np.full(n, -1),
        "kind": np.zeros(n, np.int64), "of": np.full(n, -1), "of_seq": np.full(n, -1), "of_similarity": np.zeros(n),
        "group": np.full(n, NO_GROUP), "more": np.zeros(n, np.int64), "not_compared": np.zeros(n, np.int64),
        "removed": np.full((n, REMOVED_COLUMNS), -1),
    }  # fmt: skip
    return Matches(**{**given, **columns})  # type: ignore[arg-type]


def reply(*, carried: bool = True) -> Reply:
    matches = matches_of(
        4, document=np.array([0, 2, 2]), row=np.array([0, 1, 0]), seq=np.array([4, 5, 6]),
        similarity=np.array([0.1, 0.9, 1.0]), same_text=np.array([False, False, True]),
        effect=np.zeros(3, np.int64), held=np.array([[0, 2], [1, 1 << 49], [0, 1 << 49]]),
        status=np.array([0, 3, 0, 1]), known=np.array([-1, -1, -1, 3]), kind=np.array([1, 0, 2, 255]),
        of=np.array([0, -1, 2, -1]), of_seq=np.array([4, -1, 1 << 50, -1]),
        of_similarity=np.array([0.1, 0.0, 1.0, 0.83]), group=np.array([2, -1, 1 << 49, 7]),
        more=np.array([0, 0, 70000, 0]), not_compared=np.array([3, 0, 0, 0]),
    )  # fmt: skip
    accepted = np.array([True, True, False, True])
    names = [b'"a"', b"17", '"ä"'.encode(), b""]
    return Reply(1, 9, 8, matches, names, source() if carried else None, accepted if carried else None)


def change() -> Change:
    values = {
        rows_key(ROWS, 1, 0, 100): b"rows", rows_key(ROWS, 1, 7, 102): b"more", rows_key(IDS, 1, 0, 100): b"",
        rows_key(rocksdb.TEXTS, 1, 7, 102): b"texts",
    }  # fmt: skip
    return Change(1, 9, 8, 100, 103, KEY, values, b"reply")


def base() -> Base:
    mark = Mark(HAS_ROWS, 9, 100, 103, 50)
    return Base(1, KEY, mark, {**change().values, b"m/erase/1": b"[]"}, np.array([101 << 2 | 1]), {"at": 3})


def decoders() -> list[tuple[str, bytes, Callable[[bytes], object]]]:
    found = sequenced(np.array([True, False, True, True]))
    return [
        ("frame", frame().encode(SETTINGS), lambda data: Frame.decode(data, SETTINGS)),
        ("frame", frame().encode(SETTINGS), lambda data: Places.of(data, SETTINGS)),
        ("sequenced frame", found.encode(SETTINGS), lambda data: Sequenced.decode(data, SETTINGS)),
        ("reply", reply().encode(SETTINGS), lambda data: Reply.decode(data, SETTINGS)),
        ("reply", reply(carried=False).encode(SETTINGS), lambda data: Reply.decode(data, SETTINGS)),
        ("reply", reply().encode(SETTINGS), lambda data: head(data, SETTINGS)),
        ("change", change().encode(SETTINGS), lambda data: Change.decode(data, SETTINGS)),
        ("snapshot record", base().encode(SETTINGS), lambda data: Base.decode(data, SETTINGS)),
    ]


def equal(one: Any, other: Any) -> bool:
    """Field by field, whatever arrays and bytes are views of."""
    if is_dataclass(one):
        return type(one) is type(other) and all(
            equal(getattr(one, column.name), getattr(other, column.name)) for column in fields(one)
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, bytes | memoryview):
        return bytes(one) == bytes(other)
    return bool(one == other)


def test_a_record_of_frames_has_them_as_they_are_alone() -> None:
    frames = [sequenced(accepted).encode(SETTINGS) for accepted in (None, np.array([True, False, True, True]))]
    for some in (frames, frames[:1], [b"foreign"]):
        assert [*map(bytes, split_frames(join_frames(some, SETTINGS), SETTINGS))] == some
    assert join_frames(frames[:1], SETTINGS) == frames[0]
    with pytest.raises(FormatError, match="a record of sequenced frames was made with other settings"):
        split_frames(join_frames(frames, SETTINGS), OTHER)
    with pytest.raises(FormatError, match="it has none"):
        split_frames(join_frames([], SETTINGS), SETTINGS)


@pytest.mark.parametrize("accepted", [None, np.array([True, True, False, True])])
def test_the_batch_of_a_frame_is_the_batch_that_was_signed(accepted: np.ndarray | None) -> None:
    before = sign_batch(SIGNER, hashes(), SETTINGS, parsed())
    found = Sequenced.decode(sequenced(accepted).encode(SETTINGS), SETTINGS)
    assert (found.offset, found.predecessor, found.first, found.key) == (9, 8, 70, KEY)
    after = signed_batch(Frame.decode(found.frame, SETTINGS), found, SETTINGS, hashes(), SIGNER)
    counts = np.ones(4, bool) if accepted is None else accepted
    valid = (before.documents.what & VALID > 0) & counts
    assert np.array_equal(after.documents.what & VALID > 0, valid)
    for name in ("owner", "keys", "starts", "signatures"):
        assert np.array_equal(getattr(after.documents, name), getattr(before.documents, name)), name
    before.documents.words[:, SEQ] = [9 << 12 | row for row in range(4)]
    before.documents.words[2:, FLAGS] |= np.uint64(7 << 24)  # their source partition
    assert np.array_equal(after.documents.words[counts], before.documents.words[counts])


def test_with_a_window_frames_have_log_times_and_say_what_times_count() -> None:
    """Those of what is not rejected, whatever the signer's clock says; the source keeps what was said."""
    windowed = Settings(shards=2, compare_with="all", window="1h", max_future="10s")
    now, n = source().signed_at, len(TEXTS)
    times = np.array([now + 10_001, now, NO_TIME, now + 9_999])
    of = Frame.of(SIGNER, windowed, parsed(), frame().segments, replace(source(), times=times))
    data = of.encode(windowed)
    counting = Places.of(data, windowed).times
    assert counting is not None and counting.tolist() == [now + 10_001, NO_TIME, NO_TIME, now + 9_999]
    log = np.arange(n) + now
    sent = Sequenced(9, 8, 70, KEY, None, memoryview(data), log=log, appended=now + 7)
    found = Sequenced.decode(sent.encode(windowed), windowed)
    assert found.appended == now + 7
    decoded = Frame.decode(found.frame, windowed)
    assert decoded.source.times.tolist() == times.tolist()
    batch = signed_batch(decoded, found, windowed, hashes(), SIGNER)
    assert batch.documents.log.tolist() == log.tolist()
    short = Sequenced.decode(replace(sent, log=log[1:]).encode(windowed), windowed)
    with pytest.raises(FormatError, match="stream times of 3 documents of 4"):
        signed_batch(decoded, short, windowed, hashes(), SIGNER)


@pytest.mark.parametrize(
    ("accepted", "places"),
    [
        (None, [70, 71, 72, 73]),
        ([True, False, False, True], [70, 70, 70, 71]),
        ([False, True, True, False], [70, 70, 71, 71]),
    ],
)
def test_a_frame_says_how_many_documents_precede_each(accepted: list[bool] | None, places: list[int]) -> None:
    found = sequenced(None if accepted is None else np.array(accepted))
    assert found.places(4).tolist() == places


def test_shingles_are_made_from_the_texts_when_they_are_asked_for() -> None:
    """Of the document that is asked for, and of more and more of those that follow it; of none twice."""
    texts = [f"{i} " + TEXTS[i % 4] if i % 4 != 1 else "" for i in range(40)]
    parsed = columns([Document(f"d{i}", text) for i, text in enumerate(texts)])
    one = Settings()
    found = sign_batch(SIGNER, hashes(), one, parsed).shingles.known()
    places = np.arange(40)
    where = Source(places.astype(np.int32), places, parsed.ids, parsed.times, 0)
    made = Frame.of(SIGNER, one, parsed, np.zeros((0, 4), np.int64), where)
    calls: list[int] = []

    class Counting(Signer):
        def shingle(self, texts: bytes, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            calls.append(len(ends))
            return super().shingle(texts, ends)

    frame = Frame.decode(made.encode(one), one)
    lazy = TextShingles(frame, frame.sizes > 0, Counting(SIGNER.settings, KEY))
    assert not lazy.known().have.any()
    had = 0
    for wanted in (3, 2, 30, 10, 12, 0, 4, 39, 22, 23):
        sets = lazy.known() if lazy.known().have[wanted] else lazy.with_document(wanted)
        assert sets.have[wanted] and sets.have.sum() >= had
        had = int(sets.have.sum())
        for i in np.flatnonzero(sets.have).tolist():
            mine = sets.shingles[sets.offsets[i] : sets.offsets[i + 1]]
            assert mine.tolist() == found.shingles[found.offsets[i] : found.offsets[i + 1]].tolist()
    assert calls[:4] == [1, 2, 4, 8] and len(calls) < 9 and sum(calls) == had <= 30


CHANGING = Settings(on_conflict="update")


def changed_frame() -> Frame:
    """Documents, and two records that ids are deleted, one of which was refused."""
    parsed = columns([Document("a", TEXTS[0]), *(Document(id, deleted=True) for id in "bc")])
    parsed.rejected[2] = Rejection("too_large", "its headers")
    places = np.zeros(3, np.int32), np.arange(3)
    return Frame.of(SIGNER, CHANGING, parsed, np.array([[0, 0, 3, 0]]), Source(*places, parsed.ids, parsed.times, 7))


def changed_reply() -> Reply:
    removed = np.array([[-1] * REMOVED_COLUMNS, [70, 0, -1, -1, 60, 0], [71, 1, 1, 90, 71, 0], [72, 1, -1, -1, 72, 1]])
    matches = matches_of(4, status=np.array([0, 4, 0, 5]), removed=removed)
    return Reply(0, 9, 8, matches, [b'"a"', b'"new_representative"'], source(), None, {90: (3, 1 << 40)})


SEVERAL = Settings(on_conflict="update", shards=2)


def representatives_reply() -> Reply:
    """With the second document a block begins, from which on two may stand for groups."""
    found = changed_reply()
    removed = found.matches.removed.copy()
    removed[:, 2:4] = -1
    representatives = np.array([[1, 60, 1, 65], [1, 1 << 50, 0, 7]])
    matches = replace(found.matches, removed=removed, representatives=representatives)
    return replace(found, matches=matches, representatives={65: (0, 4), 7: (2, 1 << 40)})


def decisions() -> Decisions:
    """One of three was kept in the group of the version before it; of two who may stand for groups one does."""
    states = States(
        np.array([5, 9, 4096]), np.array([2, 3, 7]), np.array([0, 1, 0]), np.array([0.0, 0.875, 0.0]),
        np.array([5, 5, 1]),
    )  # fmt: skip
    representatives = States(np.array([4, 1]), np.array([6, 6]), np.array([0, 1]), np.zeros(2), np.array([3, 3]))
    deleted = np.array([[2, 5], [3, 1]])
    return Decisions(1, -1, 8, states, np.array([1, 0], np.uint16), [b'"a"', b""], deleted, representatives)


RANKED = Settings(keep="newest", on_conflict="update", shards=2)
SUPERSEDED = replace(decisions(), superseded=np.array([[2, 4, 1, 8], [3, 1 << 50, 0, 1 << 40], [4, 5, 0, 9]]))


def ranked_reply() -> Reply:
    """A document that ranks higher than a match, and one of another source than its two."""
    found = reply()
    held = np.array([[3, 2], [1 << 40, 1 << 49], [7, 60]])
    return replace(
        found,
        matches=replace(found.matches, effect=np.array([1, 2, 2]), held=held, of_seq=np.array([4, -1, 1 << 50, 9])),
    )


GONE = replace(change(), shard=0, values={}, deleted_rows=np.array([5 << 2 | 1, 102 << 2 | 3]))
RECORDS: list[tuple[Settings, Any]] = [
    (SETTINGS, frame()), (SETTINGS, sequenced()), (SETTINGS, sequenced(np.array([True, False, True, True]))),
    (SETTINGS, reply()), (SETTINGS, reply(carried=False)), (SETTINGS, Reply(1, 9, 8, matches_of(4), [], None, None)),
    (SETTINGS, change()), (SETTINGS, base()), (CHANGING, changed_frame()), (CHANGING, changed_reply()),
    (CHANGING, GONE), (SOURCED, with_sources(frame())), (SOURCED, with_sources(reply())),
    (TIMED, replace(with_sources(reply()), log=np.array([3, 3, 4, 5]))),
    (SEVERAL, representatives_reply()), (SEVERAL, decisions()), (RANKED, ranked_reply()), (RANKED, SUPERSEDED),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "record"), RECORDS)
def test_records_come_back(settings: Settings, record: Any) -> None:
    assert equal(type(record).decode(record.encode(settings), settings), record)


def test_heads_and_keys_tell_what_a_record_is() -> None:
    assert head(reply().encode(SETTINGS), SETTINGS) == (1, 9, 8)
    assert list(change().segments()) == [(0, 100), (7, 102)]
    assert is_base(base().encode(SETTINGS)) and not is_base(change().encode(SETTINGS)) and not is_base(b"SLSHB")


def test_each_shard_learns_the_decisions_on_its_own_documents() -> None:
    found = Decisions.decode(decisions().encode(SEVERAL), SEVERAL)
    assert found.joined.tolist() == [1, 2]
    mine = decisions_of_shard([found], 0, 3, 8)
    assert (mine.states.seq.tolist(), mine.names, mine.deleted.tolist(), mine.representatives.seq.tolist()) == (
        [4096], [b""], [[3, 1]], [4]
    )  # fmt: skip
    assert decisions_of_shard([found], 1, 0, 3).deleted.tolist() == [[2, 5]]
    assert not len(decisions_of_shard([found], 1, 0, 3).representatives)
    assert decisions_of_shard([SUPERSEDED], 0, 3, 4).superseded.tolist() == [[3, 1 << 50, 0, 1 << 40]]


@pytest.mark.parametrize(("accepted", "deleted"), [(None, [1]), (np.array([True, False, True]), [])])
def test_what_is_deleted_is_a_deletion_in_the_batch_unless_it_was_refused(
    accepted: np.ndarray | None, deleted: list[int]
) -> None:
    frame = Frame.decode(changed_frame().encode(CHANGING), CHANGING)
    batch = signed_batch(frame, Sequenced(9, 8, 70, KEY, accepted, memoryview(b"")), CHANGING, hashes(), SIGNER)
    assert np.flatnonzero(batch.documents.what & DELETION).tolist() == deleted
    assert np.flatnonzero(batch.documents.what & VALID).tolist() == [0]


def test_the_erase_queue_is_read_back() -> None:
    waits = replace(GONE, waits=b'{"erase/1":[1,2]}')
    assert waits.encode(CHANGING) != GONE.encode(CHANGING)
    assert list(Change.decode(waits.encode(CHANGING), CHANGING).waiting()) == [("erase/1", b"[1,2]")]
    for damaged in (b"{", b"[1]"):
        with pytest.raises(FormatError, match="a change of shard 0 is damaged"):
            list(Change.decode(replace(GONE, waits=damaged).encode(CHANGING), CHANGING).waiting())


def test_the_time_of_a_record_is_an_event_time_only_by_a_field() -> None:
    """What says which version is the newer one; without a field that is its place in the log."""
    made = changed_frame()
    made.source.times[:] = 5
    for settings, times in ((CHANGING, NO_TIME), (Settings(on_conflict="update", time_field="ts"), 5)):
        batch = signed_batch(made, Sequenced(9, 8, 70, KEY, None, memoryview(b"")), settings, hashes(), SIGNER)
        assert set(batch.documents.words[:, TIME].view(np.int64).tolist()) == {times}
    assert set(made.source.times.tolist()) == {5}


def test_the_time_of_a_record_counts_for_stream_time_but_does_not_say_which_version_is_newer() -> None:
    """And that of a deletion counts, too, but not that of one that is refused."""
    settings = Settings(on_conflict="update", time_field="ts", window="7d")
    parsed = columns(
        [Document("a", TEXTS[0], time=10**12), *(Document(id, deleted=True, time=10**12 + 7) for id in "bcd")]
    )
    parsed.rejected[2] = Rejection("too_large", "its headers")
    for stamped in ([], [0], [1], [0, 1, 3]):
        parsed.stamped[:] = stamped
        source = Source(np.zeros(4, np.int32), np.arange(4), parsed.ids, parsed.times, 9)
        data = Frame.of(SIGNER, settings, parsed, np.array([[0, 0, 4, 0]]), source).encode(settings)
        assert Places.of(data, settings).times.tolist() == [10**12, 10**12 + 7, NO_TIME, 10**12 + 7]
        frame = Frame.decode(data, settings)
        assert (frame.deleted.tolist(), frame.stamped.tolist()) == ([1, 3], stamped)
        place = Sequenced(9, 8, 70, KEY, None, memoryview(b""), log=np.zeros(4, np.int64))
        batch = signed_batch(frame, place, settings, hashes(), SIGNER)
        times = batch.documents.words[:, TIME].view(np.int64).tolist()
        assert [i for i in (0, 1, 3) if times[i] == NO_TIME] == stamped
        assert set(times) <= {10**12, 10**12 + 7, NO_TIME}


def test_an_action_that_is_not_known_is_refused() -> None:
    sections: list[bytes | memoryview] = list(unpack(b"F", 2, CHANGING.fingerprint, changed_frame().encode(CHANGING)))
    sections[-1] = bytes([0, 4, 0])
    with pytest.raises(FormatError, match="upgrade this worker"):
        Frame.decode(pack(b"F", 2, CHANGING.fingerprint, sections), CHANGING)


@pytest.mark.parametrize(
    ("case", "section", "what"), [(0, 14, "actions"), (1, 14, "actions"), (2, 1, "decisions"), (2, 2, "stream times")]
)
def test_what_only_later_versions_write_is_refused(case: int, section: int, what: str) -> None:
    name, data, decode = decoders()[case]
    with pytest.raises(FormatError, match=f"a {name} has {what}, which only newer versions write: upgrade this worker"):
        # A record with eight bytes in a section that is empty.
        sections: list[bytes | memoryview] = list(unpack(data[4:5], data[5], SETTINGS.fingerprint, data))
        assert not len(sections[section])
        sections[section] = b"whatever"
        decode(pack(data[4:5], data[5], SETTINGS.fingerprint, sections))


def test_a_change_with_keys_of_another_shard_or_with_none_is_refused() -> None:
    found = change()
    for key in (rows_key(ROWS, 2, 0, 100), b"r12345678", b""):
        values = {**found.values, key: b"rows"}
        with pytest.raises(FormatError, match="a change of shard 1 is damaged: it has the key"):
            Change.decode(replace(found, values=values).encode(SETTINGS), SETTINGS)
    with pytest.raises(FormatError, match="a change is damaged: rows 100 to 103"):
        Change.decode(replace(found, values={rows_key(ROWS, 1, 0, 103): b""}).encode(SETTINGS), SETTINGS)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_sections_come_back(sections: list[bytes]) -> None:
    data = pack(b"F", 3, "00ff" * 4, sections)
    assert len(data) % 8 == 0
    assert [bytes(part) for part in unpack(b"F", 3, "00ff" * 4, data)] == sections


@pytest.mark.parametrize("case", range(7))
def test_other_versions_settings_and_kinds_are_refused_with_the_remedy(case: int) -> None:
    name, data, decode = decoders()[case]
    version = data[5]
    with pytest.raises(FormatError, match=f"a {name} has version {version + 1}.*upgrade this worker"):
        decode(data[:5] + bytes([version + 1]) + data[6:])
    with pytest.raises(FormatError, match=r"version 1, this worker reads 2: start under a new topic_prefix.*reindex"):
        decode(data[:5] + b"\1" + data[6:])
    foreign = data[:8] + bytes.fromhex(OTHER.fingerprint) + data[16:]
    with pytest.raises(FormatError, match=f"{OTHER.fingerprint}.*{SETTINGS.fingerprint}.*stream-lsh kafka reindex"):
        decode(foreign)
    with pytest.raises(ForeignError, match="topic_prefix"):
        decode(data[:4] + (b"F" if name != "frame" else b"C") + data[5:])
    with pytest.raises(FormatError, match="topic_prefix") as unknown:  # perhaps a later version's
        decode(data[:4] + b"Z" + data[5:])
    assert not isinstance(unknown.value, ForeignError)
    for other in (b"", b"{}", b"SLSH", data[:15], b'{"id":1,"text":"' + data):
        with pytest.raises(ForeignError, match="something else writes to this topic"):
            decode(other)


@pytest.mark.parametrize(
    ("settings", "record", "read"),
    [*((*case, type(case[1]).decode) for case in RECORDS), (SETTINGS, frame(), Places.of), (SETTINGS, reply(), head)],
)
def test_damage_is_refused_and_never_anything_else(
    settings: Settings, record: Any, read: Callable[[bytes, Settings], object]
) -> None:
    """Cut anywhere, longer, or with any section's length changed."""
    data = record.encode(settings)

    def decode(data: bytes) -> object:
        return read(data, settings)

    for cut in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:cut])
    with pytest.raises(FormatError):
        decode(data + bytes(8))
    (count,) = struct.unpack_from("<H", data, 6)
    for section in range(count):
        at = 16 + 4 * section
        (length,) = struct.unpack_from("<I", data, at)
        for changed in {0, length - 8, length - 1, length + 1, length + 8, 1 << 31} - {length, -1, -8}:
            if changed >= 0:
                damaged = data[:at] + struct.pack("<I", changed) + data[at + 4 :]
                try:
                    decode(damaged)  # a length within the same padding may give another, well-formed record
                except FormatError:
                    continue

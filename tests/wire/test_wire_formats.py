"""Binary records: what is packed comes back; anything else is refused with a sentence, never guessed at."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.documents.columns import Columns, Document, Rejection, columns
from stream_lsh.errors import FormatError
from stream_lsh.families.signer import Signer
from stream_lsh.index.batch import sign_batch
from stream_lsh.index.shard import Matches
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.envelope import pack, unpack
from stream_lsh.wire.frames import Frame, Sequenced, Source, TextShingles, places, signed_batch
from stream_lsh.wire.replies import Reply, head

SETTINGS = Settings(shards=2)
OTHER = Settings(shards=3)
SIGNER = Signer(SETTINGS.signing)
TEXTS = ["the quick brown fox jumps over the lazy dog", "", "ein anderer Text mit ganz anderen Wörtern", "x y z " * 90]


def parsed() -> Columns:
    return columns([Document(f"d{i}", text) for i, text in enumerate(TEXTS)])


def source() -> Source:
    found = parsed()
    headers = {0: [("traceparent", b"00-\xff")], 3: [("a", b""), ("a", b"2")]}
    rejected = found.rejected | {1: Rejection("empty", "nothing there", 12)}
    places = np.array([0, 0, 7, 7], np.int32), np.array([5, 6, 1 << 40, 2 << 40])
    return Source(*places, found.ids, found.times, 1_700_000_000_000, rejected, headers)


def frame() -> Frame:
    batch = sign_batch(
        SIGNER, SETTINGS, columns([Document(f"d{i}", t) for i, t in enumerate(TEXTS)]), want_shingles=True
    )
    return Frame.of(batch, np.array([[0, 5, 7, 1], [7, 1 << 40, (2 << 40) + 1, 0]]), source())


def reply(*, carried: bool = True) -> Reply:
    matches = Matches(
        np.array([0, 2, 2]), np.arange(3), np.array([4, 5, 6]), np.array([0.1, 0.9, 1.0]),
        np.array([False, False, True]), np.array([0, 3, 0, 1], np.uint8), np.full(4, -1), np.array([0, 0, 70000, 0]),
    )  # fmt: skip
    accepted = np.array([True, True, False, True])
    older = [b'"a"', b"17", '"ä"'.encode()]
    return Reply(1, 9, 8, matches, older, source() if carried else None, accepted if carried else None)


def change() -> Change:
    return Change(1, 9, 8, 100, 103, {b"r12345678": b"rows", b"i12345678": b"", b"t": b"texts"}, b"reply")


def decoders() -> list[tuple[str, bytes, Callable[[bytes], object]]]:
    sequenced = Sequenced(9, 8, np.array([True, False, True, True]), memoryview(frame().encode(SETTINGS)))
    return [
        ("frame", frame().encode(SETTINGS), lambda data: Frame.decode(data, SETTINGS)),
        ("frame", frame().encode(SETTINGS), lambda data: places(data, SETTINGS)),
        ("sequenced frame", sequenced.encode(SETTINGS), lambda data: Sequenced.decode(data, SETTINGS)),
        ("reply", reply().encode(SETTINGS), lambda data: Reply.decode(data, SETTINGS)),
        ("reply", reply(carried=False).encode(SETTINGS), lambda data: Reply.decode(data, SETTINGS)),
        ("reply", reply().encode(SETTINGS), lambda data: head(data, SETTINGS)),
        ("change", change().encode(SETTINGS), lambda data: Change.decode(data, SETTINGS)),
    ]


def same_source(a: Source | None, b: Source | None) -> bool:
    assert a is not None and b is not None
    columns = [(a.partitions, b.partitions), (a.offsets, b.offsets), (a.times, b.times)]
    facts = (a.ids, a.signed_at, a.rejected, a.headers) == (b.ids, b.signed_at, b.rejected, b.headers)
    return facts and all(np.array_equal(x, y) for x, y in columns)


def test_frames_come_back() -> None:
    before = frame()
    data = before.encode(SETTINGS)
    after = Frame.decode(data, SETTINGS)
    assert same_source(before.source, after.source)
    for name in ("segments", "sizes", "fingerprints", "signatures"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    segments, partitions, offsets = places(data, SETTINGS)
    assert np.array_equal(segments, before.segments)
    assert partitions.tolist() == [0, 0, 7, 7] and offsets.tolist() == [5, 6, 1 << 40, 2 << 40]
    assert [len(frames) for frames in after.texts] == [len(frames) for frames in before.texts]


@pytest.mark.parametrize("accepted", [None, np.array([True, True, False, True])])
def test_the_batch_of_a_frame_is_the_batch_that_was_signed(accepted: np.ndarray | None) -> None:
    before = sign_batch(
        SIGNER, SETTINGS, columns([Document(f"d{i}", t) for i, t in enumerate(TEXTS)]), want_shingles=True
    )
    data = Sequenced(9, 8, accepted, memoryview(frame().encode(SETTINGS))).encode(SETTINGS)
    sequenced = Sequenced.decode(data, SETTINGS)
    assert (sequenced.offset, sequenced.predecessor) == (9, 8)
    after = signed_batch(Frame.decode(sequenced.frame, SETTINGS), sequenced.accepted, SETTINGS, SIGNER, 9)
    valid = before.documents.valid if accepted is None else before.documents.valid & accepted
    assert np.array_equal(after.documents.valid, valid)
    for name in ("ids", "texts", "keys", "signatures"):
        assert np.array_equal(getattr(after.documents, name), getattr(before.documents, name)), name
    assert after.documents.seqs.tolist() == [9 << 12 | row for row in range(4)]
    for shard in range(2):
        assert np.array_equal(after.owned_by(shard).owned, valid & (before.owner == shard))


def test_shingles_are_made_from_the_texts_when_they_are_asked_for() -> None:
    batch = sign_batch(
        SIGNER, SETTINGS, columns([Document(f"d{i}", t) for i, t in enumerate(TEXTS)]), want_shingles=True
    )
    all_sets, all_offsets = batch.shingles.known()
    lazy = TextShingles(Frame.decode(frame().encode(SETTINGS), SETTINGS), SIGNER)
    assert np.diff(lazy.known()[1]).tolist() == [0, 0, 0, 0]
    for wanted in ([2], [0, 2], [3], [0, 1, 2, 3]):
        sets, offsets = lazy.of(np.array(wanted))
        for i in wanted:
            mine, theirs = sets[offsets[i] : offsets[i + 1]], all_sets[all_offsets[i] : all_offsets[i + 1]]
            assert sorted(mine.tolist()) == sorted(theirs.tolist())


def test_replies_and_changes_come_back() -> None:
    before = reply()
    after = Reply.decode(before.encode(SETTINGS), SETTINGS)
    assert (after.shard, after.offset, after.predecessor, after.older_ids) == (1, 9, 8, before.older_ids)
    assert same_source(before.source, after.source)
    for name in ("document", "row", "seq", "similarity", "same_text", "status", "more"):
        assert np.array_equal(getattr(before.matches, name), getattr(after.matches, name)), name
    assert after.accepted is not None and after.accepted.tolist() == [True, True, False, True]
    assert Reply.decode(reply(carried=False).encode(SETTINGS), SETTINGS).source is None
    assert head(before.encode(SETTINGS), SETTINGS) == (1, 9, 8)
    again = Change.decode(change().encode(SETTINGS), SETTINGS)
    assert (again.values, again.reply, again.first, again.last) == (change().values, b"reply", 100, 103)


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
    with pytest.raises(FormatError, match=r"version 0.*older workers"):
        decode(data[:5] + b"\0" + data[6:])
    foreign = data[:8] + bytes.fromhex(OTHER.fingerprint) + data[16:]
    with pytest.raises(FormatError, match=f"{OTHER.fingerprint}.*{SETTINGS.fingerprint}.*stream-lsh reindex"):
        decode(foreign)
    with pytest.raises(FormatError, match="topic_prefix"):
        decode(data[:4] + (b"F" if name != "frame" else b"C") + data[5:])
    for other in (b"", b"{}", b"SLSH", data[:15], b'{"id":1,"text":"' + data):
        with pytest.raises(FormatError, match="something else writes to this topic"):
            decode(other)


@pytest.mark.parametrize("case", range(7))
def test_damage_is_refused_and_never_anything_else(case: int) -> None:
    """Cut anywhere, longer, or with any section's length changed."""
    _, data, decode = decoders()[case]
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

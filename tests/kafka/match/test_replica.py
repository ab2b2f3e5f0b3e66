"""A shard kept by a log of frames and a changelog: what is missing, damaged, foreign, or of other settings."""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.kafka import match_play
from support.kafka.replica_play import (
    ANY,
    UPDATES,
    answer,
    change_of,
    changing,
    frames,
    marks,
    oracle,
    reply_of,
    settings_of,
    stream,
    undisturbed,
    verdicts,
)
from support.kafka.stages import KEY

from stream_lsh.documents.document import Document
from stream_lsh.errors import DamagedError, FormatError, StoreError
from stream_lsh.index.matches import Matches
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.segments.segment import folder_of
from stream_lsh.index.store.rocksdb import ROWS, Store, name_key, rows_key
from stream_lsh.kafka.match import kept_answers
from stream_lsh.kafka.match import replica as replica_module
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import BEGINS, Base, Mark
from stream_lsh.wire.changes import Change
from stream_lsh.wire.replies import Reply
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import ROW_BITS

DOCUMENTS = stream(5, 600)


def played(settings: Settings, log: Sequence[bytes], folder: Path) -> tuple[Replica, list[bytes]]:
    """A replica that has answered these frames, and its changes."""
    replica = Replica(settings, 0, folder)
    replica.activate()
    return replica, [change_of(answer(replica, data)) for data in log]


def test_a_reply_of_any_crowd_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds are those of the embedded index, and what is not listed is counted."""
    monkeypatch.setattr(replica_module, "REPLY_BYTES", 3000)
    settings = settings_of(**ANY)
    log = frames(settings, DOCUMENTS)
    replica = Replica(settings, 0, tmp_path / "shard")
    replica.activate()
    replies = [reply_of(answer(replica, data)) for data in log]
    replica.close()
    found = [Reply.decode(reply, settings) for reply in replies]
    assert max(len(reply.matches.document) * 23 + sum(map(len, reply.names)) for reply in found) <= 3000
    mine, whole = verdicts([[r] for r in replies], settings), oracle(settings, log, tmp_path / "oracle", DOCUMENTS)
    counted = 0
    judged = [[json.loads(line) for line in text.splitlines() if b'"kind"' in line] for text in (mine, whole)]
    for less, more in zip(*judged, strict=True):
        assert all(less[name] == more[name] for name in ("id", "seq", "kind", "duplicate_of", "similarity", "group"))
        assert less["matches"] == more["matches"][: len(less["matches"])]
        assert len(less["matches"]) + less.get("truncated", 0) == len(more["matches"]) + more.get("truncated", 0)
        counted += less.get("truncated", 0) > more.get("truncated", 0)
    assert counted > 3


def test_deletions_before_a_trimmed_changelog(tmp_path: Path) -> None:
    settings, documents = settings_of(**UPDATES), changing(600)
    log = frames(settings, documents)
    (source, changes), copy = played(settings, log, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    half = len(log) // 2
    first = Change.decode(changes[half], settings).first
    copy.apply(list(enumerate(changes))[half:], start=half)
    assert marks(copy) == [(row, mark) for row, mark in marks(source) if row >= first] != []
    copy.activate()  # and what is there says how many they are
    copy.close()
    source.close()


def test_a_change_that_deletes_no_stored_row(tmp_path: Path) -> None:
    settings = settings_of(**UPDATES)
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    change = Change.decode(change_of(answer(replica, frames(settings, changing(5))[0])), settings)
    for row in (-1, change.last):
        with pytest.raises(FormatError, match="it deletes rows that do not exist"):
            Change.decode(replace(change, deleted_rows=np.array([row << 2 | 1])).encode(settings), settings)
    replica.close()


def test_a_lost_change_is_a_gap_until_it_comes(tmp_path: Path) -> None:
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    (source, changes), copy = played(settings, log, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    copy.apply([(0, changes[0]), (1, changes[2]), (2, changes[3])])
    assert copy.gap and copy.changelog_offset == 2
    copy.close()
    copy = Replica(settings, 0, tmp_path / "b")
    assert copy.gap  # also for who opens it again: its position is behind what it has ignored
    copy.apply([(3, changes[1]), (4, changes[2]), (5, changes[3])])
    assert not copy.gap and copy.changelog_offset == 5
    source.close()
    copy.close()


@pytest.mark.parametrize("record", ["damaged", "of other settings"])
def test_unreadable_change_is_named(tmp_path: Path, record: str) -> None:
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    (source, changes), copy = played(settings, log, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    other = Change.decode(changes[1], settings).encode(settings_of(threshold=0.6))
    with pytest.raises(FormatError, match=r"^the changelog of shard 0, offset 1: a change"):
        copy.apply([(0, changes[0]), (1, changes[1][:-9] if record == "damaged" else other)])
    source.close()
    copy.close()


@pytest.mark.parametrize("what", ["foreign", "known", "new", "snapshot", "of another index"])
def test_only_records_of_others_that_do_not_matter_are_passed_over(tmp_path: Path, what: str) -> None:
    """An owner counts its records behind them. A snapshot right behind them does not count."""
    settings = settings_of()
    log, passed = frames(settings, DOCUMENTS), list[int]()
    source, changes = played(settings, log[:8], tmp_path / "a")
    owner = Replica(settings, 0, tmp_path / "b", foreign=lambda offset, _: passed.append(offset))
    owner.activate()
    offsets = [answer(owner, data).offset for data in log[:6]]
    record = {
        "foreign": b"hello", "known": changes[1], "new": changes[7],
        "snapshot": Base(0, KEY, Mark(BEGINS, offsets[1], 0, owner.count, 0)).encode(settings),
        "of another index": replace(Change.decode(changes[1], settings), key=bytes(16)).encode(settings),
    }[what]  # fmt: skip
    assert owner.agrees([(2, record)]) is (what in ("foreign", "known")) and passed == [2] * (what == "foreign")
    begins = Mark(BEGINS, offsets[3], 0, owner.count, 0)
    for mark, place, counts in ((offsets[1], 1, False), (offsets[3], 3, False), (begins, 5, False), (begins, 6, True)):
        owner.confirmed(mark, place)
        assert bool(owner.cycle.begun) is counts and owner.changelog_offset == place
    owner.confirmed(offsets[0], 0)  # the changelog was followed since
    assert owner.cycle.begun and owner.changelog_offset == 6 and owner.cycle.last_frame == offsets[3]
    source.close()
    owner.close()


@pytest.mark.parametrize(("compare_with", "shards"), [("kept", 1), ("kept", 2), ("all", 2)])
def test_changes_from_another_partition_are_found(tmp_path: Path, compare_with: str, shards: int) -> None:
    settings = settings_of(**UPDATES, compare_with=compare_with, shards=shards)
    given = [Document(i, f"text {i} of this feed", time=1000) for i in range(8)]
    later = [
        Document(0, time=2000, deleted=True), replace(given[1], text="another text", time=2000), given[2],
        replace(given[3], text="too late", time=500), Document(9, time=2000, deleted=True),
    ]  # fmt: skip
    again = [Document(0, time=3000, deleted=True), replace(given[1], text="the last text", time=3000)]
    log = [
        part
        for number, (documents, partition) in enumerate([(given, 0), (later, 2), (again, 2)])
        for part in match_play.frames(settings, documents, 8, number, partition)
    ]
    answers = [undisturbed(settings, log, tmp_path / str(shard), shard) for shard in range(shards)]
    found = [tuple(place) for each in answers for said in each for place in said.elsewhere.tolist()]
    assert sorted(found) == [(2, 0, 0), (2, 1, 0), (2, 3, 0)]


def pairs_of(matches: Matches) -> set[tuple[int, int]]:
    return {*zip(matches.document.tolist(), matches.seq.tolist(), strict=True)}


def test_a_trimmed_changelog_begins_where_it_begins(tmp_path: Path) -> None:
    """What was trimmed is forgotten; all after it is found, and matching goes on, through flushes and restarts."""
    settings = settings_of(**ANY, memtable_documents=64, segment_documents=150)
    log = frames(settings, DOCUMENTS)
    half, most = len(log) // 3, 2 * len(log) // 3
    (source, changes), copy = played(settings, log[:most], tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    copy.apply(list(enumerate(changes))[half:], start=half)
    assert copy.last == source.last and copy.count == source.count
    begin = Sequenced.decode(log[half], settings).offset << ROW_BITS
    expected: set[tuple[int, int, int]] = set()
    found: set[tuple[int, int, int]] = set()
    for number, data in enumerate(log[most:]):
        if number % 5 == 0:
            copy.close()
            copy = Replica(settings, 0, tmp_path / "b")
        copy.activate()
        mine = Reply.decode(reply_of(answer(copy, data)), settings).matches
        theirs = Reply.decode(reply_of(answer(source, data)), settings).matches
        new = theirs.status == layout.NEW  # an id that was trimmed away is new again
        found |= {(number, i, seq) for i, seq in pairs_of(mine) if new[i]}
        expected |= {(number, i, seq) for i, seq in pairs_of(theirs) if seq >= begin}
    # An id that was trimmed away can be stored again. Documents that followed a leader that is gone are met no more.
    assert len(found - expected) < 0.05 * len(expected)
    assert len(found & expected) > 0.5 * len(expected) > 50
    source.close()
    copy.close()


def test_other_settings_and_damage_are_refused(tmp_path: Path) -> None:
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    with pytest.raises(FormatError, match="other settings"):
        replica.match(frames(settings_of(threshold=0.7), DOCUMENTS[:50])[0])
    with pytest.raises(FormatError, match="lengths"):
        replica.match(log[0][:-9])
    with pytest.raises(FormatError, match="no sequenced frame"):
        replica.match(b"{}")
    replica.match(log[0])
    replica.close()
    with pytest.raises(StoreError, match=r"threshold = 0.8 \(here 0.7\).*same settings for all workers"):
        Replica(settings_of(threshold=0.7), 0, tmp_path / "a")
    with pytest.raises(StoreError, match=r"it is shard 0 \(here 1\), compare_with = 'kept' \(here 'all'\), shards = 1"):
        Replica(settings_of(shards=2, compare_with="all"), 1, tmp_path / "a")
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert replica.match(log[1]) is not None
    replica.close()


def test_a_setting_that_an_older_version_did_not_have_has_its_default(tmp_path: Path) -> None:
    Replica(settings_of(), 0, tmp_path / "a").close()
    store = Store(tmp_path / "a" / "db", sync=False)
    facts = store.named("replica")
    del facts["settings"]["max_candidates"]
    store.write({name_key("replica"): json.dumps(facts).encode()})
    store.close()
    Replica(settings_of(), 0, tmp_path / "a").close()
    with pytest.raises(StoreError, match=r"other settings: max_candidates = 32 \(here 7\); use"):
        Replica(settings_of(max_candidates=7), 0, tmp_path / "a")
    store = Store(tmp_path / "a" / "db", sync=False)
    facts["settings"]["later"] = 3  # of a later one: nobody here knows what it means
    store.write({name_key("replica"): json.dumps(facts).encode()})
    store.close()
    with pytest.raises(StoreError, match=r"other settings: later = 3 \(here None\); use"):
        Replica(settings_of(), 0, tmp_path / "a")


def test_another_key_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """In a frame, in a change; also by who opens the folder again, and where nothing came of the first frame."""
    settings, other = settings_of(), bytes(16)
    mine, theirs = frames(settings, DOCUMENTS[:100]), frames(settings, DOCUMENTS[:100], key=other)
    source, changes = played(settings, theirs, tmp_path / "theirs")
    source.close()
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert replica.match(mine[0]) is not None
    for _ in range(2):
        for data in theirs[:2]:
            with pytest.raises(StoreError, match=r"the frames topic has the key of another index.*a\. If.*reindex"):
                replica.match(data)
        replica.deactivate()
        with pytest.raises(StoreError, match=r"the changelog of shard 0 has the key of another index.*delete"):
            replica.apply([(0, changes[1])])
        replica.close()
        replica = Replica(settings, 0, tmp_path / "a")
        replica.activate()
    assert replica.match(mine[1]) is not None
    replica.close()


def test_a_row_that_is_missing_in_the_changelog_is_damage(tmp_path: Path) -> None:
    settings = settings_of(segment_documents=50)
    log = frames(settings, DOCUMENTS[:300])
    (source, found), copy = played(settings, log, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.close()
    changes = [Change.decode(change, settings) for change in found]
    at = next(n for n, change in enumerate(changes) if len(list(change.segments())) > 1)
    lost = next(key for key in changes[at].values if key.startswith(ROWS))
    changes[at] = replace(changes[at], values={k: v for k, v in changes[at].values.items() if k != lost})
    copy.apply([(n, change.encode(settings)) for n, change in enumerate(changes)])
    with pytest.raises(DamagedError, match=r"rows? .*of shard 0 (is missing|are damaged)"):
        copy.activate()
    copy.close()


def test_a_deleted_reply_is_not_repeated(tmp_path: Path) -> None:
    """Rows that were flushed are read from their file; but ids and texts that are gone are damage."""
    settings = settings_of(segment_documents=20)
    log = frames(settings, DOCUMENTS[:300])
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    whole = [answer(replica, data) for data in log]
    keys = [key for found in whole for key in Change.decode(change_of(found), settings).values]
    assert sum(replica.store.value(key) is None for key in keys) > 10  # they are in files only
    assert [replica.match(data) for data in log] == whole
    ids = next(key for key in keys if key.startswith(b"i"))
    replica.store.write({}, [ids])
    with pytest.raises(DamagedError, match="of shard 0 are missing"):
        replica.match(log[0])
    replica.close()


@pytest.mark.parametrize(("rows", "kept"), [(0, 5), (10**6, 9)])
def test_as_many_answers_are_kept_as_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, kept: int
) -> None:
    """Also by a sequencer of version 0.1, which counts frames, whatever is in them."""
    monkeypatch.setattr(kept_answers, "KEPT_FRAMES", 5)
    monkeypatch.setattr(kept_answers, "MOST_ROWS", rows)
    settings = settings_of(decision_lag=8)
    log = frames(settings, DOCUMENTS[:500])
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    whole = [answer(replica, data) for data in log]
    assert len(log) > 12
    assert [replica.match(data) for data in log[-kept:]] == whole[-kept:]
    gone = replica.match(log[-kept - 1])
    assert gone is not None and gone.reply is None
    replica.close()


@pytest.mark.parametrize(("version", "remedy"), [(1, "start under a new topic_prefix"), (4, "upgrade this worker")])
def test_a_folder_of_another_version_is_refused_with_the_remedy(tmp_path: Path, version: int, remedy: str) -> None:
    store = Store(tmp_path / "a" / "db", sync=False)
    facts = {"format": version, "fingerprint": "0" * 16, "shard": 0, "created": 0, "last": 3, "rows": 9}
    store.write({name_key("replica"): json.dumps(facts).encode()})
    store.close()
    with pytest.raises(StoreError, match=f"format {version}, this version reads 3: {remedy}"):
        Replica(settings_of(), 0, tmp_path / "a")


def test_a_change_that_does_not_continue_the_rows_is_refused(tmp_path: Path) -> None:
    """The right predecessor, but rows that are there already: nothing is overwritten."""
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    (source, changes), copy = played(settings, log[:3], tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    copy.apply([(0, changes[0]), (1, changes[1])])
    count = copy.count
    found = Change.decode(changes[2], settings)
    foreign = Change(
        0, found.offset, found.predecessor, 0, 6, KEY, {rows_key(ROWS, 0, 0, 0): b"other rows"}, found.reply
    )  # fmt: skip
    with pytest.raises(StoreError, match=rf"begins at row 0, but .*b has {count} rows.*Delete the folder"):
        copy.apply([(2, foreign.encode(settings))])
    copy.close()
    copy = Replica(settings, 0, tmp_path / "b")
    assert copy.count == count and copy.changelog_offset == 1
    copy.apply([(2, changes[2])])
    copy.activate()
    assert copy.match(log[3]) == source.match(log[3])
    source.close()
    copy.close()


def test_nothing_stays_open_where_opening_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(memtable_documents=64)
    replica, _ = played(settings, frames(settings, DOCUMENTS), tmp_path / "a")
    replica.close()

    def damaged(*_: object) -> None:
        raise DamagedError("an id is damaged; restore it")

    with monkeypatch.context() as patched:
        patched.setattr(Ids, "restore", damaged)
        replica = Replica(settings, 0, tmp_path / "a")
        threads = threading.active_count()
        with pytest.raises(DamagedError):
            replica.activate()
        assert threading.active_count() == threads
        # What this process has open.
        found = []
        for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
            with suppress(OSError):
                found.append(str(entry.readlink()))
        assert str(folder_of(tmp_path / "a", 0) / "rows-0.bin") not in found
        replica.close()
    with monkeypatch.context() as patched:
        patched.setattr(Store, "numbers", damaged)
        with pytest.raises(DamagedError):
            Replica(settings, 0, tmp_path / "a")
    Replica(settings, 0, tmp_path / "a").close()  # the store was given back

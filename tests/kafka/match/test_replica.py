"""A shard kept by a log of frames and a changelog answers as the embedded index does, whatever is lost or repeated."""

from __future__ import annotations

import json
import random
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.documents.columns import Document, columns
from stream_lsh.errors import DamagedError, FormatError, StateError
from stream_lsh.families.signer import Signer
from stream_lsh.index import layout
from stream_lsh.index.batch import sign_batch
from stream_lsh.index.ids import Ids
from stream_lsh.index.index import Index
from stream_lsh.index.shard import Matches
from stream_lsh.index.store import ROWS, Store, rows_key
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines
from stream_lsh.kafka.match import replica as replica_module
from stream_lsh.kafka.match.replica import Answer, Replica
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import ROW_BITS, Frame, Sequenced, Source, numbers
from stream_lsh.wire.replies import Reply

WORDS = [f"w{i}" for i in range(300)]


def stream(seed: int, n: int) -> list[Document]:
    chance = random.Random(seed)
    texts = [[chance.choice(WORDS) for _ in range(chance.choice((5, 40)))] for _ in range(6)]
    out: list[Document] = []
    for number in range(n):
        words = list(chance.choice(texts))
        for _ in range(chance.choice((0, 0, 1, 1, 2, 6))):
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        texts.append(words)
        out.append(chance.choice(out) if out and chance.random() < 0.05 else Document(number, " ".join(words)))
        if chance.random() < 0.02:
            out[-1] = Document(out[-1].id, "")
    return out


def frames(settings: Settings, documents: list[Document], seed: int = 0) -> list[bytes]:
    """Sequenced frames of random sizes; the offsets have gaps, and some documents are not accepted."""
    chance = random.Random(seed)
    signer = Signer(settings.signing)
    out = []
    at, offset, predecessor = 0, chance.randrange(3), -1
    while at < len(documents):
        n = chance.choice((1, 3, 20, 60))
        part = columns(documents[at : at + n])
        count = len(part.ids)
        batch = sign_batch(signer, settings, part, want_shingles=False)
        places = np.arange(at, at + count)
        source = Source(np.zeros(count, np.int32), places, part.ids, part.times, 1000 + at, part.rejected)
        frame = Frame.of(batch, np.array([[0, at, at + count, 0]], np.int64), source)
        accepted = None
        if chance.random() < 0.3:
            accepted = np.array([chance.random() < 0.8 for _ in range(count)])
        data = Sequenced(offset, predecessor, accepted, memoryview(frame.encode(settings))).encode(settings)
        out.append(data)
        predecessor, offset, at = offset, offset + chance.choice((1, 1, 2)), at + count
    return out


def verdicts(replies: list[list[bytes]], settings: Settings) -> bytes:
    """Verdicts and pairs from the shards' replies, frame by frame."""
    out = []
    for parts in replies:
        found = [Reply.decode(part, settings) for part in parts]
        (carrier,) = [reply for reply in found if reply.source is not None]
        assert carrier.source is not None
        seqs = numbers(carrier.offset, len(carrier.source))
        judgement = judge(
            [reply.matches for reply in found], carrier.source.ids, seqs, settings.max_matches,
            lambda shard, row, found=found: found[shard].older_ids[row],
        )  # fmt: skip
        lines = verdict_lines(judgement).splitlines()
        if carrier.accepted is not None:
            lines = [line for line, counts in zip(lines, carrier.accepted, strict=True) if counts]
        out += [*lines, pair_lines(judgement, settings.verify)]
    return b"\n".join(out)


def oracle(settings: Settings, log: list[bytes], folder: Path) -> bytes:
    """The same from the embedded index, over the order that the log has."""
    signer = Signer(settings.signing)
    index = Index(settings, folder, durable=False)
    out = []
    for data in log:
        sequenced = Sequenced.decode(data, settings)
        source = Frame.decode(sequenced.frame, settings).source
        accepted = np.ones(len(source), np.bool_) if sequenced.accepted is None else sequenced.accepted
        chosen = np.flatnonzero(accepted).tolist()
        part = columns([DOCUMENTS[int(source.offsets[i])] for i in chosen])
        seqs = sequenced.numbers(len(source))[chosen]
        matches = index.match(sign_batch(signer, settings, part, want_shingles=True), seqs)
        judgement = judge(
            matches, part.ids, seqs, settings.max_matches, lambda s, row: index.shards[s].ids.read(row)
        )  # fmt: skip
        out += [*verdict_lines(judgement).splitlines(), pair_lines(judgement, settings.verify)]
        if index.full:
            index.commit({})
    index.close()
    return b"\n".join(out)


DOCUMENTS = stream(5, 1500)


def answer(replica: Replica, data: bytes) -> Answer:
    found = replica.match(data)
    assert found is not None and found.change is not None and found.reply is not None
    return found


def reply_of(found: Answer) -> bytes:
    assert found.reply is not None
    return found.reply


def change_of(found: Answer) -> bytes:
    assert found.change is not None
    return found.change


def settings_of(**given: object) -> Settings:
    return Settings(**{"memory_documents": 200, "max_matches": 0, **given})


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("verify", "max_matches"), [("exact", 0), ("exact", 2), ("signature", 0)])
def test_the_answers_are_those_of_the_embedded_index(
    tmp_path: Path, shards: int, verify: str, max_matches: int
) -> None:
    settings = settings_of(shards=shards, verify=verify, max_matches=max_matches)
    log = frames(settings, DOCUMENTS)
    replicas = [Replica(settings, shard, tmp_path / f"shard-{shard}") for shard in range(shards)]
    for replica in replicas:
        replica.activate()
    replies = [[reply_of(answer(replica, data)) for replica in replicas] for data in log]
    assert verdicts(replies, settings) == oracle(settings, log, tmp_path / "oracle")
    assert b"near_duplicate" in verdicts(replies, settings)
    for replica in replicas:
        replica.close()


@pytest.mark.parametrize("max_matches", [0, 100])
def test_a_reply_of_any_crowd_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_matches: int) -> None:
    """The kinds are those of the embedded index, and what is not listed is counted."""
    monkeypatch.setattr(replica_module, "REPLY_BYTES", 3000)
    settings = settings_of(max_matches=max_matches)
    log = frames(settings, DOCUMENTS)
    replica = Replica(settings, 0, tmp_path / "shard")
    replica.activate()
    replies = [reply_of(answer(replica, data)) for data in log]
    replica.close()
    found = [Reply.decode(reply, settings) for reply in replies]
    assert max(len(reply.matches.document) * 27 + sum(map(len, reply.older_ids)) for reply in found) <= 3000
    mine, whole = verdicts([[r] for r in replies], settings), oracle(settings, log, tmp_path / "oracle")
    counted = 0
    judged = [[json.loads(line) for line in text.splitlines() if b'"kind"' in line] for text in (mine, whole)]
    for less, more in zip(*judged, strict=True):
        assert all(less[name] == more[name] for name in ("id", "seq", "kind", "of", "similarity"))
        assert less["matches"] == more["matches"][: len(less["matches"])] or less["matches"][-1]["id"] == more["of"]
        assert len(less["matches"]) + less.get("truncated", 0) == len(more["matches"]) + more.get("truncated", 0)
        counted += less.get("truncated", 0) > more.get("truncated", 0)
    assert counted > 20


def test_repeats_restarts_and_copies_change_nothing(tmp_path: Path) -> None:
    """Random closing, repeated frames, a copy that follows the changelog and takes over: always the same bytes."""
    settings = settings_of(shards=2)
    log = frames(settings, DOCUMENTS[:700])
    with_care = Replica(settings, 1, tmp_path / "whole")
    with_care.activate()
    whole = [answer(with_care, data) for data in log]
    with_care.close()
    chance = random.Random(1)
    live, copy = Replica(settings, 1, tmp_path / "a"), Replica(settings, 1, tmp_path / "b")
    live.activate()
    changelog: list[bytes] = []
    for number, data in enumerate(log):
        assert live.match(data) == whole[number]
        changelog.append(change_of(whole[number]))
        if chance.random() < 0.2:
            back = chance.randrange(number + 1)
            assert live.match(log[back]) == whole[back]
            changelog.append(change_of(whole[back]))
        if number + 2 < len(log):
            assert live.match(log[number + 2]) is None
        if chance.random() < 0.1:
            live.close()
            live = Replica(settings, 1, live.folder)
            live.activate()
        if chance.random() < 0.1:
            # The changelog is read by the copy, and the two change places.
            copy.apply(list(enumerate(changelog))[(copy.changelog_offset or -1) + 1 :])
            assert not copy.gap and copy.last == live.last and copy.count == live.count
            live.deactivate()
            live, copy = copy, live
            live.activate()
    live.close()
    copy.close()


def test_a_lost_change_is_a_gap_until_it_comes(tmp_path: Path) -> None:
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = [change_of(answer(source, data)) for data in log]
    copy.apply([(0, changes[0]), (1, changes[2]), (2, changes[3])])
    assert copy.gap and copy.changelog_offset == 2
    copy.close()
    copy = Replica(settings, 0, tmp_path / "b")
    assert copy.gap  # also for who opens it again: its position is behind what it has ignored
    copy.apply([(3, changes[1]), (4, changes[2]), (5, changes[3])])
    assert not copy.gap and copy.changelog_offset == 5
    source.close()
    copy.close()


def test_confirmed_counts_only_without_a_hole(tmp_path: Path) -> None:
    replica = Replica(settings_of(), 0, tmp_path / "a")
    replica.confirmed(1)
    assert replica.changelog_offset is None
    replica.confirmed(0)
    replica.confirmed(2)
    assert replica.changelog_offset == 0
    replica.close()
    replica = Replica(settings_of(), 0, tmp_path / "a")
    assert replica.changelog_offset == 0
    replica.close()


def pairs_of(matches: Matches) -> set[tuple[int, int]]:
    return {*zip(matches.document.tolist(), matches.seq.tolist(), strict=True)}


def test_a_trimmed_changelog_begins_where_it_begins(tmp_path: Path) -> None:
    """What was trimmed is forgotten; everything after it is found, and matching goes on, through flushes and
    restarts."""
    settings = settings_of(memory_documents=64)
    log = frames(settings, DOCUMENTS)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    half, most = len(log) // 3, 2 * len(log) // 3
    changes = [change_of(answer(source, data)) for data in log[:most]]
    copy.apply(list(enumerate(changes))[half:], trimmed=True)
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
    assert len(found & expected) > 0.5 * len(expected) > 100
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
    with pytest.raises(StateError, match="same settings for all workers"):
        Replica(settings_of(threshold=0.7), 0, tmp_path / "a")
    with pytest.raises(StateError, match="shard 0"):
        Replica(settings_of(shards=2), 1, tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "postings")
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert replica.match(log[1]) is not None
    replica.close()


def test_a_change_that_does_not_continue_the_rows_is_refused(tmp_path: Path) -> None:
    """The right predecessor, but rows that are there already: nothing is overwritten."""
    settings = settings_of()
    log = frames(settings, DOCUMENTS[:200])
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = [change_of(answer(source, data)) for data in log[:3]]
    copy.apply([(0, changes[0]), (1, changes[1])])
    count = copy.count
    found = Change.decode(changes[2], settings)
    foreign = Change(
        0, found.offset, found.predecessor, 0, 6, {rows_key(ROWS, 0, 0): b"other rows"}, found.reply
    )  # fmt: skip
    with pytest.raises(StateError, match=rf"begins at row 0, but .*b has {count} rows.*Delete the folder"):
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
    settings = settings_of(memory_documents=64)
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    for data in frames(settings, DOCUMENTS):
        replica.match(data)
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
        assert not [name for name in open_files() if name == str(tmp_path / "a" / "postings" / "rows-0.bin")]
        replica.close()
    with monkeypatch.context() as patched:
        patched.setattr(Store, "numbers", damaged)
        with pytest.raises(DamagedError):
            Replica(settings, 0, tmp_path / "a")
    Replica(settings, 0, tmp_path / "a").close()  # the store was given back


def open_files() -> list[str]:
    """What this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        with suppress(OSError):
            found.append(str(entry.readlink()))
    return found

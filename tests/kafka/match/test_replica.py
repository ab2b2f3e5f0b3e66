"""A shard kept by a log of frames and a changelog answers as the embedded index does, whatever is lost or repeated."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.documents.columns import Document, columns
from stream_lsh.errors import DamagedError, FormatError, StateError
from stream_lsh.families.family import signer_of
from stream_lsh.index import layout
from stream_lsh.index.generation import FOLDER, folder_of
from stream_lsh.index.ids import Ids
from stream_lsh.index.index import Index
from stream_lsh.index.matches import Matches
from stream_lsh.index.store import DEAD, ROWS, Store, name_key, rows_key
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines
from stream_lsh.kafka.match import kept_answers
from stream_lsh.kafka.match import replica as replica_module
from stream_lsh.kafka.match.replica import Answer, Replica
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply, ReplyNames
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import ROW_BITS, Source, numbers

KEY = bytes(range(16))
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


def frames(settings: Settings, documents: list[Document], seed: int = 0, key: bytes = KEY) -> list[bytes]:
    """Sequenced frames of random sizes; the offsets have gaps, and some documents are not accepted."""
    chance = random.Random(seed)
    signer = signer_of(settings.signing, key)
    out = []
    at, offset, predecessor, first = 0, chance.randrange(3), -1, 0
    while at < len(documents):
        n = chance.choice((1, 3, 20, 60))
        part = columns(documents[at : at + n])
        count = len(part.ids)
        places = np.arange(at, at + count)
        source = Source(np.zeros(count, np.int32), places, part.ids, part.times, 1000 + at, part.rejected)
        frame = Frame.of(signer, settings, part, np.array([[0, at, at + count, 0]], np.int64), source)
        accepted = None
        if chance.random() < 0.3:
            accepted = np.array([chance.random() < 0.8 for _ in range(count)])
        found = Sequenced(offset, predecessor, first, key, accepted, memoryview(frame.encode(settings)))
        out.append(found.encode(settings))
        first += count if accepted is None else int(accepted.sum())
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
            [reply.matches for reply in found], carrier.source.ids, seqs, settings.max_matches, ReplyNames(found)
        )
        lines = verdict_lines(judgement).splitlines()
        if carrier.accepted is not None:
            lines = [line for line, counts in zip(lines, carrier.accepted, strict=True) if counts]
        out += [*lines, pair_lines(judgement, settings.verify)]
    return b"\n".join(out)


def oracle(settings: Settings, log: list[bytes], folder: Path, documents: Sequence[Document] = ()) -> bytes:
    """The same from the embedded index, over the order that the log has; its key is another."""
    documents = documents or DOCUMENTS
    index = Index(settings, folder, durable=False)
    out, count = [], 0
    for data in log:
        sequenced = Sequenced.decode(data, settings)
        source = Frame.decode(sequenced.frame, settings).source
        accepted = np.ones(len(source), np.bool_) if sequenced.accepted is None else sequenced.accepted
        chosen = np.flatnonzero(accepted).tolist()
        part = columns([documents[int(source.offsets[i])] for i in chosen])
        seqs = sequenced.numbers(len(source))[chosen]
        matches = index.match(index.sign(part), seqs, count + np.arange(len(chosen)))
        count += len(chosen)
        judgement = judge(matches, part.ids, seqs, settings.max_matches, index)
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


ANY = {"against": "any", "verify_matches": 0}


@pytest.mark.parametrize("generation", [None, 47])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"verify": "signature"},
        {"max_matches": 1, "verify_matches": 3},
        {**ANY, "shards": 3},
        {**ANY, "shards": 3, "max_matches": 2},
        {**ANY, "verify": "signature"},
        {"against": "any", "shards": 3, "bucket_size": 4, "candidates": 3},
    ],
)
def test_the_answers_are_those_of_the_embedded_index(
    tmp_path: Path, given: dict[str, object], generation: int | None
) -> None:
    """Also where generations begin in the middle of a frame."""
    settings = settings_of(**given, generation_documents=generation)
    log = frames(settings, DOCUMENTS)
    replicas = [Replica(settings, shard, tmp_path / f"shard-{shard}") for shard in range(settings.shards)]
    for replica in replicas:
        replica.activate()
    replies = [[reply_of(answer(replica, data)) for replica in replicas] for data in log]
    mine = verdicts(replies, settings)
    assert mine == oracle(settings, log, tmp_path / "oracle")
    assert all(what in mine for what in (b"near_duplicate", b"redelivered", b"first_kind"))
    assert b'"incomplete"' in mine or "candidates" not in given
    for replica in replicas:
        replica.close()
    generations = len(list((tmp_path / "shard-0" / FOLDER).iterdir()))
    assert generations == 1 if generation is None else 25 < generations < 33


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
    mine, whole = verdicts([[r] for r in replies], settings), oracle(settings, log, tmp_path / "oracle")
    counted = 0
    judged = [[json.loads(line) for line in text.splitlines() if b'"kind"' in line] for text in (mine, whole)]
    for less, more in zip(*judged, strict=True):
        assert all(less[name] == more[name] for name in ("id", "seq", "kind", "of", "similarity", "group"))
        assert less["matches"] == more["matches"][: len(less["matches"])]
        assert len(less["matches"]) + less.get("truncated", 0) == len(more["matches"]) + more.get("truncated", 0)
        counted += less.get("truncated", 0) > more.get("truncated", 0)
    assert counted > 10


@pytest.mark.parametrize("generation", [None, 31])
@pytest.mark.parametrize("given", [{}, {**ANY, "shards": 2}])
def test_repeats_restarts_and_copies_change_nothing(
    tmp_path: Path, given: dict[str, object], generation: int | None
) -> None:
    """Random closing, repeated frames, a copy that follows the changelog and takes over: always the same bytes."""
    settings = settings_of(**given, generation_documents=generation)
    mine = settings.shards - 1
    log = frames(settings, DOCUMENTS[:700])
    with_care = Replica(settings, mine, tmp_path / "whole")
    with_care.activate()
    whole = [answer(with_care, data) for data in log]
    with_care.close()
    chance = random.Random(1)
    live, copy = Replica(settings, mine, tmp_path / "a"), Replica(settings, mine, tmp_path / "b")
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
            live = Replica(settings, mine, live.folder)
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


UPDATES = {"on_same_id": "update", "time_field": "ts", "generation_documents": 90}


def changing(n: int) -> list[Document]:
    """Documents of which many are replaced and deleted, by later and by earlier versions."""
    chance, out = random.Random(3), [replace(document, time=1000 + i) for i, document in enumerate(stream(8, n))]
    for i in range(20, n):
        what, old = chance.random(), chance.choice(out[max(0, i - 80) : i])
        if what < 0.2:
            out[i] = replace(out[i], id=old.id, time=chance.choice((None, 1000 + i, 1000 + i - 60)))
        elif what < 0.4:
            out[i] = Document(old.id, time=chance.choice((None, 1000 + i, 1000 + i - 60)), deleted=True)
    return out


def marks(replica: Replica) -> list[tuple[int, int]]:
    """Which rows are dead, and how."""
    found = []
    for generation in replica.store.generations():
        for first, value in replica.store.rows_of(DEAD, replica.number, generation):
            bits = np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little").reshape(-1, 2)
            found += [(first + row, int(bits[row] @ (1, 2))) for row in np.flatnonzero(bits.any(axis=1)).tolist()]
    return found


@pytest.mark.parametrize("given", [{}, ANY, {**ANY, "shards": 3}])
def test_updates_and_deletions_are_as_embedded_whoever_takes_over(tmp_path: Path, given: dict[str, object]) -> None:
    """The heirs stand where the log says; a copy that follows has the same rows dead, and gives the same answers."""
    settings, documents = settings_of(**UPDATES, **given), changing(1200)
    log = frames(settings, documents)
    replicas = [Replica(settings, shard, tmp_path / f"whole-{shard}") for shard in range(settings.shards)]
    for replica in replicas:
        replica.activate()
    answers = [[answer(replica, data) for replica in replicas] for data in log]
    whole, with_care = [found[-1] for found in answers], replicas[-1]
    mine = verdicts([[reply_of(found) for found in each] for each in answers], settings)
    assert mine == oracle(settings, log, tmp_path / "oracle", documents)
    kinds = Counter(json.loads(line)["kind"] for line in mine.splitlines() if b'"kind"' in line)
    assert min(kinds[kind] for kind in ("deleted", "outdated", "redelivered", "unique", "near_duplicate")) > 5, kinds
    heirs = 0
    for found in whole:
        reply = Reply.decode(reply_of(found), settings)
        went = reply.matches.went[reply.matches.went[:, 3] >= 0, 2:4].tolist()
        for name, seq in went:
            place = reply.heirs[seq]
            assert place[0] == 0 and documents[place[1]].id == json.loads(reply.names[name])
            heirs += 1
        assert {*reply.heirs} == {seq for _, seq in went}
    assert heirs > 5 or given

    shard = with_care.number
    chance, changelog = random.Random(2), list[bytes]()
    live, copy = Replica(settings, shard, tmp_path / "a"), Replica(settings, shard, tmp_path / "b")
    live.activate()
    for number, data in enumerate(log):
        assert live.match(data) == whole[number]
        changelog.append(change_of(whole[number]))
        if chance.random() < 0.2:  # said again when others have died since
            back = chance.randrange(number + 1)
            assert live.match(log[back]) == whole[back]
            changelog.append(change_of(whole[back]))
        if chance.random() < 0.1:
            live.close()
            live = Replica(settings, shard, live.folder)
            live.activate()
        if chance.random() < 0.1:
            copy.apply(list(enumerate(changelog))[(copy.changelog_offset or -1) + 1 :])
            assert marks(copy) == marks(live)
            live.deactivate()
            live, copy = copy, live
            live.activate()
    assert len(marks(live)) > 200 / settings.shards and marks(live) == marks(with_care)
    for replica in (live, copy, *replicas):
        replica.close()


def test_what_died_before_a_trimmed_changelog_begins(tmp_path: Path) -> None:
    settings, documents = settings_of(**UPDATES), changing(600)
    log = frames(settings, documents)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = [change_of(answer(source, data)) for data in log]
    half = len(log) // 2
    first = Change.decode(changes[half], settings).first
    copy.apply(list(enumerate(changes))[half:], start=half)
    assert marks(copy) == [(row, mark) for row, mark in marks(source) if row >= first] != []
    copy.activate()  # and what is there says how many they are
    copy.close()
    source.close()


def test_a_change_in_which_nobody_that_is_there_dies(tmp_path: Path) -> None:
    settings = settings_of(**UPDATES)
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    change = Change.decode(change_of(answer(replica, frames(settings, changing(5))[0])), settings)
    for row in (-1, change.last):
        with pytest.raises(FormatError, match="rows die in it that are not there"):
            Change.decode(replace(change, dead=np.array([row << 2 | 1])).encode(settings), settings)
    replica.close()


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
    replica.confirmed(8, 1)
    assert replica.changelog_offset is None
    replica.confirmed(7, 0)
    replica.confirmed(9, 2)
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
    settings = settings_of(**ANY, memory_documents=64, generation_documents=150)
    log = frames(settings, DOCUMENTS)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    half, most = len(log) // 3, 2 * len(log) // 3
    changes = [change_of(answer(source, data)) for data in log[:most]]
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
    with pytest.raises(StateError, match=r"threshold = 0.8 \(here 0.7\).*same settings for all workers"):
        Replica(settings_of(threshold=0.7), 0, tmp_path / "a")
    with pytest.raises(StateError, match=r"it is shard 0 \(here 1\), against = 'unique' \(here 'any'\), shards = 1"):
        Replica(settings_of(shards=2, against="any"), 1, tmp_path / "a")
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert replica.match(log[1]) is not None
    replica.close()


def test_a_setting_that_an_older_version_did_not_have_has_its_default(tmp_path: Path) -> None:
    Replica(settings_of(), 0, tmp_path / "a").close()
    store = Store(tmp_path / "a" / "db", sync=False)
    facts = store.named("replica")
    del facts["settings"]["candidates"]
    store.write({name_key("replica"): json.dumps(facts).encode()})
    store.close()
    Replica(settings_of(), 0, tmp_path / "a").close()
    with pytest.raises(StateError, match=r"other settings: candidates = 32 \(here 7\); use"):
        Replica(settings_of(candidates=7), 0, tmp_path / "a")
    store = Store(tmp_path / "a" / "db", sync=False)
    facts["settings"]["later"] = 3  # of a later one: nobody here knows what it means
    store.write({name_key("replica"): json.dumps(facts).encode()})
    store.close()
    with pytest.raises(StateError, match=r"other settings: later = 3 \(here None\); use"):
        Replica(settings_of(), 0, tmp_path / "a")


def test_another_key_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """In a frame, in a change; also by who opens the folder again, and where nothing came of the first frame."""
    settings, other = settings_of(), bytes(16)
    mine, theirs = frames(settings, DOCUMENTS[:100]), frames(settings, DOCUMENTS[:100], key=other)
    source = Replica(settings, 0, tmp_path / "theirs")
    source.activate()
    changes = [change_of(answer(source, data)) for data in theirs]
    source.close()
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert replica.match(mine[0]) is not None
    for _ in range(2):
        for data in theirs[:2]:
            with pytest.raises(StateError, match=r"the frames topic has the key of another index.*a\. If.*reindex"):
                replica.match(data)
        replica.deactivate()
        with pytest.raises(StateError, match=r"the changelog of shard 0 has the key of another index.*delete"):
            replica.apply([(0, changes[1])])
        replica.close()
        replica = Replica(settings, 0, tmp_path / "a")
        replica.activate()
    assert replica.match(mine[1]) is not None
    replica.close()


def test_a_row_that_is_missing_in_the_changelog_is_damage(tmp_path: Path) -> None:
    settings = settings_of(generation_documents=50)
    log = frames(settings, DOCUMENTS[:300])
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = [Change.decode(change_of(answer(source, data)), settings) for data in log]
    source.close()
    at = next(n for n, change in enumerate(changes) if len(list(change.generations())) > 1)
    lost = next(key for key in changes[at].values if key.startswith(ROWS))
    changes[at] = replace(changes[at], values={k: v for k, v in changes[at].values.items() if k != lost})
    copy.apply([(n, change.encode(settings)) for n, change in enumerate(changes)])
    with pytest.raises(DamagedError, match=r"rows? .*of shard 0 (is missing|are damaged)"):
        copy.activate()
    copy.close()


def test_what_is_gone_is_not_said_again(tmp_path: Path) -> None:
    """Rows that were flushed are read from their file; but ids and texts that are gone are damage."""
    settings = settings_of(generation_documents=20)
    log = frames(settings, DOCUMENTS[:300])
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    whole = [answer(replica, data) for data in log]
    keys = [key for found in whole for key in Change.decode(change_of(found), settings).values]
    assert sum(replica.store.value(key) is None for key in keys) > 10  # they are in files only
    assert [replica.match(data) for data in log] == whole
    ids = next(key for key in keys if key.startswith(b"i"))
    replica.store.write({}, [ids])
    with pytest.raises(DamagedError, match="of shard 0 is missing"):
        replica.match(log[0])
    replica.close()


@pytest.mark.parametrize(("rows", "kept"), [(0, 5), (10**6, 9)])
def test_as_many_answers_are_kept_as_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, kept: int
) -> None:
    """Also by a sequencer of version 0.1, which counts frames, whatever is in them."""
    monkeypatch.setattr(kept_answers, "KEPT_FRAMES", 5)
    monkeypatch.setattr(kept_answers, "MOST_ROWS", rows)
    settings = settings_of(decided_after=8)
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
    with pytest.raises(StateError, match=f"format {version}, this version reads 3: {remedy}"):
        Replica(settings_of(), 0, tmp_path / "a")


def test_postings_that_are_gone_are_rebuilt(tmp_path: Path) -> None:
    settings = settings_of(generation_documents=100)
    log = frames(settings, DOCUMENTS)
    undisturbed, replica = Replica(settings, 0, tmp_path / "whole"), Replica(settings, 0, tmp_path / "a")
    undisturbed.activate()
    replica.activate()
    half = len(log) // 2
    for data in log[:half]:
        assert replica.match(data) == undisturbed.match(data)
    replica.close()
    for number in (0, 2):
        shutil.rmtree(folder_of(tmp_path / "a", number) / "postings")
    replica = Replica(settings, 0, tmp_path / "a")
    replica.activate()
    assert [replica.match(data) for data in log[half:]] == [undisturbed.match(data) for data in log[half:]]
    replica.close()
    undisturbed.close()


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
        0, found.offset, found.predecessor, 0, 6, KEY, {rows_key(ROWS, 0, 0, 0): b"other rows"}, found.reply
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
        assert str(folder_of(tmp_path / "a", 0) / "rows-0.bin") not in open_files()
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

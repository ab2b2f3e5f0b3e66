"""A changelog that is cleaned by its size: it stays small whatever happens to its owners, and no answer is another."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from support.kafka import match_play, pipe
from support.kafka.cleaning_play import Changelog, Owner, copied, followed, seen_marks
from support.kafka.pipe import BLOCK, of_shard
from support.kafka.replica_play import (
    STEP,
    UPDATES,
    WINDOW,
    WORDS,
    folders_in,
    frames,
    reply_of,
    settings_of,
    undisturbed,
)
from support.long_form import rotating

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.index.batch import owners
from stream_lsh.index.erasure.queue import places
from stream_lsh.index.rows.layout import DELETED, ERASED, FLAGS, REPRESENTATIVE
from stream_lsh.kafka.match import cleaning
from stream_lsh.kafka.match.copy import SNAPSHOT, begins_with_snapshot
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Mark, is_base
from stream_lsh.wire.sequenced import Sequenced


@pytest.fixture(autouse=True)
def small(short_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots have many records; answers are kept for five frames."""
    monkeypatch.setattr(cleaning, "RECORD_ROWS", 40)
    monkeypatch.setattr(cleaning, "RECORD_BYTES", 4000)
    monkeypatch.setattr(cleaning, "LOOK_SECONDS", 0)
    monkeypatch.setattr(cleaning, "SIZE_SECONDS", 0)


def churning(n: int, ids: int, seed: int, share: float = 0.9, copies: float = 0) -> list[Document]:
    """Documents of which this share replace or delete one of as many ids; the others are new. copies: this share of
    them have the text of a recent one, with another word."""
    chance, out, texts = random.Random(seed), list[Document](), list[str]()
    for number in range(n):
        id = f"id-{chance.randrange(ids)}" if chance.random() < share else f"new-{number}"
        time = 10**12 + number * STEP
        words = (chance.choice(WORDS) + str(chance.randrange(50)) for _ in range(chance.choice((5, 40, 40, 200))))
        if id.startswith("id") and chance.random() < 0.1:
            out.append(Document(id, time=time, deleted=True))
            continue
        text = " ".join(words)
        if copies and texts and chance.random() < copies:
            text = f"{chance.choice(texts[-ids:]).rpartition(' ')[0]} w{number}"
        texts.append(text)
        out.append(Document(id, text, time=time))
    return out


def lives(owner: Owner, settings: Settings, folder: Path) -> int:
    """Bytes of a snapshot of what an owner has now."""
    log = Changelog()
    log.values, log.start = list(owner.log.values), owner.log.start
    owner.finish()
    copied(owner.replica.folder, folder)
    other = Owner(settings, folder, log, 0, shard=owner.replica.number)
    before, cleaning = len(log.values), other.replica._cleaning
    assert cleaning is not None
    shard = other.replica.shard
    cleaning._before = int(shard.late.first if settings.late else shard.count)
    cleaning._unfinished = None  # a whole one
    while not (sent := other.clean(1)) or sent[-1].part != ENDS:
        pass
    other.replica.close()
    shutil.rmtree(folder)
    return sum(map(len, log.values[before:]))


def has_rows(sent: Sequence[Mark]) -> list[Mark]:
    return [mark for mark in sent if mark.part == HAS_ROWS and mark.last > mark.first]


def size(log: Changelog) -> int:
    return sum(map(len, log.left))


def replies_of(settings: Settings, data: Sequence[bytes], folder: Path) -> list[bytes]:
    return [reply_of(found) for found in undisturbed(settings, data, folder)]


def again(copies: Sequence[Replica], log: Changelog, limit: int) -> list[Replica]:
    """Two copies, opened again, which have read the changelog. The second one never cleans."""
    for copy in copies:
        copy.close()
    return [
        followed(copy.settings, copy.folder, log, None, most, copy.number)
        for copy, most in zip(copies, (limit, None), strict=True)
    ]


LAG = {"decision_lag": 2 * BLOCK}
CASES: list[tuple[int, int, dict[str, Any]]] = [
    (0, 600, {}),
    *rotating(
        [
            (1, 2500, {}), (2, 2500, {"measure": "tf-idf"}), (3, 2500, {"keep": "longest"}),
            (4, 2500, {"verify": "signature"}), (5, 2500, WINDOW), (6, 2500, {**WINDOW, "keep": "newest"}),
        ],
        1,
    ),
    (7, 600, {"shards": 2, **LAG}),
    *rotating(
        [
            (8, 1500, {"shards": 2, **LAG}), (9, 1500, {"shards": 3, **LAG}),
            (10, 1500, {"shards": 2, **LAG, "keep": "longest"}),
            (11, 1500, {"shards": 3, **LAG, "keep": "newest"}),
            (12, 1500, {**WINDOW, "shards": 2, **LAG}), (13, 1500, {**WINDOW, "shards": 3, **LAG, "keep": "newest"}),
        ],
        1,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "n", "given"), CASES)
def test_it_stays_under_three_times_what_lives(tmp_path: Path, seed: int, n: int, given: dict[str, Any]) -> None:
    """Owners are killed anywhere, lose their disks, and are replaced by copies: the snapshot in progress goes on."""
    settings = settings_of(**{**UPDATES, **given})
    documents = churning(n, n // 30, seed, copies=0.5 if settings.late else 0)
    data, wanted = of_shard(settings, frames(settings, documents, seed), tmp_path, documents)
    shard = settings.shards - 1
    log, folders, chance = Changelog(), folders_in(tmp_path), random.Random(seed)
    limit = n * 50
    owner = Owner(settings, next(folders), log, None, limit, shard)
    copies = [followed(settings, next(folders), log, None, most, shard) for most in (limit, None)]
    begun = ended = 0
    for number, frame in enumerate(data):
        assert owner.match(frame) == wanted[number]
        for _ in range(chance.choice((1, 1, 20))):
            sent = owner.pace()
            begun += sum(mark.part == BEGINS for mark in sent)
            ended += sum(mark.part == ENDS for mark in sent)
        if (now := size(log)) > 2 * limit and number % 13 == 0:
            assert now < 3 * lives(owner, settings, tmp_path / "lives")
        what = chance.random()
        if what < 0.05:  # killed: what is on the disk is what there is
            folder = next(folders)
            owner.finish()
            copied(owner.replica.folder, folder)
            owner.replica.close()
            owner = Owner(settings, folder, log, None, limit, shard)
        elif what < 0.1:  # its disk is lost
            owner.replica.close()
            owner = Owner(settings, next(folders), log, None, limit, shard)
        elif what < 0.15:
            copy = copies.pop(0)
            copy.close()
            old, owner = owner, Owner(settings, copy.folder, log, None, limit, shard)
            old.replica.close()
            copies.insert(0, followed(settings, old.replica.folder, log, None, limit, shard))
        elif what < 0.25:
            copies = again(copies, log, limit)
    assert begun <= ended + 1  # hardly any was begun in vain
    assert (ended > 1) == ("verify" not in given)  # rows without texts stay as large as they are
    while owner.replica.cycle.begun is not None:
        owner.clean(1)
    copies = [*again(copies, log, limit), followed(settings, next(folders), log, None, limit, shard)]
    deleted_rows = seen_marks(owner.replica)
    for copy in (owner.replica, *copies):
        assert seen_marks(copy) == deleted_rows
        copy.activate()
        copy.close()
        facts: Any = information(copy.folder, check=True)
        assert facts["health"]["problems"] == []


def test_a_shard_goes_on_from_an_idle_snapshot(tmp_path: Path) -> None:
    """No change follows it that names the provisional rows. And from its disk, before erased rows are in files."""
    settings = settings_of(**{**UPDATES, **LAG, "shards": 2, "memtable_documents": 16})
    documents = churning(900, 20, 3, copies=0.8)
    data, wanted = of_shard(settings, frames(settings, documents, 3), tmp_path, documents)
    log, folders, idle = Changelog(), folders_in(tmp_path), 0
    owner = Owner(settings, next(folders), log, shard=1)
    for number, frame in enumerate(data):
        assert owner.match(frame) == wanted[number]
        if number % 3 == 0:
            sent = owner.clean(9)
            while sent and sent[-1].part != ENDS:
                sent += owner.clean(1)
            idle += bool(sent)
            owner.replica.close()
            owner = Owner(settings, next(folders) if idle < 3 else owner.replica.folder, log, shard=1)
    assert idle > 5
    owner.replica.close()
    facts: Any = information(owner.replica.folder, check=True)
    assert facts["health"]["problems"] == [] and facts["erasing"]["erased"] > 50


def test_texts_beside_representative_rows_stay(tmp_path: Path) -> None:
    """A representative row has no text. Its document is deleted, and the row is erased with it."""
    settings = settings_of(**UPDATES, shards=2, **LAG)
    ids = [id for id in map(str, range(900)) if owners([orjson.dumps(id)], 2)[0] == 1]
    others = [Document(id, f"{id} " * 9, time=100 + i) for i, id in enumerate(ids[2:])]
    first, second = (Document(id, "a b c d e f g h i j", time=1) for id in ids[:2])
    went = [Document(document.id, time=900, deleted=True) for document in (first, second)]
    # The second is chosen in the second block after that of the deletion, and decided two blocks later.
    documents = [first, second, *others[:62], went[0], *others[62 : 6 * BLOCK], went[1]]
    documents += [Document(f"late-{i}", f"late {i} " * 9, time=1000 + i) for i in range(3 * BLOCK)]
    data, wanted = of_shard(settings, match_play.frames(settings, documents, 31), tmp_path, documents)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, shard=1)
    assert len(others) > 6 * BLOCK
    assert [owner.match(frame) for frame in data] == wanted
    owner.cycle()
    shard = owner.replica.shard
    flags = shard.stored.at(np.arange(shard.count))[:, FLAGS].astype(np.int64)
    assert np.array_equal(shard.stored.flags(np.arange(shard.count)[::-1]).astype(np.int64), flags[::-1])
    (row,) = np.flatnonzero((flags & REPRESENTATIVE != 0) & (flags & ERASED != 0)).tolist()
    live = [at for at in range(row - 30, row + 30) if not flags[at] & (DELETED | REPRESENTATIVE | ERASED)]
    assert all(len(text) for text in shard.texts.read(live, 1 << 20))
    owner.replica.close()


def test_snapshots_have_what_waits_behind_their_last_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that supersedes a document may add no row to its shard."""
    monkeypatch.setattr(pipe, "BLOCK", 16)
    settings = settings_of(**UPDATES, shards=2, decision_lag=32, keep="newest")
    chance, documents, live = random.Random(4), list[Document](), list[str]()
    for number in range(162):
        time = 1000 + number
        if live and chance.random() < 0.35:
            documents.append(Document(live.pop(chance.randrange(len(live))), time=time, deleted=True))
            continue
        live.append(f"d{number}")
        text = chance.choice(("a b c d e f g h i j", "k l m n o p q r s t"))
        documents.append(Document(live[-1], text, time=time - chance.choice((0, 0, 0, 300, 600))))
    data, wanted = of_shard(settings, match_play.frames(settings, documents, 1), tmp_path, documents)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, shard=1)
    assert [owner.match(frame) for frame in data] == wanted
    assert owner.replica.count in {place.there for place in places(owner.replica.store)}
    assert owner.cycle()[-1].part == ENDS
    reader = followed(settings, tmp_path / "reader", log, shard=1)
    assert {place.name for place in places(reader.store)} == {place.name for place in places(owner.replica.store)}
    reader.close()
    owner.replica.close()


def test_provisional_versions_are_not_erased(tmp_path: Path) -> None:
    """They count in buckets. Where these are read in part, a live row between them is not met."""
    settings = settings_of(**UPDATES, shards=2, **LAG, max_bucket_rows=2)
    ids = [id for id in map(str, range(200)) if owners([orjson.dumps(id)], 2)[0] == 1][:50]
    copies = [Document(id, "a b c d e f g h i j", time=i) for i, id in enumerate(ids)]
    deletions = [Document(copy.id, time=100 + i, deleted=True) for i, copy in enumerate(copies) if i // 4 != 5]
    documents = [*copies, *deletions, replace(copies[0], id="last", time=200)]
    assert len(documents) < 2 * BLOCK
    data, wanted = of_shard(settings, match_play.frames(settings, documents, len(documents) - 1), tmp_path, documents)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, shard=1)
    owner.match(data[0])
    assert owner.clean(50) == [] and list(places(owner.replica.store))
    owner.replica.close()
    owner = Owner(settings, tmp_path / "owner", log, shard=1)
    assert owner.match(data[1]) == wanted[1]
    owner.replica.close()


@pytest.mark.parametrize("disk", ["killed", "lost", "copy"])
def test_a_snapshot_goes_on_wherever_its_owner_ends(tmp_path: Path, disk: str) -> None:
    """After each of its records: the next owner sends only what is missing, and a reader has all."""
    settings = settings_of(**UPDATES)
    documents = churning(260, 25, 1)
    data = frames(settings, documents, 1)
    wanted, folders = replies_of(settings, data, tmp_path / "undisturbed"), folders_in(tmp_path)
    log = Changelog()
    owner = Owner(settings, next(folders), log, None, 30_000)
    for frame in data[:-2]:
        owner.match(frame)
    sent: list[Mark] = []
    while not sent or sent[-1].part != ENDS:
        copy = followed(settings, next(folders), log, None, 30_000)
        before = len(sent)
        while len(sent) == before or not has_rows(sent):
            sent += owner.clean(1)
        owner.finish()
        folder = next(folders)
        if disk == "killed":
            copied(owner.replica.folder, folder)
        elif disk == "copy":
            folder = copy.folder
        copy.close()
        owner.replica.close()
        owner = Owner(settings, folder, log, None, 30_000)
    rows = has_rows(sent)
    assert [mark.first for mark in rows] == [0, *(mark.last for mark in rows[:-1])] and len(rows) > 4
    assert [mark.part for mark in sent].count(BEGINS) == 1
    assert log.start > 0 and is_base(log.left[0])
    assert [owner.match(frame) for frame in data[-2:]] == wanted[-2:]
    owner.replica.close()


def test_what_lives_is_not_written_again(tmp_path: Path) -> None:
    """Without deletions, and with few. Nor is a small changelog, whatever is deleted."""
    settings = settings_of(**UPDATES)
    for number, (share, ids, limit) in enumerate([(0.0, 20, 1), (0.15, 2000, 1), (0.9, 10, 10**9)]):
        log = Changelog()
        owner = Owner(settings, tmp_path / f"owner-{number}", log, None, limit)
        for frame in frames(settings, churning(300, ids, number, share), number):
            owner.match(frame)
            assert owner.pace() == []
        assert owner.clean(50) == []
        owner.replica.close()


def test_nothing_is_cleaned_where_kafka_deletes_nothing(tmp_path: Path) -> None:
    """Another snapshot would make the changelog larger."""
    settings, log = settings_of(**UPDATES), Changelog()
    owner = Owner(settings, tmp_path / "owner", log, None, 1)
    for frame in frames(settings, churning(300, 10, 0), 0):
        owner.match(frame)
    assert owner.replica.clean(0, deletes=False) is None
    assert owner.clean(20)
    owner.replica.close()


def test_snapshot_goes_on_when_its_rows_have_left_the_window(tmp_path: Path) -> None:
    """A copy takes over that has no version of it in its queue any more."""
    settings = settings_of(**{**UPDATES, **WINDOW})
    decoded = (Sequenced.decode(frame, settings) for frame in frames(settings, churning(400, 30, 2), 2))
    data = [replace(frame, appended=1000 * number).encode(settings) for number, frame in enumerate(decoded)]
    wanted = replies_of(settings, data, tmp_path / "undisturbed")
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, None, 10_000)
    copy = Replica(settings, 0, tmp_path / "copy", limit=10_000)
    third, sent = len(data) // 4, list[Mark]()
    for number, frame in enumerate(data):
        while number == third and not has_rows(sent):
            sent += owner.clean(1)
        assert owner.match(frame) == wanted[number]
        copy.apply(log.since(copy.changelog_offset), start=log.start)
    copy.close()
    owner.replica.close()
    owner = Owner(settings, tmp_path / "copy", log, None, 10_000)
    while sent[-1].part != ENDS:
        sent += owner.clean(1)
    assert [mark.part for mark in sent].count(BEGINS) == 1
    newest = followed(settings, tmp_path / "newest", log, None, 10_000)
    assert seen_marks(newest) == seen_marks(owner.replica)
    owner.replica.close()
    newest.close()


def test_a_minute_passes_between_two_cleanings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is behind needs time: what it has not read is deleted at the end of each."""
    monkeypatch.setattr(cleaning, "SIZE_SECONDS", 60)
    settings, log = settings_of(**UPDATES), Changelog()
    owner, sent = Owner(settings, tmp_path / "owner", log, None, 20_000), list[Mark]()
    for frame in frames(settings, churning(900, 20, 1), 1):
        owner.match(frame)
        sent += owner.pace()
    assert [mark.part for mark in sent].count(BEGINS) == 1 and sent[-1].part == ENDS
    for copy in (owner.replica, followed(settings, tmp_path / "copy", log, None, 20_000)):
        assert copy.cycle.cleaned and (copy.folder / SNAPSHOT).read_text() == f"{copy.cycle.cleaned}\n"
        assert begins_with_snapshot(copy.folder, log.start) and not begins_with_snapshot(copy.folder, log.start + 1)
    assert any(mark.part == BEGINS for mark in owner.clean(50, 61))
    owner.replica.close()

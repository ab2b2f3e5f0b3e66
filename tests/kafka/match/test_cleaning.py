"""Erasing on Kafka: what went is nowhere in folders and changelog, and no answer is another."""

import asyncio
import logging
import random
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from support.contents import contents, unpacked_from
from support.kafka import match_play
from support.kafka.cleaning_play import NOW, Changelog, Owner, copied, followed, seen_marks
from support.kafka.replica_play import (
    UPDATES,
    WINDOW,
    answer,
    changing,
    feed_of,
    folders_in,
    frames,
    marks,
    reply_of,
    settings_of,
    stream,
    undisturbed,
)
from support.long_form import rotating

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError
from stream_lsh.index.erasure.queue import places
from stream_lsh.index.kernel.document_frequency import Counted, DocumentFrequency
from stream_lsh.index.store.rocksdb import FREQUENCIES
from stream_lsh.kafka.match import cleaning
from stream_lsh.kafka.match.copy import OtherOwner
from stream_lsh.kafka.match.cycle import Cycle
from stream_lsh.kafka.match.held import Confirmed, Held
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Base, Mark, is_base
from stream_lsh.wire.changes import Change
from stream_lsh.wire.sequenced import Sequenced

TF_IDF = {"measure": "tf-idf"}


@pytest.fixture(autouse=True)
def small(short_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles have many records; answers are kept for five frames."""
    monkeypatch.setattr(cleaning, "RECORD_ROWS", 40)
    monkeypatch.setattr(cleaning, "RECORD_BYTES", 4000)
    monkeypatch.setattr(cleaning, "LOOK_SECONDS", 0)


def replies_of(settings: Settings, log: Sequence[bytes], folder: Path) -> list[bytes]:
    return [reply_of(found) for found in undisturbed(settings, log, folder)]


VICTIM, OLD, NEW = (
    Document(f"{name}-name", " ".join(f"{name}{i}" for i in range(30)), time=5) for name in ("victim", "older", "newer")
)
LIKE_VICTIM = Document("like-victim", VICTIM.text.removeprefix("victim0 "), time=7)


@pytest.mark.parametrize(
    ("memory", "verify"), [(64, "exact"), *rotating([(65536, "signature"), (64, "signature"), (65536, "exact")], 1)]
)
def test_removed_versions_are_nowhere(tmp_path: Path, memory: int, verify: Any) -> None:
    """Neither in the owner's folder, nor in a copy's, nor in the changelog; and `info --check` says so."""
    settings = settings_of(**UPDATES, memtable_documents=memory, verify=verify)
    given = [replace(document, time=10 + i) for i, document in enumerate(stream(8, 300))]
    given = [VICTIM, OLD, *given[:30], LIKE_VICTIM, *given[30:]]
    given += [Document("victim-name", time=900, deleted=True), replace(NEW, id=OLD.id, time=901)]
    data = match_play.frames(settings, given, 20)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    was_active = tmp_path / "was-active"
    for number, frame in enumerate(data):
        owner.match(frame)
        if number == len(data) // 2:
            owner.replica.close()
            shutil.copytree(tmp_path / "owner", was_active)
            owner = Owner(settings, tmp_path / "owner", log)
    copies = [followed(settings, was_active, log), followed(settings, tmp_path / "copy", log)]
    needles = {"id": b"victim-name", "sketch": sketch(owner.replica, 0), "old sketch": sketch(owner.replica, 1)}
    if verify == "exact":
        needles |= {"text": b"victim0 ", "old text": b" older7"}
    everywhere = [tmp_path / "owner", was_active, tmp_path / "copy"]
    for replica in (owner.replica, *copies):
        replica.store.shorten(wait=True)
    assert [set(left(contents(folder), needles)) for folder in everywhere] == [set(needles)] * 3
    assert set(left(unpacked_from(log.left), needles)) == set(needles)
    begun = owner.cycle()
    assert begun[0].part == BEGINS and len(begun) > 5 and log.start > 0
    assert left(unpacked_from(log.left), needles) == [] and left(contents(tmp_path / "owner"), needles) == []
    for replica in copies:
        replica.apply(log.since(replica.changelog_offset), start=0)
    newest = followed(settings, tmp_path / "newest", log)
    assert [left(contents(folder), needles) for folder in (*everywhere, tmp_path / "newest")] == [[]] * 4
    replicas = [owner.replica, *copies, newest]
    assert marks(owner.replica) != [] and all(marks(replica) == marks(owner.replica) for replica in replicas)
    for replica in replicas:
        replica.activate()
        replica.close()
        facts: Any = information(replica.folder, check=True)
        assert facts["health"]["problems"] == [], replica.folder
        erased = {"erased": 2, "waiting": 0, "left_of_the_erased": "nothing"}
        assert facts["erasing"] == erased, replica.folder


def sketch(replica: Replica, row: int) -> bytes:
    shard = replica.shard
    (words,) = shard.stored.at(np.array([row]))
    return words[shard.shape.signature_at :].tobytes()


def left(found: Sequence[bytes], needles: dict[str, bytes]) -> list[str]:
    return [what for what, needle in needles.items() if any(needle in data for data in found)]


@pytest.mark.parametrize(
    ("seed", "n", "given"),
    [
        (0, 350, {}),
        *rotating(
            [
                *((seed, 900, {}) for seed in range(6)), (6, 900, TF_IDF), (7, 900, TF_IDF),
                *((seed, 900, WINDOW) for seed in range(10, 16)), (16, 900, {**TF_IDF, **WINDOW}),
            ],
            2,
        ),
    ],
)  # fmt: skip
def test_whoever_takes_over_wherever_a_cycle_is_answers_the_same(
    tmp_path: Path, seed: int, n: int, given: dict[str, Any]
) -> None:
    """Owners killed anywhere, copies that take over or begin within a cycle, trimmed changelogs: the same replies."""
    chance = random.Random(seed)
    keep = "first" if "measure" in given else ("newest", "longest", "first")[seed % 3]
    memory = chance.choice((64, 200, 65536))
    settings = settings_of(**{**UPDATES, "memtable_documents": memory, "keep": keep, **given})
    data = frames(settings, feed_of(settings, n), seed)
    wanted = replies_of(settings, data, tmp_path / "undisturbed")
    log, folders, number = Changelog(), folders_in(tmp_path), 0
    owner = Owner(settings, next(folders), log)
    copies = [Replica(settings, 0, next(folders), erase_after=0)]
    begun, cycles = 0, 0
    while number < len(data):
        assert owner.match(data[number]) == wanted[number]
        number += 1
        sent = owner.clean(chance.choice((0, 1, 2, 9, 60)))
        begun += sum(mark.part == BEGINS for mark in sent)
        cycles += sum(mark.part == ENDS for mark in sent)
        if chance.random() < 0.1:
            back = chance.randrange(number)
            again = owner.replica.match(data[back])
            assert again is not None and again.reply in (None, wanted[back])
        what = chance.random()
        if what < 0.05:  # killed: what is on the disk is what there is
            folder = next(folders)
            owner.finish()
            copied(owner.replica.folder, folder)
            owner.replica.close()
            owner = Owner(settings, folder, log)
        elif what < 0.1:
            owner.replica.close()
            owner = Owner(settings, owner.replica.folder, log)
        elif what < 0.15:  # its disk is lost
            owner.replica.close()
            owner = Owner(settings, next(folders), log)
        elif what < 0.2:
            copy = copies.pop()
            copy.close()
            old, owner = owner, Owner(settings, copy.folder, log)
            old.replica.deactivate()
            copies.append(old.replica)
        elif what < 0.3 and copies:
            folder = copies[0].folder
            copies.pop().close()
            copies.append(followed(settings, folder, log))
            assert seen_marks(copies[0]) == seen_marks(owner.replica)
            assert counts(copies[0]) == counts(owner.replica)
    assert begun >= cycles > 1 and log.start > 0
    while any(place.due <= NOW for place in places(owner.replica.store)):
        owner.cycle()
    copies.append(followed(settings, next(folders), log))
    folder = copies[0].folder
    copies.pop(0).close()
    copies.append(followed(settings, folder, log))
    deleted_rows, words = seen_marks(owner.replica), counts(owner.replica)
    assert (len(words) > 200) == ("measure" in given)
    for replica in (owner.replica, *copies):
        assert seen_marks(replica) == deleted_rows
        assert counts(replica) == words
        assert list(places(replica.store)) == []
        replica.activate()
        replica.close()
        facts: Any = information(replica.folder, check=True)
        assert facts["health"]["problems"] == [] and facts["erasing"]["left_of_the_erased"] == "nothing"


def counts(replica: Replica) -> dict[int, int]:
    """How often words are counted, by all that its store has."""
    frequencies = DocumentFrequency.of(4 * bool(list(replica.store.rows_of(FREQUENCIES, 0, 0))), 0, 0)
    Counted(replica.store, 0, frequencies)
    slots = np.flatnonzero(frequencies.counts)
    return dict(zip(slots.tolist(), frequencies.counts[slots].tolist(), strict=True))


def test_no_words_of_removed_versions_are_left(tmp_path: Path) -> None:
    """A frame of one document has counted its words: that is in its change, and in every folder, until it is erased."""
    settings = settings_of(**UPDATES, measure="tf-idf")
    given = [VICTIM, *(replace(document, time=10 + i) for i, document in enumerate(stream(8, 40)))]
    log, folders = Changelog(), [tmp_path / name for name in ("owner", "copy", "newest")]
    owner = Owner(settings, folders[0], log)
    given += [Document("victim-name", time=900, deleted=True), *stream(9, 20)]
    for frame in match_play.frames(settings, given, 1):
        owner.match(frame)
    copy = followed(settings, folders[1], log)
    first = Change.decode(log.values[0], settings).values
    needles = {"words": next(value[30:] for key, value in first.items() if key.startswith(FREQUENCIES))}
    for replica in (owner.replica, copy):
        replica.store.shorten(wait=True)
    assert [left(contents(folder), needles) for folder in folders[:2]] == [["words"]] * 2
    assert left(unpacked_from(log.left), needles) == ["words"]
    before = counts(owner.replica)
    owner.cycle()
    copy.apply(log.since(copy.changelog_offset), start=0)
    newest = followed(settings, folders[2], log)
    assert left(unpacked_from(log.left), needles) == []
    assert [left(contents(folder), needles) for folder in folders] == [[]] * 3
    for replica in (owner.replica, copy, newest):
        assert counts(replica) == before
        assert len(list(replica.store.rows_of(FREQUENCIES, 0, 0))) == 1
        replica.close()


def cycle_of(frame: int, rows: int, step: int = 10) -> list[Mark]:
    parts = [Mark(HAS_ROWS, frame, first, min(first + step, rows), 5) for first in range(0, rows, step)]
    return [Mark(BEGINS, frame, 0, rows, 5), *parts, Mark(ENDS, frame, 0, rows, 5)]


def fed(cycle: Cycle, marks: Sequence[Mark], first: int) -> bool:
    """Whether one of these, which stand there, ends a cycle that counts."""
    return sum(cycle.base(first + number, mark) for number, mark in enumerate(marks)) > 0


def test_which_cycles_count() -> None:
    cycle, whole = Cycle(-1), cycle_of(7, 35)
    for frame, predecessor in ((3, -1), (7, 3)):
        cycle.change(frame, predecessor)
    assert not fed(cycle, cycle_of(3, 20), 10) and cycle.cleaned is None  # a former owner's, late
    assert not fed(cycle, cycle_of(8, 40), 20)  # the change before it is missing
    assert not fed(cycle, [*whole[:2], *whole[3:]], 30)  # something is missing in it
    assert not fed(cycle, whole[1:], 40)
    assert not fed(cycle, whole[:-1], 50) and cycle.begun
    again = Cycle.of(orjson.loads(orjson.dumps(cycle)))
    assert fed(again, whole[-1:], 60) and (again.cleaned, again.begun) == (50, None)
    assert not fed(again, whole[-1:], 61)
    cycle.change(9, 8)  # one that is missing came between
    assert cycle.last_frame == 7
    for mark in whole:  # begun again behind the same frame, and changes in between
        cycle.base(70 + cycle.last_frame, mark)
        cycle.change(cycle.last_frame + 1, cycle.last_frame)
    assert cycle.cleaned == 77


async def run(settings: KafkaSettings, log: Changelog, data: Sequence[bytes]) -> list[bytes]:
    """A worker that reads what is left of the changelog, and answers."""
    held = Held(settings, 0)
    try:
        await held.open(log.start)
        held.check(log.start, len(log.values))
        for offset, value in log.since(held.read):
            assert await held.take(offset, value, more=offset + 1 < len(log.values))
        await held.activate()
        found = await held.match(data)
        return [matched.answer.reply for matched in found if matched.answer is not None and matched.answer.reply]
    finally:
        await held.close()


async def test_time_without_frames_counts_over_restarts_and_rebalances(tmp_path: Path) -> None:
    settings = KafkaSettings(data_folder=tmp_path, erase_hours=24, **UPDATES)  # type: ignore[arg-type]
    data, begun = frames(settings, changing(200))[:8], 0
    confirmed: list[Confirmed] = []
    for hours in (13, 12):
        held = Held(settings, 0)
        await held.open(0)
        held.check(0, 8)
        await held.activate()
        found = await held.match([] if confirmed else data)
        confirmed += [(matched.answer.offset, at, 1) for at, matched in enumerate(found) if matched.answer is not None]
        held.confirmed.extend(confirmed)
        held._matched -= 3600 * hours
        held.check(0, 8)  # a rebalance
        await held.activate()
        for _ in range(50 if hours == 13 else 10_000):  # what is erased is chosen in a thread
            begun += await held.clean() is not None
            if begun:
                break
            await asyncio.sleep(0.002)
        assert (begun > 0) is (hours == 12)
        await held.close()


@pytest.mark.parametrize(
    ("disk", "measure"),
    [
        ("behind", "jaccard"),
        *rotating([("none", "tf-idf")], 1),
        *rotating([(disk, "jaccard") for disk in ("none", "damaged", "followed")], 1),
    ],
)
async def test_a_cleaned_changelog_is_enough(
    tmp_path: Path, disk: str, measure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is of no use is deleted without leave; so nothing is lost, and nothing said of a loss."""
    given = {**UPDATES, "max_matches": 0}
    settings = KafkaSettings(data_folder=tmp_path / "data", **given, erase_hours=0, measure=measure)
    data = frames(settings, changing(300))
    wanted, half = replies_of(settings, data, tmp_path / "undisturbed"), len(data) // 2
    log, folder = Changelog(), settings.data_folder / "shard-0"
    owner = Owner(settings, tmp_path / "owner", log)
    for number, frame in enumerate(data[:half]):
        owner.match(frame)
        if number == half // 2 and disk != "none":
            followed(settings, folder, log).close()
    if disk == "damaged":
        (folder / "db" / "CURRENT").unlink()
    owner.cycle()
    assert log.start > half // 2
    if disk == "followed":
        with closing(Replica(settings, 0, folder, erase_after=0)) as copy:
            copy.apply(list(enumerate(log.values))[(copy.changelog_offset or 0) + 1 :])
    if disk == "behind":
        with pytest.raises(Failed, match="begins again from its changelog"):
            await run(settings, log, [])
    with caplog.at_level(logging.WARNING):
        assert await run(settings, log, data[half:]) == wanted[half:]
    assert "the shard lacks" not in caplog.text
    owner.replica.close()


@pytest.mark.parametrize(
    ("left_by", "given"),
    [
        ("cycle", {}),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("window", WINDOW), ("", {}), ("", WINDOW))),
    ],
)
async def test_a_copy_that_has_begun_with_a_cycle_goes_on_or_begins_again(
    tmp_path: Path, left_by: str, given: dict[str, Any]
) -> None:
    """It was away when it had half of one. That goes on; or another cycle has replaced it by now; or the window has
    left its rest behind, although the copy has all changes."""
    settings = KafkaSettings(data_folder=tmp_path / "data", **{**UPDATES, "max_matches": 0, **given}, erase_hours=0)
    data = frames(settings, feed_of(settings, 600))
    wanted, number = replies_of(settings, data, tmp_path / "undisturbed"), len(data) // 2
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    for frame in data[:number]:
        owner.match(frame)
    while not (sent := owner.clean(1)):
        assert list(places(owner.replica.store))
    begun = number
    while sent[-1].part != ENDS:
        owner.match(data[number])
        number += 1
        sent += owner.clean(8 if given else 4)
    assert number > begun + 1 and log.start == owner.replica.cycle.cleaned
    begin, end = log.start, len(log.values) - 1
    while left_by == "window" and log.start == begin:
        owner.match(data[number])
        number += 1
    if left_by == "window":
        assert log.start < end
        end = next(at for at in range(log.start, begin, -1) if not is_base(log.values[at - 1]))
        assert end < log.start
    with closing(Replica(settings, 0, settings.data_folder / "shard-0", erase_after=0)) as copy:
        copy.apply(list(enumerate(log.values))[begin:end], start=begin)
        assert copy.cycle.taking is not None
    if left_by == "cycle":
        owner.cycle()
        assert log.start > end
    if left_by:
        with pytest.raises(Failed, match="begins again from its changelog"):
            await run(settings, log, [])
    assert await run(settings, log, data[number:]) == wanted[number:]
    owner.replica.close()


@pytest.mark.parametrize("steps", rotating([1, 2], 1))
def test_segments_may_leave_the_window_during_a_cycle(tmp_path: Path, steps: int) -> None:
    """The cycle has no values for them. If it is slow, the window shortens the changelog to a change within it. A copy
    that has followed all of it, and one that begins with what is left, answer as the owner."""
    settings = settings_of(**{**UPDATES, **WINDOW})
    data = frames(settings, feed_of(settings, 700))
    wanted, number = replies_of(settings, data, tmp_path / "undisturbed"), len(data) // 2
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    for frame in data[:number]:
        owner.match(frame)
    copy = followed(settings, tmp_path / "copy", log)
    while not (sent := owner.clean(1)):
        assert list(places(owner.replica.store))
    while sent[-1].part != ENDS:
        owner.match(data[number])
        number += 1
        sent += owner.clean(steps)
        copy.apply(log.since(copy.changelog_offset), start=log.start)
    assert owner.replica.cycle.cleaned == copy.cycle.cleaned is not None
    assert (log.start > copy.cycle.cleaned) == (steps == 1)
    bases = [Base.decode(value, settings) for value in log.left if is_base(value)]
    assert any(base.mark.first < base.mark.last and not base.values for base in bases if base.mark.part == HAS_ROWS)
    newest = followed(settings, tmp_path / "newest", log)
    for replica in (copy, newest):
        assert seen_marks(replica) == seen_marks(owner.replica)
        manifest: Any = replica.store.named("shard/0")
        assert min(replica.store.segments()) == manifest["segments"][0]["number"]
        replica.activate()
        assert [reply_of(answer(replica, frame)) for frame in data[number:]] == wanted[number:]
        replica.close()
    owner.replica.close()


def test_versions_that_have_left_the_window_wait_for_no_cycle(tmp_path: Path) -> None:
    settings, after, log = settings_of(**{**UPDATES, **WINDOW}), 10**6, Changelog()
    owner = Owner(settings, tmp_path / "owner", log, after)
    copy = Replica(settings, 0, tmp_path / "copy", erase_after=after)
    for number, frame in enumerate(frames(settings, feed_of(settings, 600))):
        owner.match(replace(Sequenced.decode(frame, settings), appended=1000 * number).encode(settings))
        copy.apply(log.since(copy.changelog_offset), start=log.start)
    first, entered = owner.replica.shard.first, len(list(places(owner.replica.store)))
    assert owner.clean(1, after - 10) == owner.clean(1, after) == []
    for replica in (owner.replica, copy):
        waiting = list(places(replica.store))
        assert 0 < len(waiting) < entered / 2 and all(place.there > first for place in waiting)
        replica.close()


async def test_a_cycle_without_an_end_is_no_beginning(tmp_path: Path) -> None:
    settings = KafkaSettings(data_folder=tmp_path / "data", **UPDATES, erase_hours=0)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    for frame in frames(settings, changing(200)):
        owner.match(frame)
    owner.cycle()
    owner.replica.close()
    log.values.pop()
    with pytest.raises(StoreError, match=r"with a snapshot that has no end.*disk of another worker.*reindex"):
        await run(settings, log, [])


def test_what_others_have_written_meanwhile_has_to_be_read(tmp_path: Path) -> None:
    """The cycle does not count: the run of the owner ends, it does not shorten the changelog, and begins again."""
    settings = settings_of(**UPDATES)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    for frame in frames(settings, changing(200)):
        owner.match(frame)
    while not (sent := owner.clean(1)):
        assert list(places(owner.replica.store))
    assert sent[0].part == BEGINS
    log.add(log.values[3])
    with pytest.raises(OtherOwner, match="others have written to its changelog"):
        owner.cycle()
    assert owner.replica.cycle.cleaned is None
    owner.replica.close()
    owner = Owner(settings, tmp_path / "owner", log)
    owner.cycle()
    assert owner.replica.cycle.cleaned is not None and list(places(owner.replica.store)) == []
    owner.replica.close()


def test_erasing_follows_append_times(tmp_path: Path) -> None:
    """Versions wait from their frame's append time on. Those of a broker's clock that was wrong do not wait for it."""
    settings, after, log = settings_of(**UPDATES), 100, Changelog()
    owner = Owner(settings, tmp_path / "owner", log, after)
    data = [Sequenced.decode(frame, settings) for frame in frames(settings, changing(200))]
    for number, frame in enumerate(data):
        year = 31_536_000 if number == len(data) // 2 else 0
        owner.match(replace(frame, appended=1000 * (10**9 + number + year)).encode(settings))
    assert list(places(owner.replica.store)) and owner.clean(9, after - len(data)) == []
    owner.cycle(after)
    assert list(places(owner.replica.store)) == []
    owner.replica.close()


AGAIN = [
    Document(VICTIM.id, deleted=True), Document(VICTIM.id, time=10**5, deleted=True), replace(VICTIM, time=2),
]  # fmt: skip


@pytest.mark.parametrize("again", AGAIN, ids=["deleted", "deleted-later", "outdated"])
def test_a_deleted_id_that_comes_again_is_erased_again(tmp_path: Path, again: Document) -> None:
    """Deleted once more, or with an older version. That removes no version, but its reply has the id."""
    documents = [replace(document, time=1 + i) for i, document in enumerate((VICTIM, OLD, NEW))]
    documents.insert(1, Document(VICTIM.id, time=10, deleted=True))
    settings, log, needle = settings_of(**UPDATES), Changelog(), str(VICTIM.id).encode()
    owner = Owner(settings, tmp_path / "owner", log)
    *data, second, last = match_play.frames(settings, [*documents, again, LIKE_VICTIM], 1)
    for frame in data:
        owner.match(frame)
    owner.cycle()
    assert not any(needle in found for found in unpacked_from(log.left))
    owner.match(second)
    assert any(needle in found for found in unpacked_from(log.left))
    if again != AGAIN[1]:  # the others add no row
        owner.match(last)
    assert [mark.part for mark in owner.cycle()[-1:]] == [ENDS]
    assert not any(needle in found for found in [*unpacked_from(log.left), *contents(tmp_path / "owner")])
    assert owner.clean(20) == []
    owner.replica.close()


def test_without_erase_hours_all_is_as_it_was(tmp_path: Path) -> None:
    """Nothing waits, and folder and changes are those of the version before."""
    settings = settings_of(**UPDATES)
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, after=None)
    for frame in frames(settings, changing(200)):
        owner.match(frame)
    assert owner.clean(9) == [] and list(places(owner.replica.store)) == []
    assert not any(Change.decode(value, settings).waits for value in log.values)
    facts = owner.replica.store.named("replica")
    assert facts["format"] == 2 and "cleaning" not in facts
    assert not any(name.count("-") > 1 for name in owner.replica.store._families)
    owner.replica.close()


def test_replies_that_a_former_owner_has_not_sent_are_kept(tmp_path: Path) -> None:
    """It was killed when its changes were acknowledged. The judge waits for the replies, and everything is due."""
    settings, log = settings_of(**UPDATES), Changelog()
    data = match_play.frames(settings, changing(200), 20)
    former = Owner(settings, tmp_path / "former", log)
    replies = [former.match(frame) for frame in data]
    missing = slice(-3, None)
    owner = Owner(settings, tmp_path / "owner", log, judged=False)
    owner.replica.answered = len(data) - 4  # the judge has these
    sent = owner.clean(50)
    assert [reply_of(answer(owner.replica, frame)) for frame in data[missing]] == replies[missing]
    assert all(mark.part != ENDS or mark.before < owner.replica.count for mark in sent)
    owner.replica.answered = len(data) - 1
    before = owner.cycle()[-1].before
    assert before > max((mark.before for mark in sent), default=0)
    assert owner.replica.match(data[-1]).reply is None


def test_an_owner_that_ends_while_it_answers_again_follows_the_next_one(tmp_path: Path) -> None:
    """It repeats the changes of three frames, and is a standby after the first of them. The next snapshot counts for
    it, too."""
    settings, log = settings_of(**UPDATES), Changelog()
    data = match_play.frames(settings, changing(220), 20)
    former = Owner(settings, tmp_path / "former", log)
    for frame in data[:-1]:
        former.match(frame)
    next_owner = Owner(settings, tmp_path / "next", log)
    former.match(data[-4])
    former.replica.close()
    next_owner.replica.deactivate()
    next_owner.replica.apply(log.since(next_owner.replica.changelog_offset))
    next_owner.replica.activate()
    next_owner.match(data[-1])
    with closing(followed(settings, tmp_path / "former", log)) as standby:
        next_owner.cycle()
        standby.apply(log.since(standby.changelog_offset), start=0)
        assert standby.cycle == next_owner.replica.cycle
        assert list(places(standby.store)) == []
    next_owner.replica.close()


async def test_a_snapshot_goes_on_when_its_shard_stays_in_a_rebalance(tmp_path: Path) -> None:
    """A record of it was made when the shard was handed over, and was not sent."""
    settings = KafkaSettings(data_folder=tmp_path / "data", **{**UPDATES, "max_matches": 0}, erase_hours=0)
    log, sent, lost = Changelog(), list[Mark](), list[Mark]()
    held = Held(settings, 0)
    await held.open(0)
    held.check(0, 0)
    await held.activate()
    for matched in await held.match(frames(settings, changing(300))):
        assert matched.answer is not None
        assert matched.answer.change is not None
        held.confirmed.append((matched.answer.offset, log.add(matched.answer.change), 1))
    held._matched -= NOW
    while not sent or sent[-1].part != ENDS:
        if (found := await held.clean()) is None:
            continue
        mark, record = found
        if len(sent) in (3, 5) and len(lost) < len(sent) // 2:
            lost.append(mark)
            held.check(0, len(log.values))  # the rebalance
            await held.activate()
        else:
            sent.append(mark)
            held.confirmed.append((mark, log.add(record), 1))
    assert await held.match(()) == []
    assert len(lost) == 2 and [mark.part for mark in sent].count(BEGINS) == 1
    assert held.needed == log.values.index(next(value for value in log.values if is_base(value)))
    await held.close()

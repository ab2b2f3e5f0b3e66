"""Erasing: what went is nowhere in the folder of an index (that no answer is another: test_answers.py)."""

import itertools
import random
import shutil
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.contents import contents
from support.feeds import START, families
from support.indexes import fed, opened, verdicts_of

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.index.erasure import eraser, queue
from stream_lsh.index.erasure.eraser import Erasing
from stream_lsh.index.erasure.queue import facts_of, place_of, places
from stream_lsh.index.index import Index
from stream_lsh.index.rows import row_file
from stream_lsh.index.rows.row_file import RowFile
from stream_lsh.index.segments.erased_rows import erased_of
from stream_lsh.index.store.rocksdb import IDS, ROWS, TEXTS, Store, rows_key
from stream_lsh.settings.model import Settings

HOUR = 3600


def sketch_of(index: Index, row: int) -> bytes:
    """The bytes of a row's signature."""
    shard = index.shards[0]
    (found,) = shard.stored.at(np.array([row]))
    return found[shard.shape.signature_at :].tobytes()


def text_of(name: str) -> str:
    chance = random.Random(name)
    return " ".join(f"{name}x{chance.randrange(10**6)}" for _ in range(12))


FAMILY = text_of("family")
VICTIM, REPRESENTATIVE, LAST = (
    Document(f"{name}-name", f"{FAMILY} {name}", time=START) for name in ("victim", "representative", "last")
)
OLD, NEW = (Document("changing", text_of(name), time=START + 1) for name in ("before", "after"))
OTHERS = [Document(f"id{i}", text_of(f"word{i}"), time=START + i) for i in range(400)]
# A first member, who is delivered again and again, its representative, who is next, and a version that is replaced.
FEED = [
    *OTHERS[:100],
    VICTIM,
    OLD,
    *OTHERS[100:200],
    REPRESENTATIVE,
    VICTIM,
    *OTHERS[200:250],
    LAST,
    VICTIM,
    *OTHERS[250:],
]
GOING = [Document("victim-name", deleted=True), Document("representative-name", deleted=True), NEW]
DAY = 24 * HOUR


def begun(index: Index) -> dict[str, bytes]:
    """Three versions go; what is to be found of them until they are erased, a day later."""
    verdicts = verdicts_of(index, FEED, 0)
    index.commit({}, now=0)
    assert (verdicts[202].kind, verdicts[202].duplicate_of) == ("near_duplicate", "victim-name")
    needles = {
        "id": b"victim-name",
        "text": b" victim",
        "new_representative's id": b"representative-name",
        "new_representative's text": b" representative",
    }
    needles |= {"old text": b"beforex", "sketch": sketch_of(index, 100), "old sketch": sketch_of(index, 101)}
    needles |= {"new_representative's sketch": sketch_of(index, 202)}
    gone = verdicts_of(index, GOING, len(FEED))
    went = [(verdict.replaces, verdict.new_representative) for verdict in gone]
    assert went == [(100, ("representative-name", 202)), (202, ("last-name", 254)), (101, None)]
    index.commit({}, now=1000)
    return needles


def left(folder: Path, needles: dict[str, bytes]) -> list[str]:
    """What is still to be found."""
    found = contents(folder)
    return [what for what, needle in needles.items() if any(needle in data for data in found)]


@pytest.mark.parametrize("verify", ["exact", "signature"])
@pytest.mark.parametrize("memory", [64, 65536])
@pytest.mark.parametrize("window", [None, "30d"])
def test_removed_versions_are_nowhere(tmp_path: Path, memory: int, window: str | None, verify: Any) -> None:
    settings = Settings(
        on_conflict="update", memtable_documents=memory, window=window, segment_documents=300, verify=verify
    )
    with opened(settings, tmp_path) as index:
        needles = begun(index)
        if verify == "signature":
            needles = {what: needle for what, needle in needles.items() if "text" not in what}
        assert left(tmp_path, needles) == list(needles)
        index.erase(1000 + DAY - 1)
        assert left(tmp_path, needles) == list(needles)
        facts: Any = information(tmp_path, check=True)
        assert (facts["erasing"]["waiting"], facts["erasing"]["due"]) == (3, "1970-01-02T00:16:40Z")
        index.erase(1000 + DAY)
        assert left(tmp_path, needles) == []
        assert list(places(index.store)) == []
        assert len(contents(tmp_path)) > 10 and left(tmp_path, {"": b"last-name"})
        returning = [
            Document(document.id, document.text, time=START + 900) for document in (LAST, VICTIM, REPRESENTATIVE)
        ]
        again = verdicts_of(index, returning, len(FEED) + 3)
        assert again[0][:5] == ("redelivered", "near_duplicate", None, None, 100)
        assert [verdict.kind for verdict in again[1:]] == ["near_duplicate", "near_duplicate"]
    facts = information(tmp_path, check=True)
    assert facts["erasing"] == {"erased": 3, "waiting": 0, "left_of_the_erased": "nothing"}
    assert facts["health"]["problems"] == []


def test_it_is_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk before and after each step is whole, and what was begun is done by who comes next."""
    index_folder, states = tmp_path / "index", []

    def watched(kind: type, name: str) -> None:
        step = getattr(kind, name)

        def copied(*given: Any, **more: Any) -> Any:
            result = step(*given, **more)
            states.append(tmp_path / f"{len(states)}-{name}")
            shutil.copytree(index_folder, states[-1])
            return result

        monkeypatch.setattr(kind, name, copied)

    with opened(Settings(on_conflict="update", memtable_documents=64), index_folder) as index:
        needles = begun(index)
        with monkeypatch.context():
            for kind, name in (
                (Store, "write"),
                (Store, "flush"),
                (Store, "purge"),
                (Store, "sweep"),
                (RowFile, "patch"),
            ):
                watched(kind, name)
            index.erase(1000 + DAY)
        monkeypatch.undo()
    assert {state.name.split("-")[1] for state in states} == {"write", "flush", "purge", "sweep", "patch"}
    for state in states:
        facts: Any = information(state, check=True)
        assert facts["health"]["problems"] == [], state
        with opened(Settings(), state) as index:
            index.erase(1000 + DAY)
            assert left(state, needles) == [], state
        facts = information(state, check=True)
        assert (facts["health"]["problems"], facts["erasing"]["waiting"]) == ([], 0), state


def test_erasing_hides_no_damage_of_other_rows(tmp_path: Path) -> None:
    """The erased rows give the file another checksum: it does not come from the damaged file."""
    settings = Settings(on_conflict="update", memtable_documents=512, segment_documents=10**6)
    with opened(settings, tmp_path) as index:
        begun(index)
        shard = index.shards[0]
        shard.flush()
        index.commit({}, now=1000)
        rows = shard.segments[0].rows
        undamaged = rows.path.read_bytes()
        with rows.path.open("r+b") as file:
            file.seek(rows.start + 8 * shard.shape.width * 99 + 8 * shard.shape.signature_at)
            file.write(b"x")
        index.erase(1000 + DAY)
    problems: Any = information(tmp_path, check=True)["health"]["problems"]  # type: ignore[index]
    assert len(problems) == 1 and f"{rows.path} is damaged in the rows from 0" in problems[0]
    damaged = rows.path.read_bytes()
    at = next(at for at in range(len(damaged)) if damaged[at : at + 1] == b"x" != undamaged[at : at + 1])
    rows.path.write_bytes(damaged[:at] + undamaged[at : at + 1] + damaged[at + 1 :])
    assert information(tmp_path, check=True)["health"]["problems"] == []  # type: ignore[index]


def test_a_checksum_of_changed_rows() -> None:
    chance = np.random.default_rng(1)
    for turn in range(300):
        n, width = int(chance.integers(1, 60)), int(chance.integers(1, 9))
        before = chance.integers(0, 2**64, (n, width), np.uint64, endpoint=False)
        places = np.flatnonzero(chance.random(n) < (0.1, 0.9)[turn % 2])
        if not len(places):
            continue
        after = before.copy()
        after[places] = chance.integers(0, 2**64, (len(places), width), np.uint64, endpoint=False)
        found = row_file._changed(zlib.crc32(before.tobytes()), places, (before ^ after)[places], n)
        assert found == zlib.crc32(after.tobytes())


@pytest.mark.parametrize("measure", ["jaccard", pytest.param("containment", marks=pytest.mark.long), "tf-idf"])
def test_no_answer_depends_on_postings_of_erased_rows(tmp_path: Path, measure: Any) -> None:
    """Postings that are rebuilt are without them. All limits are met, and what they leave out is counted the same."""
    own: dict[str, Any] = {} if measure == "tf-idf" else {"threshold": 0.6, "shingles": "words:1"}
    settings = Settings(
        measure=measure, on_conflict="update", memtable_documents=32, segment_documents=150, max_bucket_rows=4,
        max_candidates=3, **own,
    )  # fmt: skip
    documents = families(3, 700)
    with opened(settings, tmp_path / "index") as index:
        for at in range(0, 500, 50):
            fed(index, documents[at : at + 50], at, 50)
            index.commit({}, now=0)
        index.erase(10**9)
        assert sum(len(erased_of(index.store, 0, segment.number)) for segment in index.shards[0].segments) > 50
    shutil.copytree(tmp_path / "index", tmp_path / "rebuilt")
    for postings in (tmp_path / "rebuilt").glob("segments/*/postings"):
        shutil.rmtree(postings)
    answers, sizes = [], []
    for folder in (tmp_path / "index", tmp_path / "rebuilt"):
        with opened(settings, folder) as index:
            sizes.append(sum(run.size for segment in index.shards[0].segments for run in segment.postings.runs))
            answers.append(fed(index, documents[500:], 500, 20))
    assert answers[0] == answers[1] and sizes[1] < sizes[0]
    assert any(answer.get("not_compared") for answer in answers[0]), measure


@pytest.mark.parametrize("what", ["row", "id", "text"])
def test_the_check_finds_what_is_left(tmp_path: Path, what: str) -> None:
    with opened(Settings(on_conflict="update"), tmp_path) as index:
        begun(index)
        kind = {"row": ROWS, "id": IDS, "text": TEXTS}[what]
        first, value = index.store.holding(kind, 0, 0, 101)
        index.erase(1000 + DAY)
        index.store.write({rows_key(kind, 0, 0, first): value})
    problems = information(tmp_path, check=True)["health"]["problems"]  # type: ignore[index]
    assert any(f"row 101 of shard 0 was erased, but its {what} can still be read" in problem for problem in problems)


UPDATES = Settings(on_conflict="update", memtable_documents=1024, erase_hours=1 / HOUR)


def erasing_of(index: Index) -> Erasing:
    assert index._erasing is not None
    return index._erasing


def changing(index: Index, documents: int, rounds: int, updates: int) -> None:
    """Documents, then commits of random updates a second apart, with at most one step of erasing each."""
    chance = random.Random(1)
    for turn in range(rounds):
        ids = chance.sample(range(documents), updates) if turn else range(documents)
        fed(index, [Document(f"id{i}", f"{turn} {text_of(str(i))}", time=START) for i in ids], turn * documents, 500)
        index.commit({}, now=turn)
        erasing_of(index).finish()


def test_erasing_keeps_up_with_updates(tmp_path: Path) -> None:
    """Each commit replaces versions in more text frames than one step of a pass over all of them may rewrite."""
    with opened(UPDATES, tmp_path) as index:
        changing(index, 3000, 40, 100)
        assert min(place.due for place in places(index.store)) > 40 - 12


def test_a_step_has_a_bound_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eraser, "STEP_BYTES", 1)
    cuts = list[int]()
    cut = eraser._Step.cut
    monkeypatch.setattr(eraser._Step, "cut", lambda step, end: (cuts.append(end), cut(step, end)))
    with opened(Settings(on_conflict="update", memtable_documents=64), tmp_path) as index:
        changing(index, 320, 2, 100)
        index.erase(10**6)
        assert len(cuts) > 4 and list(places(index.store)) == []
    assert information(tmp_path, check=True)["erasing"] == {
        "erased": 100,
        "waiting": 0,
        "left_of_the_erased": "nothing",
    }


def test_rows_leave_memory_before_a_step_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of rows in memory is prepared in the background. The memtable is flushed before the step is written."""
    flush, flushing = Store.flush, set[threading.Thread]()
    monkeypatch.setattr(Store, "flush", lambda *given: (flushing.add(threading.current_thread()), flush(*given)))
    with opened(UPDATES, tmp_path) as index:
        changing(index, 500, 2, 400)
        erasing = erasing_of(index)
        for _ in range(2):  # read the pass, and prepare its first step
            erasing.step(10)
            erasing.finish()
        prepared = erasing._next
        assert prepared is not None and (prepared.in_memory, prepared.end) == (True, 400)
        index.shards[0].flush()
        assert not prepared.fits
        index.erase(10)
        index.commit({}, now=10)
    found: Any = information(tmp_path, check=True)
    assert found["erasing"] == {"erased": 400, "waiting": 0, "left_of_the_erased": "nothing"}
    assert found["health"]["problems"] == [] and threading.main_thread() not in flushing


def test_memory_has_a_part_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "PASS_VERSIONS", 100)
    with opened(Settings(on_conflict="update"), tmp_path) as index:
        changing(index, 500, 21, 50)
        erasing, sizes = erasing_of(index), set[int]()
        while not erasing.step(10**9):
            erasing.finish()
            sizes.add(0 if erasing._pass is None else len(erasing._pass.rows))
        assert sizes == {0, 100}
        assert index.store.named(queue.ERASED_VERSIONS) == 1000 and list(places(index.store)) == []


def test_closing_leaves_what_is_due_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It continues where the run before has ended."""
    monkeypatch.setattr(eraser, "STEP", 32)
    ticks, reached = itertools.count(), [0]
    with opened(Settings(on_conflict="update"), tmp_path) as index:
        changing(index, 500, 2, 400)
    while reached[-1] < 400:
        with opened(Settings(), tmp_path, clock=lambda: float(next(ticks))) as index:
            index.erase(10**9, seconds=20)
            progress = index.store.named(eraser.PROGRESS)
            reached.append(400 if progress is None else progress["at"])
    assert len(reached) > 3 and reached == sorted(set(reached))
    with opened(Settings(), tmp_path) as index:
        assert index.store.named(queue.ERASED_VERSIONS) == 400 and list(places(index.store)) == []


def steps_of(index: Index, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the steps end in which everything is erased."""
    erasing, steps = erasing_of(index), list[int]()
    monkeypatch.setattr(
        erasing, "_write", lambda now, step, write=erasing._write: steps.append(step.end) or write(now, step)
    )
    while not erasing.step(10**9):
        erasing.finish()
    return steps


def test_members_behind_a_version_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A representative that is replaced often, then copies of it: all its versions fit into one step."""
    monkeypatch.setattr(eraser, "READ", 32)
    with opened(Settings(on_conflict="update"), tmp_path) as index:
        fed(index, [Document("changing", f"{FAMILY} {version}") for version in range(11)], 0, 1)
        fed(index, [Document(f"copy{copy}", FAMILY) for copy in range(100)], 11, 50)
        index.commit({}, now=0)
        assert steps_of(index, monkeypatch) == [10]


@pytest.mark.parametrize("copies", [20, 100])
def test_ids_leave_all_rows_that_were_dropped_for_a_version(
    tmp_path: Path, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step reads them or several, and the memtable is flushed before the first of these is written."""
    monkeypatch.setattr(eraser, "READ", 32)
    with opened(UPDATES, tmp_path) as index:
        fed(index, [VICTIM, *(Document(str(copy), VICTIM.text) for copy in range(copies)), GOING[0]], 0, 50)
        index.commit({}, now=0)
        (shard,), erasing = index.shards, erasing_of(index)
        assert shard.ids.named(1)[1]
        while not erasing.step(10**9):
            erasing.finish()
            if erasing._next is not None:
                shard.flush()
        assert {shard.ids.named(row)[1] for row in range(copies + 1)} == {b""}


CHAIN = 300


@pytest.mark.parametrize("which", ["superseded", "kept", "dropped"])
def test_members_of_other_representatives_do_not_count(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with many representatives, one after the other: a deleted one does not have the whole group read."""
    monkeypatch.setattr(eraser, "READ", 32)
    ranks = range(CHAIN) if which != "dropped" else range(CHAIN, 0, -1)
    chain = [Document(str(i), f"{FAMILY} {i}", rank=rank) for i, rank in enumerate(ranks)]
    if which == "superseded":
        gone = [Document(str(i), deleted=True) for i in range(CHAIN - 1)]
    elif which == "kept":  # of which each is the representative when it is deleted
        gone = [Document(str(i % CHAIN), deleted=True) for i in range(CHAIN - 1, 2 * CHAIN - 1)]
    else:  # the same, after another one has superseded it
        gone = [Document("0", deleted=True)]
        for i in range(1, CHAIN):
            gone.append(Document(f"better{i}", f"{FAMILY} better {i}", rank=CHAIN))
            gone += [Document(id, deleted=True) for id in (str(i), f"better{i}")]
    with opened(Settings(on_conflict="update", keep="best", rank_field="rank"), tmp_path) as index:
        fed(index, chain, 0, 50)
        fed(index, gone, CHAIN, 50)
        index.commit({}, now=0)
        assert len(steps_of(index, monkeypatch)) < CHAIN / 2


def test_entries_of_one_second_have_names_of_their_own() -> None:
    """Also of two frames that have added no row: each supersedes a document. An entry waits for its last version."""
    superseded, deleted = [5, 7, 10, 1, 1, 2], [3, 3, 10, 2, 2, 1]
    found = [list(facts_of(np.array(some), 0, 60, 0, named=False)) for some in ([superseded], [deleted])]
    assert len({name for entries in found for name, _ in entries}) == 2
    ((name, _),) = facts_of(np.array([deleted, [4, 4, 12, 3, 3, 1]]), 0, 60, 0, named=True)
    assert place_of(name).there == 12

"""A shard that forgets, kept by a log and a changelog, answers as the embedded index does, however it got there."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_replica import DOCUMENTS, answer, change_of, frames, reply_of, verdicts

from stream_lsh.documents.columns import Document, columns
from stream_lsh.documents.times import NO_TIME
from stream_lsh.index.dead import DEAD_ROWS, dead_in
from stream_lsh.index.generation import FOLDER
from stream_lsh.index.index import Index
from stream_lsh.index.logtime import LogTime, begun
from stream_lsh.index.store import RARE, Store, parts_of
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines
from stream_lsh.kafka.match import kept_answers
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import Frame, Places
from stream_lsh.wire.sequenced import Sequenced

WINDOW = 16 * 60_000  # so that a generation is two minutes
STEP = 6000  # ms from one document to the next: 160 in a window


@pytest.fixture(autouse=True)
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are asked for again for five frames only."""
    monkeypatch.setattr(kept_answers, "KEPT_FRAMES", 5)
    monkeypatch.setattr(kept_answers, "MOST_ROWS", 0)


def timed(number: int) -> Document:
    chance, found = random.Random(number), DOCUMENTS[number]
    late = chance.choice((0, 0, 0, 500, 40_000))
    time = chance.choice((0, 4 * 10**12)) if chance.random() < 0.05 else 10**12 + number * STEP - late
    return Document(found.id, found.text, time=time)


TIMED = [timed(number) for number in range(len(DOCUMENTS))]


def changing() -> list[Document]:
    """Documents of which many are replaced and deleted, also when they have left the window, by later and by earlier
    versions; some changes have no time."""
    chance, out = random.Random(4), list(TIMED)
    for i in range(20, len(out)):
        what, old, now = chance.random(), chance.choice(out[max(0, i - 220) : i]), 10**12 + i * STEP
        time = chance.choice((None, now, now, now - 60 * STEP))
        if what < 0.2:
            out[i] = replace(out[i], id=old.id, time=time)
        elif what < 0.4:
            out[i] = Document(old.id, time=time, deleted=True)
    return out


UPDATES = {"on_same_id": "update", "time_field": "ts"}
STORIES = {"likeness": "stories", **UPDATES}
CHANGING = changing()


def feed_of(settings: Settings) -> list[Document]:
    return CHANGING if settings.updates else TIMED


def settings_of(**given: object) -> Settings:
    return Settings(
        **{
            "memory_documents": 200,
            "max_matches": 0,
            "window": "16m",
            "decided_after": 4,
            "generation_documents": 400,
            **given,
        }
    )


def sequenced(settings: Settings) -> list[bytes]:
    """Frames of these documents with the log times that a sequencer gives them."""
    out, time = [], LogTime()
    for data in frames(settings, feed_of(settings)):
        found = Sequenced.decode(data, settings)
        times = Places.of(found.frame, settings).times
        assert times is not None
        counting = times if found.accepted is None else np.where(found.accepted, times, NO_TIME)
        out.append(replace(found, log=begun(time.advance(counting))).encode(settings))
    return out


def oracle(settings: Settings, log: list[bytes], folder: Path) -> bytes:
    """The same from the embedded index, which takes the time of the documents itself."""
    index = Index(settings, folder, durable=False)
    out, count = [], 0
    for data in log:
        found = Sequenced.decode(data, settings)
        source = Frame.decode(found.frame, settings).source
        chosen = np.flatnonzero(np.ones(len(source)) if found.accepted is None else found.accepted).tolist()
        part = columns([feed_of(settings)[int(source.offsets[i])] for i in chosen])
        seqs = found.numbers(len(source))[chosen]
        matches = index.match(index.sign(part), seqs, count + np.arange(len(chosen)))
        assert index.window is not None and found.log is not None
        assert not chosen or index.window.now == found.log[chosen[-1]]
        count += len(chosen)
        judgement = judge(matches, part.ids, seqs, settings.max_matches, index)
        out += [*verdict_lines(judgement).splitlines(), pair_lines(judgement, settings.verify)]
        index.commit({})
    index.close()
    return b"\n".join(out)


def generations(replica: Replica) -> list[int]:
    """Those that are there, in its folder."""
    return sorted(int(path.name) for path in (replica.folder / FOLDER).iterdir())


ANY = {"against": "any", "verify_matches": 0}


@pytest.mark.parametrize(
    "given",
    [
        {},
        pytest.param({**ANY, "shards": 3}, marks=pytest.mark.long),
        UPDATES,
        STORIES,
        pytest.param({**ANY, **UPDATES, "shards": 3}, marks=pytest.mark.long),
    ],
)
def test_the_answers_are_those_of_the_embedded_index(tmp_path: Path, given: dict[str, object]) -> None:
    """And what has left the window leaves the disk."""
    settings = settings_of(**given)
    log = sequenced(settings)
    replicas = [Replica(settings, shard, tmp_path / f"shard-{shard}") for shard in range(settings.shards)]
    for replica in replicas:
        replica.activate()
    mine = verdicts([[reply_of(answer(replica, data)) for replica in replicas] for data in log], settings)
    assert mine == oracle(settings, log, tmp_path / "oracle")
    kinds = Counter(json.loads(line)["kind"] for line in mine.splitlines() if b'"kind"' in line)
    assert min(kinds[kind] for kind in ("deleted", "outdated")) > 5 or not settings.updates, kinds
    assert (mine.count(b'"heir"') > 5) == (settings.updates and settings.against == "unique")
    for replica in replicas:
        replica.close()
        there = generations(replica)
        assert len(there) < 20 and there[0] > 40, there
        store = Store(replica.folder / "db", read_only=True)
        assert store.generations() and min(store.generations()) >= there[0]
        store.close()


@pytest.mark.parametrize("given", [{}, {**ANY, "shards": 2}, UPDATES, STORIES, {**ANY, **UPDATES, "shards": 2}])
def test_whoever_takes_over_says_the_same_bytes(tmp_path: Path, given: dict[str, object]) -> None:
    """A copy that follows, a worker that begins with what is left of the changelog, each again and again; the changelog
    is as long as a window and what may be asked for."""
    settings = settings_of(**given)
    mine, log = settings.shards - 1, sequenced(settings)
    undisturbed = Replica(settings, mine, tmp_path / "whole")
    undisturbed.activate()
    whole = [answer(undisturbed, data) for data in log]
    undisturbed.close()
    chance, changelog, start, newcomers, longest = random.Random(2), list[bytes](), 0, 0, 0
    live, copy = Replica(settings, mine, tmp_path / "a"), Replica(settings, mine, tmp_path / "b")
    live.activate()
    for number, data in enumerate(log):
        assert live.match(data) == whole[number]
        if chance.random() < 0.1:  # between writing and sending
            live.close()
            live = Replica(settings, mine, live.folder)
            live.activate()
            assert live.match(data) == whole[number]
        changelog.append(change_of(whole[number]))
        live.confirmed(Sequenced.decode(data, settings).offset, len(changelog) - 1)
        if chance.random() < 0.2:
            back = chance.randrange(max(0, number - 4), number + 1)
            assert live.match(log[back]) == whole[back]
            changelog.append(change_of(whole[back]))
            live.confirmed(Sequenced.decode(log[back], settings).offset, len(changelog) - 1)
        assert live.forgetting is not None
        start = max(start, live.forgetting.needed or 0)
        longest = max(longest, sum(Change.decode(c, settings).last - Change.decode(c, settings).first
                                   for c in changelog[start:]))  # fmt: skip
        dice = chance.random()
        if dice < 0.05:  # one that has nothing
            newcomers += 1
            copy.close()
            copy = Replica(settings, mine, tmp_path / f"new-{newcomers}")
        if dice < 0.15:
            first = max(start, (copy.changelog_offset if copy.changelog_offset is not None else -1) + 1)
            copy.apply(list(enumerate(changelog))[first:], start=start)
            if copy.gap:  # it was away for longer than a window
                assert copy.forgetting is not None and copy.forgetting.outlived
                copy.close()
                newcomers += 1
                copy = Replica(settings, mine, tmp_path / f"new-{newcomers}")
                copy.apply(list(enumerate(changelog))[start:], start=start)
            assert not copy.gap and not copy.missing and copy.last == live.last and copy.count == live.count
            live.deactivate()
            live, copy = copy, live
            live.activate()
    assert newcomers > 3 and start > 0.7 * len(changelog)
    assert longest < 700  # of 1,500 rows: 160 in a window, and an eighth, and of six frames
    live.close()
    copy.close()


def test_a_changelog_that_has_lost_what_can_be_seen_is_no_window(tmp_path: Path) -> None:
    settings = settings_of()
    log = sequenced(settings)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = list(enumerate(change_of(answer(source, data)) for data in log))
    source.close()
    copy.apply(changes[-2:], start=len(changes) - 2)
    assert copy.missing > 30
    copy.close()
    away = Replica(settings, 0, tmp_path / "c")
    away.apply(changes[:5])
    away.apply(changes[-2:], start=len(changes) - 2)
    assert away.gap and away.forgetting is not None and not away.forgetting.outlived
    away.close()


@pytest.mark.parametrize("given", [{}, UPDATES, STORIES])
def test_a_copy_lets_go_what_has_left_the_window(tmp_path: Path, given: dict[str, object]) -> None:
    """Rows in no file, too, and what says that some were dead; how many are is what those are that are left."""
    settings = settings_of(**given)
    log = sequenced(settings)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    for offset, data in enumerate(log):
        copy.apply([(offset, change_of(answer(source, data)))])
    source.close()
    copy.close()
    store = Store(copy.folder / "db", read_only=True)
    dead = sum(dead_in(store, 0, number) for number in store.generations())
    assert (store.named("shard/0") or {}).get(DEAD_ROWS, 0) == dead
    assert not settings.updates or 10 < dead < 200
    rows = {parts_of(key)[2] for key, _ in store.scan(b"r")}
    assert rows and min(rows) > 40 and len(rows) < 20
    assert set(store.generations()) == rows
    # Of how rare words are, what the last generation began with, and what its frames have added.
    assert len(list(store.rows_of(RARE, 0, 0))) in (range(1, 12) if "likeness" in given else [0])
    store.close()
    again = Replica(settings, 0, copy.folder)
    again.activate()
    again.close()

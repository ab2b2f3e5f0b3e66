"""Shards kept by frames and a changelog, one or several, answer as the embedded index, whatever is lost or repeated."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.feeds import improving, ranked
from support.kafka.pipe import BLOCK, Pipe
from support.kafka.replica_play import (
    ANY,
    UPDATES,
    WINDOW,
    answer,
    change_of,
    changing,
    feed_of,
    folders_in,
    frames,
    marks,
    oracle,
    reply_of,
    settings_of,
    verdicts,
)
from support.long_form import rotating, seeds

from stream_lsh.documents.document import Document
from stream_lsh.index.segments.segment import FOLDER
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.match.replica import Answer, Replica
from stream_lsh.kafka.tools.restored import documents as restored
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change, frame_of
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.parts import Place, cut
from stream_lsh.wire.replies import Reply
from stream_lsh.wire.sequenced import Sequenced

SIGNATURE = {"verify": "signature"}
TF_IDF = {"measure": "tf-idf"}
FEW = {"max_bucket_rows": 4, "max_candidates": 3}
SMALL, LARGE = {"segment_documents": 47}, {"segment_documents": None}
THREE = {**ANY, "shards": 3}
SHAPES: list[tuple[int, dict[str, object]]] = [
    (300, {"compare_with": "all", "shards": 3, **FEW, **SMALL}),
    (700, {**UPDATES, "keep": "longest"}),
]
LONG: list[tuple[int, dict[str, object]]] = [
    (1200, {**UPDATES, **ANY}), (1200, {**UPDATES, **THREE}), (1200, {**UPDATES}),
    (500, {"keep": "longest"}), (1200, {**UPDATES, "keep": "longest"}),
    (1500, {**UPDATES, **WINDOW, "keep": "longest"}),
    (1500, {**UPDATES, **WINDOW}), (1500, {**UPDATES, **THREE, **WINDOW}), (1500, {**THREE, **WINDOW}),
    *((1500, {**given, **size}) for given in ({}, SIGNATURE, {"max_matches": 1, "max_verified_matches": 3}, THREE,
      {**THREE, "max_matches": 2}, {**ANY, **SIGNATURE}, {"compare_with": "all", "shards": 3, **FEW})
      for size in (LARGE, SMALL)),
    (1500, {**WINDOW}), (400, {**UPDATES, **TF_IDF, **WINDOW}), (1500, {**UPDATES, **TF_IDF, **WINDOW}),
]  # fmt: skip


def named(shape: object) -> str | None:
    return "-".join(f"{name}={value}" for name, value in shape.items()) if isinstance(shape, dict) else None


@pytest.mark.parametrize(("n", "given"), [*SHAPES, *rotating(LONG, 2)], ids=named)
def test_a_shard_answers_as_the_embedded_index_whoever_takes_over(
    tmp_path: Path, request: pytest.FixtureRequest, n: int, given: dict[str, object]
) -> None:
    """Also where segments begin in the middle of a frame; and what has left the window leaves the disk."""
    settings = settings_of(**given)
    if settings.window is not None:
        request.getfixturevalue("short_memory")
    documents = feed_of(settings, n)
    log = frames(settings, documents)
    replicas = [Replica(settings, shard, tmp_path / f"shard-{shard}") for shard in range(settings.shards)]
    for replica in replicas:
        replica.activate()
    answers = [[answer(replica, data) for replica in replicas] for data in log]
    mine = verdicts([[reply_of(found) for found in each] for each in answers], settings)
    assert mine == oracle(settings, log, tmp_path / "oracle", documents)
    # All kinds are met.
    kinds = Counter(json.loads(line)["kind"] for line in mine.splitlines() if b'"kind"' in line)
    wanted = ["redelivered", "unique", "near_duplicate"] + ["deleted", "outdated"] * settings.updates
    assert min(kinds[kind] for kind in wanted) > n // 250, kinds
    assert b"first_kind" in mine and (b'"supersedes"' in mine) == (settings.keep != "first")
    assert b'"not_compared"' in mine or settings.max_candidates > 3
    assert (mine.count(b'"new_representative"') > 2) == (settings.updates and settings.compare_with == "kept")
    whole = [found[-1] for found in answers]
    if settings.updates and settings.window is None:
        # A reply has the positions of the representatives that the log has.
        representatives = 0
        for found in whole:
            reply = Reply.decode(reply_of(found), settings)
            removed = reply.matches.removed[reply.matches.removed[:, 3] >= 0, 2:4].tolist()
            for name, seq in removed:
                place = reply.representatives[seq]
                assert place[0] == 0 and documents[place[1]].id == json.loads(reply.names[name])
                representatives += 1
            assert {*reply.representatives} == {seq for _, seq in removed}
        assert representatives > 3 or settings.compare_with == "all"
    last = disturbed(settings, log, whole, tmp_path / "disturbed")
    check_marks(last, replicas[-1])
    assert not settings.updates or len(marks(last)) > (5 if settings.window else n // 6 // settings.shards)
    last.close()
    for replica in replicas:
        replica.close()
        check_folder(replica, n)


def check_marks(one: Replica, other: Replica) -> None:
    """The same rows are deleted. With a window each forgets them when it forgets their rows."""
    assert one.settings.window is not None or marks(one) == marks(other)


def check_folder(replica: Replica, rows: int) -> None:
    """As many segments as live are there, in files and in the store."""
    there = sorted(int(path.name) for path in (replica.folder / FOLDER).iterdir())
    settings = replica.settings
    if settings.window is None:
        size = settings.segment_documents or rows
        assert 0.6 * rows / size < len(there) <= 1.05 * rows / size + 1
        return
    assert len(there) < 20 and there[0] > rows // 20 - 20, there
    store = Store(replica.folder / "db", read_only=True)
    assert store.segments() and min(store.segments()) >= there[0]
    store.close()


def disturbed(settings: Settings, log: Sequence[bytes], whole: Sequence[Answer], folder: Path) -> Replica:
    """Play the log to the last shard, with closing, repeated frames, a copy that follows the changelog and takes over,
    and copies that begin with what is left of it: always the same bytes. The changelog is as long as a window and what
    may be asked for. Returns the replica that answers at the end."""
    chance, changelog, start, longest = random.Random(2), list[bytes](), 0, 0
    folders = folders_in(folder)

    def begun() -> Replica:
        return Replica(settings, settings.shards - 1, next(folders))

    def said(number: int) -> None:
        """Written to the changelog; without a window it may be that the shard is not told."""
        changelog.append(change_of(whole[number]))
        if settings.window is not None or chance.random() < 0.5:
            live.confirmed(Sequenced.decode(log[number], settings).offset, len(changelog) - 1)

    live, copy = begun(), begun()
    live.activate()
    for number, data in enumerate(log):
        assert live.match(data) == whole[number]
        if chance.random() < 0.1:  # between writing and sending
            live.close()
            live = Replica(settings, live.number, live.folder)
            live.activate()
            assert live.match(data) == whole[number]
        said(number)
        if chance.random() < 0.2:  # said again when others were deleted since
            back = chance.randrange(0 if settings.window is None else max(0, number - 4), number + 1)
            assert live.match(log[back]) == whole[back]
            said(back)
        if number + 2 < len(log):
            assert live.match(log[number + 2]) is None
        if live.forgetting is not None:
            start = max(start, live.forgetting.needed or 0)
            left = [Change.decode(value, settings) for value in changelog[start:]]
            longest = max(longest, sum(change.last - change.first for change in left))
        dice = chance.random()
        if dice < 0.05 or copy.gap:  # one that has nothing
            copy.close()
            copy = begun()
        if dice < 0.15:
            follow(copy, changelog, start)
            if copy.gap:  # it was away for longer than a window
                assert copy.forgetting is not None and copy.forgetting.outlived
                copy.close()
                copy = begun()
                follow(copy, changelog, start)
            assert not copy.gap and not copy.missing and copy.last == live.last and copy.count == live.count
            check_marks(copy, live)
            live.deactivate()
            live, copy = copy, live
            live.activate()
    assert settings.window is None or start > 0.5 * len(changelog)
    assert longest < 700  # rows: 160 in a window, and an eighth, and of six frames
    copy.close()
    return live


def follow(copy: Replica, changelog: Sequence[bytes], start: int) -> None:
    read = -1 if copy.changelog_offset is None else copy.changelog_offset
    copy.apply(list(enumerate(changelog))[max(start, read + 1) :], start=start)
    copy.flush(lambda: False)


LEFT = 3  # frames after the changelog, at most: some seeds have few large ones


def parts_of(change: bytes, most: int, settings: Settings) -> list[bytes]:
    return cut(change, Place(0, *frame_of(change, settings)), most, settings)


def changelog(changes: Sequence[bytes], chance: random.Random, settings: Settings) -> list[bytes]:
    """Each change in parts or whole. Before it there may be some of its parts, or all with something between them, or
    earlier changes again."""
    log = list[bytes]()
    for number, change in enumerate(changes):
        most = chance.choice((400, 900, 5000, 10**6))
        parts = parts_of(change, most, settings)
        what = chance.random()
        if what < 0.2:
            log += parts_of(change, 500, settings)[:-1]
        elif what < 0.4 and len(parts) > 1:
            at = chance.randrange(1, len(parts))
            log += [*parts[:at], chance.choice((b"foreign", changes[max(0, number - 1)], parts[0])), *parts[at:]]
        elif what < 0.5:
            log += parts_of(chance.choice(changes[: number + 1]), most, settings)
        log += parts
    return log + (parts_of(changes[-1], 500, settings)[:-1] if chance.random() < 0.5 else [])


@pytest.mark.parametrize("seed", seeds(4, 12, 100))
def test_a_shard_follows_changes_in_parts(tmp_path: Path, seed: int) -> None:
    chance, settings = random.Random(seed), settings_of(**UPDATES)
    log = frames(settings, changing(150), seed)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    logged = max(1, len(log) - LEFT)
    records = changelog([change_of(answer(source, data)) for data in log[:logged]], chance, settings)
    at, before = 0, -1
    while at < len(records):
        n = chance.randint(1, 20)
        copy.apply(list(enumerate(records))[at : at + n])
        at = min(at + n, len(records))
        if chance.random() < 0.3:
            copy.close()
            copy = Replica(settings, 0, tmp_path / "b")
            at = -1 if copy.changelog_offset is None else copy.changelog_offset
            assert at >= before
            before, at = at, at + 1
    assert (copy.last, copy.count, marks(copy)) == (source.last, source.count, marks(source))
    copy.activate()
    for data in log[logged:]:
        assert reply_of(answer(copy, data)) == reply_of(answer(source, data))
    copy.close()
    source.close()


def test_parts_at_the_end_of_the_changelog_count_if_the_others_come(tmp_path: Path) -> None:
    """Their writer is paused. Another owner reads them together with what comes before its own change."""
    settings = settings_of(**UPDATES)
    log = frames(settings, changing(150))
    source, owner = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = [change_of(answer(source, data)) for data in log[:3]]
    parts = parts_of(changes[1], 600, settings)
    assert len(parts) > 2
    records = list(enumerate([changes[0], *parts]))
    owner.apply(records[:2])
    assert (owner.changelog_offset, owner.begin) == (0, 1)
    owner.activate()
    later = answer(owner, log[1]).offset
    assert owner.agrees(records[1:]) and owner.agrees(records[1:-1]) and not owner.agrees(records[1:-1], whole=False)
    owner.confirmed(later, len(records) + 1, 2)
    assert (owner.changelog_offset, owner.begin) == (len(records) + 2, None)
    source.close()
    owner.close()


def cases(quick: tuple[Any, ...], seeds: Iterable[int], varied: Iterable[dict[str, Any]], share: int) -> list[Any]:
    """Settings, seed and documents."""
    return [quick, *rotating(((given, seed, 1500) for given, seed in product(varied, seeds)), share)]


KEPT = [{"shards": shards, "segment_documents": size} for shards in (2, 5) for size in (None, 47)]
CHANGED = [{**UPDATES, "shards": shards} for shards in (2, 3, 5)]
KEEP: list[dict[str, Any]] = [
    {"keep": "longest"}, {"keep": "newest"}, {"keep": "best", "rank_field": "rank"},
    {"keep_per": "source", "source_field": "source"},
    {"keep": "best", "rank_field": "rank", "keep_per": "source", "source_field": "source"},
]  # fmt: skip
KEEPING = [
    {**keep, **given, "shards": shards}
    for keep, given, shards in product(KEEP, ({}, UPDATES, UPDATES | WINDOW), (2, 3))
]
SAME_TEXTS: dict[str, Any] = {**KEEP[2], "shards": 3, "threshold": 0.7}
WINDOWED = [{**UPDATES, **WINDOW, "shards": shards} for shards in (2, 3)]


@pytest.mark.parametrize(
    ("given", "seed", "n"),
    [
        *cases((KEPT[1], 1, 300), range(8), KEPT, 3),
        *cases((CHANGED[1], 1, 500), range(6), CHANGED, 2),
        *cases((WINDOWED[0], 2, 250), (0, 2, 3, 4, 5), WINDOWED, 1),
        *cases((KEEPING[9], 1, 500), range(1, 4), KEEPING, 2),
        (SAME_TEXTS, 1, 300),
    ],
)
def test_as_embedded_whoever_begins_again(
    request: pytest.FixtureRequest, tmp_path: Path, given: dict[str, Any], seed: int, n: int
) -> None:
    """New representatives are found where all answers meet; the shards hear of them with the block after the next."""
    settings = settings_of(**{**given, "decision_lag": 2 * BLOCK})
    if settings.window is not None:
        request.getfixturevalue("short_memory")
    documents = improving(seed, n) if given == SAME_TEXTS else ranked(feed_of(settings, n), random.Random(seed))
    log = frames(settings, documents, seed if settings.window is None else 0)
    # All of a log through all of them; often: how probable trouble is behind a frame. Without a seed there is none.
    chance, pipe = random.Random(seed), Pipe(settings, log, tmp_path)
    for number, sequenced in enumerate(pipe.log):
        pipe.step(sequenced)
        if seed and number > 3 and chance.random() < (0.5 if settings.window else 0.8):
            pipe.trouble(chance)
    pipe.close()
    assert b"\n".join(pipe.said) == oracle(settings, log, tmp_path / "oracle", documents)
    assert pipe.runs > n // (100 if settings.window else 75) or not seed
    sent = [Decisions.decode(data, settings) for data in pipe.decided]
    if settings.keep != "first":
        superseded = b"".join(pipe.said).count(b',"supersedes":')
        assert sum(len(decisions.superseded) for decisions in sent) == superseded
        assert superseded >= n // 50 or settings.keep == "longest"
        return
    if settings.keep_per is not None:
        return
    if not settings.updates:
        assert sum(len(decisions.names) for decisions in sent) > n // 5
        return
    assert b"".join(pipe.said).count(b',"new_representatives":[') > n // 400
    if settings.window is None:
        assert (
            sum(len(d.deleted) for d in sent) > n // 30
            and sum(int((d.representatives.kind == 0).sum()) for d in sent) > 1
        )
        check_restored(settings, pipe.changes, documents)


def check_restored(settings: Settings, changes: list[list[bytes]], documents: Sequence[Document]) -> None:
    """As `reindex --from-changelog` reads them, the changes of all shards have the documents that they store."""
    for each in zip(*changes, strict=True):
        found, source = restored([Change.decode(data, settings) for data in each], settings)
        there = [documents[offset] for offset in source.offsets.tolist()]
        assert found.ids == [json.dumps(document.id).encode() for document in there]
        stored = [i for i in range(len(there)) if i not in found.rejected and i not in found.deleted]
        assert found.texts == "".join([there[i].text or "" for i in stored]).encode()

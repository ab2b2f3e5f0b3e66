"""A changelog with changes in parts, of workers that are killed or paused: every shard becomes the same."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.kafka.replica_play import UPDATES, answer, change_of, changing, frames, marks, reply_of, settings_of
from support.long_form import seeds

from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import frame_of
from stream_lsh.wire.parts import Place, cut

LEFT = 3  # frames after the changelog


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
    records = changelog([change_of(answer(source, data)) for data in log[:-LEFT]], chance, settings)
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
    for data in log[-LEFT:]:
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

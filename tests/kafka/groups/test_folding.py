"""Memberships say what the verdicts say; folded in whatever rounds, by whoever takes over, they tell the same."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.kafka.group_play import RULES, embedded_lines, memberships
from support.kafka.judge_play import decoded

from stream_lsh.alerts.rules import Rule, read_rules
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_table import table
from stream_lsh.errors import FormatError, StoreError
from stream_lsh.index.store.rocksdb import GROUP, MEMBERS, Store
from stream_lsh.judging.verdicts import Judgement, Kind, judge
from stream_lsh.kafka.groups.folding import CLEARED_OF_ONE, MOST_CLEARED, Folding
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.envelope import Section, pack, unpack
from stream_lsh.wire.memberships import VERSION, Memberships
from stream_lsh.wire.replies import ReplyNames
from stream_lsh.wire.source import Source, numbers

SETTINGS = KafkaSettings(verify="signature", groups=True, source_field="outlet", time_field="time")


@pytest.fixture
def rules(tmp_path: Path) -> tuple[Rule, ...]:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    return read_rules(file)


class State:
    """What a changelog is: the last value of every key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def add(self, changes: dict[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def opened(self, folder: Path) -> Store:
        folder.mkdir()
        store = Store(folder / "db", sync=False)
        store.write(self.values)
        return store


def test_memberships_say_what_was_judged(tmp_path: Path) -> None:
    said, frames = memberships(SETTINGS, tmp_path, 900)
    kinds = set()
    for value, frame in zip(said, frames, strict=True):
        found, replies = Memberships.decode(value, SETTINGS), decoded(frame, SETTINGS)
        (source,) = [reply.source for reply in replies if reply.source is not None]
        rows = [i for i, place in enumerate(frame.places) if place.counted]
        j = judge(
            [r.matches for r in replies],
            source.ids,
            numbers(frame.offset, len(source)),
            1,
            ReplyNames([r.names for r in replies]),
        )
        assert (found.offset, found.predecessor) == (frame.offset, frame.predecessor)
        assert found.judgement.ids == [source.ids[i] for i in rows]
        assert found.sources == [source.sources[i] for i in rows]
        for name in ("seqs", "kinds", "groups", "similarities"):
            assert getattr(found.judgement, name).tolist() == getattr(j, name)[rows].tolist(), name
        for place, i in enumerate(rows):
            kinds.add(Kind(j.kinds[i]))
            dropped = j.kinds[i] in (Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE)
            assert found.judgement.oldest(place) == (j.oldest(i) if dropped else b"")
            nothing = j.kinds[i] == Kind.REJECTED and not j.reused[i]
            assert found.times[place] == (NO_TIME if nothing else frame.places[i].time)
    assert kinds == {kind for kind in Kind if kind <= Kind.REJECTED}


def test_what_is_damaged_or_newer_is_refused(tmp_path: Path) -> None:
    said, _ = memberships(SETTINGS, tmp_path, 50)
    with pytest.raises(FormatError, match="other settings"):
        Memberships.decode(said[0], KafkaSettings(verify="signature", groups=True))
    sections: list[Section] = [b"\0" * 24] + [b""] * 17

    def packed(wrong: dict[int, Section]) -> bytes:
        found = [wrong.get(number, section) for number, section in enumerate(sections)]
        return pack(b"M", VERSION, SETTINGS.fingerprint, found)

    assert not len(Memberships.decode(packed({}), SETTINGS).times)
    one: dict[int, Section] = {15: np.zeros(1, np.uint16), 16: np.zeros((1, 4), np.int64), 17: np.zeros(1, np.int32)}
    for wrong in ({9: np.zeros(3, np.int64)}, {12: np.zeros(1, np.uint32)}, one):
        with pytest.raises(FormatError, match="do not fit together"):
            Memberships.decode(packed(wrong), SETTINGS)
    with pytest.raises(FormatError, match="it has 17 parts; delete and rebuild"):
        Memberships.decode(pack(b"M", VERSION, SETTINGS.fingerprint, sections[:-1]), SETTINGS)


def test_removed_versions_come_back() -> None:
    n, none = 3, np.full(4, -1)
    j = Judgement(
        ids=[b'"a"', b'"b"', b'"c"', b'"d"'], seqs=numbers(5, 4), kinds=np.array([0, 5, 1, 0], np.uint8),
        first_kinds=np.full(4, 255, np.uint8), reused=np.zeros(4, np.bool_),
        of=np.array([[-1, -1], [-1, -1], [0, 7], [-1, -1]]),
        of_seqs=np.array([-1, -1, 70, -1]), similarities=np.array([0, 0, 0.9, 0]), groups=np.array([1, 2, 70, 3]),
        starts=np.zeros(5, np.int64), matched_shards=none[:0], matched_rows=none[:0], matched_seqs=none[:0],
        matched_similarities=np.empty(0), truncated=none, not_compared=none, replaces=np.array([-1, 11, 12, -1]),
        was_representative=np.array([False, True, False, False]), left=np.array([-1, 2, 9, -1]),
        representatives=np.array([[-1, -1], [0, 8], [-1, -1], [-1, -1]]), representative_seqs=np.array([-1, 80, -1,
        -1]), names=Named(),
    )  # fmt: skip
    places = np.arange(4)
    source = Source(places.astype(np.int32), places, list(j.ids), np.full(4, 99), 1, {}, {}, [b"1"] * 4)
    rows = np.arange(n)
    found = Memberships.decode(Memberships.encoded(5, 4, 0, j, source, None, rows, SETTINGS), SETTINGS).judgement
    for name in ("kinds", "of_seqs", "replaces", "was_representative", "left", "representative_seqs"):
        assert getattr(found, name).tolist() == getattr(j, name)[:n].tolist(), name
    assert [found.oldest(i) for i in range(n)] == [b"", b"", b'"row 7"']
    assert [found.representative(i) for i in range(n)] == [b"", b'"row 8"', b""]
    timed = KafkaSettings(groups=True, window="1h")
    log = np.array([7, 8, 9, 9])
    said = Memberships.encoded(5, 4, 86, j, replace(source, sources=[]), log, np.array([0, 3]), timed)
    decoded = Memberships.decode(said, timed)
    assert (decoded.log.tolist(), decoded.shift) == ([7, 9], 86)

    several = KafkaSettings(groups=True, on_conflict="update", shards=2)
    later = np.array([[2, 9, 1, 6, 60], [2, 70, 0, 7, 61]])
    said = Memberships.encoded(
        5, 4, 0, replace(j, later=later), replace(source, sources=[]), None, np.array([0, 2]), several
    )
    representatives = Memberships.decode(said, several).judgement
    assert representatives.later[:, [0, 1, 4]].tolist() == [[1, 9, 60], [1, 70, 61]]
    assert [representatives.later_representative(1, group) for group in (9, 70)] == [(b'"row 6"', 60), (b'"row 7"', 61)]
    sections: list[Section] = list(unpack(b"M", VERSION, several.fingerprint, said))
    sections[18] = np.array([2, 2], np.uint16)
    with pytest.raises(FormatError, match="do not fit together"):
        Memberships.decode(pack(b"M", VERSION, several.fingerprint, sections), several)


class Named:
    def id_of(self, shard: int, row: int) -> bytes:
        return b'"row %d"' % row

    first_of = id_of


@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_repeats_and_takeovers_change_nothing(tmp_path: Path, rules: tuple[Rule, ...], seed: int) -> None:
    """Each member begins with what the changelog has left, and with half a round that the one before did not commit."""
    chance = random.Random(seed)
    said, _ = memberships(SETTINGS, tmp_path, 1500)
    state, last, at, number = State(), -1, 0, 0
    events: list[bytes] = []
    alerts: list[bytes] = []
    while at < len(said):
        number += 1
        store = state.opened(tmp_path / f"member-{number}")
        folding = Folding(store, SETTINGS, rules, last)
        for _ in range(chance.randrange(1, 6)):
            begin = max(0, at - chance.randrange(3))  # some were said before
            end = min(len(said), at + chance.randrange(1, 9))
            for place, value in enumerate(said[begin:end], begin):
                outcome = folding.add(Memberships.decode(value, SETTINGS))
                assert outcome == ("repeat" if place < at else None)
            if chance.random() < 0.2:
                break  # it dies
            found = folding.take()
            assert found.documents == sum(len(Memberships.decode(v, SETTINGS).times) for v in said[at:end])
            store.write({k: v for k, v in found.changes.items() if v is not None})
            state.add(found.changes)
            events += [value for _, value, *_ in found.events if value is not None]
            alerts += [value for _, value, *_ in found.alerts if value is not None]
            assert all(json.loads(value or b"")["group"] == int(key or b"") for key, value, *_ in found.events)
            assert all(json.loads(value or b"")["key"].encode() == key for key, value, *_ in found.alerts)
            last, at = folding.last, end
        store.close()
    wanted, alerted = embedded_lines(SETTINGS, tmp_path / "embedded", rules, said)
    assert events == wanted and len(events) > 300
    assert alerts == alerted
    assert {json.loads(line)["rule"] for line in alerts} == {rule.name for rule in rules}
    # The events are the table.
    rows: dict[int, dict[str, object]] = {}
    for line in events:
        row = json.loads(line)
        rows[row["group"]] = {name: row[name] for name in row if name not in ("event", "seq", "id")}
    state.opened(tmp_path / "table").close()
    assert {row.group.group: json.loads(row.group.json) for row in table(tmp_path / "table")} == rows


def test_a_frame_that_is_missing_and_one_of_another_chain(tmp_path: Path) -> None:
    said, frames = memberships(SETTINGS, tmp_path, 300)
    store = State().opened(tmp_path / "store")
    folding = Folding(store, SETTINGS, (), -1)
    assert folding.add(Memberships.decode(said[0], SETTINGS)) is None
    assert folding.add(Memberships.decode(said[2], SETTINGS)) == "gap"
    assert folding.last == frames[0].offset
    with pytest.raises(StoreError, match="forked"):
        folding.add(replace(Memberships.decode(said[2], SETTINGS), predecessor=frames[0].predecessor))
    store.close()


def test_what_has_ended_leaves_the_store_by_and_by(tmp_path: Path) -> None:
    """And each of its keys is told to the changelog, however many there are."""
    settings = SETTINGS.model_copy(update={"window": "1h"})
    said, frames = memberships(SETTINGS, tmp_path, 3000)
    state = State()
    store = state.opened(tmp_path / "store")
    folding = Folding(store, settings, (), -1)
    ended, cleared = 0, []

    def take() -> None:
        nonlocal ended
        found = folding.take()
        state.add(found.changes)
        gone = [key for key, value in found.changes.items() if value is None]
        cleared.append(len(gone))
        store.write({k: v for k, v in found.changes.items() if v is not None}, deleted=gone)
        ended += found.kinds["ended"]
        tombstones = [key for key, value, *_ in found.events if value is None]
        assert len(tombstones) == found.kinds["ended"]

    for value in said:
        found = Memberships.decode(value, SETTINGS)
        folding.add(replace(found, log=np.full(len(found.times), 1_600_000_000_000)))
    take()
    groups = len(list(store.scan(GROUP)))
    assert groups > 100 and len(list(store.scan(MEMBERS))) == groups
    # Two windows later all of them end, and their keys go in the rounds that follow.
    last, offset = frames[-1].offset, frames[-1].offset
    template = max((Memberships.decode(value, SETTINGS) for value in said), key=lambda found: len(found.times))
    n = len(template.times)
    while any(key.startswith((GROUP, MEMBERS)) for key in state.values):
        offset, last = offset + 1, offset
        judgement = replace(
            template.judgement, seqs=numbers(offset, n), kinds=np.full(n, Kind.REJECTED, np.uint8),
            groups=np.full(n, -1),
        )  # fmt: skip
        later = np.full(n, 1_600_000_000_000 + 3 * 3_600_000)
        folding.add(Memberships(offset, last, judgement, template.times, later, template.sources))
        take()
        assert offset < 10_000
    assert ended == groups
    assert not list(store.scan(GROUP)) and not list(store.scan(MEMBERS))
    assert groups < max(cleared) <= MOST_CLEARED + CLEARED_OF_ONE * n
    store.close()

"""Groups whose members are replaced and deleted: as the model has it, whatever batches and restarts there are."""

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support import commands
from support.contents import contents
from support.copies import FIELDS, OTHER, SECOND, START, SURE, TEXT, copies
from support.jobs import bytes_of, read, run, write, written
from support.kills import broken_off
from support.long_form import LONG, rotating, seeds
from support.models.changes import model_of
from support.models.spreading import Spreading, reached

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.alerts.rules import read_rules
from stream_lsh.cli import main
from stream_lsh.documents.builder import columns
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded import group_cache
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.group_store import Member, members, rows
from stream_lsh.embedded.group_table import is_representative, reading_groups, table, whole
from stream_lsh.embedded.groups import opened
from stream_lsh.embedded.information import information, reading
from stream_lsh.embedded.rehearsal import rehearse
from stream_lsh.errors import UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.store.rocksdb import MEMBERS
from stream_lsh.judging.groups import Group
from stream_lsh.judging.verdicts import judge

Record = tuple[Document, str | None]
"""A document, and its source."""


def modelled(records: Sequence[Record], settings: Settings) -> tuple[list[dict[str, Any]], Spreading]:
    """The events, and the groups in the end."""
    model, verdicts, log = model_of(settings), [], []
    for seq, (d, _) in enumerate(records):
        verdicts.append(model.delete(seq, d.id, d.time) if d.deleted else model.judge(seq, d.id, d.text or "", d.time))
        log.append(model.log)
    ended = reached(log, range(len(log)), settings.window_ms) if settings.window else [0] * len(log)
    groups = Spreading()
    steps = zip(records, verdicts, ended, strict=True)
    events = [
        event for seq, ((d, source), verdict, end) in enumerate(steps)
        for event in groups.step(seq, d.id, verdict, d.time, source, end)
    ]  # fmt: skip
    return events, groups


def in_pieces(
    records: Sequence[Record], settings: Settings, folder: Path, chance: random.Random, erasing: bool = False
) -> list[dict[str, Any]]:
    """The events, through batches, commits and restarts of any size; what comes after the last commit of a run never
    was. erasing: removed versions are erased at any time."""
    events: list[dict[str, Any]] = []
    done = 0
    while done < len(records):
        index = Index(settings, folder, durable=False)
        groups = opened(index, True, "outlet")
        assert groups is not None

        def fed(batch: Sequence[Record], first: int, index: Index = index, groups: Any = groups) -> bytes:
            found = columns([document for document, _ in batch])
            sources = [b"" if source is None else json.dumps(source).encode() for _, source in batch]
            signed, seqs = index.sign(found), np.arange(first, first + len(batch))
            judgement = judge(index.match(signed, seqs), found.ids, seqs, 2, index)
            return b"".join(groups.add(judgement, found.times, signed.documents.log, sources).lines(found.ids, seqs))

        def commit(index: Index = index, groups: Any = groups) -> None:
            facts, values, ranges = groups.take()
            index.commit(facts, values, ranges)

        for _ in range(chance.choice((1, 2, 10, 50))):
            batch = records[done : done + chance.choice((1, 2, 7, 30, 200))]
            events += map(json.loads, fed(batch, done).splitlines())
            done += len(batch)
            if chance.random() < 0.6:
                commit()
                if erasing and chance.random() < 0.1:
                    index.erase(float("inf"))
        commit()
        if chance.random() < 0.3:
            fed([(Document(d.id, f"lost {i}", time=START), "x") for i, (d, _) in enumerate(records[:9])], done)
        index.close()
    return events


def check(
    folder: Path, records: Sequence[Record], settings: Settings, events: list[dict[str, Any]], erased: bool = False
) -> Spreading:
    """The events, the table and the members of the groups are those of the model; folded, the events are the table.
    erased: removed versions are to be."""
    if erased:
        erase(folder, everything=True)
    expected, groups = modelled(records, settings)
    for one, other in zip(events, expected, strict=True):
        assert one == other
    with reading_groups(folder) as (store, fact):
        found = {group.group: group for group in rows(store, fact.get("ended", 0))}
        for number, group in found.items():
            assert [listed(group, member) for member in members(store, group)] == [
                (seq, None if erased and removed_by is not None else id, time, source, removed_by, stands)
                for seq, id, time, source, removed_by, stands in groups.groups[number].members
            ]
        numbers = [int.from_bytes(key[1:9], "big") for kind in (b"g", b"n", b"s") for key, _ in store.scan(kind)]
        assert all(number >= fact.get("cleared", 0) for number in numbers)
    in_table = {number: json.loads(group.json) for number, group in found.items()}
    assert in_table == groups.table == folded(events)
    assert [row.group.group for row in table(folder)] == sorted(found, key=lambda n: (-found[n].live_members, n))
    return groups


def folded(events: list[dict[str, Any]]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for event in events:
        rows[event["group"]] = {key: event[key] for key in list(event)[3:]}
        if event["event"] == "ended":
            assert rows.pop(event["group"])["live_members"] == 0
    return rows


def listed(group: Group, m: Member) -> tuple[Any, ...]:
    """A member as the model has it."""
    time, source = None if m.time == NO_TIME else m.time, json.loads(m.source) if m.source else None
    return m.seq, json.loads(m.id), time, source, m.removed_by, is_representative(group, m)


steps = st.sampled_from((0, 0, 1, 5, 5, 20)) | st.sampled_from((100, 1000, 100_000, -20, -500))
texts = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5).map(" ".join) | st.just("")
actions = st.tuples(
    st.integers(0, 12), texts, st.tuples(steps, st.booleans()), st.sampled_from(("", "", "", "deleted")),
    st.sampled_from((None, "s0", "s1", "s2")),
)  # fmt: skip


@hypothesis_settings(max_examples=100 if LONG else 5)
@given(
    st.lists(actions, min_size=1, max_size=150), st.sampled_from((None, None, "1s", "10s", "20m")), st.integers(0)
)  # fmt: skip
def test_histories(tmp_path_factory: pytest.TempPathFactory, history: Any, window: str | None, seed: int) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("index")
    shards = chance.choice((1, 1, 1, 2, 3))
    settings = Settings(
        **{**SURE, "segment_documents": chance.choice((5, 40, 1000, 10**6))}, window=window,
        shards=shards, decision_lag=chance.choice((2, 10, 30)),
        keep=chance.choice(("first", "longest", "newest")),
    )  # fmt: skip
    # Records whose event times go on in steps of seconds; the first has one.
    out, now = [(Document("begin", "to begin with", time=START), "s0")], START
    for id, text, (step, timed), what, source in history:
        now = max(START - 10**9, now + step * SECOND)
        time = now if timed else None
        out.append((Document(str(id), None if what else text, time=time, deleted=bool(what)), source))
    records, erasing = out, settings.shards == 1 and chance.random() < 0.5
    check(folder, records, settings, in_pieces(records, settings, folder, chance, erasing), erased=erasing)


LONG_STORY = 3000 if LONG else 1100


def of_lines(lines: Sequence[dict[str, Any]]) -> list[Record]:
    return [
        (Document(d["id"], d.get("text"), time=d.get("at"), deleted=d.get("deleted", False)), d.get("outlet"))
        for d in lines
    ]


def story(seed: int, n: int) -> list[Record]:
    return of_lines(copies(seed, n))


SHAPES = [
    (2, "8h"), *(pytest.param(*shape, marks=pytest.mark.long) for shape in ((1, None), (1, "8h"), (2, None)))
]  # fmt: skip
"""Shards, and windows."""


@pytest.mark.parametrize(("shards", "window"), SHAPES)
@pytest.mark.parametrize("seed", seeds(1, 2, 3))
def test_a_long_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, shards: int, window: str | None
) -> None:
    """With hardly any memory for groups."""
    for name in ("MOST_ROWS", "MOST_BLOCKS", "MOST_SOURCES", "BLOCK"):
        monkeypatch.setattr(group_cache, name, 2)
    settings, records = Settings(**SURE, window=window, shards=shards, decision_lag=60), story(seed, LONG_STORY)
    erasing = seed == 0 and shards == 1
    events = in_pieces(records, settings, tmp_path, random.Random(seed), erasing)
    groups = check(tmp_path, records, settings, events, erased=erasing)
    kinds = Counter(event["event"] for event in events)
    happen = ["created", "joined", "updated", "left", "representative_changed", *(["ended"] if window or LONG else [])]
    assert min(kinds[kind] for kind in happen) > 2, kinds
    assert max(event["sources"] for event in events) > 16
    assert groups.table


RULES = """
[[rule]]
name = "grows"
kind = "growth"
members = 2
within = "1d"

[[rule]]
name = "copies"
kind = "share"
above = 0.5
documents = 5
within = "1d"
"""
OUTPUTS = ("groups", "alerts", "unique", "verdicts")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules").write_text(RULES)
    return tmp_path / "rules"


@pytest.mark.parametrize(
    ("shards", "window", "keep"),
    [
        (1, "8h", "first"),
        *rotating(
            [(1, None, "longest"), (2, None, "first"), (1, "8h", "newest"), (2, "8h", "first"), (2, "8h", "longest")], 1
        ),
    ],
)
def test_a_run_that_is_broken_off_continues_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: Path, shards: int, window: str | None, keep: str
) -> None:
    shape = {"shards": shards, "decision_lag": 100, "keep": keep}
    lines, settings = copies(7, 500), (SURE | FIELDS | shape | ({"window": window} if window else {}))
    inputs, chosen = written(tmp_path, lines, 12), Settings(**settings)
    run(tmp_path / "undisturbed", inputs, chosen, OUTPUTS, rules)
    broken = broken_off(monkeypatch, lambda: run(tmp_path / "broken", inputs, chosen, OUTPUTS, rules), every=4)
    assert broken > 2
    # The outputs of a broken run are those of another, to the byte, and its groups those of the model.
    halted, undisturbed = tmp_path / "broken", tmp_path / "undisturbed"
    assert bytes_of(halted, OUTPUTS) == bytes_of(undisturbed, OUTPUTS)
    dropped = set() if settings["keep"] == "newest" else {"copies"}  # then none arrives as a duplicate
    assert {alert["rule"] for alert in read(halted / "alerts")} == {"grows"} | dropped
    windows = [information(path / "index").get("window") for path in (halted, undisturbed)]
    assert windows[0] == windows[1]
    check(halted / "index", of_lines(lines), Settings(**settings), read(halted / "groups"))


def job(folder: Path, feeding: Sequence[tuple[str, str | None]], rules: Path | None = None, **more: Any) -> None:
    """A run over ids and texts, one a second; without a text the id is deleted."""
    lines = [
        {"id": id, "at": START + i * SECOND, "outlet": id} | ({"deleted": True} if text is None else {"text": text})
        for i, (id, text) in enumerate(feeding)
    ]
    outputs = ["groups", *(["alerts"] if rules is not None else [])]
    run(folder, [write(folder / "feed", *lines)], Settings(**SURE | FIELDS | more), outputs, rules)


def events_in(path: Path) -> list[tuple[Any, ...]]:
    """The events in short: what, with which document, representative, version, size, living."""
    return [
        (e["event"], e["seq"], e["representative"]["seq"], e["version"], e["total_members"], e["live_members"])
        for e in read(path)
    ]  # fmt: skip


def test_a_document_that_leaves_one_group_for_another(tmp_path: Path) -> None:
    feeding = [("a", TEXT), ("b", TEXT), ("x", OTHER), ("y", OTHER), ("b", OTHER), ("y", OTHER + " now"), ("x", None)]
    feeding += [("b", None), ("y", None), ("a", TEXT + " or more"), ("a", None), ("nobody", None)]
    job(tmp_path, feeding, threshold=0.8)
    assert events_in(tmp_path / "groups") == [
        ("created", 1, 0, 1, 2, 2), ("created", 3, 2, 1, 2, 2),
        ("left", 4, 0, 2, 2, 1), ("joined", 4, 2, 2, 3, 3),
        ("updated", 5, 2, 3, 3, 3), ("representative_changed", 6, 4, 4, 3, 2),
        ("representative_changed", 7, 5, 5, 3, 1), ("ended", 8, 5, 6, 3, 0),
        ("updated", 9, 9, 3, 2, 1), ("ended", 10, 9, 4, 2, 0),
    ]  # fmt: skip
    assert table(tmp_path / "index") == []
    for number in (0, 2):
        with pytest.raises(UsageError, match="there is no group"), whole(tmp_path / "index", number):
            pass


def test_members_include_removed_versions(tmp_path: Path) -> None:
    now, here = TEXT + " now", TEXT + " here"
    job(tmp_path, [("a", TEXT), ("a", now), ("b", TEXT), ("c", TEXT), ("a", here), ("b", TEXT), ("a", None)])
    shown = CliRunner().invoke(main, ["groups", "--index", str(tmp_path / "index"), "0"])
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(m["id"], m["seq"], m["kind"], m.get("removed_by"), m.get("representative")) for m in found] == [
        ("a", 1, "unique", 4, None), ("b", 2, "near_duplicate", None, True), ("c", 3, "near_duplicate", None, None),
        ("a", 4, "unique", 6, None),
    ]  # fmt: skip
    assert [m.get("removed_at") for m in found] == [START + 4 * SECOND, None, None, START + 6 * SECOND]
    row = json.loads(table(tmp_path / "index")[0].group.json)
    # How the first member came counts, and how it was when it got company.
    assert (row["first"], row["last"], row["total_members"], row["live_members"]) == (START, START + 4 * SECOND, 3, 2)
    growing = ["groups", "--index", str(tmp_path / "index"), "--order", "growing", "--since", "1h"]
    assert json.loads(CliRunner().invoke(main, growing).stdout)["joined_since"] == 2


def test_what_is_deleted_by_hand_leaves_its_group(tmp_path: Path) -> None:
    job(tmp_path, [(id, TEXT) for id in "abc"])
    command = ["delete", "--index", str(tmp_path / "index"), "--quiet", "a"]
    commands.run(*command, "--groups", str(tmp_path / "groups"))
    assert events_in(tmp_path / "groups")[-1] == ("representative_changed", 3, 1, 3, 3, 2)
    command[-1] = "c"
    commands.run(*command)  # with groups, whoever is told
    assert [row.group.live_members for row in table(tmp_path / "index")] == [1]
    with Deduplicator(index=tmp_path / "index") as deduplicator:
        list(deduplicator.process([Document("b", deleted=True)]))
    assert table(tmp_path / "index") == []
    assert "--groups - is where the verdicts are written" in commands.run(*command, "--groups", "-", code=2).output
    plain = [
        "dedup",
        str(tmp_path / "feed"),
        "--index",
        str(tmp_path / "plain"),
        "--quiet",
        "--no-groups",
        "--on-conflict",
        "update",
    ]
    commands.run(*plain)
    command[2] = str(tmp_path / "plain")
    assert "keeps no groups" in commands.run(*command, "--groups", str(tmp_path / "none"), code=3).output


def test_alerts_count_members_that_join(tmp_path: Path, rules: Path) -> None:
    """An update that stays in its group is no arrival, and nobody who goes takes one back."""
    job(tmp_path, [("a", TEXT), ("b", TEXT), ("b", TEXT + " now"), ("a", TEXT + " here"), ("b", None), ("c", TEXT)],
        rules)  # fmt: skip
    (alert,) = read(tmp_path / "alerts")
    assert (alert["id"], alert["members"], alert["group"]["total_members"], alert["group"]["live_members"]) == (
        "c",
        2,
        3,
        2,
    )
    (rehearsed,) = rehearse(tmp_path / "index", read_rules(rules)).alerts
    assert json.loads(rehearsed.line)["id"] == "c"


@pytest.mark.parametrize("window", [None, pytest.param("8h", marks=pytest.mark.long)])
def test_ids_of_removed_versions_are_nowhere(tmp_path: Path, window: str | None) -> None:
    """In no value, as it is or was; everything else is as before."""
    settings, records = Settings(**SURE, window=window), story(3, 500)
    records = [(Document(f"id <{d.id}>", d.text, time=d.time, deleted=d.deleted), s) for d, s in records]
    events = in_pieces(records, settings, tmp_path, random.Random(3))
    _, spreading = modelled(records, settings)
    versions = [version for group in spreading.groups.values() for version in group.versions]
    there = {version.id for version in versions if version.removed_by is None}
    removed = {version.id for version in versions} - there

    def held() -> set[str]:
        return {json.loads(id) for data in contents(tmp_path) for id in re.findall(rb'"id <[^"]*>"', data)}

    assert len(removed & held()) > 20
    check(tmp_path, records, settings, events, erased=True)
    assert not removed & held()
    assert information(tmp_path, check=True)["health"]["problems"] == []  # type: ignore[index]


def test_the_check_finds_an_id_in_a_group(tmp_path: Path) -> None:
    records = [(Document(id, TEXT, time=START), "x") for id in ("kept", "first", "second")]
    in_pieces([*records, (Document("first", deleted=True), None)], Settings(**SURE), tmp_path, random.Random(0))
    with reading(tmp_path) as store:
        ((key, value),) = store.scan(MEMBERS)
    erase(tmp_path, everything=True)
    assert information(tmp_path, check=True)["health"]["problems"] == []  # type: ignore[index]
    index = Index(Settings(), tmp_path, durable=False)
    index.commit({}, {key: value})
    index.close()
    (problem,) = information(tmp_path, check=True)["health"]["problems"]  # type: ignore[index]
    assert "ids that were erased of shard 0 can still be read in what" in problem


def test_a_removed_member_without_a_representative_is_listed_while_it_has_an_id(tmp_path: Path) -> None:
    """The member who lives has left the window, that he came into before the version that goes did."""
    hour = 3_600_000
    records: list[Any] = [(Document(id, TEXT, time=START), "x") for id in ("kept", "copy")]
    for part in (1, 2):
        time = START + part * 40 * hour // 60
        records += [(Document(f"{part} {i}", f"{part} {i} {OTHER}", time=time), None) for i in range(70)]
        records.append((Document("kept", TEXT + " now" if part == 1 else "", time=time, deleted=part == 2), None))
    in_pieces(records, Settings(**SURE, window="1h"), tmp_path, random.Random(0))
    for named in ("kept", None):
        with whole(tmp_path, 0) as (row, members):
            assert json.loads(row.json)["representative"] == {"id": None, "seq": 72}
            assert json.loads(next(members).id) == named
        erase(tmp_path, everything=True)


@pytest.mark.long
def test_reads_while_ids_are_erased(tmp_path: Path) -> None:
    """He sees a whole index, whatever moment it is; nothing is left in the end."""
    records, settings = story(4, 400), Settings(**SURE)
    events = in_pieces(records, settings, tmp_path, random.Random(4))
    done, seen = Event(), [(list[Any](), 0)]

    def look() -> None:
        while not done.wait(0.5):  # while he looks, rows in files wait
            problems: Any = information(tmp_path, check=True)["health"]
            seen.append((problems["problems"], sum(1 for _ in table(tmp_path))))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        while not looking.done() and (len(seen) < 3 or erase(tmp_path, everything=True).waiting):
            pass
        done.set()
        looking.result()
    groups = check(tmp_path, records, settings, events, erased=True)
    assert seen[1:] == [([], len(groups.table))] * (len(seen) - 1)

"""What a Deduplicator is asked: queries, single documents, groups; and documents that are deleted."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.copies import SURE, copies
from support.feeds import SECOND, START

from stream_lsh import Deduplicator, Document, Group, Match, Representative, Settings, StoreError, UsageError
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded import group_store
from stream_lsh.embedded.group_ranking import Ranking
from stream_lsh.embedded.group_table import is_representative, table, whole

TEXT = "the harbour museum opens its doors again on Saturday after a long winter of repairs to the roof"
OTHER = "the council has voted for the new bridge over the river and work on it begins early in the spring"


@pytest.fixture(scope="module")
def filled() -> Any:
    with Deduplicator(Settings(threshold=0.6)) as deduplicator:
        documents = [Document("a", TEXT), Document(2**70, OTHER), Document(0, TEXT + " tower", time=START)]
        assert [verdict.kind for verdict in deduplicator.process(documents)] == ["unique", "unique", "near_duplicate"]
        yield deduplicator


NO_TEXT = (5, None, b"text", ["a"], {"a": 1}, 1.5, Document("a", TEXT))
NONSENSE: list[tuple[dict[str, Any], Any, type[Exception], str]] = [
    *(({}, asked, TypeError, r"the text (to look for )?is ") for asked in NO_TEXT),
    *(({}, asked, UsageError, "no character") for asked in ("", " \n")),
    ({}, TEXT + "\ud800", UsageError, "lone surrogate"),
    ({"normalize": "punctuation"}, "!!!", UsageError, "nothing of the text is left"),
    ({"set_field": "tags"}, "text", TypeError, "."), ({"set_field": "tags"}, ["", " "], UsageError, "."),
    ({"measure": "weighted-jaccard"}, "text", TypeError, "."),
    ({"measure": "weighted-jaccard"}, {"a": -1.0}, UsageError, "."),
    ({"measure": "cosine", "dimensions": 2}, {1.0, 2.0}, TypeError, "."),
    ({"measure": "cosine", "dimensions": 2}, [1.0, 2.0, 3.0], UsageError, "."),
    ({"measure": "hamming", "dimensions": 16, "max_distance": 1}, [1, 0], TypeError, "."),
    ({"measure": "hamming", "dimensions": 16, "max_distance": 1}, "00", UsageError, "."),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "asked", "error", "message"), NONSENSE)
def test_query_of_nonsense_raises(settings: dict[str, Any], asked: Any, error: type[Exception], message: str) -> None:
    with Deduplicator(Settings(**settings)) as deduplicator:
        for ask in (deduplicator.query, lambda asked: deduplicator.query_batch([TEXT] * (not settings) + [asked])):
            with pytest.raises(error, match=message):
                ask(asked)


def test_query_batch_answers_as_query_does(filled: Deduplicator) -> None:
    texts = [OTHER, "nothing of the kind was ever said by anybody here", TEXT] * 400  # more than one batch
    answers = filled.query_batch(iter(texts))
    assert answers == [filled.query(text) for text in texts[:3]] * 400
    assert answers[0] == [Match(2**70, 1, 1.0)]
    assert filled.query_batch([]) == []
    assert len(filled) == 3
    for nonsense in (TEXT, 5, None):
        with pytest.raises(TypeError, match="not an iterable of texts"):
            filled.query_batch(nonsense)  # type: ignore[arg-type]


def test_in_finds_the_ids_that_were_taken(filled: Deduplicator) -> None:
    assert "a" in filled and 2**70 in filled and 0 in filled and np.int64(0) in filled and np.str_("a") in filled
    assert "0" not in filled and 2**70 + 1 not in filled and "b" not in filled and "x" * 5000 not in filled
    assert "\ud800" not in filled
    for nonsense in (None, 1.5, True, b"a", ("a",)):
        with pytest.raises(TypeError, match="the id is "):
            nonsense in filled  # type: ignore[operator]  # noqa: B015


def test_get_says_what_is_stored(filled: Deduplicator) -> None:
    kept, near = filled.get("a"), filled.get(np.int64(0))  # type: ignore[arg-type]
    assert kept is not None and near is not None
    assert (kept.id, kept.seq, kept.kind, kept.duplicate_of, kept.similarity, kept.group) == (
        "a",
        0,
        "unique",
        None,
        None,
        0,
    )
    assert (kept.text, kept.time, kept.kept) == (TEXT, None, True)
    assert (near.id, near.seq, near.kind, near.duplicate_of, near.group) == (0, 2, "near_duplicate", "a", 0)
    assert (near.text, near.time, near.kept) == (TEXT + " tower", START, False)
    assert filled.get("b") is None


def test_get_has_no_text_where_none_is_kept() -> None:
    with Deduplicator(Settings(verify="signature", compare_with="all")) as deduplicator:
        list(deduplicator.process([Document("a", TEXT)]))
        document = deduplicator.get("a")
    assert document is not None and (document.text, document.group, document.kept) == (None, None, True)


@pytest.mark.parametrize("shards", [1, 3])
def test_delete_says_what_was_there(shards: int) -> None:
    with Deduplicator(Settings(on_conflict="update", threshold=0.6, shards=shards)) as deduplicator:
        list(deduplicator.process([Document("a", TEXT), Document(0, TEXT + " tower"), Document("c", OTHER)]))
        gone = deduplicator.delete("a", time=START)
        assert (gone.kind, gone.replaces, gone.detail) == ("deleted", 0, None)
        if shards == 1:
            assert gone.new_representative == Representative(id=0, seq=1)
        assert "a" not in deduplicator and deduplicator.get("a") is None and len(deduplicator) == 2
        again = deduplicator.delete("a")
        assert (again.kind, again.replaces, again.new_representative) == ("deleted", None, None)
        assert again.detail == "there is no document with this id"
        (late,) = deduplicator.process([Document("a", TEXT, time=START - SECOND)])
        assert (
            late.kind == "outdated" and late.detail == "a later version of the document, or its deletion, came before"
        )
        assert deduplicator.delete("x" * 5000).kind == "rejected"
        with pytest.raises(TypeError, match="the id is null"):
            deduplicator.delete(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [Settings(), Settings(compare_with="all"), Settings(shards=2)])
def test_delete_is_refused_where_documents_stay(settings: Settings) -> None:
    with Deduplicator(settings) as deduplicator:
        list(deduplicator.process([Document("a", TEXT)]))
        with pytest.raises(UsageError, match="nothing can be deleted"):
            deduplicator.delete("a")
        assert "a" in deduplicator and deduplicator.query(TEXT)  # it can be used on


def test_groups_of_a_feed() -> None:
    with Deduplicator(Settings(threshold=0.6)) as deduplicator:
        documents = [
            Document("a", TEXT, time=START, source="herald"), Document("b", OTHER), Document("c", "more of the same?"),
            Document(0, TEXT + " tower", time=START + 5, source=7), Document("d", OTHER + " soon", source="herald"),
            Document("e", TEXT, source="herald"),
        ]  # fmt: skip
        list(deduplicator.process(documents))
        largest = Group(0, Representative("a", 0), 3, 3, START, START + 5, 2, ("herald", 7))
        other = Group(1, Representative("b", 1), 2, 2, None, None, 1, ("herald",))
        assert deduplicator.groups() == [largest, other]
        assert deduplicator.groups("newest") == [other, largest]
        assert deduplicator.groups(limit=1) == [largest]
        assert [deduplicator.group_of(id) for id in (0, "a", "b", "x")] == [largest, largest, other, None]
        assert deduplicator.members(largest) == deduplicator.members(0)
        assert [(m.id, m.kind, m.source, m.representative) for m in deduplicator.members(0)] == [
            ("a", "unique", "herald", True), (0, "near_duplicate", 7, False), ("e", "exact_duplicate", "herald", False),
        ]  # fmt: skip
        alone = deduplicator.group_of("c")
        assert alone == Group(2, Representative("c", 2), 1, 1, None, None, 0, ())
        assert [(member.id, member.representative) for member in deduplicator.members(alone)] == [("c", True)]
        for number in (2, 3, 99, -1):
            with pytest.raises(UsageError, match=f"there is no group {number}"):
                deduplicator.members(number)
        with pytest.raises(UsageError, match="'largest' and 'newest'"):
            deduplicator.groups("growing")  # type: ignore[arg-type]


def test_groups_are_those_of_a_scan_and_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With documents that are not committed, deletions, and groups that a window ends."""
    built, read = list[Ranking](), Ranking._read_rows
    monkeypatch.setattr(Ranking, "_read_rows", lambda ranking, view: [built.append(ranking), read(ranking, view)])
    chance = random.Random(7)
    with Deduplicator(Settings(**SURE, window="30m", time_field="at")) as deduplicator:
        kept = deduplicator._engine.groups
        assert kept is not None
        for record in copies(7, 300):
            if "deleted" in record:
                deduplicator.delete(record["id"])
            else:
                list(deduplicator.process([Document(record["id"], record["text"], time=record["at"])]))
            if chance.random() < 0.1:
                deduplicator.commit()
            if chance.random() < 0.2:
                rows = list(group_store.rows(kept.view, kept.ended))
                largest = [row.group for row in sorted(rows, key=lambda row: (-row.live_members, row.group))]
                for limit in (1, 3, None):
                    assert [group.group for group in deduplicator.groups(limit=limit)] == largest[:limit]
                    newest = [group.group for group in deduplicator.groups("newest", limit)]
                    assert newest == sorted(largest, reverse=True)[:limit]
        assert len(largest) > 3 and kept.ended > 0 and len(built) == 1


@pytest.mark.parametrize(
    "given", [{"groups": False}, {"settings": Settings(compare_with="all")}], ids=["without", "all"]
)
def test_an_index_without_groups_says_so(given: dict[str, Any]) -> None:
    with Deduplicator(**given) as deduplicator:
        list(deduplicator.process([Document("a", TEXT), Document("b", TEXT)]))
        for ask in (deduplicator.groups, lambda: deduplicator.group_of("a"), lambda: deduplicator.members(0)):
            with pytest.raises(StoreError, match="keeps no groups"):
                ask()


def test_groups_before_a_commit_are_those_after_it(tmp_path: Path) -> None:
    """And those that the command line shows. Documents are updated and deleted, and some leave the window."""
    chance, now = random.Random(5), START
    settings = Settings(
        on_conflict="update", threshold=0.5, shingles="words:1", window="10m", time_field="at", memtable_documents=16,
        segment_documents=64,
    )  # fmt: skip
    texts = [[f"w{chance.randrange(300)}" for _ in range(12)] for _ in range(12)]

    def document(number: int) -> Document:
        words = list(chance.choice(texts[number // 16 :]))
        words[chance.randrange(12)] = "edited"
        id, source = chance.randrange(1 + number), f"outlet {chance.randrange(25)}"
        if number % 9 == 5:
            return Document(id, deleted=True)
        return Document(id, " ".join(words), time=now + number * 9 * SECOND, source=source)

    def seen() -> list[Any]:
        groups = deduplicator.groups()
        return [(group, deduplicator.members(group)) for group in groups]

    compared = 0
    with Deduplicator(settings, tmp_path, commit="manual") as deduplicator:
        for number in range(0, 160, 8):
            list(deduplicator.process([document(i) for i in range(number, number + 8)]))
            before = seen()
            deduplicator.commit()
            assert seen() == before
            compared += len(before)
        rows = [row.group for row in table(tmp_path)]
        assert [(group.group, group.live_members, group.total_members, group.sources) for group, _ in before] == [
            (row.group, row.live_members, row.total_members, row.sources) for row in rows
        ]
        for group, members in before:
            with whole(tmp_path, group.group) as (row, stored):
                for member, same in zip(members, stored, strict=True):
                    removed = None if same.removed_at == NO_TIME else same.removed_at
                    assert (member.seq, member.removed_by, member.removed_at) == (same.seq, same.removed_by, removed)
                    assert member.representative == is_representative(row, same)
    assert compared > 100


def test_groups_of_a_reader(tmp_path: Path) -> None:
    with Deduplicator(index=tmp_path) as deduplicator:
        list(deduplicator.process([Document("a", TEXT), Document("b", TEXT)]))
    with Deduplicator(index=tmp_path, read_only=True) as reader:
        assert [member.id for member in reader.members(reader.groups()[0])] == ["a", "b"]
        assert reader.get("b").duplicate_of == "a" and "b" in reader  # type: ignore[union-attr]
        with pytest.raises(UsageError, match="read-only"):
            reader.delete("a")


@pytest.mark.parametrize("value", [1.5, "0", True, np.float64(1), [0], b"0"], ids=repr)
def test_a_group_a_limit_and_a_batch_are_integers(filled: Deduplicator, value: Any) -> None:
    with pytest.raises(TypeError, match=r"^batch is .*, not an integer"):
        filled.process([], batch=value)
    with pytest.raises(TypeError, match=r"^group is .*, not an integer"):
        filled.members(value)
    with pytest.raises(TypeError, match=r"^limit is .*, not an integer"):
        filled.groups(limit=value)


def test_groups_that_are_not_there_and_limits_out_of_range(filled: Deduplicator) -> None:
    filled.commit()
    for number in (-1, 2**63, 2**70, -(2**70)):
        with pytest.raises(UsageError, match=f"there is no group {number}"):
            filled.members(number)
    with pytest.raises(TypeError, match="group is null"):
        filled.members(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="limit = -1: it is a number of groups"):
        filled.groups(limit=-1)
    assert filled.groups(limit=0) == [] and filled.groups(limit=np.int64(1)) == filled.groups(limit=2**70)  # type: ignore[arg-type]
    assert len(list(filled.process([Document("new", "x")], batch=np.int64(1)))) == 1  # type: ignore[arg-type]
    assert filled.members(np.int64(0)) == filled.members(0)  # type: ignore[arg-type]

"""The public interface in Python: verdicts, facts, commits, readers, threads; and the examples of its reference."""

import doctest
import inspect
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from support.models.dense import dense

import stream_lsh
from stream_lsh import Deduplicator, Document, Match, Settings, Verdict
from stream_lsh.api import questions
from stream_lsh.documents import document
from stream_lsh.embedded.information import information
from stream_lsh.errors import OutputError, StoreError, UsageError
from stream_lsh.index.store.rocksdb import Store

FOX = "the quick brown fox jumps over the lazy dog and runs into the dark wood behind the old mill by the river"
SMALL = {"memtable_documents": 16}  # a flush after nearly every batch


def test_a_verdict_says_all(tmp_path: Path) -> None:
    documents = [
        Document("a", FOX),
        Document("b", FOX + " today"),
        Document("b", FOX + " today"),
        Document("a", "else"),
    ]
    with Deduplicator(index=tmp_path / "state") as deduplicator:
        first, near, again, reused = deduplicator.process(documents)
        assert deduplicator.settings.compare_with == "kept"
    assert (first.kind, first.duplicate_of, first.group, first.first_kind) == ("unique", None, 0, None)
    assert (near.kind, near.duplicate_of, near.group, near.not_compared) == ("near_duplicate", "a", 0, 0)
    assert near.matches == (Match("a", 0, near.similarity or 0),)
    assert [(pair.older, pair.newer) for pair in near.pairs] == [("a", "b")]
    assert (again.kind, again.first_kind) == ("redelivered", "near_duplicate")
    assert (again.duplicate_of, again.similarity, again.group, again.matches) == ("a", near.similarity, 0, ())
    assert (reused.kind, reused.reason, reused.group) == ("rejected", "id_reused", None)


@pytest.mark.parametrize(
    "given", [{"threshold": 0.3, "measure": "weighted-jaccard"}, {"measure": "cosine", "dimensions": 8}]
)
def test_a_number_that_is_none_is_not_given(given: dict[str, Any], tmp_path: Path) -> None:
    for numbers in (["signature_size"], [], ["signature_size", "bands", "rows"], ["bands"], ["rows"]):
        with Deduplicator(Settings(**given, **dict.fromkeys(numbers)), index=tmp_path):
            pass


def test_facts_are_those_of_the_last_commit(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"position": 7, "names": ["é", None, True, 0.25], "more": {"": -(2**63)}}
    with Deduplicator(index=tmp_path) as deduplicator:
        assert deduplicator.facts == {}
        deduplicator.commit(facts)
        assert deduplicator.facts == facts
        deduplicator.facts["position"] = 8  # a copy
        assert deduplicator.facts == facts
        with Deduplicator(index=tmp_path, read_only=True) as reader:
            assert reader.facts == facts
        list(deduplicator.process([Document(1, FOX)]))
        deduplicator.commit()  # leaves them as they are
        assert deduplicator.facts == facts
    with Deduplicator(index=tmp_path) as deduplicator:
        assert deduplicator.facts == facts
        deduplicator.commit({})
    with Deduplicator(index=tmp_path) as deduplicator:
        assert deduplicator.facts == {}


@pytest.mark.parametrize(
    "facts",
    [[1], "text", {"time": datetime(2026, 1, 1, tzinfo=UTC)}, {"number": float("nan")}, {"number": 2**64},
     {"bytes": b"x"}, {"text": "\ud800"}, {1: 2}],
    ids=repr,
)  # fmt: skip
def test_facts_that_are_no_json_object_are_refused(tmp_path: Path, facts: Any) -> None:
    with Deduplicator(index=tmp_path, commit="manual") as deduplicator:
        list(deduplicator.process([Document(1, FOX)]))
        with pytest.raises(UsageError, match="facts: "):
            deduplicator.commit(facts)
        assert deduplicator.facts == {}
    with Deduplicator(index=tmp_path, read_only=True) as reader:
        assert len(reader) == 0  # nothing was committed


def test_facts_have_64_kilobytes(tmp_path: Path) -> None:
    just = {"text": "x" * (65536 - len('{"text":""}'))}
    with Deduplicator(index=tmp_path) as deduplicator:
        deduplicator.commit(just)
        with pytest.raises(UsageError, match="65,537 bytes as JSON, at most 65,536"):
            deduplicator.commit({"text": just["text"] + "x"})
        assert deduplicator.facts == just


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("commit", ["auto", "manual"])
def test_facts_and_documents_are_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: Literal["auto", "manual"], place: str
) -> None:
    """A commit that is broken off, before or behind the one write that makes it durable."""
    deduplicator = Deduplicator(index=tmp_path, commit=commit)
    list(deduplicator.process(dense(10)[:5]))
    deduplicator.commit({"position": 5})
    list(deduplicator.process(dense(10)[5:]))
    write = Store.write

    def broken(self: Store, *values: Any, **more: Any) -> None:
        if place == "after":
            write(self, *values, **more)
        raise OutputError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(OutputError, match="full"):
        patch.setattr(Store, "write", broken)
        deduplicator.commit({"position": 10})
    for use in (lambda: deduplicator.query(FOX), lambda: list(deduplicator.process(dense(5))), deduplicator.commit):
        with pytest.raises(StoreError, match="was broken off: close this Deduplicator and make a new one"):
            use()
    deduplicator.close()
    with Deduplicator(index=tmp_path) as again:
        count = 5 if place == "before" else 10
        assert (len(again), again.facts) == (count, {"position": count})


def test_uncommitted_documents_are_lost(tmp_path: Path) -> None:
    """Also where its rows were flushed to files already, and merged."""
    documents = dense(900)
    with Deduplicator(Settings(**SMALL), index=tmp_path / "whole") as deduplicator:
        expected = list(deduplicator.process(documents))
    state = tmp_path / "state"
    for committed, reached in ((0, 400), (400, 401), (401, 900), (650, 900)):
        with Deduplicator(Settings(**SMALL), index=state, commit="manual") as deduplicator:
            start = deduplicator.facts.get("position", 0)
            assert len(deduplicator) == start <= committed
            assert list(deduplicator.process(documents[start:committed], batch=37)) == expected[start:committed]
            deduplicator.commit({"position": committed})
            assert list(deduplicator.process(documents[committed:reached], batch=50)) == expected[committed:reached]
        facts = information(state, check=True)
        assert facts["health"] == {"interrupted": False, "checked": "every byte", "problems": []}
        assert facts["documents"] == {"stored": committed, "seen": committed, "shards": [committed]}


def test_automatic_commits_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Deduplicator(index=tmp_path) as deduplicator:
        list(deduplicator.process([Document(1, FOX)]))
        raise ZeroDivisionError
    with Deduplicator(index=tmp_path) as deduplicator:
        (again,) = deduplicator.process([Document(1, FOX)])
    assert again.kind == "redelivered"


def test_a_commit_by_hand_does_not_run_ahead_of_the_verdicts(tmp_path: Path) -> None:
    """A crash right behind it would lose the verdicts of the batch that nobody has seen."""
    with Deduplicator(index=tmp_path, commit="manual") as deduplicator:
        verdicts = deduplicator.process(dense(10))
        assert isinstance(verdicts, Iterator)
        next(verdicts)
        with pytest.raises(UsageError, match="9 verdicts have not been taken"):
            deduplicator.commit({"position": 1})
        for _ in verdicts:
            pass
        deduplicator.commit({"position": 10})
        for number, _ in enumerate(deduplicator.process(iter(dense(15)[10:])), 11):
            deduplicator.commit({"position": number})  # one by one
        broken_off = deduplicator.process(dense(30)[15:])
        next(broken_off)
        broken_off.close()  # type: ignore[attr-defined]
        deduplicator.commit()
    assert deduplicator.facts == {"position": 15}


def test_after_close_nothing_works() -> None:
    deduplicator = Deduplicator()
    deduplicator.close()
    deduplicator.close()
    for use in (
        lambda: deduplicator.query(FOX), lambda: deduplicator.process([]), lambda: deduplicator.process(dense(5)),
        lambda: deduplicator.process_batch([], []), deduplicator.commit, lambda: len(deduplicator),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="closed"):
            use()


def test_a_reader_stores_nothing(tmp_path: Path) -> None:
    with Deduplicator(index=tmp_path / "state") as deduplicator:
        list(deduplicator.process([Document("a", FOX)]))
        deduplicator.commit()
        with Deduplicator(index=tmp_path / "state", read_only=True) as reader:
            assert [match.id for match in reader.query(FOX)] == ["a"]
            list(deduplicator.process([Document("b", "something else that is kept as well, for all to be found")]))
            deduplicator.commit()
            assert len(reader) == 1  # as it was when it was opened
            with pytest.raises(UsageError, match="read-only"):
                next(reader.process([Document("c", FOX)]))
            with pytest.raises(UsageError, match="read-only"):
                reader.commit()
    with Deduplicator(index=tmp_path / "state", read_only=True) as reader:
        assert len(reader) == 2


@pytest.mark.parametrize("compare_with", [pytest.param("kept", marks=pytest.mark.long), "all"])
def test_eight_threads_give_the_answers_of_one(compare_with: Literal["kept", "all"]) -> None:
    """Every verdict is the one that the order of the numbers gives; every query sees the index between two batches."""
    before = sys.getswitchinterval()
    documents, threads, batch = dense(160), 8, 5
    texts = [documents[place].text or "" for place in range(threads)]
    settings = Settings(**SMALL, compare_with=compare_with)
    shares = [documents[number::threads] for number in range(threads)]
    verdicts: list[Verdict] = []
    answers: list[tuple[int, int, int, list[Match]]] = []
    start = threading.Barrier(threads)

    def hammer(number: int, deduplicator: Deduplicator) -> None:
        start.wait()
        found = deduplicator.process(shares[number], batch=batch)
        for place in range(len(shares[number])):
            verdicts.append(next(found))
            if place % batch == 0:
                least = len(deduplicator)
                answer = deduplicator.query(texts[number])
                answers.append((number, least, len(deduplicator), answer))

    sys.setswitchinterval(1e-5)
    try:
        with Deduplicator(settings) as deduplicator, ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(hammer, number, deduplicator) for number in range(threads)]:
                done.result()
    finally:
        sys.setswitchinterval(before)
    verdicts.sort(key=lambda verdict: verdict.seq)
    assert [verdict.seq for verdict in verdicts] == list(range(160))
    by_id = {document.id: document for document in documents}
    known: list[list[list[Match]]] = []  # the answers after so many documents
    with Deduplicator(settings) as alone:
        known.append([alone.query(text) for text in texts])
        for verdict in verdicts:
            assert list(alone.process([by_id[verdict.id or 0]])) == [verdict]
            known.append([alone.query(text) for text in texts])
    assert len(answers) == 160 // batch
    assert compare_with == "kept" or len({tuple(answer) for *_, answer in answers}) > threads  # they do change
    for number, least, most, answer in answers:
        assert any(known[count][number] == answer for count in range(least, most + 1))


ROOT = Path(__file__).parents[2]


def test_reference_has_all_that_is_exported() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    for name in set(stream_lsh.__all__) - {"Kind", "Signer"}:  # the one is in Verdict, the other for batches of bytes
        assert f"## {name}\n" in page or f"| `{name}` |" in page, name
    for name, value in inspect.getmembers(Deduplicator):
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert f"### Deduplicator: {name}\n" in page, name


@pytest.mark.parametrize("module", [inspect.getmodule(Deduplicator), questions, document], ids=lambda m: m.__name__)
def test_examples_of_docstrings_run(module: object) -> None:
    names = {name: getattr(stream_lsh, name) for name in ("Deduplicator", "Document", "Settings")}
    tests = [test for test in doctest.DocTestFinder().find(module, extraglobs=names) if test.examples]
    assert tests
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_completion_shows_the_public_names() -> None:
    assert dir(stream_lsh) == sorted([*stream_lsh.__all__, "__version__"])

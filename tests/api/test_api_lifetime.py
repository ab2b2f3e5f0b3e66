"""A Deduplicator in a program: feeds that raise or stay idle, Ctrl-C, threads, forks, and what it leaves alone."""

import os
import random
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from support.models.dense import dense
from support.poison import POISON, WORDS, poison, poison_matching
from support.waiting import until

import stream_lsh
from stream_lsh import Deduplicator, Document, OutputError, Settings, StoreError, UsageError, Verdict, errors, prepare
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.fields import Fields
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.embedded.erasure import erasure
from stream_lsh.embedded.pipeline import Stage
from stream_lsh.hashing.structs import Struct
from stream_lsh.index.index import Index
from stream_lsh.index.kernel import compiling
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.judging.verdicts import Kind

FOX = "the quick brown fox jumps over the lazy dog and runs into the dark wood behind the old mill by the river"


def test_errors_are_exported() -> None:
    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert named <= set(stream_lsh.__all__)
    for name in stream_lsh.__all__:
        assert getattr(stream_lsh, name) is not None
    assert issubclass(StoreError, stream_lsh.StreamLshError)


def test_kinds_are_literals() -> None:
    hints = get_type_hints(Verdict)
    assert set(get_args(hints["kind"])) == {kind.label for kind in Kind}
    assert set(get_args(get_args(hints["first_kind"])[0])) == {kind.label for kind in Kind}


def test_verdicts_say_why() -> None:
    chance, words = random.Random(1), FOX.split()
    crowd = [" ".join(words[:16] + [f"w{chance.randrange(10**6)}" for _ in range(4)]) for _ in range(30)]
    settings = Settings(shingles="words:1", threshold=0.7, max_bucket_rows=4, max_candidates=4, max_document_bytes=500)
    with Deduplicator(settings) as deduplicator:
        good, empty, long, again, reused = deduplicator.process(
            [Document(1, FOX), Document(2, " "), Document(3, "x" * 501), Document(1, FOX), Document(1, "else")]
        )
        assert (good.detail, again.detail) == (None, None)
        assert (empty.reason, empty.detail) == ("empty", "the text has no character but white space")
        assert (long.reason, long.detail) == ("too_large", "the document has 501 bytes, more than 500")
        assert (reused.reason, reused.detail) == ("id_reused", "the id was there before with another text")
        *_, crowded = deduplicator.process([Document(f"crowd {i}", text) for i, text in enumerate(crowd)])
    assert crowded.not_compared and crowded.detail is not None
    assert crowded.detail.startswith(f"{crowded.not_compared} buckets or candidates were not compared")


def test_a_number_zero_has_pairs_as_any_other() -> None:
    with Deduplicator() as deduplicator:
        _, second, rejected = deduplicator.process([Document(7, FOX), Document(0, FOX), Document("\ud800", FOX)])
    assert [(pair.older, pair.newer) for pair in second.pairs] == [(7, 0)]
    assert (rejected.id, rejected.kind, rejected.pairs) == (None, "rejected", ())


def test_large_integers_come_back_everywhere(tmp_path: Path) -> None:
    first, second, other = 2**64 + 1, -(10**30), 2**63
    with Deduplicator(Settings(on_conflict="update"), tmp_path) as deduplicator:
        one, two, three = deduplicator.process([Document(id, FOX) for id in (first, second, other)])
        assert (one.id, two.id, two.duplicate_of, two.matches[0].id, two.pairs[0].older) == (
            first,
            second,
            first,
            first,
            first,
        )
        assert deduplicator.delete(first).new_representative == (second, 1)
        assert three.id == other and [m.id for m in deduplicator.members(0)] == [first, second, other]
    with Deduplicator(index=tmp_path) as deduplicator:
        assert deduplicator.get(second).id == second  # type: ignore[union-attr]
        assert [match.id for match in deduplicator.query(FOX)] == [second]
        (again,) = deduplicator.process([{"id": other, "text": FOX}])
        assert (again.kind, again.id) == ("redelivered", other)


def test_mappings_have_the_fields_of_the_settings() -> None:
    settings = Settings(id_field="meta.nr", text_field=("title", "body"), time_field="at", source_field="outlet")
    row: dict[str, Any] = {"meta": {"nr": 1}, "title": "The fox", "body": FOX, "at": "2026-01-01", "outlet": "herald"}
    with Deduplicator(settings) as deduplicator:
        kept, wrong, copy = deduplicator.process(
            [row, row | {"body": None}, Document(2, f"The fox {FOX}", source="echo")]
        )
        assert (kept.id, kept.kind, copy.kind) == (1, "unique", "exact_duplicate")
        assert wrong.detail == 'the field "body" is null, not a string'
        (group,) = deduplicator.groups()
        assert (group.first, group.first_sources) == (1_767_225_600_000, ("herald", "echo"))


@pytest.mark.parametrize("documents", ["text", b"x", 5, None, {"id": 1, "text": FOX}, Document(1, FOX)], ids=repr)
def test_process_of_no_iterable_raises_at_the_call(documents: Any) -> None:
    with Deduplicator() as deduplicator, pytest.raises(TypeError, match="not an iterable of documents"):
        deduplicator.process(documents)


def test_arguments_are_checked_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="its folder is given as `index`"):
        Deduplicator(str(tmp_path))  # type: ignore[arg-type]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"commit": "never"}, "'auto' and 'manual'"), ({"index": "s3://bucket/index"}, "folder of this machine"),
        ({"read_only": True}, "give its folder"),
    ]  # fmt: skip
    for given, said in wrong:
        with pytest.raises(UsageError, match=said):
            Deduplicator(**given)
    for name in ("", "a\0", "a\ud800"):
        with pytest.raises(UsageError, match="is no path of a folder"):
            Deduplicator(index=name)
    with pytest.raises(StoreError, match="there is no index"):
        Deduplicator(index=tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    with Deduplicator(index=tmp_path) as deduplicator:
        for batch in (0, -1, -(2**70)):
            with pytest.raises(UsageError, match="one or more at a time"):
                deduplicator.process([], batch=batch)
    with Deduplicator(index=tmp_path, read_only=True) as reader, pytest.raises(UsageError, match="read-only"):
        reader.process([])


@pytest.mark.parametrize("batch", [None, 3, 100])
def test_a_feed_that_raises_loses_no_document_before(batch: int | None) -> None:
    documents = dense(8)

    def feed() -> Iterator[Any]:
        yield from documents[:5]
        raise ZeroDivisionError

    for feeds, error in ((feed(), ZeroDivisionError), ([*documents[5:], Document(9, "x"), "text"], TypeError)):
        with Deduplicator() as deduplicator:
            seen = []
            with pytest.raises(error):
                for verdict in deduplicator.process(feeds, batch=batch):  # type: ignore[arg-type]
                    seen.append(verdict.kind)
            assert len(seen) == len(deduplicator) + seen.count("rejected") >= 4
            assert next(deduplicator.process([Document("more", FOX)])).kind == "unique"


def test_a_batch_of_a_feed_is_what_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is alone waits for no other one."""
    delivered, arrived, sizes, add = threading.Event(), threading.Event(), list[int](), Engine.add

    def feed() -> Iterator[Document]:
        first, *others = dense(100)[:100]
        yield first
        assert delivered.wait(30)
        yield from others
        arrived.set()

    def counted(engine: Engine, columns: Columns, signed: Any) -> Judged:
        if sizes:
            assert arrived.wait(30)
        sizes.append(len(columns))
        return add(engine, columns, signed)

    monkeypatch.setattr(Engine, "add", counted)
    with Deduplicator() as deduplicator:
        for _ in deduplicator.process(feed()):
            delivered.set()
    assert sizes[0] == 1 and sum(sizes) == 100 and len(sizes) <= 3


def test_a_feed_that_is_ahead_commits_no_position() -> None:
    variable = ContextVar[int]("variable")

    def feed() -> Iterator[Document]:
        yield Document(variable.get(), FOX)
        deduplicator.commit({"position": 1})

    variable.set(7)
    with Deduplicator() as deduplicator:
        verdicts = deduplicator.process(feed())
        assert next(verdicts).id == 7
        with pytest.raises(UsageError, match="batch=1"):
            next(verdicts)
        assert deduplicator.facts == {}
        list(deduplicator.process(feed(), batch=1))
        assert deduplicator.facts == {"position": 1}


def test_items_before_an_exit_are_taken() -> None:
    def feed() -> Iterator[int]:
        yield 1
        raise SystemExit

    stage = Stage(feed(), "feed", 8)
    until(lambda: not stage._thread.is_alive())
    assert stage.take(8) == [1]
    with pytest.raises(SystemExit):
        stage.take(8)


def test_ctrl_c_while_items_are_taken_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, answers = Stage(iter([1]), "feed", 8), iter([1])
    monkeypatch.setattr(stage, "get", lambda timeout: next(answers, None) or signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        stage.take(8)


def test_few_numbers_and_arrays_are_given_to_the_kernels_for_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    given, give = list[str](), Struct.__setattr__

    def counted(struct: Struct, name: str, value: Any) -> None:
        given.append(name)
        give(struct, name, value)

    with Deduplicator() as deduplicator:
        list(deduplicator.process([Document(1, FOX)]))
        monkeypatch.setattr(Struct, "__setattr__", counted)
        assert deduplicator.query(FOX)
    assert len(given) < 50


def test_a_wrong_document_is_named_by_its_place() -> None:
    feed: list[Any] = [Document(1, FOX), {"id": 2, "text": None}, "text"]
    with Deduplicator() as deduplicator, pytest.raises(TypeError, match=r"document 2 \(counted from 0\): .* a str,"):
        list(deduplicator.process(iter(feed)))


def test_close_within_the_iteration() -> None:
    """The verdicts of a batch are there already."""
    deduplicator = Deduplicator()
    seen = [deduplicator.close() for _ in deduplicator.process(dense(5))]  # type: ignore[func-returns-value]
    assert len(seen) == 5
    deduplicator = Deduplicator()
    verdicts = deduplicator.process(dense(5), batch=1)
    next(verdicts)
    deduplicator.close()
    with pytest.raises(StoreError, match="closed"):
        next(verdicts)
    with pytest.raises(StoreError, match="closed"):
        _ = 1 in deduplicator


def committed(folder: Path) -> int:
    with Deduplicator(index=folder, read_only=True) as reader:
        return len(reader)


def test_verdicts_of_an_idle_feed_are_committed(tmp_path: Path) -> None:
    def feed() -> Iterator[Document]:
        for count, document in enumerate(dense(3)[:3]):
            until(lambda count=count: committed(tmp_path) == count)  # type: ignore[misc]
            until(lambda: deduplicator._timer is None)  # no thread stays
            yield document

    with Deduplicator(index=tmp_path) as deduplicator:
        assert len(list(deduplicator.process(feed()))) == 3
        timer = deduplicator._timer
    assert timer is None or timer.finished.is_set()  # `close` does not leave it behind
    assert committed(tmp_path) == 3


def test_nothing_commits_by_itself_where_the_caller_does(tmp_path: Path) -> None:
    with Deduplicator(index=tmp_path, commit="manual") as deduplicator:
        list(deduplicator.process(dense(3)))
        assert deduplicator._timer is None
    assert committed(tmp_path) == 0


def test_a_failed_background_commit_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OutputError("the disk is full")

    deduplicator = Deduplicator(index=tmp_path)
    deduplicator._committed = float("inf")  # the batch itself commits nothing
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", broken)
        list(deduplicator.process(dense(3)))
        until(lambda: deduplicator._guard.failure)
    with pytest.raises(StoreError, match=r"was broken off \(the disk is full\): close this Deduplicator"):
        deduplicator.query(FOX)
    deduplicator.close()
    assert committed(tmp_path) == 0


@pytest.fixture(scope="module")
def kinds_of_twelve() -> list[str]:
    with Deduplicator() as deduplicator:
        return [verdict.kind for verdict in deduplicator.process(dense(12))]


@pytest.mark.parametrize(
    ("place", "name", "when"),
    [
        (Engine, "add", "before"), (Index, "match", "after"), (Index, "sign", "before"), (Index, "commit", "before"),
        (Index, "id_of", "after"), (Store, "write", "after"), (Index, "query", "after"), (Index, "look_up", "before"),
        (Index, "close", "before"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)  # fmt: skip
def test_ctrl_c_leaves_it_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds_of_twelve: list[str], place: type, name: str, when: str
) -> None:
    documents = dense(12)
    real, raised = getattr(place, name), [False]

    def interrupted(*values: Any, **more: Any) -> Any:
        if when == "before" and not raised[0]:
            raised[0] = True
            signal.raise_signal(signal.SIGINT)
        result = real(*values, **more)
        if not raised[0]:
            raised[0] = True
            signal.raise_signal(signal.SIGINT)
        return result

    deduplicator = Deduplicator(index=tmp_path)
    done = list(deduplicator.process(documents[:6]))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(place, name, interrupted)
        list(deduplicator.process(documents[6:]))
        deduplicator.query(FOX)
        _ = 0 in deduplicator
        deduplicator.commit()
        deduplicator.close()
    assert raised[0]
    if name == "close":
        deduplicator = Deduplicator(index=tmp_path)
    found = [*done, *deduplicator.process(documents[6:])]
    assert [verdict.first_kind or verdict.kind for verdict in found] == kinds_of_twelve
    assert deduplicator.query(documents[0].text or "")
    deduplicator.commit({"position": 12})
    deduplicator.close()
    with Deduplicator(index=tmp_path) as again:
        assert (len(again), again.facts) == (12, {"position": 12})
        assert [verdict.kind for verdict in again.process(documents)] == ["redelivered"] * 12


def test_ctrl_c_while_it_opens_leaves_the_index_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Store.named

    def interrupted(store: Store, name: str) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(store, name)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, "named", interrupted)
        Deduplicator(index=tmp_path)
    with Deduplicator(index=tmp_path) as deduplicator:
        assert len(deduplicator) == 0


def test_ctrl_c_at_any_moment(tmp_path: Path) -> None:
    """Every few milliseconds, in a program that commits by hand and continues."""
    documents, chance, armed = dense(300), random.Random(4), [False]
    with Deduplicator() as whole:
        expected = [verdict.kind for verdict in whole.process(documents)]
    main, stop, kinds, struck = threading.get_ident(), threading.Event(), {}, 0

    def handler(*_: Any) -> None:
        if armed[0]:
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not stop.wait(chance.uniform(0, 0.004)):
            signal.pthread_kill(main, signal.SIGINT)

    before, thread = signal.signal(signal.SIGINT, handler), threading.Thread(target=interrupt)
    try:
        with Deduplicator(Settings(memtable_documents=32), tmp_path, commit="manual") as deduplicator:
            thread.start()
            while len(kinds) < 300:
                try:
                    armed[0] = True
                    for verdict in deduplicator.process(documents[len(kinds) :], batch=7):
                        assert verdict.id not in kinds
                        kinds[verdict.id] = verdict.first_kind or verdict.kind
                        _ = verdict.id in deduplicator
                    armed[0] = False
                except KeyboardInterrupt:
                    armed[0] = False
                    struck += 1
                    deduplicator.commit({"position": len(kinds)})
            stop.set()
            thread.join()
            deduplicator.commit({"position": 300})
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert list(kinds.values()) == expected and struck > 3
    with Deduplicator(index=tmp_path) as again:
        assert (len(again), again.facts) == (300, {"position": 300})


def test_handlers_of_ctrl_c_stay() -> None:
    """Nothing is changed behind the back of a program."""
    for handler in (lambda *_: None, signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with Deduplicator() as deduplicator:
                list(deduplicator.process(dense(2)))
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)


def test_questions_from_other_threads(tmp_path: Path) -> None:
    documents, done = dense(120), threading.Event()
    with Deduplicator(Settings(memtable_documents=32), tmp_path) as deduplicator, ThreadPoolExecutor(2) as pool:

        def ask() -> int:
            asked = 0
            while not done.is_set():
                for group in deduplicator.groups(limit=3):
                    members = deduplicator.members(group)
                    assert len(members) >= group.total_members
                    assert all(deduplicator.get(member.id) for member in members if member.id is not None)
                    asked += 1
            return asked

        asking = [pool.submit(ask) for _ in range(2)]
        for verdict in deduplicator.process(documents, batch=10):
            assert verdict.id in deduplicator
        done.set()
        assert sum(answer.result() for answer in asking) > 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("temporary", [True, False])
def test_a_forked_process_leaves_the_index_alone(tmp_path: Path, temporary: bool) -> None:
    with Deduplicator(index=None if temporary else tmp_path) as deduplicator:
        verdicts = deduplicator.process(dense(3), batch=1)
        next(verdicts)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for use in (
                    lambda: next(verdicts),
                    lambda: 1 in deduplicator,
                    deduplicator.commit,
                    deduplicator.__len__,
                ):
                    with pytest.raises(StoreError, match="which this one was forked from"):
                        use()
                deduplicator.close()
                if deduplicator._temporary is not None:
                    deduplicator._temporary.cleanup()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        next(verdicts)
        assert len(deduplicator) == 2
        deduplicator.commit()


def test_it_starts_no_process_and_changes_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is asked to."""

    class Missing:
        """The kernel, as it is before the first start."""

        @staticmethod
        def ready(*_: object) -> bool:
            return False

        @staticmethod
        def compile(*_: object) -> None:
            pass

    started: list[list[str]] = []
    monkeypatch.setattr(compiling, "match", Missing)
    monkeypatch.setattr(compiling, "_process", None)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(soft, 500) if soft != resource.RLIM_INFINITY else 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with Deduplicator() as deduplicator:
            assert [verdict.kind for verdict in deduplicator.process([Document(1, FOX)])] == ["unique"]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard) and not started
        prepare()
        expected = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == expected and len(started) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("batch", [None, 1])
def test_a_document_that_the_engine_fails_on_is_rejected(batch: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    documents: list[Any] = [Document("a", FOX), Document("odd", WORDS), {"id": 1, "text": FOX}, Document("b", FOX)]
    poison(monkeypatch)
    monkeypatch.setattr(Fields, "extract", broken)
    with Deduplicator() as deduplicator:
        verdicts = list(deduplicator.process(documents, batch=batch))
        with pytest.raises(UsageError, match="the engine raised ValueError"):
            deduplicator.query(WORDS)
    assert [verdict.kind for verdict in verdicts] == ["unique", "rejected", "rejected", "exact_duplicate"]
    assert [verdict.id for verdict in verdicts] == ["a", "odd", None, "b"]
    assert [verdict.reason for verdict in verdicts[1:3]] == ["engine_error"] * 2
    assert "raised ValueError in stream_lsh.text.preparation" in (verdicts[1].detail or "")
    assert "raised ZeroDivisionError in stream_lsh.documents.builder" in (verdicts[2].detail or "")


def test_a_document_that_matching_fails_on_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document("a", FOX), Document("odd", POISON), Document("b", FOX), Document("odd", FOX + " again")]
    with Deduplicator(Settings(), tmp_path) as deduplicator, monkeypatch.context() as patched:
        poison_matching(patched)
        verdicts = list(deduplicator.process(documents))
    assert [verdict.kind for verdict in verdicts] == ["unique", "rejected", "exact_duplicate", "near_duplicate"]
    assert verdicts[1].reason == "engine_error" and (verdicts[1].detail or "").startswith(
        "the engine raised ValueError"
    )
    with Deduplicator(Settings(), tmp_path) as deduplicator:
        assert [verdict.kind for verdict in deduplicator.process([Document("new", POISON)])] == ["unique"]


@pytest.mark.parametrize("commit", ["auto", "manual"])
def test_closing_erases_what_is_due(tmp_path: Path, commit: Any) -> None:
    settings = Settings(on_conflict="update", erase_hours=0)
    with Deduplicator(settings, tmp_path, commit=commit) as deduplicator:
        list(deduplicator.process([Document("a", "some words of a text")]))
        deduplicator.commit()
        deduplicator.delete("a")
        deduplicator.commit()
    with closing(Store(tmp_path / "db", read_only=True)) as store:
        assert erasure(store)[:2] == (1, 0)

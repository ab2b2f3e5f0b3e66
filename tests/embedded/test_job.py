"""Jobs in this process: growing files, several inputs, signals, threads and folders, and what is left behind."""

import gzip
import json
import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.json_lines import read_lines
from support.long_form import rotating
from support.poison import WORDS, poison

from stream_lsh import Settings
from stream_lsh.embedded import job as module
from stream_lsh.embedded import temporary
from stream_lsh.embedded.feed import Feed, Source
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.lines import Batch
from stream_lsh.embedded.pipeline import chain
from stream_lsh.embedded.querying import query
from stream_lsh.embedded.signals import postponed
from stream_lsh.embedded.sink import Sink
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import OutputError
from stream_lsh.index.store.rocksdb import Store, name_key


def line(id: str, text: str) -> str:
    return json.dumps({"id": id, "text": text}) + "\n"


def test_an_ignored_signal_stays_ignored_and_the_other_works() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with postponed() as check:
        os.kill(os.getpid(), signal.SIGINT)
        check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            check()


FILES = 5  # a batch each, and a commit; one commit more at the beginning, and one at the end
OUTPUTS = {"unique": "unique.jsonl", "pairs": "pairs.jsonl.gz", "verdicts": "verdicts.jsonl"}


@pytest.fixture
def feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files dense in near-duplicates and redeliveries."""
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0)
    chance = random.Random(11)
    texts = [[f"w{chance.randrange(200)}" for _ in range(30)] for _ in range(4)]
    written: list[str] = []
    paths = [tmp_path / f"feed-{number}.jsonl" for number in range(FILES)]
    for path in paths:
        for _ in range(30):
            words = list(chance.choice(texts))
            words[chance.randrange(30)] = f"w{chance.randrange(200)}"
            texts.append(words)
            written.append(line(f"d{len(written)}", " ".join(words)))
        path.write_text("".join(written[-30:] + chance.sample(written, 3)))
    return [str(path) for path in paths]


def job(folder: Path, feeds: list[str]) -> Job:
    folder.mkdir(exist_ok=True)
    outputs = {name: str(folder / file) for name, file in OUTPUTS.items()}
    return Job(Settings(memtable_documents=16), feeds, outputs, folder / "state")


def contents(folder: Path) -> list[bytes]:
    found = [(folder / file).read_bytes() for file in OUTPUTS.values()]
    return [*found, gzip.decompress((folder / OUTPUTS["pairs"]).read_bytes())]


PLACES = ("checkpoint", "before", "after")
BROKEN = list(product((2, FILES + 2, 1, 4), PLACES, (KeyboardInterrupt(), OutputError("the disk is full"))))
QUICK = [case for case in BROKEN if case[0] == 2 or (case[0] == FILES + 2 and case[2] is BROKEN[0][2])][::2]


@pytest.mark.parametrize(
    ("number", "place", "error"), [*QUICK, *rotating([case for case in BROKEN if case not in QUICK], 6)]
)
def test_a_commit_that_breaks_off_is_done_again(
    tmp_path: Path, feeds: list[str], monkeypatch: pytest.MonkeyPatch, number: int, place: str, error: BaseException
) -> None:
    """By the next run, from the last commit that is on disk; the broken run must not commit any more."""
    job(tmp_path / "whole", feeds).run()
    write, checkpoint, commits = Store.write, Sink.checkpoint, 0

    def broken_checkpoint(self: Sink, sync: bool, now: int) -> dict[str, Any]:
        nonlocal commits
        commits += 1
        if commits == number and place == "checkpoint":
            raise error
        return checkpoint(self, sync, now)

    def broken_write(self: Store, values: dict[bytes, bytes], **more: Any) -> None:
        due = name_key("job") in values and commits == number
        if due and place == "before":
            raise error
        write(self, values, **more)
        if due:
            raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(Sink, "checkpoint", broken_checkpoint)
        patch.setattr(Store, "write", broken_write)
        job(tmp_path / "broken", feeds).run()
    assert commits == number
    job(tmp_path / "broken", feeds).run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    health = information(tmp_path / "broken" / "state", check=True)["health"]
    assert health == {"interrupted": False, "checked": "every byte", "problems": []}


def test_a_feed_that_outruns_the_merges_is_slowed(
    tmp_path: Path, feeds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.Index, "pause", property(lambda _: 2.0))  # seconds for 1,000 documents
    monkeypatch.setattr(module.time, "sleep", slept.append)
    assert job(tmp_path, feeds).run().documents == 33 * FILES
    assert slept == pytest.approx([0.066] * FILES)


def test_no_thread_is_left_after_a_failure(tmp_path: Path, feeds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is waiting for the other, and that for a pipe on which nothing comes."""
    batches, go = Feed.batches, threading.Event()

    def slow(self: Feed) -> Iterator[tuple[Source, Batch]]:
        for item in batches(self):
            yield item
            assert go.wait(60)

    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    before = set(threading.enumerate())
    monkeypatch.setattr(Feed, "batches", slow)
    monkeypatch.setattr(Sink, "write", refuse)
    with pytest.raises(OutputError, match="full"):
        job(tmp_path / "broken", feeds).run()
    left = set(threading.enumerate()) - before
    for thread in left:
        if thread.name != "read":
            thread.join(60)
    assert [thread.name for thread in left if thread.is_alive()] == ["read"]
    go.set()
    for thread in left:
        thread.join(60)
        assert not thread.is_alive()


def test_a_document_that_signing_raises_on_is_a_dead_letter(
    tmp_path: Path, feeds: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd, paths = line("odd", WORDS), {name: tmp_path / name for name in ("verdicts", "dead_letters", "asked")}
    lines = Path(feeds[0]).read_text().splitlines(keepends=True)
    Path(feeds[0]).write_text("".join([*lines[:20], odd, *lines[20:]]))
    outputs = {name: str(paths[name]) for name in ("verdicts", "dead_letters")}
    Job(Settings(), feeds, outputs | {"verdicts": str(tmp_path / "whole")}).run()
    poison(monkeypatch)
    summary = Job(Settings(), feeds, outputs, tmp_path / "index", overwrite=True).run()
    assert summary.rejected == {"engine_error": 1} and summary.documents == 33 * FILES + 1
    [letter] = read_lines(paths["dead_letters"])
    assert (letter["reason"], letter["line"], letter["original"] + "\n") == ("engine_error", 21, odd)
    assert letter["detail"].startswith("the engine raised ValueError in stream_lsh.text.preparation, line ")
    assert f'the document with the id "odd": rejected as engine_error: {letter["detail"]}' in caplog.messages
    whole, found = read_lines(tmp_path / "whole"), read_lines(paths["verdicts"])
    assert found[:20] + found[21:] == whole[:20] + whole[21:]
    assert (whole[20]["kind"], found[20]["kind"], found[20]["id"]) == ("unique", "rejected", "odd")

    (tmp_path / "odd.jsonl").write_text(odd)
    query(Settings(), [str(tmp_path / "odd.jsonl")], str(paths["asked"]), tmp_path / "index")
    assert read_lines(paths["asked"])[0]["reason"] == "engine_error"
    monkeypatch.undo()
    assert Job(Settings(), [str(tmp_path / "odd.jsonl")], {}, tmp_path / "index").run().unique == 1


def ends(names: tuple[str, ...] = ("read", "sign")) -> None:
    """The threads of stages come to their end."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(60)
            assert not thread.is_alive(), f"the thread {thread.name} waits for ever"


def test_items_in_order_and_then_the_error() -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise ValueError("bad")

    stage, stop = chain(items(), lambda item: item * 2)
    assert [stage.get() for _ in range(20)] == list(range(0, 40, 2))
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            stage.get()
    stop()
    ends()


def test_a_stop_while_the_first_thread_is_reading() -> None:
    """The second thread waits for an item that will not come."""
    asked, go = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        asked.set()
        assert go.wait(60)
        yield 2

    stage, stop = chain(items(), lambda item: item)
    assert stage.get() == 1
    assert asked.wait(60)
    stop()
    ends(("sign",))  # at once, as the first may be reading a pipe on which nothing comes
    go.set()
    ends()


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_stop_while_all_queues_are_full(taken: int) -> None:
    stage, stop = chain(iter(range(10**9)), lambda item: item)
    for number in range(taken):
        assert stage.get() == number
    stop()
    ends()
    with pytest.raises(StopIteration):
        stage.get()


def no_folder() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_a_folder_that_is_removed() -> None:
    with temporary_folder() as name:
        assert Path(name).is_dir()
    assert not Path(name).exists()


def test_without_a_place_on_disk_it_is_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "_get_default_tempdir", no_folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "MEMORY", str(tmp_path))
    with temporary_folder() as name:
        assert Path(name).parent == tmp_path


def test_without_any_place_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "_get_default_tempdir", no_folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "MEMORY", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match=r"TMPDIR.*--index"):
        temporary_folder()

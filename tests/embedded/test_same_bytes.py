"""The same command gives the same bytes, whatever has become of its files, and however it was broken off."""

import gzip
import os
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.contents import contents
from support.json_lines import read_lines, write_lines
from support.kills import broken_off

from stream_lsh import Settings
from stream_lsh.embedded import outputs
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import InputError, OutputError, StoreError

ALL = ("unique", "pairs", "verdicts", "groups", "dead_letters")
SMALL: dict[str, Any] = {"memtable_documents": 16, "segment_documents": 50, "time_field": "ts"}
CHANGING: dict[str, Any] = {**SMALL, "on_conflict": "update", "deleted_field": "deleted"}


def records(n: int, *, changing: bool = False, seed: int = 1, name: str = "d") -> list[dict[str, Any]]:
    """Near-duplicates, what is redelivered, and what is rejected; changing: also new versions and deletions."""
    chance = random.Random(seed)
    texts = [[f"w{chance.randrange(500)}" for _ in range(30)] for _ in range(3)]
    found: list[dict[str, Any]] = []
    for number in range(n):
        words = list(chance.choice(texts))
        words[chance.randrange(30)] = f"w{chance.randrange(500)}"
        texts.append(words)
        record: dict[str, Any] = {"id": f"{name}{number}", "text": " ".join(words), "ts": 1000 + number}
        dice = chance.random()
        if dice < 0.1:
            record = {"id": number}
        elif dice < 0.2 and found:
            record = chance.choice(found)
        elif dice < 0.35 and found and changing:
            record |= {"id": chance.choice(found)["id"]}
        elif dice < 0.5 and found and changing:
            record = {"id": chance.choice(found)["id"], "deleted": True}
        found.append(record)
    return found


class Command:
    """A job whose index and outputs are in a folder."""

    def __init__(
        self, folder: Path, inputs: Iterable[Path], given: dict[str, Any] | None = None, names: Iterable[str] = ALL
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.inputs = [str(path) for path in inputs]
        self.settings = Settings(**(SMALL if given is None else given))
        self.paths = {name: folder / name for name in names}

    def run(self, **more: Any) -> Summary:
        paths = {name: str(path) for name, path in self.paths.items()}
        return Job(self.settings, self.inputs, paths, self.folder / "index", **more).run()

    @property
    def bytes(self) -> dict[str, bytes]:
        return {name: path.read_bytes() for name, path in self.paths.items()}

    def lose(self) -> None:
        """Empty some outputs and delete the others."""
        for number, path in enumerate(self.paths.values()):
            if number % 2:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(b"")


@contextmanager
def shell(monkeypatch: pytest.MonkeyPatch, path: Path, mode: int = os.O_TRUNC) -> Any:
    """Standard output is a file, as by > (with O_APPEND by >>)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode)
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "STANDARD_OUTPUT", descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


def redirected(
    monkeypatch: pytest.MonkeyPatch, folder: Path, inputs: Iterable[Path], out: Path, mode: int = os.O_TRUNC,
    *, name: str = "unique", given: dict[str, Any] = SMALL, **more: Any,
) -> bytes:  # fmt: skip
    """Run `dedup INPUTS --index FOLDER/index > OUT`; what is in OUT then."""
    with shell(monkeypatch, out, mode):
        Job(Settings(**given), [str(path) for path in inputs], {name: "-"}, folder / "index", **more).run()
    return out.read_bytes()


CASES: dict[str, dict[str, Any]] = {
    "plain": SMALL,
    "several shards": {**SMALL, "shards": 3, "decision_lag": 10},
    "updates": CHANGING,
    "updates in several shards": {**CHANGING, "shards": 2, "decision_lag": 10},
    "a window": {**SMALL, "window": "1h"},
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_that_are_lost_are_written_again(tmp_path: Path, case: str) -> None:
    changing = "on_conflict" in CASES[case]
    feeds = [write_lines(tmp_path / name, records(60, changing=changing, seed=ord(name), name=name)) for name in "ab"]
    command = Command(tmp_path / "folder", feeds, CASES[case])
    command.run()
    before = command.bytes
    assert all(before.values())
    assert (b'"deleted":true' in before["unique"]) is changing
    command.lose()
    assert command.run().again == 120
    assert command.bytes == before
    last = command.run()
    assert (last.again, last.already_done) == (0, tuple(command.inputs))
    assert command.bytes == before


def test_decisions_before_a_window_are_not_known_any_more(tmp_path: Path) -> None:
    feed, every = tmp_path / "feed", records(200)
    command = Command(tmp_path / "folder", [feed], {**SMALL, "window": "60s"})
    for end in (100, 200):
        write_lines(feed, every[:end])
        command.run()
    before = command.bytes
    command.run()
    assert command.bytes == before
    (tmp_path / "folder" / "unique").unlink()
    with pytest.raises(StoreError, match=r"unique cannot be written again.*the window has passed it.*--only-new"):
        command.run()
    assert not command.paths["unique"].exists()
    assert command.paths["pairs"].read_bytes() == before["pairs"]
    command.run(only_new=True)
    assert command.bytes == {**before, "unique": b""}


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_was_erased_is_not_known_any_more(tmp_path: Path, by_hand: bool) -> None:
    """Neither what it was, nor that it was kept; nothing of it is left of the journal."""
    feed = write_lines(tmp_path / "feed", [*records(20), {"id": "victim", "text": "a victim of all this", "ts": 1}])
    command = Command(tmp_path / "folder", [feed], {**CHANGING, "erase_hours": 24 if by_hand else 0})
    command.run()
    with feed.open("a") as file:
        file.write('{"id":"victim","deleted":true}\n')
    command.run()
    if by_hand:
        command.lose()
        command.run()
        erase(command.folder / "index", everything=True)
    assert not any(b"victim" in data for data in contents(command.folder / "index"))
    before = command.bytes
    command.run()
    assert command.bytes == before
    command.lose()
    with pytest.raises(StoreError, match="has been erased"):
        command.run()


def test_the_shell_may_empty_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, out = write_lines(tmp_path / "feed", records(50)), tmp_path / "out"
    for name in ("unique", "verdicts"):
        folder = tmp_path / name
        whole = redirected(monkeypatch, folder, [feed], out, name=name)
        assert whole
        assert redirected(monkeypatch, folder, [feed], out, name=name) == whole
        assert redirected(monkeypatch, folder, [feed], out, os.O_APPEND, name=name) == whole
        assert redirected(monkeypatch, folder, [feed], tmp_path / "other", name=name) == whole
        assert redirected(monkeypatch, folder, [feed], out, name=name, only_new=True) == b""


def test_each_command_gets_its_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """{ dedup a; dedup b; } > out, and again."""
    feeds, out = [write_lines(tmp_path / name, records(20, name=name)) for name in "ab"], tmp_path / "out"

    def both() -> bytes:
        redirected(monkeypatch, tmp_path, feeds[:1], out)
        return redirected(monkeypatch, tmp_path, feeds[1:], out, os.O_APPEND)

    whole = both()
    assert both() == whole
    first = redirected(monkeypatch, tmp_path, feeds[:1], out)
    assert first + redirected(monkeypatch, tmp_path, feeds[1:], out) == whole


def test_a_pipe_gets_all_of_it_or_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = write_lines(tmp_path / "feed", records(30))

    def piped(**more: Any) -> bytes:
        reader, writer = os.pipe()
        with monkeypatch.context() as patch:
            patch.setattr(outputs, "STANDARD_OUTPUT", writer)
            Job(Settings(**SMALL), [str(feed)], {"unique": "-"}, tmp_path / "index", **more).run()
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            return file.read()

    whole = piped()
    assert whole and piped() == whole
    new = b'{"id":"new","text":"something that was never there before","ts":1}\n'
    with feed.open("ab") as file:
        file.write(new)
    assert piped(only_new=True) == new
    assert piped() == whole + new


def test_what_a_pipe_brought_cannot_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But into another file what is new may go, and --only-new is a way out."""
    lines = [b'{"id":"a","text":"one two three four"}\n', b'{"id":"b","text":"five six seven eight"}\n']
    out, other = tmp_path / "out", tmp_path / "other"

    def run(data: bytes, out: Path, mode: int = os.O_TRUNC, **more: Any) -> bytes:
        fifo = tmp_path / "fifo"
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)

        def write() -> None:
            with suppress(BrokenPipeError):
                fifo.write_bytes(data)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            return redirected(monkeypatch, tmp_path, [fifo], out, mode, given={}, **more)
        finally:
            os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))  # if nobody has read it
            writer.join()

    assert run(lines[0], out) == lines[0]
    assert run(lines[1], other) == lines[1]
    assert run(b"", other, os.O_APPEND) == lines[1]
    with pytest.raises(StoreError, match=r"standard output lacks lines.*>> instead of >.*--only-new"):
        run(lines[0], other)
    assert run(lines[0], other, only_new=True) == b""


def test_a_file_with_something_else_is_replaced_only_if_asked(tmp_path: Path) -> None:
    command = Command(tmp_path / "folder", [write_lines(tmp_path / "feed", records(20))], names=["unique"])
    command.run()
    before = command.bytes
    command.paths["unique"].write_bytes(b"x" * 10_000)
    with pytest.raises(OutputError, match="remove it, and it is written again"):
        command.run()
    command.run(overwrite=True)
    assert command.bytes == before


def test_an_output_gets_what_it_lacks(tmp_path: Path) -> None:
    """A new output all; one that another command has written the lines of its inputs, behind what it has."""
    feeds = [write_lines(tmp_path / name, records(20, name=name)) for name in "ab"]
    first = Command(tmp_path / "folder", feeds[:1], names=["unique"])
    first.run()
    one = first.bytes["unique"]
    second = Command(tmp_path / "folder", feeds[1:], names=["unique"])
    second.paths = {"unique": tmp_path / "second"}
    second.run()
    two = second.bytes["unique"]
    third = Command(tmp_path / "folder", feeds, names=["unique"])
    third.run()
    assert third.bytes["unique"] == one + two
    third.paths = {"unique": tmp_path / "third"}
    third.run()
    assert third.bytes["unique"] == one + two
    third.paths["verdicts"] = tmp_path / "verdicts"
    with pytest.raises(StoreError, match="--verdicts was not asked for"):
        third.run()


def test_nothing_is_read_for_the_null_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(tmp_path / "folder", [write_lines(tmp_path / "feed", records(20))], names=["unique"])
    command.paths = {"unique": Path(os.devnull)}
    command.run()
    assert command.run().again == 0


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_longer_feed(tmp_path: Path, suffix: str) -> None:
    """By lines, by parts of lines, by line ends, beside another one: in the order of the log."""
    feed, other = tmp_path / f"feed.jsonl{suffix}", tmp_path / "other.jsonl"
    whole = "".join(f'{{"id":{n},"text":"text {n} is of its own, and no other"}}\n' for n in range(12)).encode()
    steps = [b"\xef\xbb\xbf" + whole[:200], whole[200:330], b"", whole[330:-1], b" \r", b"\n\n  \n", b"xyz\n", whole]
    command = Command(tmp_path / "folder", [feed, other], {}, ["unique", "verdicts", "dead_letters"])
    feed.write_bytes(b"")
    other.write_bytes(b"")
    for number, step in enumerate(steps):
        with feed.open("ab") as file:
            file.write(PACKED[suffix](step) if step else b"")
        with other.open("ab") as file:
            file.write(b'{"id":"%d","text":"of the other one: number %d"}\n' % (number, number))
        command.run()
    before = command.bytes
    assert len(read_lines(before["unique"])) == 12 + len(steps)
    command.lose()
    command.run()
    assert command.bytes == before


def test_a_folder_of_texts(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(5):
        (texts / f"{number}.txt").write_text(f"the text with the number {number % 4}, and nothing else")
    command = Command(tmp_path / "folder", [texts], {}, ["unique", "verdicts"])
    command.run()
    (texts / "9.txt").write_text("the last one, which came later than all others")
    command.run()
    before = command.bytes
    command.lose()
    command.run()
    assert command.bytes == before


def test_a_rotated_log_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, out = write_lines(tmp_path / "feed", records(20)), tmp_path / "out"
    redirected(monkeypatch, tmp_path, [feed], out)
    feed.rename(tmp_path / "feed.1")
    write_lines(feed, records(20, name="e", seed=5))
    with pytest.raises(InputError, match="is not the file that was read before"):
        redirected(monkeypatch, tmp_path, [feed], out)
    second = redirected(monkeypatch, tmp_path, [feed], out, only_new=True)
    assert second and b'"e' in second and b'"d' not in second
    assert redirected(monkeypatch, tmp_path, [feed], out) == second


@pytest.mark.parametrize("changing", [False, True])
def test_a_run_that_is_broken_off_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changing: bool
) -> None:
    """The shell empties standard output each time; a file is lost in between; all are whole in the end."""
    feeds = [write_lines(tmp_path / name, records(30, changing=changing, seed=ord(name))) for name in "abc"]
    given, out = CHANGING if changing else SMALL, tmp_path / "out"
    whole = redirected(monkeypatch, tmp_path / "whole", feeds, out, given=given)
    times = 0

    def run() -> None:
        nonlocal times
        times += 1
        redirected(monkeypatch, tmp_path / "broken", feeds, out, given=given)

    with monkeypatch.context() as patch:
        assert broken_off(patch, run, every=4) > 1
    assert out.read_bytes() == whole
    assert redirected(monkeypatch, tmp_path / "broken", feeds, out, given=given) == whole


def test_only_new_is_since_the_last_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run has decided that was broken off was written nowhere else."""
    feed, out = write_lines(tmp_path / "feed", records(20)), tmp_path / "out"
    first = redirected(monkeypatch, tmp_path, [feed], out, only_new=True)
    more = [write_lines(tmp_path / name, records(20, name=name)) for name in "xyz"]
    inputs = [feed, *more]
    whole = redirected(monkeypatch, tmp_path / "whole", inputs, out)
    with monkeypatch.context() as patch:
        broken_off(patch, lambda: redirected(monkeypatch, tmp_path, inputs, out, only_new=True) and None, every=4)
    assert first + out.read_bytes() == whole

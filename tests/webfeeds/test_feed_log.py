"""The feed log stays small, knows what feeds show, and loses and repeats nothing, wherever it is killed."""

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner
from support.feed_server import item, rss
from support.json_lines import read_lines
from support.long_form import rotating

from stream_lsh.cli import main
from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded import checksums, feed, job, moves
from stream_lsh.embedded.targets import missing_of
from stream_lsh.errors import InputError
from stream_lsh.webfeeds import log as feed_log
from stream_lsh.webfeeds import reader
from stream_lsh.webfeeds.entries import Entry, keyed
from stream_lsh.webfeeds.fetching import Answer
from stream_lsh.webfeeds.log import FeedLog
from stream_lsh.webfeeds.reader import WebFeeds
from stream_lsh.webfeeds.state import FeedState, State

HOUR, DAY = 3600.0, 86_400.0
RETENTION = 4 * HOUR
START = 1_800_000_000.0
NEWS, QUIET, DOWN = "http://news.example/", "http://quiet.example/", "http://down.example/"


class Ended(Exception):
    """The simulated time is over."""


class World:
    """The clock, and what feeds show at a time: each hour two entries more, and one that is as old as the feed.

    NEWS shows the last six. QUIET has another entry only every twelve hours, and answers with 304 meanwhile. DOWN fails
    for six hours of each twelve.
    """

    def __init__(self, end: float) -> None:
        self.now = START
        self.end = end

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += HOUR / 2
        if self.now > self.end:
            raise Ended

    def numbers(self, url: str) -> list[int]:
        hours = int((self.now - START) / HOUR)
        last = hours // 12 if url == QUIET else 2 * hours
        return [0, *range(max(1, last - 5), last + 1)]

    def data(self, url: str) -> bytes:
        return rss(*(item(number) for number in reversed(self.numbers(url))))

    async def visit(self, client: object, turns: object, url: str, known: FeedState, limits: object) -> Answer:
        etag = str(self.numbers(url)[-1])
        if url == DOWN and int((self.now - START) / HOUR) % 12 >= 6:
            return Answer(wrong="the status of HTTP is 500")
        if url == QUIET and known.etag == etag:
            return Answer()
        return Answer(self.data(url), etag=etag, base=url, type="application/rss+xml")


@dataclass
class Index:
    """What an index has of the log at its last commit, and since."""

    every: int  # batches between commits
    position: Position | None = None
    ids: list[str] = field(default_factory=list)

    def follow(self, world: World, log: Path) -> None:
        """Read the log until the time is over."""
        feeds = WebFeeds([NEWS, QUIET, DOWN], log, HOUR, report=lambda _: None, retention=RETENTION)
        found = feeds.open(Fields())
        found.check()
        found.committed(self.position or found.start)
        begin = found.start if self.position is None else self.position
        assert begin.offset >= found.start.offset, "lines were removed before they were committed"
        ids = list(self.ids)
        try:
            for number, lines in enumerate(found.lines(begin), 1):
                ids += [str(orjson.loads(lines.raw(i))["id"]) for i in range(len(lines.starts))]
                if number % self.every == 0:
                    self.position, self.ids = lines.position, list(ids)
                    found.committed(lines.position)
        except Ended:
            return
        finally:
            found.close()

    def copy(self) -> "Index":
        return Index(self.every, self.position, list(self.ids))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(START + 20 * HOUR)
    monkeypatch.setattr(reader, "time", made)
    monkeypatch.setattr(feed_log, "time", made)
    monkeypatch.setattr(reader, "visit", made.visit)
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: nullcontext())
    monkeypatch.setattr(feed_log, "LEAST_BYTES", 200)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing that was written
    monkeypatch.setattr(State, "_open", staticmethod(unsynced))
    return made


def unsynced(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    with suppress(sqlite3.DatabaseError):
        connection.execute("PRAGMA synchronous = OFF")
    return connection


class Kills:
    """Copies of a folder: what a process leaves that is killed before a call, or in the middle of a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World, index: Index, folder: Path, copies: Path) -> None:
        self.states: list[tuple[str, Path, Index, float]] = []
        self._world, self._index, self._folder, self._copies = world, index, folder, copies
        for name in ("fsync", "replace", "unlink", "ftruncate"):
            monkeypatch.setattr(os, name, self._before(name, getattr(os, name)))
        write = os.write

        def half(descriptor: int, data: bytes) -> int:
            self._copy("write")
            done = write(descriptor, data[: max(1, len(data) // 2)])
            self._copy("half of a write")
            return done

        monkeypatch.setattr(os, "write", half)
        monkeypatch.setattr(State, "_open", self._traced(State._open))

    def _before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            self._copy(name)
            return call(*given, **more)

        return called

    def _traced(self, open: Callable[[Path], sqlite3.Connection]) -> Callable[[Path], sqlite3.Connection]:
        def opened(path: Path) -> sqlite3.Connection:
            connection = open(path)
            connection.set_trace_callback(lambda text: self._copy(text) if text.startswith("COMMIT") else None)
            return connection

        return staticmethod(opened)

    def _copy(self, what: str) -> None:
        to = self._copies / str(len(self.states))
        self.states.append((what, to, self._index.copy(), self._world.now))
        shutil.copytree(self._folder, to)


@pytest.mark.parametrize("part", [0, *rotating(range(1, 12), 3)])
@pytest.mark.parametrize("every", [1, 13], ids=["commits each batch", "commits late"])
def test_killed_anywhere_loses_and_repeats_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, part: int
) -> None:
    whole, killed, copies = (tmp_path / name for name in ("whole", "killed", "copies"))
    for folder in (whole, killed, copies):
        folder.mkdir()
    uninterrupted, index, end = Index(1), Index(every), world.end
    uninterrupted.follow(world, whole / "log")
    world.now = START
    with monkeypatch.context() as patched:
        kills = Kills(patched, world, index, killed, copies)
        index.follow(world, killed / "log")
    assert {what for what, *_ in kills.states} == {
        "fsync", "replace", "unlink", "ftruncate", "write", "half of a write", "COMMIT"
    }  # fmt: skip
    for what, copy, left, now in kills.states[part::12]:
        world.now, world.end, left.every = now, end, 1
        left.follow(world, copy / "log")
        assert left.ids == uninterrupted.ids, f"killed at {what}"


def entry(url: str, number: int, now: float) -> Entry:
    document = {"id": f"{url}#{number}", "feed": url, "time": int(now), "text": f"Story {number} {'x' * 500}"}
    return keyed(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))


@pytest.mark.parametrize(
    ("days", "urls", "visits"), [(100, 1, DAY), pytest.param(365, 10, DAY / 4, marks=pytest.mark.long)]
)
def test_log_of_a_year_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, urls: int, visits: float
) -> None:
    """Each feed has an entry each ten minutes, shows what is new and the last twenty, and one that is a year old."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(State, "_open", staticmethod(unsynced))
    feeds = WebFeeds([f"http://{number}.example/" for number in range(urls)], tmp_path / "log")
    log, each, added, most = feeds.open_log(), 600.0, 0, [0, 0]
    line, month = len(entry(feeds.urls[-1], 100_000, START).line), 30 * DAY / each * urls
    for visit in range(1, int(days * DAY / visits) + 1):
        now, last = START + visit * visits, int(visit * visits / each)
        numbers = (0, *range(max(1, last - int(visits / each) - 19), last + 1))
        shown = {url: [entry(url, number, now) for number in numbers] for url in feeds.urls}
        log.trim(now, feeds.urls)
        for url, entries in shown.items():
            log.show(url, entries, now)
        added += log.add(list(chain(*shown.values())), now)
        log.save()
        log.read = log.end
        sizes = [path.stat().st_size for path in (log.path, Path(f"{log.path}.state"))]
        most = [max(*pair) for pair in zip(most, sizes, strict=True)]
    log.close()
    assert added == log.end.line == urls * (1 + last), "one was repeated or is missing"
    assert most[0] < 2.3 * month * line + 2**20 and most[1] < 1.2 * month * 200
    assert len(read_lines(log.path)) == log.end.line - log.start.line >= month


class Commands:
    """Commands that visit NEWS once, three hours after each other."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder

    def dedup(self, index: str, *more: str) -> tuple[int, str]:
        """Exit code and messages."""
        result = CliRunner().invoke(
            main,
            ["dedup", "--feed", NEWS, "--feed-log", str(self._folder / "log"), "--feed-retention", "4h", "--index",
             str(self._folder / index), "--unique", str(self.unique(index)), "--threshold", "1", *more],
        )  # fmt: skip
        self._world.now += 3 * HOUR
        return result.exit_code, result.stderr

    def unique(self, index: str) -> Path:
        return self._folder / f"{index}.jsonl"

    def numbers(self, index: str) -> list[int]:
        """The entries that were kept."""
        return [int(line["id"].partition("#n")[2]) for line in read_lines(self.unique(index))]


@pytest.fixture
def commands(world: World, tmp_path: Path) -> Commands:
    return Commands(world, tmp_path)


def test_runs_over_a_log_whose_beginning_is_removed(commands: Commands, tmp_path: Path) -> None:
    for _ in range(8):
        assert commands.dedup("index")[0] == 0
    assert commands.numbers("index") == list(range(43))
    assert int(read_lines(tmp_path / "log")[0]["id"].partition("#n")[2]) > 20
    written = commands.unique("index").read_bytes()
    commands.unique("index").unlink()
    code, said = commands.dedup("index")
    assert code == 3 and "cannot be written again" in said and "were removed from it" in said, said
    assert not commands.unique("index").exists()
    commands.unique("index").write_bytes(written)
    assert commands.dedup("index")[0] == 0
    assert commands.numbers("index") == [*range(43), *range(49, 55)], "what NEWS showed between the visits is gone"


def test_new_index_of_such_a_log_writes_its_output_again(world: World, commands: Commands) -> None:
    for _ in range(8):
        commands.dedup("index")
    assert commands.dedup("other")[0] == 0
    written = commands.unique("other").read_bytes()
    assert commands.numbers("other")[0] > 0 and commands.numbers("other")[-1] == 48
    commands.unique("other").unlink()
    world.now -= 3 * HOUR
    assert commands.dedup("other")[0] == 0
    assert commands.unique("other").read_bytes() == written


def test_late_index_is_an_error_that_names_what_it_lacks(commands: Commands) -> None:
    assert commands.dedup("late")[0] == 0
    for _ in range(8):
        commands.dedup("index")
    code, said = commands.dedup("late")
    assert code == 4 and re.search(r"lines 2 to \d+ of .*log were removed before they were read. Add --only-new", said)
    assert commands.dedup("late", "--only-new")[0] == 0
    assert commands.numbers("late")[1] > 20
    code, said = commands.dedup("late", "--final", "--overwrite")
    assert code == 3, said
    commands.unique("late").unlink()
    code, said = commands.dedup("late")
    assert code == 3 and "the input had lost lines before they were read" in said, said


@pytest.mark.parametrize("before", [0, 1, 9], ids=["first run", "second run", "after a cut"])
def test_interrupted_index_continues_after_the_state_is_lost(
    world: World, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(job, "COMMIT_DOCUMENTS", 1)
    for _ in range(before):
        assert commands.dedup("index")[0] == 0
    world.end = world.now + 20 * HOUR
    code, _ = commands.dedup("index", "--every", "1h")
    assert code == 1 and read_lines(tmp_path / "log")[0]["id"] != f"{NEWS}#n0", "it was cut, and stopped"
    (tmp_path / "log.state").unlink()
    code, said = commands.dedup("index")
    assert code == 4 and ".state was lost" in said and "add --only-new" in said, said
    code, said = commands.dedup("index", "--only-new")
    assert code == 0 and "redelivered" in said, said
    assert commands.numbers("index") == sorted(set(commands.numbers("index")))


@pytest.mark.parametrize("known", [False, True], ids=["new index", "late index"])
def test_changed_log_is_noticed_after_much_of_it_was_removed(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(feed, "CHUNK", 2)
    for module in (feed, moves, checksums):
        monkeypatch.setattr(module, "BLOCK", 512)
    if known:
        assert commands.dedup("new")[0] == 0
    for _ in range(12):
        assert commands.dedup("index")[0] == 0
    assert commands.dedup("new", "--only-new")[0] == 0
    data = bytearray((tmp_path / "log").read_bytes())
    data[len(data) - 700] ^= 1  # in a block before the last one
    (tmp_path / "log").write_bytes(data)
    code, said = commands.dedup("new")
    assert code == 4 and "has changed where it was read before" in said, said


def test_last_choice_needs_the_whole_log(commands: Commands) -> None:
    for _ in range(8):
        commands.dedup("index")
    code, said = commands.dedup("index", "--final", "--overwrite")
    assert code == 3 and "--final reads the inputs again" in said, said


def test_last_choice_keeps_the_log_that_it_reads_again(commands: Commands) -> None:
    for _ in range(9):
        code, said = commands.dedup("index", "--final")
        assert code == 0, said
    assert commands.numbers("index") == [*range(49)]


def test_log_is_not_cut_for_a_temporary_index(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "COMMIT_DOCUMENTS", 1)
    command = ["dedup", "--feed", NEWS, "--feed-log", str(tmp_path / "log"), "--feed-retention", "4h", "--every", "1h"]
    result = CliRunner().invoke(main, [*command, "--unique", str(tmp_path / "unique")])
    assert isinstance(result.exception, Ended)
    assert [line["id"] for line in read_lines(tmp_path / "log")] == [f"{NEWS}#n{number}" for number in range(41)]


def test_job_has_the_log_from_the_first_look_at_it_to_its_end(
    world: World, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds, tried = WebFeeds([NEWS], tmp_path / "log"), []

    def missing(*given: Any, **more: Any) -> Any:
        with pytest.raises(InputError, match="another process reads feeds"):
            feeds.open_log()
        tried.append(given)
        return missing_of(*given, **more)

    monkeypatch.setattr(job, "missing_of", missing)
    assert commands.dedup("index")[0] == 0 and tried
    feeds.open_log().close()


def test_entry_is_known_as_long_as_it_is_shown_and_then_for_the_retention(world: World, tmp_path: Path) -> None:
    feeds = WebFeeds([NEWS], tmp_path / "log", retention=RETENTION)
    log, one, two = feeds.open_log(), entry(NEWS, 1, START), entry(NEWS, 2, START)
    added = []
    visits = ((0, [one, two]), (50, [one]), (53, [one, two]), (60, [one]), (65, [one, two]), (66, [one]), (71, [one]))
    for hours, shown in (*visits, (72, [one, two])):
        now = START + hours * HOUR
        log.trim(now, [NEWS])
        log.show(NEWS, shown, now)
        added.append(log.add(shown, now))
        log.save()
    assert added == [2, 0, 0, 0, 0, 0, 0, 1]
    log.update(NEWS, due=now)
    log.trim(now + RETENTION, [])
    assert log.add([one], now) == 1 and NEWS not in log.feeds, "no command names the feed any more"
    log.close()


@pytest.mark.parametrize("fails", ["copy", "commit", "rename"])
def test_full_disk_ends_no_feed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    index, full = Index(1), OSError(errno.ENOSPC, "No space left on device")
    commit, replace, copy = State.commit, Path.replace, FeedLog._copy

    def copied(log: FeedLog, start: Position) -> Any:
        if fails == "copy":
            copy(log, start).close()
            raise full
        return copy(log, start)

    def committed(state: State, feeds: Any, positions: Any) -> None:
        if fails == "commit" and "next" in positions:
            raise sqlite3.OperationalError("database or disk is full")
        commit(state, feeds, positions)

    def replaced(path: Path, target: Any) -> Path:
        if fails == "rename":
            raise full
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(FeedLog, "_copy", copied)
        patched.setattr(State, "commit", committed)
        patched.setattr(Path, "replace", replaced)
        index.follow(world, tmp_path / "log")
    assert len(read_lines(tmp_path / "log")) == len(index.ids) > 60
    assert not (tmp_path / "log.writing").exists()
    world.end += 10 * HOUR
    index.follow(world, tmp_path / "log")
    assert len(read_lines(tmp_path / "log")) < len(index.ids) == len(set(index.ids))
    found = WebFeeds([NEWS], tmp_path / "log").open_log()
    assert found.heads
    found.close()


def test_log_that_is_cut_keeps_its_owner(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = []

    def refused(descriptor: int, user: int, group: int) -> None:
        owners.append((user, group))
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    Index(1).follow(world, tmp_path / "log")
    status = (tmp_path / "log").stat()
    assert set(owners) == {(status.st_uid, status.st_gid)}
    assert read_lines(tmp_path / "log")[0]["id"] != f"{NEWS}#n0", "it is cut without the permission, too"


def test_linked_log_has_one_state(world: World, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "log")
    one, added = entry(NEWS, 1, START), []
    for path in (tmp_path / "link", tmp_path / "there" / "log"):
        log = WebFeeds([NEWS], path, retention=RETENTION).open_log()
        log.add([one], START)
        log.update(NEWS, etag="x")
        log.save()
        added.append(log.feeds)
        log.close()
    assert added[0] == added[1] and not (tmp_path / "link.state").exists()
    assert (tmp_path / "there" / "log.state").exists()


def test_clock_that_is_set_back_delays_a_visit_by_a_day_at_most(world: World, tmp_path: Path) -> None:
    feeds = WebFeeds([NEWS], tmp_path / "log", HOUR, report=lambda _: None)
    with closing(feeds.open_log()) as log:
        log.update(NEWS, due=START + 365 * DAY)
        world.end = START + 2 * DAY
        with pytest.raises(Ended):
            for _ in feeds.rounds(log):
                pass
        assert log.end.line == 7 + 2 * 24, "what NEWS showed after a day, and since"


def test_log_keeps_what_kafka_has_not_acknowledged(world: World, tmp_path: Path) -> None:
    log = WebFeeds([NEWS], tmp_path / "log", retention=RETENTION).open_log()
    for number in range(1, 20):
        now = START + number * HOUR
        log.trim(now, [NEWS])
        log.add([entry(NEWS, number, now)], now)
        log.read = log.end
        if number == 12:
            log.sent = log.end
    assert 0 < log.start.line <= 12 == log.unsent.line
    assert log.path.read_bytes()[log.unsent.offset :].startswith(entry(NEWS, 13, START + 13 * HOUR).line)
    log.close()


def test_state_of_a_later_format_stays(world: World, tmp_path: Path) -> None:
    feeds = WebFeeds([NEWS], tmp_path / "log")
    feeds.open_log().close()
    with closing(sqlite3.connect(tmp_path / "log.state")) as state:
        state.execute("PRAGMA user_version = 2")
    before = (tmp_path / "log.state").read_bytes()
    with pytest.raises(InputError, match="has format 2, and this version reads format 1"):
        feeds.open_log()
    assert (tmp_path / "log.state").read_bytes() == before


def test_state_of_another_log_is_replaced(world: World, tmp_path: Path) -> None:
    one, two, long = entry(NEWS, 1, START), entry(NEWS, 2, START), entry(NEWS, 10_000, START)
    for name, entries in (("log", [one, two]), ("other", [long, two, one])):
        log = WebFeeds([NEWS], tmp_path / name).open_log()
        log.add(entries[:2] if name == "log" else entries, START)
        log.save()
        log.close()
    (tmp_path / "log.state").replace(tmp_path / "other.state")
    log = WebFeeds([NEWS], tmp_path / "other").open_log()
    assert log.end.line == 3 and log.add([one, two, long], START) == 0
    log.close()


def test_damaged_state_says_what_to_do(world: World, tmp_path: Path) -> None:
    feeds, one = WebFeeds([NEWS], tmp_path / "log"), entry(NEWS, 1, START)
    log = feeds.open_log()
    log.add([one], START)
    log.save()
    log.close()
    state = tmp_path / "log.state"
    data = state.read_bytes()
    state.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(InputError, match=r"Delete it: feeds are read completely once"):
        feeds.open_log()
    state.unlink()
    feeds.open_log().close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"no SQLite" * 1000], ids=["empty", "JSON", "other"])
def test_state_that_is_lost_is_made_from_the_log(world: World, tmp_path: Path, damage: bytes) -> None:
    feeds = WebFeeds([NEWS], tmp_path / "log", retention=RETENTION)
    one = entry(NEWS, 1, START)
    for count in (1, 0):
        log = feeds.open_log()
        assert log.add([one], START) == count
        log.close()
        Path(f"{feeds.log}.state").write_bytes(damage)

"""Web feeds into a log: each entry once, whatever the server does."""

import gzip
import re
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.feed_server import FeedServer, item, rss, send, serving_feeds
from support.json_lines import read_lines
from support.waiting import until

from stream_lsh.cli import main
from stream_lsh.documents.columns import Fields
from stream_lsh.errors import InputError, UsageError
from stream_lsh.webfeeds.fetching import Limits
from stream_lsh.webfeeds.reader import WebFeeds
from stream_lsh.webfeeds.state import FeedState

pytestmark = pytest.mark.long  # most of it waits
SMALL = Limits(bytes=100_000, seconds=20.0, redirects=3, pause=0.0)


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with serving_feeds() as found:
        yield found


class Reader:
    """Runs that read feeds into one log."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "entries.jsonl"
        self.said: list[str] = []
        self.limits = SMALL

    def read(self, *urls: str, versions: bool = False) -> list[Any]:
        """Fetch them once; the log after that."""
        feeds = WebFeeds(urls, self.log, None, versions, self.said.append, self.limits)
        log = feeds.open_log()
        try:
            for _ in feeds.rounds(log):
                pass
        finally:
            log.close()
        return read_lines(self.log)

    @property
    def state(self) -> dict[str, FeedState]:
        log = WebFeeds([], self.log).open_log()
        log.close()
        return log.feeds


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def ids(entries: list[Any]) -> list[str]:
    return [entry["id"].partition("#")[2] for entry in entries]


def test_entries_of_rss_and_atom(server: FeedServer, reader: Reader) -> None:
    atom = (
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>A</title><entry><id>tag:a,1</id><title>R&amp;D</title>'
        '<link href="https://a.example/1"/><updated>2026-10-02T10:00:00Z</updated><summary>short</summary>'
        '<content type="html">&lt;p&gt;Caf&amp;eacute; &lt;b&gt;new&lt;/b&gt;s&lt;/p&gt;</content></entry></feed>'
    )
    one, two = server.shows("/rss", rss(item(2, day=2), item(1))), server.shows("/atom", atom.encode())
    found = {entry["id"]: entry for entry in reader.read(one, two)}
    assert [id for id in found if id.startswith(one)] == [f"{one}#n1", f"{one}#n2"], "the oldest is the first"
    assert found[f"{two}#tag:a,1"] == {
        "id": f"{two}#tag:a,1", "feed": two, "url": "https://a.example/1", "title": "R&D", "time": 1790935200,
        "text": "R&D\n\nCafé news",
    }  # fmt: skip


def test_oldest_entry_of_a_round_comes_first(server: FeedServer, reader: Reader) -> None:
    one, two = server.shows("/1", rss(item(4, day=4), item(2, day=2))), server.shows("/2", rss(item(3, day=3), item(1)))
    assert ids(reader.read(one, two)) == ["n1", "n2", "n3", "n4"]


def test_restart_sends_nothing_twice(server: FeedServer, reader: Reader) -> None:
    url = server.shows("/", rss(item(2), item(1)))
    assert len(reader.read(url)) == 2
    server.shows("/", rss(item(3), item(2)))
    assert ids(reader.read(url)) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("cut", [1, 40])
def test_killed_while_writing_loses_nothing(server: FeedServer, reader: Reader, cut: int) -> None:
    """The last line is not whole, and the state was not written."""
    url = server.shows("/", rss(item(1), item(2)), etag="a")
    whole = reader.read(url)
    reader.log.write_bytes(reader.log.read_bytes()[:-cut])
    Path(f"{reader.log}.state").unlink()
    assert reader.read(url) == whole


def test_replaced_log_is_filled_again(server: FeedServer, reader: Reader) -> None:
    """What the server would answer with 304 is not in the new log."""
    url = server.url + "/"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        known = handler.headers["If-None-Match"] == "a"
        send(handler, 304 if known else 200, b"" if known else rss(item(1)), {"etag": "a"})

    server.answers["/"] = answer
    reader.read(url)
    assert len(reader.read(url)) == 1 and server.got[-1][1]["If-None-Match"] == "a"
    reader.log.unlink()
    assert len(reader.read(url)) == 1


@pytest.mark.parametrize("name", ["etag", "last_modified"])
def test_validators_that_are_not_ascii_are_left_out(server: FeedServer, reader: Reader, name: str) -> None:
    url = server.shows("/", rss(item(1)), **{name: "éé"})
    reader.read(url)
    server.shows("/", rss(item(1), item(2)), **{name: "éé"})
    assert ids(reader.read(url)) == ["n1", "n2"] and not reader.said
    assert (reader.state[url].etag, reader.state[url].modified) == (None, None)
    with sqlite3.connect(f"{reader.log}.state") as state:  # what an earlier version has kept
        assert state.execute("UPDATE feeds SET etag = 'éé', modified = 'éé', due = 0").rowcount == 1
    state.close()
    server.shows("/", rss(item(3)))
    assert "n3" in ids(reader.read(url)) and not reader.said


def test_unchanged_feed_is_asked_for_with_its_validators(server: FeedServer, reader: Reader) -> None:
    url = server.shows("/", rss(item(1)), etag='"x"', last_modified="Thu, 01 Oct 2026 10:00:00 GMT")
    reader.read(url)
    server.shows("/", b"", 304)
    reader.read(url)
    headers = server.got[-1][1]
    assert (headers["If-None-Match"], headers["If-Modified-Since"]) == ('"x"', "Thu, 01 Oct 2026 10:00:00 GMT")
    assert reader.state[url].etag == '"x"' and not reader.said


def test_changing_etag_adds_nothing(server: FeedServer, reader: Reader) -> None:
    for etag in "abc":
        found = reader.read(server.shows("/", rss(item(1)), etag=etag))
    assert len(found) == 1


def test_changed_entry_is_an_entry_again_only_where_versions_count(server: FeedServer, tmp_path: Path) -> None:
    for versions, expected in ((False, ["old"]), (True, ["old", "new", "old"])):
        reader = Reader(tmp_path / str(versions))
        reader.log.parent.mkdir()
        for text in ("old", "new", "new", "old"):
            found = reader.read(server.shows("/", rss(item(1, text))), versions=versions)
        assert [entry["text"].split()[-1] for entry in found] == expected


@pytest.mark.parametrize("after", ["120", "date"])
def test_retry_after_is_kept_over_a_restart(server: FeedServer, reader: Reader, after: str) -> None:
    if after == "date":
        after = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 120))
    url = server.shows("/", b"", 429, retry_after=after)
    for _ in range(2):
        with pytest.raises(InputError, match="no feed could be read"):
            reader.read(url)
    assert len(server.got) == 1
    assert 100 < reader.state[url].due - time.time() <= 121
    assert "status of HTTP is 429" in reader.said[0] and "not fetched again for" in reader.said[1]


def test_waits_get_longer_after_failures_and_end_with_a_success(server: FeedServer, reader: Reader) -> None:
    url = server.shows("/", b"", 500)
    feeds = WebFeeds([url], reader.log, 300.0, False, reader.said.append, SMALL)
    log = feeds.open_log()
    rounds = feeds.rounds(log)
    next(rounds)
    waits = []
    for _ in range(12):
        next(rounds)
        waits.append(round(log.feeds[url].due - time.time()))
        log.update(url, due=0.0)
    assert waits[:4] == [300, 600, 1200, 2400] and waits[-1] == 86_400
    server.shows("/", rss(item(1)))
    next(rounds)
    assert (log.feeds[url].failures, round(log.feeds[url].due - time.time())) == (0, 300)
    log.close()


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"<rss>" * 10_000)


def slow(server: FeedServer, begin: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while not server.ended.wait(0.05):
            handler.wfile.write(b"x")

    return drip


ENTITIES = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
) + "]>"  # fmt: skip


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("slow head", "took more than 2 s"),
        ("slow body", "took more than 2 s"),
        ("endless", "more than 100000 bytes"),
        ("bomb", "more than 100000 bytes"),
        ("half gzip", "ends in the middle"),
        ("loop", "redirects more than 3 times"),
        ("file", "does not begin with http"),
        ("500", "status of HTTP is 500"),
        ("404", "status of HTTP is 404"),
        ("html", "it is no feed"),
        ("empty", "it is no feed"),
        ("no xml", "it is no feed"),
        ("nonsense", "ProtocolError"),
        ("closed", "RemoteProtocolError"),
    ],
)
def test_failing_feed_keeps_no_other_from_being_read(server: FeedServer, reader: Reader, does: str, why: str) -> None:
    packed = {"content_encoding": "gzip"}
    made: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {
        "slow head": slow(server, b"HTTP/1.1 200 OK\r\nX: "),
        "slow body": slow(server, b"HTTP/1.1 200 OK\r\n\r\n<rss>"),
        "endless": endless,
        "bomb": lambda handler: send(handler, 200, gzip.compress(bytes(50_000_000)), packed),
        "half gzip": lambda handler: send(handler, 200, gzip.compress(rss(item(1)))[:-20], packed),
        "loop": lambda handler: send(handler, 302, b"", {"location": "/bad"}),
        "file": lambda handler: send(handler, 302, b"", {"location": "file:///etc/passwd"}),
        "500": lambda handler: send(handler, 500, b"", {}),
        "404": lambda handler: send(handler, 404, rss(item(7)), {}),
        "html": lambda handler: send(handler, 200, b"<html><body>Sign in</body></html>", {"content_type": "text/html"}),
        "empty": lambda handler: send(handler, 200, b"", {}),
        "no xml": lambda handler: send(handler, 200, bytes(range(256)), {}),
        "nonsense": lambda handler: handler.wfile.write(b"what is HTTP?\r\n\r\n") and None,
        "closed": lambda handler: None,
    }
    server.answers["/bad"] = made[does]
    if does.startswith("slow"):
        reader.limits = Limits(bytes=100_000, seconds=2.0, redirects=3, pause=0.0)
    bad, good = server.url + "/bad", server.shows("/good", rss(item(1)))
    assert ids(reader.read(good, bad)) == ["n1"]
    assert len(reader.said) == 1 and reader.said[0].startswith(bad)
    assert re.search(why, reader.said[0]), reader.said
    assert reader.state[bad].failures == 1 and reader.state[bad].etag is None


@pytest.mark.parametrize(
    ("data", "headers", "texts"),
    [
        (gzip.compress(rss(item(1, "a"))), {"content_encoding": "gzip"}, ["Story 1\n\na"]),
        (zlib.compress(rss(item(1, "a"))), {"content_encoding": "deflate"}, ["Story 1\n\na"]),
        (rss("<title>a</title>", "<title>b</title><link>https://a.example/</link>"), {}, ["a", "b"]),
        (rss("<guid>1</guid><title>A &amp;amp; B &#233; &lt;b&gt;c&lt;/b&gt;</title>"), {}, ["A & B é c"]),
        (rss("<guid>1</guid><title>x&hellip;</title>"), {}, ["x…"]),
        (rss("<guid>1</guid><title>a\0b</title>"), {}, ["a\0b"]),
        (rss("<guid>1</guid><description></description>"), {}, [""]),
        (rss(item(1, "a"), item(1, "b")), {}, ["Story 1\n\na"]),
        (rss(item(1, "Zürich")).decode().replace("utf-8", "iso-8859-1").encode("latin-1"), {}, ["Story 1\n\nZürich"]),
        (rss(item(1, "a").replace("2026", "9999")), {}, ["Story 1\n\na"]),
        (rss(item(1, "&i;"), head=ENTITIES), {}, None),
    ],
    ids=["gzip", "deflate", "no id or date", "entities", "html entity", "null", "no text", "twice", "charset", "year",
         "entity bomb"],
)  # fmt: skip
def test_odd_feeds(
    server: FeedServer, reader: Reader, data: bytes, headers: dict[str, str], texts: list[str] | None
) -> None:
    found = reader.read(server.shows("/", data, **headers))
    if texts is not None:
        assert sorted(entry["text"] for entry in found) == sorted(texts)
    assert all(entry["id"] and 0 < entry["time"] < 7e9 and len(entry["text"]) < 1000 for entry in found)
    assert reader.read(server.shows("/", data, **headers)) == found


def test_broken_xml_is_read_as_far_as_it_goes_and_fetched_whole_again(server: FeedServer, reader: Reader) -> None:
    whole = rss(item(1), item(2))
    url = server.shows("/", whole[: whole.index(b"<item><guid>n2") + 20], etag="a")
    assert ids(reader.read(url))[0] == "n1"
    assert "as far as it goes" in reader.said[0] and reader.state[url].etag is None
    assert "n2" in ids(reader.read(server.shows("/", whole, etag="a")))


def test_one_request_to_a_host_at_a_time_with_a_pause(server: FeedServer, reader: Reader) -> None:
    times: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        times.append(time.monotonic())
        send(handler, 200, rss(item(1)), {})

    urls = [f"{server.url}/{number}" for number in range(4)]
    server.answers |= dict.fromkeys(("/0", "/1", "/2", "/3"), answer)
    reader.limits = Limits(pause=0.2)
    assert len(reader.read(*urls)) == 4
    assert server.most == 1
    assert all(later - earlier >= 0.19 for earlier, later in pairwise(times))


def test_redirected_feed_keeps_its_name(server: FeedServer, reader: Reader) -> None:
    server.shows("/new", rss(item(1)))
    url = server.shows("/old", b"", 301, location="/new")
    assert reader.read(url)[0]["feed"] == url


def test_log_of_another_process_or_of_other_lines_is_refused(server: FeedServer, reader: Reader) -> None:
    feeds = WebFeeds([], reader.log)
    held = feeds.open_log()
    with pytest.raises(InputError, match="another process"):
        feeds.open_log()
    held.close()
    reader.log.write_text('{"text": "mine"}\n')
    with pytest.raises(InputError, match=r"entries.jsonl, line 1, is no entry"):
        feeds.open_log()
    assert reader.log.read_text() == '{"text": "mine"}\n'


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.example/", "news.example", "http://u:p@a.example/", "http://a b/"]
)
def test_url_that_is_not_fetched(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--feed"):
        WebFeeds([url], tmp_path / "log")


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "feedparser", None)
    with pytest.raises(InputError, match=r"stream-lsh\[feeds\]"):
        WebFeeds(["http://a.example/"], tmp_path / "log").open(Fields()).check()


def dedup(folder: Path, *more: str) -> Any:
    return CliRunner().invoke(
        main,
        ["dedup", "--feed-log", str(folder / "log"), "--index", str(folder / "index"), "--unique",
         str(folder / "unique"), *more],
    )  # fmt: skip


def test_dedup_of_feeds_keeps_sources_and_resumes(server: FeedServer, tmp_path: Path) -> None:
    text = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
    one, two = server.shows("/one", rss(item(1, text, 1))), server.shows("/two", rss(item(1, text, 2), item(2)))
    asked = ["--feed", one, "--feed", two]
    result = dedup(tmp_path, *asked)
    assert result.exit_code == 0, result.output
    assert len(read_lines(tmp_path / "unique")) == 2
    (group,) = read_lines(
        CliRunner().invoke(main, ["groups", "--index", str(tmp_path / "index"), "--limit", "1", "--json"]).stdout
    )
    assert sorted(group["first_sources"]) == [one, two]
    server.shows("/two", rss(item(2), item(3)))
    assert dedup(tmp_path, *asked).exit_code == 0
    assert [entry["id"].partition("#")[2] for entry in read_lines(tmp_path / "unique")][2:] == ["n3"]


def test_another_log_loses_and_repeats_nothing(server: FeedServer, tmp_path: Path) -> None:
    """The old one may go: the feed log need not grow for ever."""
    asked = ["--feed", server.shows("/", rss(item(2), item(1))), "--threshold", "1"]
    assert dedup(tmp_path, *asked).exit_code == 0
    (tmp_path / "log").unlink()
    server.shows("/", rss(item(3), item(2)))
    result = dedup(tmp_path, *asked, "--feed-log", str(tmp_path / "log 2"))
    assert result.exit_code == 0, result.output
    assert ids(read_lines(tmp_path / "unique")) == ["n1", "n2", "n3"]
    assert ids(read_lines(tmp_path / "log 2")) == ["n2", "n3"]


def test_killed_run_that_repeats_loses_and_repeats_nothing(server: FeedServer, tmp_path: Path) -> None:
    """The feed has another entry at each visit, and shows the last three."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        count = len(server.got)
        send(handler, 200, rss(*(item(number) for number in reversed(range(max(0, count - 3), count)))), {})

    server.answers["/"] = answer
    command = [
        sys.executable, "-m", "stream_lsh", "dedup", "--feed", server.url + "/", "--feed-log", str(tmp_path / "log"),
        "--index", str(tmp_path / "index"), "--unique", str(tmp_path / "unique"), "--threshold", "1", "--quiet",
    ]  # fmt: skip
    for lines in (1, 2):
        with subprocess.Popen([*command, "--every", "1s"]) as process:
            until(lambda: (tmp_path / "unique").exists() and len(read_lines(tmp_path / "unique")) >= lines)  # noqa: B023
            process.kill()
    assert subprocess.run(command, check=False).returncode == 0
    assert ids(read_lines(tmp_path / "unique")) == [f"n{number}" for number in range(len(server.got))]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--feed", "http://a.example/"], "--feed-log"),
        (["--feed-log", "log"], "--feed URL"),
        (["--feed", "http://a.example/", "--feed-log", "log", "--every", "soon"], "no duration"),
        (["--feed", "http://a.example/", "--feed-log", "log", "--unique", "log"], "log"),
        (["--feed", "http://a.example/", "--feed-log", "log", "--every", "16d"], "at least twice --every"),
    ],
)
def test_wrong_options(more: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["dedup", *more])
    assert result.exit_code == 2 and message in result.stderr

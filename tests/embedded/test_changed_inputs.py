"""An input that has changed is noticed; one that has grown, moved or been copied goes on, also within a line."""

import gzip
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from support.long_form import rotating

from stream_lsh import Settings
from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded import checksums
from stream_lsh.embedded.checksums import Checksums
from stream_lsh.embedded.inputs import LineInput
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import InputError

NOISE = random.Random(7)
LINES = [b'{"id":%d,"text":"a line of a dump: %s"}\n' % (n, NOISE.randbytes(50).hex().encode()) for n in range(300)]
FEED = b"".join(LINES)


def run(folder: Path, feed: Path) -> Summary:
    outputs = {"verdicts": str(folder / "verdicts")}
    return Job(Settings(), [str(feed)], outputs, folder / "index").run()


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("longer", [True, False])
def test_a_corrected_dump_is_noticed(tmp_path: Path, suffix: str, longer: bool) -> None:
    """The same beginning, a line behind the first 4,096 bytes that is another, and something new at its end."""

    def pack(*parts: bytes) -> bytes:
        return b"".join(map(gzip.compress, parts) if suffix else parts)

    feed, new = tmp_path / f"feed.jsonl{suffix}", b'{"id":"new","text":"a line that is new in the dump"}\n'
    feed.write_bytes(pack(b"".join(LINES[:150]), b"".join(LINES[150:])))
    run(tmp_path, feed)
    before = (tmp_path / "verdicts").read_bytes()
    lines = [*LINES]
    lines[200] = lines[200].replace(b"a dump", b"a dump, corrected" if longer else b"a damp")
    feed.write_bytes(pack(b"".join(lines[:150]), b"".join([*lines[150:], new])))
    with pytest.raises(InputError, match=r"has changed where it was read before \(to line 300\)"):
        run(tmp_path, feed)
    assert (tmp_path / "verdicts").read_bytes() == before
    feed.write_bytes(pack(FEED, new))
    assert run(tmp_path, feed).documents == 1


def test_a_file_that_was_touched_or_copied_is_the_same(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(FEED)
    run(tmp_path, feed)
    os.utime(feed, (1, 1))
    assert run(tmp_path, feed).already_done == (str(feed),)
    shutil.copy(feed, tmp_path / "copy")
    (tmp_path / "copy").replace(feed)
    assert run(tmp_path, feed).already_done == (str(feed),)
    link = tmp_path / "link.jsonl"
    link.symlink_to(feed)
    assert run(tmp_path, link).already_done == (str(link),)


def test_checksums_continue_at_any_end_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a block, of a chunk of blocks, behind a line that was too large, a blank one, or none at all."""
    monkeypatch.setattr("stream_lsh.embedded.checksums.BLOCK", 1000)
    monkeypatch.setattr("stream_lsh.embedded.feed.BLOCK", 1000)
    monkeypatch.setattr("stream_lsh.embedded.moves.BLOCK", 1000)
    monkeypatch.setattr("stream_lsh.embedded.feed.CHUNK", 4)
    chance, feed = random.Random(2), tmp_path / "feed.jsonl"
    parts = [b"\xef\xbb\xbf" + LINES[0], b"\n \n", b"x" * 5000 + b"\n", *LINES[1:], b"\n", b'{"id":"y","text":"z w"}']
    written, whole = 0, b"".join(parts)
    while written < len(whole):
        written = min(len(whole), written + chance.choice((1, 4500, 9000, 20_000)))
        feed.write_bytes(whole[:written])
        Job(Settings(max_document_bytes=1000), [str(feed)], {}, tmp_path / "index").run()
    for at in chance.sample(range(4096, len(whole)), 4):
        feed.write_bytes(changed(whole, at))
        with pytest.raises(InputError, match=f"from {at // 1000 * 1000:,} to"):
            run(tmp_path, feed)


def test_of_a_long_file_a_sample_is_compared_unless_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read last always is: there a change of any length shows."""
    monkeypatch.setattr(checksums, "BLOCK", 100)
    monkeypatch.setattr(checksums, "MOST", 8)
    data = random.Random(1).randbytes(10_050)
    path = tmp_path / "long"
    made = Checksums(Position(), [])
    made.add(data)
    position = Position(len(data), 7, made.begun)
    input, reads = LineInput(str(path), Fields()), 0
    pread = os.pread

    def counted(*given: int) -> bytes:
        nonlocal reads
        reads += 1
        return pread(*given)

    monkeypatch.setattr(os, "pread", counted)
    for at in (9_700, 10_020):
        path.write_bytes(changed(data, at))
        assert input.difference(position, made.whole, everything=False) == at // 100 * 100
    path.write_bytes(data + b"more")
    reads = 0
    assert input.difference(position, made.whole, everything=False) is None
    assert reads == 9
    path.write_bytes(changed(data, 4_242))
    assert input.difference(position, made.whole, everything=True) == 4_200


FIRST = b'{"id":"a","text":"one two three four"}\n'
LAST = '{"id":123,"text":"fünf sechs sieben acht"}'.encode()
CUTS = (b"{", b'{"i', b'{"id":1', b'{"id":123,"text"', b'{"id":123,"text":"f\xc3', LAST[:30], LAST[:-2], LAST[:-1])


class Feed:
    """A file that grows, and the runs over it with one index."""

    def __init__(self, folder: Path, *, persistent: bool = True) -> None:
        self.path = folder / "feed.jsonl"
        self.folder = folder
        self.state = folder / "state" if persistent else None

    def run(self, data: bytes) -> Summary:
        """The file has this content now."""
        self.path.write_bytes(data)
        outputs = {name: str(self.folder / name) for name in ("unique", "verdicts", "dead_letters")}
        return Job(Settings(), [str(self.path)], outputs, self.state).run()

    def lines(self, name: str) -> list[bytes]:
        return (self.folder / name).read_bytes().splitlines(keepends=True)

    @property
    def ids(self) -> list[object]:
        return [json.loads(line)["id"] for line in self.lines("verdicts")]


@pytest.mark.parametrize(
    "part", [*CUTS[3:5], CUTS[-1], *rotating([pytest.param(cut) for cut in (*CUTS[:3], *CUTS[5:-1])], 2)]
)
def test_a_line_that_is_cut_is_left_until_it_is_whole(tmp_path: Path, part: bytes) -> None:
    """Wherever it is cut: in the name of a field, in a number, in a character."""
    feed, cut = Feed(tmp_path), len(part)
    assert LAST.startswith(part)
    summary = feed.run(FIRST + part)
    assert (summary.documents, summary.unfinished) == (1, {str(feed.path): cut})
    again = feed.run(FIRST + part)  # nothing has come meanwhile
    assert (again.documents, again.already_done, again.unfinished) == (0, (str(feed.path),), {str(feed.path): cut})
    assert feed.run(FIRST + LAST[: cut + 1]).documents == (cut + 1 == len(LAST))
    summary = feed.run(FIRST + LAST + b"\n")
    assert summary.unfinished == {}
    assert feed.ids == ["a", 123]
    assert feed.lines("unique") == [FIRST, LAST + b"\n"]
    assert feed.lines("dead_letters") == []


@pytest.mark.parametrize("then", [b"", b"\n", b" \n", b"\r"])
def test_a_whole_line_is_taken_once_and_whole(tmp_path: Path, then: bytes) -> None:
    """An object is at its end: nothing can be added to it but white space, whenever that comes."""
    feed = Feed(tmp_path)
    assert feed.run(FIRST + LAST).documents == 2
    assert feed.run(FIRST + LAST + then).documents == 0
    more = b'{"id":"c","text":"nine ten eleven twelve"}'
    rest = (b"" if then.endswith(b"\n") else b"\n") + b"not json\n" + more
    assert feed.run(FIRST + LAST + then + rest).documents == 2
    assert feed.ids == ["a", 123, None, "c"]
    assert feed.lines("unique") == [FIRST, LAST + b"\n", more + b"\n"]
    (letter,) = [json.loads(line) for line in feed.lines("dead_letters")]
    assert (letter["line"], letter["original"]) == (3, "not json")  # line ends that came later are no lines


def test_what_is_no_object_may_still_become_one(tmp_path: Path) -> None:
    """A number that is whole could go on; it is a dead letter as soon as its line is at its end."""
    feed = Feed(tmp_path)
    for number, data in enumerate((b"[1]", b"nonsense", b'{"a":"\\u00', b"\xff", b"12", b"123")):
        if data != b"123":
            (tmp_path / f"{number}").mkdir()
            feed = Feed(tmp_path / f"{number}")
        assert feed.run(FIRST + data).unfinished == {str(feed.path): len(data)}
    feed.run(FIRST + b"123\n")
    assert [json.loads(line)["reason"] for line in feed.lines("dead_letters")] == ["not_json"]


def test_a_whole_object_that_cannot_be_used_is_a_dead_letter(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for name, line in (("missing_field", b'{"id":1}'), ("duplicate_key", b'{"id":1,"id":2,"text":"x"}')):
        folder = tmp_path / name
        folder.mkdir()
        feed = Feed(folder)
        assert feed.run(line).rejected == {name: 1}


def test_a_line_that_is_too_large_already_is_left_too(tmp_path: Path) -> None:
    """Its rest would look like a line of its own."""
    path = tmp_path / "feed.jsonl"
    job = Job(Settings(max_document_bytes=64), [str(path)], {"verdicts": str(tmp_path / "v")}, tmp_path / "state")
    path.write_bytes(FIRST + b'{"id":1,"text":"' + b"x" * 100_000)
    assert job.run().unfinished == {str(path): 100_016}
    with path.open("ab") as file:
        file.write(b"x" * 100_000 + b'"}\n' + FIRST)
    summary = job.run()
    assert (summary.rejected, summary.redelivered) == ({"too_large": 1}, 1)


def test_without_an_index_that_stays_the_last_line_is_taken(tmp_path: Path) -> None:
    feed = Feed(tmp_path, persistent=False)
    summary = feed.run(FIRST + LAST[:12])
    assert (summary.rejected, summary.unfinished) == ({"not_json": 1}, {})


@pytest.mark.parametrize("everything", [True, False])
def test_change_is_seen_after_the_beginning_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    """The block in which bytes were removed is not compared."""
    monkeypatch.setattr(checksums, "BLOCK", 100)
    monkeypatch.setattr(checksums, "MOST", 8)
    data, start = random.Random(1).randbytes(10_050), 9_150
    made = Checksums(Position(), [])
    made.add(data)
    path, position = tmp_path / "log", Position(len(data), 7, made.begun)
    input = LineInput(str(path), Fields())
    input.start = Position(start, 3)
    for at, found in ((9_160, None), (9_210, 9_200), (9_999, 9_900), (10_020, 10_000)):
        path.write_bytes(changed(data, at)[start:])
        assert input.difference(position, made.whole, everything=everything) == found
    path.write_bytes(data[start:-1])
    with pytest.raises(InputError, match="10050 bytes of it were read before, now it has 10049"):
        input.difference(position, made.whole, everything=everything)

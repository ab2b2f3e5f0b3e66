"""A file that somebody is writing: its last line may not be whole yet."""

import json
from pathlib import Path

import pytest
from support.long_form import rotating

from stream_lsh import Settings
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary

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

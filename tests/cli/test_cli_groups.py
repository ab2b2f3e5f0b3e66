"""`stream-lsh dedup --groups` and `stream-lsh groups`."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from support.commands import run
from support.json_lines import read_lines, write_lines
from support.missing import extra

from stream_lsh.cli.groups import moment, said, show, show_members
from stream_lsh.cli.growth import Growth, growth
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_query import Row
from stream_lsh.embedded.group_store import Member
from stream_lsh.embedded.group_table import table, whole
from stream_lsh.judging.groups import Group
from stream_lsh.judging.verdicts import Kind

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a group of four documents of three outlets, and one of two."""
    folder = tmp_path_factory.mktemp("groups")
    rows = [(f"b{n}", TEXT, f"outlet {n % 3}") for n in range(4)] + [(f"c{n}", TEXT[::-1], "radio") for n in range(2)]
    documents = [
        {"id": id, "text": text, "outlet": outlet, "at": 1_700_000_000 + 3600 * n}
        for n, (id, text, outlet) in enumerate(rows)
    ]
    run(
        "dedup", write_lines(folder / "feed", documents), "--index", folder / "index",
        "--groups", folder / "groups.jsonl", "--source-field", "outlet", "--time-field", "at", "--quiet",
    )  # fmt: skip
    return folder


def lines(*arguments: object) -> list[dict[str, Any]]:
    return read_lines(run("groups", *arguments).stdout)


def test_programs_get_rows(folder: Path) -> None:
    state = str(folder / "index")
    events = read_lines(folder / "groups.jsonl")
    assert [event["event"] for event in events] == ["created", "joined", "joined", "created"]
    found = lines("--index", state)
    assert found == [{key: event[key] for key in list(event)[3:]} for event in (events[2], events[3])]
    assert [row["total_members"] for row in found] == [4, 2]
    assert [row["group"] for row in lines("--index", state, "--order", "newest")] == [4, 0]
    assert [(row["group"], row["joined_since"]) for row in lines("--index", state, "--order", "growing", "--since",
    "3h")] == [
        (0, 2), (4, 1)
    ]  # fmt: skip
    assert len(lines("--index", state, "--limit", "1")) == 1


def test_people_get_tables(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(table(folder / "index"))
    assert capsys.readouterr().out.splitlines() == [
        "group  live_members  total_members  sources  representative",
        "    0             4              4        3  b0",
        "    first 2023-11-14 22:13:20, last 2023-11-15 01:13:20; sources outlet 0,",
        "    outlet 1, outlet 2",
        "    4             2              2        1  c0",
        "    first 2023-11-15 02:13:20, last 2023-11-15 03:13:20; sources radio",
    ]
    with whole(folder / "index", 0) as (group, members):
        show_members(group, members, 3)
    assert capsys.readouterr().out.splitlines() == [
        "seq  similarity  kind             time                 id",
        "  0              unique           2023-11-14 22:13:20  b0",
        "    source outlet 0; representative",
        "  1       1.000  exact_duplicate  2023-11-14 23:13:20  b1",
        "    source outlet 1",
        "  2       1.000  exact_duplicate  2023-11-15 00:13:20  b2",
        "    source outlet 2",
        "1 more member; --limit N shows the first N, --json all",
    ]
    assert (moment(0), moment(None), said("a\nb"), said(None)) == ("1970-01-01 00:00:00", "", "a\\nb", "")


def test_tables_fit_their_terminal_and_use_the_names_of_their_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sources = [f'"{letter * 60}"'.encode() for letter in "abc"]
    times = (1_700_000_000_000, 1_700_100_000_000)
    group = Group(123_456_789, b'"' + "é中".encode() * 60 + b'"', 5, 9, 1234, 1200, *times, 40, sources)
    row = Row(group.json, 77)
    show([row])
    shown = capsys.readouterr().out
    assert set(shown.splitlines()[0].split()) < json.loads(row.json).keys()
    member = Member(12_345_678, b'"\\u001b[31m' + b"x" * 200 + b'"', times[0], b'"s"', Kind.NEAR_DUPLICATE, 0.9, 99, 5)
    show_members(group, iter([member]), 5)
    shown += capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    assert "aaaa" in shown and "and 37 more" in shown and "removed_by 99, removed_at 1970-01-01" in shown


def test_what_cannot_be_shown_is_said(folder: Path, tmp_path: Path) -> None:
    state = folder / "index"
    assert "there is no group 3" in run("groups", "--index", state, "3", code=2).stderr
    run("groups", "--index", state, "--since", "yesterday", code=2)
    run("groups", "--index", tmp_path / "none", code=3)
    run("dedup", folder / "feed", "--index", tmp_path / "plain", "--quiet", "--no-groups")
    without = run("groups", "--index", tmp_path / "plain", code=3).stderr
    assert "keeps no groups" in without and "feed it again into a new folder without --no-groups" in without


def test_an_index_keeps_groups_by_default(folder: Path, tmp_path: Path) -> None:
    def feed(*more: object, code: int = 0) -> str:
        return run("dedup", folder / "feed", *more, "--quiet", code=code).stderr

    state = ("--index", tmp_path / "index")
    feed(*state, "--source-field", "outlet", "--time-field", "at")
    assert lines(*state) == lines("--index", folder / "index")
    assert "keeps groups, from the beginning on" in feed(*state, "--no-groups", code=3)
    plain = ("--index", tmp_path / "plain")
    feed(*plain, "--no-groups")
    feed(*plain)  # as it was made
    assert "keeps no groups" in run("groups", *plain, code=3).stderr
    feed("--index", tmp_path / "all", "--compare-with", "all")
    assert "keeps no groups" in run("groups", "--index", tmp_path / "all", code=3).stderr


def test_a_reader_that_stops_is_no_damage(folder: Path) -> None:
    with pytest.raises(BrokenPipeError), whole(folder / "index", 0):
        raise BrokenPipeError


def test_a_source_field_is_for_groups(folder: Path) -> None:
    done = run("dedup", folder / "feed", "--source-field", "outlet", code=2)
    assert "--source-field is for groups, which an index keeps: add --index DIR or --groups FILE" in done.stderr
    for more in (["--groups", "x"], ["--alerts", "x", "--rules", "y"], ["--source-field", "outlet"]):
        assert (
            f"{more[0]} is for groups; leave out --no-groups"
            in run("dedup", folder / "feed", "--no-groups", *more, code=2).stderr
        )
    assert "--source-field" not in run("pairs", "--help").stdout


def test_the_growth_of_a_group() -> None:
    """Three come, the second one is changed, the first one goes, another one without a time, and one who was late."""
    near, none = Kind.NEAR_DUPLICATE, NO_TIME
    found = growth([
        Member(0, b'"a"', 10, b'"x"', Kind.UNIQUE, None, 5, 60), Member(1, b'"b"', 20, b'"y"', near, 0.9, 3, 40),
        Member(2, b'"c"', 30, b'"x"', near, 0.9), Member(3, b'"b"', 40, b'"y"', near, 0.9, update=True),
        Member(4, b'"d"', none, b"", near, 0.9, 9, none), Member(6, b'"e"', 15, b'"z"', near, 0.9),
    ])  # fmt: skip
    assert found == Growth(
        True, [10, 15, 20, 30, 40, 60], members=[1, 2, 3, 4, 5, 5], live=[1, 2, 3, 4, 4, 3],
        sources=[1, 2, 3, 3, 3, 3], updates=[0, 0, 0, 0, 1, 0],
    )  # fmt: skip
    found = growth([Member(3, b'"a"', none, b"", Kind.UNIQUE, None, 8), Member(5, b'"b"', none, b"", near, 0.9)])
    assert found == Growth(False, [3, 5, 8], [1, 2, 2], [1, 2, 1], [0, 0, 0], [0, 0, 0])


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_picture_of_a_group(folder: Path, tmp_path: Path, suffix: str) -> None:
    extra("matplotlib")
    paths = [tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"]
    for path in paths:
        assert lines("--index", folder / "index", "0", "--plot", path)[0]["id"] == "b0"
    drawn = paths[0].read_bytes()
    assert drawn == paths[1].read_bytes()
    assert drawn.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    nowhere = tmp_path / "no" / f"growth{suffix}"
    said = run("groups", "--index", folder / "index", "0", "--plot", nowhere, code=5).stderr
    assert f"growth{suffix} cannot be written" in said


def test_what_cannot_be_drawn_is_said(folder: Path) -> None:
    for words, says in (("0", "--plot", "growth.pdf"), ".png or .svg"), (("--plot", "a.svg"), "--plot draws one group"):
        assert says in run("groups", "--index", folder / "index", *words, code=2).stderr

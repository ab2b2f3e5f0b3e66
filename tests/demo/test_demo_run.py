"""The demo from end to end: what it shows, and that the figures are right."""

import json
import re
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from support import commands

from stream_lsh.demo import desks
from stream_lsh.demo.differences import Piece, differences
from stream_lsh.demo.display import Run, choose_examples, show
from stream_lsh.demo.run import run_demo
from stream_lsh.demo.score import score
from stream_lsh.demo.story import Desk, Topic, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return run_demo(folder, 600, 11, lambda report: None, kept=True)


def test_the_engine_finds_what_there_is(run: Run) -> None:
    assert run.score.dropped.recall == 1
    assert run.score.dropped.precision == 1
    assert run.score.dropped.truth > 80
    for row in run.score.kinds:
        assert row.right == row.expected, row
        assert row.mistaken == 0, row


def test_the_files(run: Run, folder: Path) -> None:
    lines = (folder / "feed.jsonl").read_bytes().splitlines(keepends=True)
    assert lines == list(run.feed.lines())
    labels = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    assert [label["kind"] for label in labels] == [entry.kind for entry in run.feed.entries]
    truth = [line.split("\t") for line in (folder / "truth.tsv").read_text().splitlines()]
    assert len(truth) == len(run.truth.older)
    assert all(0.8 <= float(similarity) <= 1 for _, _, similarity in truth)
    reported = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    kept = {verdict["id"] for verdict in run.verdicts if verdict["kind"] == "unique"}
    assert {(pair["older"], pair["newer"]) for pair in reported} == {
        (older, newer) for older, newer, _ in truth if older in kept
    }
    # No two kept ones are similar, and every other one is similar to one of them.
    assert not any(older in kept and newer in kept for older, newer, _ in truth)
    assert not (folder / "warm-up").exists()


def test_what_is_not_found_is_counted(run: Run) -> None:
    alone = {entry.id for entry in run.feed.entries} - {verdict["duplicate_of"] for verdict in run.verdicts}
    story = next(
        place for place, entry in enumerate(run.feed.entries) if entry.kind == "story" and place and entry.id in alone
    )
    verdicts = [dict(verdict) for verdict in run.verdicts]
    verdicts[story] |= {
        "kind": "near_duplicate", "duplicate_of": run.feed.entries[0].id, "group": 0,
        "matches": [{"id": "x", "seq": 0, "similarity": 0.9}],
    }  # fmt: skip
    lost = next(place for place, entry in enumerate(run.feed.entries) if entry.kind == "wire copy")
    verdicts[lost] |= {"kind": "unique", "matches": []}
    result = score(run.feed, run.truth, verdicts)
    assert (result.dropped.missed, result.dropped.false) == (1, 1)
    rows = {row.kind: row for row in result.kinds}
    assert rows["story"].mistaken == 1
    assert rows["wire copy"].right == rows["wire copy"].expected - 1


def test_examples_are_different_edits_of_different_stories_and_one_in_another_language(run: Run) -> None:
    examples = choose_examples(run, 4)
    entries = [run.feed.entries[newer] for newer, _ in examples]
    assert len({entry.kind for entry in entries}) == len({entry.story for entry in entries}) == 4
    assert sum(entry.document["lang"] != "en" for entry in entries) == 1
    assert all(run.feed.entries[older].id == run.feed.entries[newer].parent for newer, older in examples)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_it_fits_every_width(run: Run, width: int) -> None:
    output = StringIO()
    show(Console(file=output, width=width, highlight=False), run)
    text, _, commands = output.getvalue().partition("To go on")
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "Recall" in text
    assert "100 %" in text
    assert f"stream-lsh info --index {run.folder}/index\n" in commands


def test_the_command(tmp_path: Path) -> None:
    result = commands.run("demo", "--documents", "60", "--keep", str(tmp_path / "kept"), "--quiet")
    assert "Verdicts on 60 documents" in result.stdout
    assert result.stderr == ""
    assert "not empty" in commands.run("demo", "--keep", str(tmp_path / "kept"), code=2).stderr
    commands.run("demo", "--documents", "3", code=2)


def test_the_feed_alone_is_what_the_demo_would_work_on(run: Run) -> None:
    result = commands.run("demo", "--feed", "--documents", "600", "--seed", "11")
    assert result.stdout_bytes == b"".join(run.feed.lines())
    assert result.stderr == ""


TOPICS = [
    pytest.param(desk, topic, id=f"{desk.name}-{number}")
    for desk in (*desks.ENGLISH, *desks.OTHERS, desks.NOTICES)
    for number, topic in enumerate(desk.topics)
]


@pytest.mark.parametrize(("desk", "topic"), TOPICS)
def test_nothing_of_the_templates_shows(desk: Desk, topic: Topic) -> None:
    for seed in range(20):
        story = write(Random(seed), desk, topic)
        text = "\n".join([story.title(), story.other_title(), *story.body(len(story.extras))])
        assert not re.search(r"[{}|\[\]]", text)
        assert story.title() != story.other_title()
        assert not re.search(r"(^|[.] )[a-z]", text, re.MULTILINE)


WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "中", "文", "five."]), max_size=40).map(" ".join)


def plain(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_a_changed_word() -> None:
    left, right = differences("the price rose to 17 euros", "the price rose to 19 euros")
    assert left == [Piece("the price rose to", False), Piece(" 17", True), Piece(" euros", False)]
    assert right == [Piece("the price rose to", False), Piece(" 19", True), Piece(" euros", False)]


def test_scripts_without_spaces_are_compared_by_character() -> None:
    left, right = differences("全长三十公里，共设车站", "全长五十公里，共设车站")
    assert [piece.text for piece in left if piece.changed] == ["三"]
    assert [piece.text for piece in right if piece.changed] == ["五"]


@given(WORDS, WORDS)
def test_with_room_for_all_nothing_is_lost(first: str, second: str) -> None:
    left, right = differences(first, second, opening=10**6, context=10**6, longest=10**6)
    assert plain(left) == " ".join(first.split())
    assert plain(right) == " ".join(second.split())

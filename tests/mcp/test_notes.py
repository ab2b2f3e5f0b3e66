"""Notes of agents: what the tools answer, whose notes they see, and the protocol itself."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mcp import Client, StdioServerParameters
from support.commands import run

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.api import feeding
from stream_lsh.embedded.engine import Engine
from stream_lsh.errors import UsageError
from stream_lsh.mcp import FOR_NOTES
from stream_lsh.mcp.notes import BEGINNING, PARTS, Notes
from stream_lsh.mcp.pipes import Lines, Output
from stream_lsh.mcp.scope import Scope
from stream_lsh.mcp.server import Tools

DARK = "the user prefers dark mode in the editor, and a large font"
DARKER = "the user prefers the dark mode in the editor and a large font"
OTHER = "deploy to staging on friday after the tests have passed"


@pytest.fixture
def notes(tmp_path: Path) -> Any:
    with Deduplicator(Settings(**FOR_NOTES), index=tmp_path / "index", commit="manual") as deduplicator:
        yield Notes(deduplicator, Scope([], {}))


@contextmanager
def agents(tmp_path: Path, fields: list[str], *values: dict[str, Any]) -> Any:
    with Deduplicator(Settings(**FOR_NOTES, match_within=fields), index=tmp_path / "index") as deduplicator:
        yield [Notes(deduplicator, Scope(fields, value)) for value in values]


def test_a_note_its_copy_and_another(notes: Notes) -> None:
    first = notes.add(DARK)
    assert first.new and first.kind == "unique" and first.similar == []
    assert notes.check(DARKER).new is False and notes.check(OTHER).new
    second, other = notes.add(DARKER, "b"), notes.add(OTHER, "c")
    assert (second.kind, second.similar[0].id, second.similar[0].text) == ("near_duplicate", first.id, DARK)
    assert (second.group, other.group) == (first.group, 2)
    assert notes.similar(DARK, 1).similar[0].id == first.id
    assert notes.get("b").duplicate_of == first.id and notes.get("b").text == DARKER
    (group,) = notes.groups().groups
    assert (group.group, group.notes, group.representative.id if group.representative else None) == (0, 2, first.id)
    assert [member.id for member in notes.members(0).members] == [first.id, "b"]
    assert notes.add(DARKER, "b").kind == "redelivered"
    assert notes.add(OTHER + " of all branches", "b").similar[0].id == "c"  # it has another text now
    assert notes.delete("b").deleted and not notes.delete("b").deleted
    assert notes.check(DARKER).similar[0].id == first.id


def test_a_note_is_there_after_a_crash(notes: Notes, tmp_path: Path) -> None:
    """Durable when the tool answers."""
    notes.add(DARK, "a")
    with Deduplicator(index=tmp_path / "index", read_only=True) as reader:
        assert "a" in reader


def test_each_change_is_one_commit(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Mock(side_effect=Engine.commit)
    monkeypatch.setattr(feeding, "COMMIT_SECONDS", 0)
    monkeypatch.setattr(Engine, "commit", lambda self, **given: commit(self, **given))
    notes.add(DARK, "a"), notes.add(DARKER, "a"), notes.check(OTHER), notes.delete("a")
    assert commit.call_count == 3


def test_comparing_shows_what_only_one_says(notes: Notes) -> None:
    notes.add(f"{OTHER} by anna", "a")
    notes.add(f"{OTHER} by bert", "b")
    found = notes.compare("a", "b")
    assert found.near_duplicates and found.similarity == notes.compare("b", "a").similarity > found.threshold
    assert any("anna"[1:] in part for part in found.only_in_first) and found.only_in_second != []
    notes.add(" ".join(f"{i:x}" for i in range(9000)), "long")
    notes.add("an end of " + OTHER, "short")
    apart = notes.compare("long", "short")
    assert len(apart.only_in_first) <= PARTS and max(map(len, apart.only_in_first)) <= 200
    assert len(notes.similar(notes.get("long").text or "").similar[0].text or "") == BEGINNING


def test_notes_of_containment(tmp_path: Path) -> None:
    with Deduplicator(Settings(measure="containment", on_conflict="update"), index=tmp_path / "index") as deduplicator:
        notes = Notes(deduplicator, Scope([], {}))
        note = " ".join(f"word{i}" for i in range(100))
        notes.add(note, "a")
        assert notes.check(f"{note} and an end").similar[0].id == "a"
        notes.add(f"{note} and an end", "b")
        assert notes.compare("a", "b").similarity == 1.0 and notes.compare("a", "b").only_in_first == []


def test_integers_are_ids_of_their_own(notes: Notes, tmp_path: Path) -> None:
    """Other programs store them. Their digits name them unless a note has these as its id."""
    tools = Tools(notes)

    def answer(tool: str, **given: Any) -> Any:
        return tools.call(tool, given).structured_content

    assert answer("add", text=DARK, id=1)["id"] == 1
    assert [found["id"] for found in answer("check", text=DARKER)["similar"]] == [1]
    assert answer("get", id="1") == answer("get", id=1)
    assert answer("add", text=DARKER, id="1")["id"] == 1 and len(answer("check", text=DARK)["similar"]) == 1
    list(notes._index.process([Document("1", DARK), Document(2, DARK), Document(0, OTHER)]))
    assert [member["id"] for member in answer("members", group=answer("get", id=1)["group"])["members"]] == [1, "1", 2]
    assert answer("get", id="1")["text"] == DARK and answer("get", id=1)["text"] == DARKER
    assert answer("compare", first="2", second=1)["similarity"] == answer("compare", first="1", second=1)["similarity"]
    assert answer("get", id="2")["duplicate_of"] == 1 and answer("get", id="0")["id"] == 0
    assert answer("delete", id="2") == {"id": 2, "deleted": True}
    assert answer("add", text=OTHER, id="02")["id"] == "02" and answer("add", text=OTHER, id="3")["id"] == "3"
    assert answer("add", text=OTHER, id=10**30) and answer("check", text=OTHER)
    assert tools.call("get", {"id": True}).is_error and tools.call("get", {"id": 1.0}).is_error


def test_a_longer_note_is_not_new_if_the_longest_is_kept() -> None:
    with Deduplicator(Settings(**FOR_NOTES, keep="longest")) as deduplicator:
        notes = Notes(deduplicator, Scope([], {}))
        notes.add(DARK, "a")
        assert not notes.check(DARKER).new
        added = notes.add(DARKER, "b")
        assert (added.kind, added.new, [found.id for found in added.similar]) == ("unique", False, ["a"])


def test_a_group_of_one_note_left_is_no_row(notes: Notes) -> None:
    notes.add(DARK, "a"), notes.add(DARKER, "b")
    notes.add(OTHER, "c"), notes.add(OTHER + " of all branches", "d")
    notes.delete("b")
    assert [group.group for group in notes.groups().groups] == [notes.get("c").group]


def test_agents_see_and_change_only_their_own_notes(tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [
        {"agent": "a", "team": 1},
        {"agent": "a", "team": "1"},
        {"agent": "a/+1", "team": 1},
    ]
    with agents(tmp_path, ["agent", "team"], *values) as (one, two, three):
        for who in (one, two, three):
            assert who.add(DARK, "x").new
            assert who.add(DARKER, "y").similar[0].id == "x"
            assert [group.notes for group in who.groups(limit=1).groups] == [2]
        assert one.delete("x").deleted
        assert two.get("x").text == DARK and three.similar(DARKER).similar[0].id == "x"
        theirs = two.groups().groups[0].group
        with pytest.raises(UsageError, match="there is no group"):
            one.members(theirs)
        with pytest.raises(UsageError, match="there is no note 'x'"):
            one.get("x")


def test_notes_that_another_program_stored_in_a_scope(tmp_path: Path) -> None:
    """They are similar notes, too; no tool can name them."""
    with agents(tmp_path, ["agent"], {"agent": "alice"}, {"agent": "bob"}) as (alice, bob):
        list(alice._index.process([Document("w", DARK, within={"agent": "alice"})]))
        (found,) = alice.check(DARKER).similar
        assert (found.id, found.text, alice.check(DARKER).new, bob.check(DARKER).new) == (None, DARK, False, True)
        added = alice.add(DARK, "x")
        assert (added.kind, added.new, [row.id for row in added.similar]) == ("exact_duplicate", False, [None])
        assert alice.get("x").duplicate_of is None
        assert [row.id for row in alice.members(added.group).members] == [None, "x"]
        with pytest.raises(UsageError, match="there is no group"):
            bob.members(added.group)


def test_an_id_that_no_message_can_have() -> None:
    assert Scope([], {}).shown("\ud800") is None


def test_groups_of_a_small_scope_among_many(tmp_path: Path) -> None:
    with agents(tmp_path, ["agent"], {"agent": "big"}, {"agent": "small"}) as (big, small):
        for i in range(30):
            for end in ("a", "b", "c"):
                big.add(f"{sha256(bytes([i])).hexdigest()} {end}")
        small.add(DARK, "x"), small.add(DARKER, "y")
        assert [group.notes for group in small.groups(limit=1).groups] == [2]
        assert not small.groups().more and not big.groups(limit=30).more and big.groups(limit=29).more
        assert small.groups("newest", 1).more is False


def test_groups_that_are_looked_through_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.mcp.notes.MOST_GROUPS", 3)
    with agents(tmp_path, ["agent"], {"agent": "big"}, {"agent": "small"}) as (big, small):
        small.add(DARK, "x"), small.add(DARKER, "y")
        for text in (OTHER, "a first of some notes", "3141592653589793238"):
            assert [group.notes for group in small.groups("newest").groups] == [2]
            for end in ("", "?"):
                big.add(text + end)
        assert small.groups("newest").groups == [] and small.groups("newest").more
        assert len(big.groups("newest").groups) == 3


def test_members_of_a_large_group_come_in_parts(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the texts of a part are read."""
    documents = [Document(f"{i}", f"{DARK} {i}") for i in range(250)]
    list(notes._index.process(documents))
    get = Mock(side_effect=notes._index.get)
    monkeypatch.setattr(notes._index, "get", get)
    parts = [notes.members(0, offset) for offset in (0, 100, 200, 300)]
    assert [(len(part.members), part.more) for part in parts] == [(100, 150), (100, 50), (50, 0), (0, 0)]
    assert [row.id for part in parts for row in part.members] == [document.id for document in documents]
    assert get.call_count == 250


@pytest.mark.parametrize(
    ("fields", "values"), [(["agent"], {}), ([], {"agent": "a"}), (["agent", "team"], {"agent": "a"})]
)
def test_a_scope_has_a_value_of_each_field(fields: list[str], values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the index matches within"):
        Scope(fields, values)


@pytest.mark.parametrize("value", [1.5, [1], "a" * 300])
def test_a_scope_has_values_that_a_document_may_have(value: Any) -> None:
    with pytest.raises(UsageError, match='the field "agent" to match within'):
        Scope(["agent"], {"agent": value})


def test_a_measure_that_compares_no_notes(tmp_path: Path) -> None:
    """Not that a setting for notes does not go with it, which was not given."""
    (tmp_path / "settings.toml").write_text('measure = "cosine"\ndimensions = 8\n')
    for given in (["--measure", "cosine", "--dimensions", 8], ["--config", tmp_path / "settings.toml"]):
        refused = run("mcp", "--index", tmp_path / "index", *given, code=2)
        assert "measure = cosine compares no notes; leave it out, or give jaccard or containment" in refused.stderr
    assert not (tmp_path / "index").exists()


def test_the_help_shows_the_settings_of_new_notes() -> None:
    said = run("mcp", "--help-all").stdout
    assert "[0.5]" in said and "[update]" in said and "[chars:3]" in said


def test_an_index_whose_documents_stay_refuses_to_delete() -> None:
    with Deduplicator(Settings()) as deduplicator:
        notes = Notes(deduplicator, Scope([], {}))
        notes.add(DARK, "a")
        with pytest.raises(UsageError, match="nothing can be deleted"):
            notes.delete("a")
        assert notes.get("a").text == DARK


def test_an_index_without_texts_is_refused() -> None:
    settings = Settings(measure="hamming", dimensions=64, max_distance=3)
    with Deduplicator(settings) as deduplicator, pytest.raises(UsageError, match="notes are texts"):
        Notes(deduplicator, Scope([], {}))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("add", {"text": ""}, "the note was not stored: the text"),
    ("add", {"text": "a text", "id": ""}, "the id is empty"),
    ("add", {"text": "a text", "id": "x" * 5000}, "the id has more than 4096 bytes"),
    ("add", {"text": "\ud800 half a character", "id": "x"}, "the note was not stored"),
    ("similar", {"text": DARK, "limit": 0}, "limit = 0: from 1 to 100"),
    ("groups", {"limit": 101}, "limit = 101"),
    ("get", {"id": "nobody"}, "there is no note 'nobody'"),
    ("compare", {"first": "nobody", "second": "nobody"}, "there is no note"),
    ("members", {"group": 17}, "there is no group 17"),
    ("members", {"group": 10**30}, "there is no group 1"),
    ("members", {"group": -1}, "there is no group -1"),
    ("members", {"group": 0, "offset": -1}, "offset = -1: 0 or more"),
    ("check", {"text": " "}, "the text"),
    ("check", {}, "the arguments of check are wrong: text: Field required"),
    ("groups", {"limit": "all", "order": "odd"}, "order: Input should be 'largest' or 'newest'; limit: "),
    ("check", {"text": DARK, "limit": 3}, "check takes no 'limit'; it takes text"),
    ("forget", {}, "there is no tool 'forget'; there are check, "),
]


@pytest.mark.parametrize(("tool", "given", "said"), BAD)
def test_bad_input_is_an_error_that_says_what(notes: Notes, tool: str, given: dict[str, Any], said: str) -> None:
    answer = Tools(notes).call(tool, given)
    assert answer.is_error and said in answer.content[0].text  # type: ignore[union-attr]
    assert notes.groups().groups == []


async def test_over_the_protocol(tmp_path: Path) -> None:
    """A process that an agent starts; what it stored, another command finds."""
    index = str(tmp_path / "notes")
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "stream_lsh", "mcp", "--index", index, "--within", "agent=alice"]
    )
    async with Client(command) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"check", "similar", "get", "compare", "groups", "members", "add", "delete"}
        assert all(tool.description and tool.output_schema for tool in tools.values())
        assert [name for name, tool in tools.items() if not (tool.annotations and tool.annotations.read_only_hint)] == [
            "add", "delete",
        ]  # fmt: skip
        await client.call_tool("add", {"text": DARK, "id": "a"})
        answer = await client.call_tool("add", {"text": DARKER})
        assert answer.structured_content is not None and answer.structured_content["similar"][0]["id"] == "a"
        bad = await client.call_tool("get", {"id": "nobody"})
        assert bad.is_error and "there is no note 'nobody'" in bad.content[0].text  # type: ignore[union-attr]
    assert "alice/a" in run("query", DARK, "--index", index, "--within", "agent=alice", "--json").stdout
    refused = run("mcp", "--index", index, code=2)
    assert "give --within agent=VALUE" in refused.stderr


@contextmanager
def spoken(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[bytes], dict[str, Any]]]]:
    """A process, and what it answers to a line."""
    command = [sys.executable, "-m", "stream_lsh", "mcp", "--index", str(tmp_path / "notes"), "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:

        def said(line: bytes) -> dict[str, Any]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        said(
            call(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "", "version": ""})
        )
        yield process, said
        process.kill()


def call(id: int, method: str, **given: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": given}).encode()


def test_each_line_has_an_answer(tmp_path: Path) -> None:
    """Also one that the SDK cannot read."""
    with spoken(tmp_path) as (_, said):
        for line, id, code in (
            (call(7, "tools/call", name="add", arguments={"text": "half a \ud800"}), 7, -32700),
            (
                call(8, "tools/call", name="add", arguments={"text": "of another"}).replace(b"8", b'"\\ud800"'),
                None,
                -32700,
            ),
            (b"\n no JSON", None, -32700),
            (b'{"id": true}', None, -32600),
            (b'{"id": "a", "method": "tools/list"}', "a", -32600),
        ):
            answer = said(line)
            assert (answer["id"], answer["error"]["code"]) == (id, code), line
        found = said(call(9, "tools/call", name="add", arguments={"text": DARK}))
        assert found["id"] == 9 and found["result"]["structuredContent"]["new"]


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 141)])
def test_an_end_from_outside_has_a_code_and_no_traceback(tmp_path: Path, end: signal.Signals | None, code: int) -> None:
    """None: the agent reads no more answers."""
    with spoken(tmp_path) as (process, _):
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if end is not None:
            process.send_signal(end)
        else:
            process.stdout.close()
            process.stdin.write(call(1, "tools/list") + b"\n")
            process.stdin.flush()
        said = process.stderr.read().decode()
        assert (process.wait(), "Traceback" in said) == (code, False), said


async def test_lines_longer_than_a_pipe_pass_through_it() -> None:
    """While one side waits for the other, the event loop goes on."""
    source, sink = os.pipe()
    lines = ["a" * 300_000, "\u00e9\u4e2d", "", "the end"]

    async def write() -> None:
        await Output(sink).write("\n".join(lines))
        os.close(sink)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        assert [line async for line in Lines(source)] == lines
    os.close(source)


async def test_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\n\nb")
    with (tmp_path / "lines").open() as file:
        assert [line async for line in Lines(file.fileno())] == ["a", "", "b"]

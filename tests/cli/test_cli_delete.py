"""`stream-lsh delete` and `stream-lsh erase`, and what `info` says of erasing."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support.commands import figures, run
from support.json_lines import read_lines, write_lines

from stream_lsh import Deduplicator, Settings
from stream_lsh.documents.fields import json_id
from stream_lsh.embedded import deleting, job
from stream_lsh.errors import StreamLshError

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"
OTHER = "an old oak fell on the road to the harbour last night and nobody was hurt the fire brigade says so"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index that takes updates, with two groups, and the feed and the unique documents that belong to it."""
    documents = [("a", TEXT), ("b", TEXT), (17, OTHER), ("17", OTHER + " and more"), ("c", TEXT + " or three")]
    write_lines(tmp_path / "feed", [{"id": id, "text": text} for id, text in documents])
    dedup(tmp_path)
    return tmp_path


def dedup(folder: Path, *more: object) -> None:
    run(
        "dedup", folder / "feed", "--index", folder / "index", "--unique", folder / "unique", "--on-conflict", "update",
        "--quiet", *more,
    )  # fmt: skip


def delete(folder: Path, *ids: object, code: int = 0, input: bytes | None = None) -> Result:
    return run("delete", *ids, "--index", folder / "index", code=code, input=input)


def test_what_is_deleted_has_verdicts_and_a_line_among_the_unique(folder: Path) -> None:
    done = delete(folder, '"a"', '"c"', "17", '"nobody"', "--json-id", "--unique", folder / "unique")
    assert done.stderr == "stream-lsh: 3 documents deleted, 1 id not found\n"
    assert [(v["id"], v["seq"], v["kind"], v.get("replaces"),
    v.get("new_representative")) for v in read_lines(done.stdout)] == [
        ("a", 5, "deleted", 0, {"id": "b", "seq": 1}), ("c", 6, "deleted", 4, None),
        (17, 7, "deleted", 2, {"id": "17", "seq": 3}), ("nobody", 8, "deleted", None, None),
    ]  # fmt: skip
    feed, offset = str(folder / "feed"), (folder / "feed").read_bytes().index(b'{"id": "17"')
    assert read_lines(folder / "unique")[2:] == [
        {"id": "a", "deleted": True, "new_representative": "b", "at": {"input": feed, "line": 2, "offset": 121}},
        {"id": 17, "deleted": True, "new_representative": "17", "at": {"input": feed, "line": 4, "offset": offset}},
    ]
    with (folder / "feed").open("a") as file:
        file.write(json.dumps({"id": "d", "text": TEXT}) + "\n" + json.dumps({"id": "e", "text": "it " * 9}) + "\n")
    dedup(folder, "--verdicts", folder / "verdicts", "--only-new")
    first, last = read_lines(folder / "verdicts")
    assert (first["seq"], first["duplicate_of"], first["group"], last["kind"]) == (9, "b", 0, "unique")
    assert read_lines(folder / "unique")[4:] == [{"id": "e", "text": "it " * 9}]


def test_ids_from_standard_input(folder: Path) -> None:
    done = delete(folder, '"c"', "-", "--quiet", "--json-id", input=b' "a"\r\n\n"17"\n17\n"b"')
    assert [verdict["id"] for verdict in read_lines(done.stdout)] == ["c", "a", "17", 17, "b"]
    assert all("replaces" in verdict for verdict in read_lines(done.stdout))
    assert done.stderr == ""
    with Deduplicator(index=folder / "index", read_only=True) as reader:
        assert len(reader) == 0


def test_ids_are_text_unless_they_are_said_to_be_json(folder: Path) -> None:
    def deleted(done: Result) -> list[Any]:
        return [(verdict["id"], verdict["deleted"]) for verdict in read_lines(done.stdout)]

    odd = ["007", "1e3", "null", '"17"', "a/b", " a ", "ü", ""]
    done = delete(folder, *odd, "18")
    assert deleted(done) == [(id, False) for id in (*odd, "18")]
    assert "0 documents deleted, 9 ids not found; ids are text; use --json-id" in done.stderr
    assert deleted(delete(folder, "17")) == [("17", True)]
    assert deleted(delete(folder, "17")) == [("17", False)]
    assert deleted(delete(folder, "17", '"a"', "--json-id")) == [(17, True), ("a", True)]


@pytest.mark.parametrize(
    ("text", "id"), [("17", 17), ("-3", -3), (' "17" ', "17"), ('"\\u00e9"', "\u00e9"), (str(2**70), 2**70)]
)
def test_ids_as_json(text: str, id: str | int) -> None:
    assert json_id(text) == id and type(json_id(text)) is type(id)


@pytest.mark.parametrize("text", ["a", "017", "1.0", "1e3", "true", "null", '{"a":1}', '"', "", "1" * 5000, "[" * 9999])
def test_what_is_no_id_as_json_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ValueError, match="is no id as JSON: give an integer, or a string in double quotes"):
        json_id(text)


def test_wrong_command_lines(folder: Path) -> None:
    for given, message in (
        ((), "no ID: name documents"), (("-", "-"), "given more than once"),
        (("a", "--unique", "-"), "--unique - is where the verdicts are"), (("x" * 5000,), "more than 4096 bytes"),
        (("a", "--json-id"), "--json-id: 'a' is no id as JSON"),
    ):  # fmt: skip
        assert message in delete(folder, *given, code=2).stderr, given
    delete(folder, "-", input=b"a\n\xff\n", code=4)
    assert "there is no index in" in run("delete", "a", "--index", folder / "none", code=3).stderr
    (folder / "other").write_text("what somebody else wrote\n")
    assert "is there already" in delete(folder, "a", "--unique", folder / "other", code=5).stderr
    with Deduplicator(index=folder / "index", read_only=True) as reader:
        assert len(reader) == 5


def test_wrong_command_lines_for_kafka() -> None:
    for given, message in (
        (("a",), "nothing says how records delete: give --key-is-id or --deleted-field"),
        (("a", "--key-is-id", "json", "--id-field", "@line"), "no key is one"),
        (("a", "--deleted-field", "gone", "--id-field", "@line"), "nothing can be deleted by its id"),
        ((), "no ID: name documents"),
    ):  # fmt: skip
        assert message in run("kafka", "delete", *given, code=2).stderr, given


def test_an_index_whose_documents_stay_is_refused(tmp_path: Path) -> None:
    run("dedup", write_lines(tmp_path / "feed", [{"id": "a", "text": TEXT}]), "--index", tmp_path / "index")
    done = delete(tmp_path, "a", code=2)
    assert "whose documents stay as they are (on_conflict = reject): feed them into a new one" in done.stderr


def test_another_process_is_writing(folder: Path) -> None:
    with Deduplicator(index=folder / "index"):
        assert "another process" in delete(folder, "a", code=3).stderr
    delete(folder, "a")


def test_an_interrupted_run_continues_behind_a_deletion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: it is cut to where it was committed, then come the lines of what was deleted, then its own."""
    monkeypatch.setattr(job, "COMMIT_SECONDS", 0)
    with (folder / "feed").open("a") as file:
        file.write(json.dumps({"id": "x", "text": "one two three four five"}) + "\n")
    more = write_lines(folder / "more", [{"id": "y", "text": "six seven eight nine ten"}])

    commit, count = job.Index.commit, iter(range(10**6))

    def failing(index: Any, *given: Any, **named: Any) -> None:
        if next(count) == 2:
            raise StreamLshError("enough")
        commit(index, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(job.Index, "commit", failing)
        run("dedup", folder / "feed", more, "--index", folder / "index", "--unique", folder / "unique", "-q", code=1)
    before = (folder / "unique").read_bytes()
    assert b'"x"' in before
    delete(folder, "a", "--unique", folder / "unique")
    assert figures("info", "--index", folder / "index")["health"]["interrupted"]
    dedup(folder, more)
    found = read_lines(folder / "unique")
    assert [(line["id"], line.get("deleted")) for line in found] == [
        ("a", None), (17, None), ("x", None), ("a", True), ("y", None)
    ]  # fmt: skip


def test_many_are_deleted_in_batches_and_printed_once_committed(tmp_path: Path) -> None:
    ids = [f"d{n}" for n in range(2 * deleting.BATCH + 5)]
    write_lines(tmp_path / "feed", [{"id": id, "text": f"{id} stands for itself {id[::-1]}"} for id in ids])
    dedup(tmp_path)
    reported = deleting.delete(ids, tmp_path / "index", str(tmp_path / "unique"))
    assert len(next(reported).ids) == deleting.BATCH
    reported.close()
    with Deduplicator(index=tmp_path / "index", read_only=True) as reader:
        assert len(reader) == deleting.BATCH + 5
    assert sum(len(judgement.ids) for judgement in deleting.delete(ids, tmp_path / "index")) == len(ids)
    with Deduplicator(Settings(on_conflict="update"), index=tmp_path / "index", read_only=True) as reader:
        assert len(reader) == 0


@pytest.fixture
def state(tmp_path: Path) -> str:
    state = str(tmp_path / "index")
    feed = write_lines(tmp_path / "feed", [{"id": f"id-{i}", "text": f"{TEXT} {i} {i}"} for i in range(3)])
    run("dedup", feed, "--index", state, "--on-conflict", "update", "--quiet", "--unique", "-")
    return state


def info(state: str) -> str:
    return run("info", "--index", state, "--check").stdout


def test_what_was_deleted_waits_and_is_erased(state: str) -> None:
    assert "erasing" not in info(state)
    run("delete", "id-1", "--index", state)
    shown = info(state)
    assert "waiting" in shown and "due" in shown
    assert run("erase", "--index", state).stderr == "stream-lsh: 0 versions erased, 1 version not due yet\n"
    assert run("erase", "--index", state, "--now").stderr == "stream-lsh: 1 version erased\n"
    shown = " ".join(info(state).split())
    assert "erased 1 waiting 0 left of the erased nothing" in shown


def test_delete_erases_what_is_due(state: str) -> None:
    run("delete", "id-1", "--index", state, "--erase-hours", "0")
    assert "erased 1 waiting 0 left of the erased nothing" in " ".join(info(state).split())
    assert run("erase", "--index", state, "--quiet").output == ""


def test_what_is_refused(state: str, tmp_path: Path) -> None:
    assert "there is no index in" in run("erase", "--index", tmp_path / "other", code=3).stderr
    assert "--index is missing: folder of the index" in run("delete", "id-1", "--erase-hours", "1", code=2).stderr
    assert "erase_hours" in run("delete", "id-1", "--index", state, "--erase-hours", "-1", code=2).stderr


def test_the_process_with_the_index_erases(state: str) -> None:
    run("delete", "id-1", "--index", state)
    with Deduplicator(index=state):
        for more in ((), ("--now",)):
            refused = run("erase", "--index", state, *more, code=3)
            assert "erases by itself" in refused.stderr and "stop that process to erase sooner" in refused.stderr
    assert run("erase", "--index", state, "--now").stderr == "stream-lsh: 1 version erased\n"

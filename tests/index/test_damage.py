"""What was lost, cut off or changed is said with its remedy, or made again from the rows: never a wrong answer."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import WORDS, nasty
from support.in_memory import temporary_folder
from support.indexes import fed, once, opened

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.postings.posting import packed
from stream_lsh.index.postings.run import EARLIER_MAGIC, Run, read_header
from stream_lsh.index.postings.runs import Postings
from stream_lsh.index.store.rocksdb import Store, rows_key
from stream_lsh.settings.model import Settings

FEEDER = ("-m", "support.feeder")
N, FED = 600, 360  # of the last segment so few that its runs are not merged yet
SMALL = {"memtable_documents": 16, "segment_documents": 150}
FEED = nasty(17, N, words=WORDS[:80])
Whole = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=["kept", pytest.param("all", marks=pytest.mark.long)])
def whole(request: pytest.FixtureRequest) -> Iterator[Whole]:
    """An index of some segments with all but the last documents, closed; and the verdicts on all of them."""
    settings = Settings(compare_with=request.param, **SMALL)
    with temporary_folder() as folder:
        verdicts = once(FEED, settings, folder / "all")
        with opened(settings, folder / "index") as index:
            for at in (*range(0, FED - 10, 39), FED - 10):  # the last ones are in no file yet
                stop = min(at + 39, FED if at == FED - 10 else FED - 10)
                assert fed(index, FEED[at:stop], at, 10) == verdicts[at:stop]
                index.commit({})
        yield folder / "index", verdicts


@pytest.fixture
def copy(whole: Whole, tmp_path: Path) -> Whole:
    shutil.copytree(whole[0], tmp_path / "index")
    return tmp_path / "index", whole[1]


def goes_on(folder: Path, verdicts: list[dict[str, Any]]) -> None:
    """It gives the answers of an undamaged one, to what is new and to what was there before."""
    with opened(Settings(), folder) as index:
        assert fed(index, FEED[FED:], FED, 30) == verdicts[FED:]
        index.commit({})


def refuses_or_goes_on(folder: Path, verdicts: list[dict[str, Any]]) -> str:
    """What it says of the damage ("" if it makes no difference): when it is opened, or when it is met."""
    try:
        goes_on(folder, verdicts)
    except DamagedError as error:
        said = str(error)
        assert "restore" in said or "start a new" in said or "rebuilt from the rows" in said
        if "cannot be read as far as it was written" in said:  # a file that ends too early is noticed by the kernel
            names_the_check(folder, said)
        return said
    return ""


def names_the_check(folder: Path, said: str) -> None:
    """The kernel does not know which file it is: it must not have the whole index deleted for it."""
    assert f"stream-lsh info --index {folder} --check" in said and "rebuilt from the rows" in said
    assert re.findall(r"\S*/\S* can be deleted", said) == ["segments/*/postings can be deleted"]
    assert "delete the folder" not in said


def files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(f"segments/*/{pattern}"))
    assert found
    return found


def listed_run(folder: Path) -> Path:
    """One of the runs of a segment, where the manifest lists several."""
    with opened(Settings(), folder, read_only=True) as index:
        listed = [[run.path for run in segment.postings.runs] for segment in index.shards[0].segments]
    run = next(runs[0] for runs in listed if len(runs) > 1)
    assert run is not None
    return run


@pytest.mark.parametrize("number", range(3))
def test_lost_postings_of_one_segment_are_rebuilt(copy: Whole, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[object, ...]] = []
    monkeypatch.setattr("stream_lsh.index.segments.segment.report", lambda *step: reported.append(step))
    folder, verdicts = copy
    before = {path.name for path in files(folder, "postings")[number].iterdir()}
    shutil.rmtree(files(folder, "postings")[number])
    with opened(Settings(), folder):
        pass
    after = {path.name for path in files(folder, "postings")[number].iterdir()}
    assert bool(after) == bool(before)  # also where nothing was committed
    if before:
        name, done, all, unit = reported[-1]
        assert (str(name).startswith("rebuilding"), done, unit) == (True, all, "rows")
    goes_on(folder, verdicts)


def test_postings_are_not_rebuilt_from_changed_rows(copy: Whole) -> None:
    folder, _ = copy
    rows = files(folder, "rows-0.bin")[0]
    shutil.rmtree(rows.with_name("postings"))
    with rows.open("r+b") as file:
        file.seek(4096 + 8 * 11)
        file.write(b"changed!")
    said = f"{rows} is damaged in the rows from 0; restore the folder from a backup"
    with pytest.raises(DamagedError, match=re.escape(said)):
        Index(Settings(), folder)


def test_flushes_that_were_never_committed_are_no_damage(tmp_path: Path) -> None:
    """Their checksums stay in the store, but the rows of others are written in their place, and flushed at others."""
    folder, whole = tmp_path / "index", once(FEED[:160], Settings(**SMALL), tmp_path / "whole")

    def through(documents: list[Document], first: int, batch: int, *, commit: bool = True) -> list[dict[str, Any]]:
        with opened(Settings(**SMALL), folder) as index:
            verdicts = fed(index, documents, first, batch)
            if commit:
                index.commit({})
        return verdicts

    assert through(FEED[:40], 0, 20) == whole[:40]
    through(FEED[300:400], 40, 20, commit=False)
    assert through(FEED[40:140], 40, 33) == whole[40:140]
    assert information(folder, check=True)["health"]["problems"] == []
    shutil.rmtree(files(folder, "postings")[0])
    assert through(FEED[140:160], 140, 20) == whole[140:]


def test_a_reader_does_not_rebuild(copy: Whole) -> None:
    folder, _ = copy
    shutil.rmtree(files(folder, "postings")[0])
    with pytest.raises(DamagedError, match=r"run-.* is missing; delete the folder .*postings and start again"):
        Index(Settings(), folder, read_only=True)
    assert not files(folder, "rows-0.bin")[0].with_name("postings").exists()


def test_one_run_that_is_missing_is_named_with_what_to_do(copy: Whole) -> None:
    """And the remedy is one."""
    folder, verdicts = copy
    run = listed_run(folder)
    run.unlink()
    with pytest.raises(DamagedError, match=rf"{run} is missing; delete the folder {run.parent} and start again"):
        Index(Settings(), folder)
    shutil.rmtree(run.parent)
    goes_on(folder, verdicts)


def test_postings_of_an_earlier_revision_are_rebuilt(copy: Whole) -> None:
    """By the first program that opens the index for writing. A reader names the remedy."""
    folder, verdicts = copy
    runs = files(folder, "postings/run-*")
    for path in runs:
        with path.open("r+b") as file:
            file.write(EARLIER_MAGIC)
    said = rf"the runs in {folder}/.*/postings are of an earlier revision; open the index for writing once"
    with pytest.raises(StoreError, match=said):
        Index(Settings(), folder, read_only=True)
    goes_on(folder, verdicts)
    assert not set(runs) & set(files(folder, "postings/run-*"))


def test_one_run_of_an_earlier_revision_is_damage(copy: Whole) -> None:
    """All runs of a segment are of one revision, or a file was copied into the folder."""
    folder, _ = copy
    run = listed_run(folder)
    with run.open("r+b") as file:
        file.write(EARLIER_MAGIC)
    with pytest.raises(DamagedError, match=rf"{run} cannot be used: no run of this version"):
        Index(Settings(), folder)


def test_runs_that_the_system_refuses_to_read_are_named(copy: Whole) -> None:
    folder, _ = copy
    for run in (runs := files(folder, "postings/run-*")):
        run.unlink()
        run.mkdir()
    with pytest.raises(StoreError, match=r"run-.* cannot be used: Is a directory; .* nothing is damaged") as refused:
        Index(Settings(), folder)
    assert any(str(run) in str(refused.value) for run in runs)


def misplace_a_run(folder: Path) -> None:
    runs = files(folder, "postings/run-*")
    shutil.copy(runs[0], runs[-1])


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def lose_the_store(folder: Path) -> None:
    shutil.rmtree(folder / "db")
    (folder / "db.sealed").unlink(missing_ok=True)


def cut_rows(folder: Path) -> None:
    path = files(folder, "rows-0.bin")[0]
    os.truncate(path, path.stat().st_size - 8)


def change_the_head_of_rows(folder: Path, head: bytes | None = None) -> None:
    path = files(folder, "rows-0.bin")[0]
    data = path.read_bytes()
    path.write_bytes((data[:4096].replace(b'"format":2', b'"format":3', 1) if head is None else head) + data[4096:])


ROWS_MISSING = r"rows-0\.bin is missing; restore the folder from a backup"


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a run in the place of another": (misplace_a_run, r"is not the file that the index wrote|rebuilt from the rows"),
    "no segment 1": (lambda folder: lose(folder / "segments/000001"), ROWS_MISSING),
    "no segments": (lambda folder: lose(folder / "segments"), ROWS_MISSING),
    "no rows": (lambda folder: lose(folder / "segments/000000/rows-0.bin"), ROWS_MISSING),
    "no store": (lose_the_store, "is empty, but there are files of what it held"),
    "rows cut off": (cut_rows, r"rows-0\.bin has \d+ bytes instead of \d+; restore"),
    "rows of another format": (change_the_head_of_rows, r"has format .*3.* instead of .*2"),
    "rows without a head": (lambda folder: change_the_head_of_rows(folder, b"x" * 4096), "restore the folder"),
}


@pytest.mark.parametrize(("damage", "said"), FILES.values(), ids=FILES)
def test_damage_of_files_is_named_when_the_index_is_opened(
    copy: Whole, damage: Callable[[Path], None], said: str
) -> None:
    damage(copy[0])
    for read_only in (False, True) if said == ROWS_MISSING else (False,):  # a reader tries again and again
        with pytest.raises(DamagedError, match=said):
            Index(Settings(), copy[0], read_only=read_only)


@pytest.mark.parametrize("seed", range(6))
def test_a_run_cut_off_or_changed_anywhere(copy: Whole, seed: int) -> None:
    """In header, filter and directory it is noticed at once."""
    folder, verdicts = copy
    chance = random.Random(seed)
    path = chance.choice(files(folder, "postings/run-*"))
    data = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del data[chance.randrange(len(data)) :]
    else:
        header = read_header(path)
        starts = {name: header[name]["start"] for name in ("filter", "directory")}
        place = chance.choice((0, starts["filter"], starts["directory"])) if seed % 3 == 1 else 0
        data[place + chance.randrange(60)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    assert path.name in refuses_or_goes_on(folder, verdicts)
    shutil.rmtree(path.parent)
    goes_on(folder, verdicts)


def test_merge_of_damaged_postings_loses_nothing(copy: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs and the manifest stay as they are, the check names the file, and the remedy is one."""
    folder, verdicts = copy
    with opened(Settings(memtable_documents=16), folder) as index:
        segment = index.shards[0].segments[-1]
        with monkeypatch.context() as patched:
            patched.setattr(Postings, "_begin_merges", lambda _: None)
            assert fed(index, FEED[FED : FED + 80], FED, 16) == verdicts[FED : FED + 80]
            index.commit({})
            segment.postings.wait_for_flush()
        before = segment.manifest()
        path = segment.postings.runs[-1].path
        assert path is not None and len(before["runs"]) > 3
        with path.open("r+b") as file:
            file.seek(read_header(path)["postings"]["start"] + 4)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(DamagedError, match=rf"{path} is damaged .*delete the folder {path.parent} and start again"):
            segment.postings.poll()
            segment.postings.merged()
        assert segment.manifest()["runs"] == before["runs"]
        assert {path.parent / run["file"] for run in before["runs"]} == set(path.parent.glob(path.name[:6] + "*"))
    assert str(path) in " ".join(information(folder, check=True)["health"]["problems"])
    shutil.rmtree(path.parent)
    with opened(Settings(), folder) as index:
        assert fed(index, FEED[FED + 80 :], FED + 80, 30) == verdicts[FED + 80 :]
        index.commit({})
    assert information(folder, check=True)["health"]["problems"] == []


def test_a_file_that_is_cut_under_a_running_index_is_no_wrong_answer(copy: Whole) -> None:
    folder, verdicts = copy
    index = Index(Settings(), folder, durable=False)
    try:
        for path in files(folder, "postings/run-*"):
            with path.open("r+b") as file:
                file.truncate(4096)
        with pytest.raises(DamagedError, match=r"cannot be read as far as it was written|has become shorter") as error:
            assert fed(index, FEED[FED:], FED, 30) == verdicts[FED:]
        if "has become shorter" not in str(error.value):  # then a merge was first
            names_the_check(folder, str(error.value))
    finally:
        with suppress(StoreError):  # a merge may meet the damage too
            index.close()


@pytest.mark.parametrize("seed", range(6))
def test_values_of_the_store_cut_off_or_missing(copy: Whole, seed: int) -> None:
    """Rows that are in no file yet, ids and texts."""
    folder, verdicts = copy
    chance = random.Random(seed)
    store = Store(folder / "db")
    shard = store.named("shard/0")
    kind = (b"r", b"i", b"t")[seed % 3]
    segment = chance.choice(shard["segments"])
    if kind == b"r":
        segment = shard["segments"][-1]
    first, value = store.holding(kind, 0, segment["number"], segment["first"] + 10**6)
    key = rows_key(kind, 0, segment["number"], first)
    if seed < 3:
        store.write({}, [key])
    else:
        store.write({key: value[: chance.randrange(len(value))]})
    store.close()
    said = refuses_or_goes_on(folder, verdicts)
    if said:
        assert str(folder / "db") in said and "shard 0" in said
    else:
        assert kind != b"r"  # ids and texts may not be asked for again


@pytest.mark.long
def test_postings_of_rows_that_are_not_there_are_damage(copy: Whole) -> None:
    """They are no row of anything: memory is read where it is, or not at all."""
    folder, verdicts = copy
    for path in files(folder, "postings/run-*"):
        run = Run.open(path)
        values = run.values(0, run.size) | np.uint64((1 << run.row_bits) - 1)
        with path.open("r+b") as file:
            file.seek(run.start)
            file.write(packed(values, run.octets).tobytes())
    feed = [*FEEDER, folder, json.dumps({"memtable_documents": 16}), "17", str(N), "80", folder / "out"]
    done = subprocess.run([sys.executable, *feed], capture_output=True, text=True)
    assert done.returncode == 1, done.returncode
    assert "damaged" in done.stderr and "is rebuilt from the rows" in done.stderr, done.stderr
    names_the_check(folder, done.stderr.splitlines()[-1])
    problems = information(folder, check=True)["health"]["problems"]
    damaged = [postings for postings in files(folder, "postings") if str(postings) in " ".join(problems)]
    assert damaged
    for postings in damaged:
        shutil.rmtree(postings)
    goes_on(folder, verdicts)

"""bench/dense.py and bench/growth.py: what they count, and small runs of the processes that they start."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from support.missing import extra

from bench.dense import ours
from bench.engine import from_anywhere
from bench.growth import read_rows
from bench.peers import peer
from bench.systems import SYSTEMS

WORDS = [f"word{i}" for i in range(3000)]


def text(number: int, changed: int | None = None) -> str:
    words = [WORDS[(11 * number + 7 * i * i) % len(WORDS)] + f"x{number}" for i in range(60)]
    if changed is not None:
        words[changed] = "changed"
    return " ".join(words)


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """300 texts, each third of which is nearly the one before, each ninth the very one."""
    path = tmp_path / "feed.jsonl"
    with path.open("wb") as lines:
        for i in range(300):
            made = text(i - 1, None if i % 9 == 2 else 5) if i % 3 == 2 else text(i)
            lines.write(orjson.dumps({"id": f"near-{i}", "text": made}) + b"\n")
    return path


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    from_anywhere()


@pytest.mark.long
def test_the_engine_in_a_process_of_its_own(feed: Path, tmp_path: Path) -> None:
    planted = [("near-1", "near-2"), ("near-4", "near-5"), ("near-6", "near-7")]
    row = ours(feed, planted, tmp_path, {"max_candidates": 16})
    assert (row["documents"], row["pairs"], row["not_compared"]) == (300, 100, 0)
    assert row["dropped"] == pytest.approx(100 / 3)
    assert row["recall"] == row["newest"] == pytest.approx(2 / 3)
    assert row["rate"] > 0 and row["peak_mb"] > 1 and row["disk"] > 10
    assert (
        ours(feed, [], tmp_path, {"compare_with": "all", "max_verified_matches": 0, "max_matches": 0})["pairs"] == 100
    )


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_peer_inserts_only_what_it_kept(system: str, feed: Path, tmp_path: Path) -> None:
    extra({"fastsketch": "FastSketchLSH"}.get(name := system.partition("-")[0], name))
    with feed.open("ab") as lines:  # also like the dropped ones, which the kept ones answer for
        for i in range(300, 310):
            lines.write(orjson.dumps({"id": f"near-{i}", "text": text(1, 5)}) + b"\n")
    unique = peer(system, feed, tmp_path, ("text",), 0.7, unique=True)
    everything = peer(system, feed, tmp_path, ("text",), 0.7)
    assert unique["documents"] == everything["documents"] == 310
    dropped = {newer for _, newer in unique["pairs"]}
    assert not dropped.intersection(older for older, _ in unique["pairs"])
    assert dropped == {newer for _, newer in everything["pairs"]}
    assert len(everything["pairs"]) > len(unique["pairs"]) > 90


@pytest.mark.long
def test_a_pipe_into_what_grows(feed: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    command = [sys.executable, "-m", "bench.growing", "--index", str(tmp_path / "state"), "--every", "100"]
    command += ["--pairs", str(tmp_path / "pairs.jsonl"), "--report", str(report)]
    command += ["--settings", "memtable_documents=16 segment_documents=50"]
    with feed.open("rb") as lines:
        subprocess.run(command, stdin=lines, check=True)
    rows = read_rows(report)
    assert rows[-1]["documents"] == 300
    assert all(row["rate"] > 0 and row["batch_ms"] > 0 and row["resident_mb"] > 1 for row in rows)
    assert rows[-1]["segments"] == 6
    assert len((tmp_path / "pairs.jsonl").read_bytes().splitlines()) == 100
    report.write_bytes(report.read_bytes()[:-1])  # a line that is being written
    assert len(read_rows(report)) == len(rows) - 1

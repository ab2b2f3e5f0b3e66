"""Runs that are killed and run again, short of disk, or damaged: in the end every file is that of a whole run."""

import json
import lzma
import random
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result
from support.kills import COMMITTING, kill
from support.long_form import LONG, rotating

from stream_lsh.cli import main
from stream_lsh.index.postings.run import Run

MANY, KILLS = (24_000, 20) if LONG else (6_000, 4)
OUTPUTS = ("unique", "pairs", "verdicts", "dead-letters")
SUFFIXES = {"unique": ".jsonl", "pairs": ".jsonl.gz", "verdicts": ".jsonl.zst", "dead-letters": ".jsonl"}
CHANGING = ("--on-conflict", "update", "--deleted-field", "deleted")
# Small segments: flushes and merges happen all the time, so that kills fall into them.
SETTINGS = ("--text-field", "title", "--text-field", "text", "--memtable-documents", "128", "--quiet")


@pytest.fixture(scope="module")
def feed(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many posts with bad and repeated lines, reused ids, copies and deletions; the second part compressed."""
    folder = tmp_path_factory.mktemp("feed")
    chance = random.Random(5)
    kept: list[bytes] = []
    parts: list[list[bytes]] = [[], []]
    with lzma.open(shared_data / "posts-120k.jsonl.xz") as lines:
        for number, line in enumerate(islice(lines, request.param)):
            part = parts[number >= request.param // 2]
            part.append(line)
            dice = chance.random()
            if dice < 0.02:
                kept.append(line)
            elif dice < 0.03 and kept:
                part.append(chance.choice(kept))
            elif dice < 0.035:
                part.append(line[: len(line) // 2] + b"\n")
            elif dice < 0.04 and kept:
                part.append(chance.choice(kept).replace(b'"title": "', b'"title": "changed '))
            elif dice < 0.045 and kept:
                part.append(json.dumps({"id": json.loads(chance.choice(kept))["id"], "deleted": True}).encode() + b"\n")
            elif dice < 0.06 and kept:
                old = json.loads(chance.choice(kept))
                part.append(json.dumps(old | {"id": f"{old['id']} again {number}"}).encode() + b"\n")
    (folder / "one.jsonl").write_bytes(b"".join(parts[0]))
    (folder / "two.jsonl.zst").write_bytes(zstandard.compress(b"".join(parts[1])))
    return folder


def arguments(feed: Path, folder: Path, *more: str) -> list[str]:
    """Of a run whose index and outputs are in a folder."""
    folder.mkdir(exist_ok=True)
    outputs = [word for name in OUTPUTS for word in (f"--{name}", str(folder / (name + SUFFIXES[name])))]
    inputs = [str(feed / "one.jsonl"), str(feed / "two.jsonl.zst")]
    return ["dedup", *inputs, "--index", str(folder / "state"), *outputs, *SETTINGS, *more]


def same(broken: Path, whole: Path) -> None:
    """Both folders hold the same outputs, to the byte."""
    for name in OUTPUTS:
        # Comparing bytes by a plain `assert ==` would print megabytes.
        one = broken / (name + SUFFIXES[name])
        ours, theirs = one.read_bytes(), (whole / (name + SUFFIXES[name])).read_bytes()
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
        equal = ours == theirs
        assert equal, f"{one.name}: {len(ours)} and {len(theirs)} bytes, other from {first}"


def run(arguments: Sequence[str]) -> Result:
    """In this process."""
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    ("feed", "more", "kills"),
    [
        pytest.param(1500, CHANGING, 1),
        *rotating(((MANY, more, KILLS) for more in (("--compare-with", "all", "--shards", "3"), CHANGING,
                   ("--segment-documents", "1000"), ("--verify", "signature"))), 1),
    ],
    indirect=["feed"],
)  # fmt: skip
def test_killed_runs_end_like_an_uninterrupted_one(
    feed: Path, tmp_path: Path, more: tuple[str, ...], kills: int
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(arguments(feed, whole, *more)).exit_code == 0
    again = arguments(feed, broken, *more)
    size = (whole / "unique.jsonl").stat().st_size
    kill([sys.executable, "-c", COMMITTING, *again], broken / "unique.jsonl", size, kills)
    same(broken, whole)
    for segment in sorted((broken / "state").glob("segments/*/postings/run-*.bin")):
        Run.open(segment, check=True)
    assert not list((broken / "state").rglob("*.writing"))  # what was killed half way has been swept
    assert (b'"new_representative":"' in (whole / "unique.jsonl").read_bytes()) is (more == CHANGING)
    assert run(again).exit_code == 0
    same(broken, whole)

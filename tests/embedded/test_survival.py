"""Runs that are killed and run again, short of disk, or damaged: in the end every file is that of a whole run."""

from __future__ import annotations

import json
import lzma
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result
from support.kills import COMMITTING, kill
from support.long_form import LONG, rotating
from support.waiting import until

from stream_lsh.cli import main

DOCUMENTS = 24_000 if LONG else 6_000
OUTPUTS = ("unique", "pairs", "verdicts", "dead-letters")
SUFFIXES = {"unique": ".jsonl", "pairs": ".jsonl.gz", "verdicts": ".jsonl.zst", "dead-letters": ".jsonl"}
CHANGING = ("--on-conflict", "update", "--deleted-field", "deleted")
# Small segments: flushes and merges happen all the time, so that kills fall into them.
SETTINGS = ("--text-field", "title", "--text-field", "text", "--memtable-documents", "128", "--quiet")
COMMAND = (sys.executable, "-m", "stream_lsh.cli")


@pytest.fixture(scope="module")
def feed(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Posts with bad and repeated lines, reused ids, copies and deletions; the second part compressed."""
    folder = tmp_path_factory.mktemp("feed")
    chance = random.Random(5)
    kept: list[bytes] = []
    parts: list[list[bytes]] = [[], []]
    with lzma.open(shared_data / "posts-120k.jsonl.xz") as lines:
        for number, line in enumerate(islice(lines, DOCUMENTS)):
            part = parts[number >= DOCUMENTS // 2]
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
        same_bytes(broken / (name + SUFFIXES[name]), whole / (name + SUFFIXES[name]))


def same_bytes(one: Path, other: Path) -> None:
    """Comparing bytes by a plain `assert ==` would print megabytes."""
    ours, theirs = one.read_bytes(), other.read_bytes()
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
    equal = ours == theirs
    assert equal, f"{one.name}: {len(ours)} and {len(theirs)} bytes, other from {first}"


def run(arguments: Sequence[str]) -> Result:
    """In this process."""
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    "more",
    rotating([(("--compare-with", "all", "--shards", "3"),), (CHANGING,), (("--segment-documents", "1000"),),
              (("--verify", "signature"),)], 1),
)  # fmt: skip
def test_killed_runs_end_like_an_uninterrupted_one(feed: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(arguments(feed, whole, *more)).exit_code == 0
    again = arguments(feed, broken, *more)
    kill(
        [sys.executable, "-c", COMMITTING, *again],
        broken / "unique.jsonl",
        (whole / "unique.jsonl").stat().st_size,
        kills=20 if LONG else 4,
    )
    same(broken, whole)
    assert (b'"new_representative":"' in (whole / "unique.jsonl").read_bytes()) is (more == CHANGING)
    assert run(again).exit_code == 0
    same(broken, whole)


@pytest.mark.long
def test_standard_output_in_a_file_is_written_again(feed: Path, tmp_path: Path) -> None:
    """The shell's `>` empties the file at every start; the run writes it whole all the same."""
    whole, broken, state = tmp_path / "whole", tmp_path / "broken", tmp_path / "state"
    command = [*COMMAND, "dedup", str(feed / "one.jsonl"), *SETTINGS, "--index"]
    with whole.open("wb") as file:
        subprocess.run([*command, str(tmp_path / "other")], stdout=file, check=True)
    size, chance, killed = whole.stat().st_size, random.Random(3), 0
    for number in range(4):
        with broken.open("wb") as file, subprocess.Popen([*command, str(state)], stdout=file) as process:
            target = size * (number + chance.random()) / 4
            until(lambda process=process, target=target: process.poll() is not None or broken.stat().st_size > target)  # type: ignore[misc]
            process.kill()
        killed += process.returncode != 0
    assert killed
    with broken.open("wb") as file:
        subprocess.run([*command, str(state)], stdout=file, check=True)
    same_bytes(broken, whole)


LIMITED = """
import os, resource, signal, sys
size = int(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.long
def test_a_full_disk_is_an_error_and_the_next_run_goes_on(feed: Path, tmp_path: Path) -> None:
    """The limit on file sizes stands for the full disk; in a process of its own: `preexec_fn` is not for threads."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(arguments(feed, whole)).exit_code == 0
    failures = 0
    for share in (0.01, 0.05, 0.3, 1.5):
        size = int(share * DOCUMENTS * 1200)
        limited = [sys.executable, "-c", LIMITED, str(size), *COMMAND, *arguments(feed, broken)]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        failures += 1
        assert done.returncode in (3, 5), done.stderr
        assert "Traceback" not in done.stderr
        assert "stream-lsh:" in done.stderr
        for name in ("unique", "dead-letters"):
            path = broken / (name + SUFFIXES[name])
            assert not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    assert failures >= 2
    assert run(arguments(feed, broken)).exit_code == 0
    same(broken, whole)


@pytest.fixture(scope="module")
def indexed(feed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs and the index of a whole run over the first part."""
    folder = tmp_path_factory.mktemp("indexed")
    assert run(arguments(feed, folder)).exit_code == 0
    return folder

"""Kill -9 at random times, run the same command line again: in the end every file is that of an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest
import zstandard

OUTPUTS = ("unique", "pairs", "verdicts", "dead-letters")
SUFFIXES = {"unique": ".jsonl", "pairs": ".jsonl.gz", "verdicts": ".jsonl.zst", "dead-letters": ".jsonl"}
# Small segments: flushes and merges happen all the time, so that kills fall into them.
CHANGING = ("--on-same-id", "update", "--deleted-field", "deleted")
SETTINGS = ("--text-field", "title", "--text-field", "text", "--memory-documents", "256", "--quiet")


def lines_of(path: Path, documents: int) -> Iterator[bytes]:
    import lzma

    with lzma.open(path) as file:
        yield from islice(file, documents)


@pytest.fixture(scope="module")
def feed(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Posts with bad lines, repeated lines (redelivered), reused ids and deletions among them; the second part
    compressed."""
    folder = tmp_path_factory.mktemp("feed")
    chance = random.Random(5)
    kept: list[bytes] = []
    parts: list[list[bytes]] = [[], []]
    for number, line in enumerate(lines_of(shared_data / "posts-120k.jsonl.xz", 24_000)):
        part = parts[number >= 12_000]
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
    (folder / "one.jsonl").write_bytes(b"".join(parts[0]))
    (folder / "two.jsonl.zst").write_bytes(zstandard.compress(b"".join(parts[1])))
    return folder


def command(feed: Path, folder: Path, *more: str) -> list[str]:
    outputs = [word for name in OUTPUTS for word in (f"--{name}", str(folder / (name + SUFFIXES[name])))]
    inputs = [str(feed / "one.jsonl"), str(feed / "two.jsonl.zst")]
    return [
        sys.executable,
        "-m",
        "stream_lsh.cli",
        "dedup",
        *inputs,
        "--state",
        str(folder / "state"),
        *outputs,
        *SETTINGS,
        *more,
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / (name + SUFFIXES[name])).read_bytes() for name in OUTPUTS}


def same(broken: Path, whole: Path) -> None:
    """Both folders hold the same files, to the byte."""
    ours, theirs = contents(broken), contents(whole)
    for name in OUTPUTS:
        same_bytes(name, ours[name], theirs[name])


def same_bytes(name: str, ours: bytes, theirs: bytes) -> None:
    """Comparing bytes by a plain `assert ==` would print megabytes."""
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
    equal = ours == theirs
    assert equal, f"{name}: {len(ours)} and {len(theirs)} bytes, other from {first}"


def run(arguments: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=1800, **options)  # type: ignore[call-overload,no-any-return]


def killed(arguments: Sequence[str], seconds: float, **options: object) -> int:
    """Start a process, kill it after so many seconds; its exit code (-9 if it was killed)."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload]
    try:
        code: int = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return -signal.SIGKILL
    assert code == 0, process.communicate()[1].decode()
    return code


def longer(kills: int) -> float:
    """How much longer the next run may take: so that one gets ahead however slow the machine has become."""
    return float(1.1 ** max(0, kills - 20))


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [("--generation-documents", "1000"), ("--against", "any", "--shards", "3"), ("--verify", "signature"), CHANGING],
)
def test_killed_runs_end_like_an_uninterrupted_one(feed: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    started = time.monotonic()
    done = run(command(feed, whole, *more))
    assert done.returncode == 0, done.stderr
    length = time.monotonic() - started
    chance = random.Random(str(more))
    kills = 0
    while True:
        if killed(command(feed, broken, *more), length * chance.uniform(0.2, 0.9 + 0.05 * kills) * longer(kills)) == 0:
            if kills:
                break
            # Faster than the first run, on a machine that others use: earlier, and from the beginning.
            shutil.rmtree(broken)
            broken.mkdir()
            length /= 2
            continue
        kills += 1
        assert kills < 100, "no run got to its end"
    assert kills >= 1
    same(broken, whole)
    assert (b'"heir":"' in contents(whole)["unique"]) is (more == CHANGING)
    again = run(command(feed, broken, *more))
    assert again.returncode == 0, again.stderr
    same(broken, whole)


@pytest.mark.long
def test_standard_output_in_a_file_is_written_again(feed: Path, tmp_path: Path) -> None:
    """The shell's `>` empties the file at every start; the run writes it whole all the same."""
    arguments = [
        sys.executable,
        "-m",
        "stream_lsh.cli",
        "dedup",
        str(feed / "one.jsonl"),
        "--state",
        str(tmp_path / "state"),
        *SETTINGS,
    ]
    whole, broken, state = tmp_path / "whole", tmp_path / "broken", tmp_path / "state"
    spool = state / "standard-output"
    other = [*arguments[: -len(SETTINGS) - 1], str(tmp_path / "other"), *SETTINGS]
    started = time.monotonic()
    with whole.open("wb") as file:
        subprocess.run(other, stdout=file, check=True, timeout=1800)
    length = time.monotonic() - started
    chance = random.Random(3)
    kills = 0
    while True:
        with broken.open("wb") as file:
            process = subprocess.Popen(arguments, stdout=file)
            try:
                process.wait(length * chance.uniform(0.3, 0.9 + 0.05 * kills) * longer(kills))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.returncode in (0, -signal.SIGKILL)
        if process.returncode == 0 and kills:
            break
        done = broken.stat().st_size > 0 and not spool.exists()
        if process.returncode == 0 or done:  # too fast, or killed when all was done: from the beginning
            same_bytes("standard output", broken.read_bytes(), whole.read_bytes())
            assert run(arguments).stdout == ""  # all of it was committed
            shutil.rmtree(state)
            length, kills = (length / 2 if process.returncode == 0 else length), 0
            continue
        kills += 1
        assert kills < 100, "no run got to its end"
    same_bytes(f"standard output after {kills} kills", broken.read_bytes(), whole.read_bytes())


LIMITED = """
import os, resource, signal, sys
size = int(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.argv[2], sys.argv[2:])
"""


def limited(size: int, arguments: Sequence[str]) -> list[str]:
    """The command, with a limit on file sizes (`preexec_fn` is not safe where there are threads)."""
    return [sys.executable, "-c", LIMITED, str(size), *arguments]


@pytest.mark.long
def test_a_full_disk_is_an_error_and_the_next_run_goes_on(feed: Path, tmp_path: Path) -> None:
    """The limit on file sizes stands for the full disk: writing fails the same way, in whatever file meets it first."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run(command(feed, whole)).returncode == 0
    failures = 0
    for megabytes in (0.3, 1, 2.5, 4, 6, 9, 30):
        done = run(limited(int(megabytes * 2**20), command(feed, broken)))
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
    assert run(command(feed, broken)).returncode == 0
    same(broken, whole)


def test_a_second_process_on_the_state_is_refused(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(b'{"id": "a", "text": "one two three four"}\n')
    arguments = [sys.executable, "-m", "stream_lsh.cli", "pairs", "-", "--state", str(tmp_path / "state"), "--quiet"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert first.stdin is not None
        first.stdin.write(feed.read_bytes())
        first.stdin.flush()
        deadline = time.monotonic() + 600
        while not (tmp_path / "state" / "dead-letters.jsonl").exists():
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.05)
        second = run([*arguments[:4], str(feed), *arguments[5:]])
        first.stdin.close()
        assert first.wait(1800) == 0
    assert second.returncode == 3
    assert "in use by another process" in second.stderr


@pytest.fixture(scope="module")
def indexed(feed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs and the index of a whole run over the first part."""
    folder = tmp_path_factory.mktemp("indexed")
    assert run(command(feed, folder)).returncode == 0
    return folder


@pytest.mark.long
@pytest.mark.xdist_group("indexed")
@pytest.mark.parametrize("name", ["run", "rows"])
@pytest.mark.parametrize("damage", ["remove", "shorten", "scribble"])
def test_damaged_files_are_named_with_the_remedy(
    feed: Path, indexed: Path, tmp_path: Path, name: str, damage: str
) -> None:
    """Postings are rebuilt from the rows; rows are the truth."""
    whole = tmp_path / "whole"
    shutil.copytree(indexed / "state", whole / "state")
    generation = whole / "state" / "generations" / "000000"
    postings = generation / "postings"
    victim = sorted((postings if name == "run" else generation).glob(f"{name}-*"))[0]
    size = victim.stat().st_size
    if damage == "remove":
        victim.unlink()
    elif damage == "shorten":
        os.truncate(victim, size // 2)
    else:
        with victim.open("r+b") as file:
            file.seek(10)
            file.write(os.urandom(100))
    # A new line makes the finished input go on, so that the index is opened for work.
    new = b'{"id": "new", "title": "a", "text": "completely new text of the day"}\n'
    known = json.loads((feed / "one.jsonl").read_bytes().splitlines()[0]) | {"id": "a copy"}
    (tmp_path / "more.jsonl").write_bytes(new + json.dumps(known).encode() + b"\n")
    arguments = command(feed, whole)
    arguments.insert(4, str(tmp_path / "more.jsonl"))
    done = run(arguments)
    assert done.returncode == 3, done.stderr
    assert str(victim) in done.stderr
    checked = run([sys.executable, "-m", "stream_lsh.cli", "info", "--check", "--state", str(whole / "state")])
    assert checked.returncode == 3 and str(victim) in checked.stderr
    if name == "rows":
        assert "restore the folder from a backup" in done.stderr
        return
    assert f"delete the folder {postings} and start again" in done.stderr
    shutil.rmtree(postings)
    done = run(arguments)
    assert done.returncode == 0, done.stderr
    assert contents(whole)["unique"] == new


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(b'{"id": "a", "text": "one two three four"}\n')
    arguments = [
        sys.executable,
        "-m",
        "stream_lsh.cli",
        "pairs",
        str(feed),
        "--state",
        str(tmp_path / "state"),
        "--quiet",
    ]
    assert run(arguments).returncode == 0
    done = run([*arguments, "--threshold", "0.6"])
    assert done.returncode == 3
    assert "threshold = 0.8 (now 0.6)" in done.stderr


def test_a_run_killed_behind_its_last_commit_is_written_again(tmp_path: Path) -> None:
    """All is committed, but the process is killed while it closes: `>` empties the file, the next run fills it."""
    feed, state, target = tmp_path / "feed.jsonl", tmp_path / "state", tmp_path / "unique.jsonl"
    feed.write_bytes(b'{"id":1,"text":"one two three four"}\n{"id":2,"text":"five six seven eight"}\n')
    killed = (
        "import os; from stream_lsh.embedded import job; job.Index.close = lambda self: os._exit(9);"
        "from stream_lsh.cli import main; main()"
    )
    arguments = ["dedup", str(feed), "--state", str(state), "--quiet"]
    for command, code in (([sys.executable, "-c", killed], 9), ([sys.executable, "-m", "stream_lsh.cli"], 0)):
        with target.open("wb") as file:
            done = subprocess.run([*command, *arguments], stdout=file, check=False, timeout=1800)
        assert done.returncode == code
        assert target.read_bytes() == feed.read_bytes()
    assert not (state / "standard-output").exists()
    with target.open("wb") as file:  # a finished input run again adds nothing
        subprocess.run([sys.executable, "-m", "stream_lsh.cli", *arguments], stdout=file, check=True, timeout=1800)
    assert target.read_bytes() == b""

#!/usr/bin/env python3
"""Mutants: small changes of the code that a test should notice. Linux only: the limits are read from /proc.

    python .ci/mutants.py draw --seed 24 --count 60 --from REVISION > mutants.json
    python .ci/mutants.py run mutants.json --tree FOLDER --python PYTHON --out results.jsonl
    python .ci/mutants.py compare before.jsonl after.jsonl

`draw` cuts the changeable lines of each package into equal deleted_ranges and changes one line of each. `run` changes a
copy of the tree and runs the quick tests in the folder that mirrors the changed module, up to the first failure; files
named after the module come first. Each run has two limits, which count all its processes: CPU time, compiling included,
and four times as much time in which the CPU is nearly idle. The results:

- killed: a test failed that does not fail without the mutant.
- timeout: a limit was reached that the same tests do not reach without the mutant (a comment is added instead of it).
- survived at limit: a limit was reached, with or without the mutant, and no test had failed.
- survived: all tests passed.
- not applicable: the tree has no function of that name with these lines.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutation import Change, Mutant, Source, placed

PACKAGES = "index", "judging", "embedded", "kafka"
PYTEST = "-n", "0", "-p", "no:cacheprovider", "-vv", "-rfE", "--hypothesis-seed=24"
FAILED = re.compile(r"^(?:FAILED|ERROR) (?:collecting )?(.+?)(?: - .*)?$", re.MULTILINE)
PASSED = re.compile(r"^\S+::.* PASSED", re.MULTILINE)


def draw(seed: int, count: int, revision: str) -> list[Mutant]:
    """As many mutants of each package, evenly over its lines; the same ones for the same seed and revision."""
    chance, mutants = random.Random(seed), list[Mutant]()

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout

    for package in PACKAGES:
        files = git("ls-tree", "-r", "--name-only", "--full-tree", revision, f"stream_lsh/{package}").split()
        sources = {file: Source(git("show", f"{revision}:{file}")) for file in files}
        found: dict[tuple[str, int], list[Change]] = {}
        for file, source in sources.items():
            for change in source.changes(source.tree):
                found.setdefault((file, source.bytes.count(b"\n", 0, change[1])), []).append(change)
        lines, share = sorted(found), count // len(PACKAGES)
        for part in range(share):
            mutant = None
            while mutant is None:
                at = chance.choice(lines[part * len(lines) // share : (part + 1) * len(lines) // share])
                mutant = sources[at[0]].mutant(len(mutants) + 1, at[0], chance.choice(found[at]))
            mutants.append(mutant)
    return mutants


def children() -> dict[int, float]:
    """The CPU seconds of every process that this one has started, and of those which they have waited for."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        seconds[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    mine, before = {os.getpid()}, 0
    while len(mine) > before:
        before, mine = len(mine), mine | {child for child, parent in parents.items() if parent in mine}
    return {process: seconds[process] for process in mine - {os.getpid()}}


def end_children() -> None:
    """End every process that this one has started, whatever it has started itself."""
    while left := children():
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class Copy:
    """A tree that is changed and tested instead of the one it is a copy of. The results decide its path, so that
    compiled kernels stay valid."""

    def __init__(self, tree: Path, python: str, out: Path, limit: float) -> None:
        self.work = out.resolve().with_suffix(".work")
        self.tree, self.python, self.limit = self.work / "project", python, limit
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(tree, self.tree, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__"))
        if (tree.parent / "shared").exists() and not (self.work / "shared").exists():
            (self.work / "shared").symlink_to((tree.parent / "shared").resolve())
        paths = {"PYTHONPATH": self.tree, "XDG_CACHE_HOME": self.work / "cache", "TMPDIR": self.work / "tmp"}
        self.environment = {**os.environ, **{name: str(path) for name, path in paths.items()}}
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes whose parents have ended become ours

    def folder_of(self, path: Path) -> Path:
        """The folder of the tests of a module: that of the same name, or the next one above it."""
        folder = self.tree / "tests" / path.parent.relative_to(self.tree / "stream_lsh")
        return next(found for found in (folder, *folder.parents) if found.is_dir())

    def tests_of(self, path: Path) -> list[Path]:
        files = self.folder_of(path).rglob("test_*.py")
        return sorted(files, key=lambda file: (path.stem not in file.stem, len(file.parts), file))

    def pytest(self, options: list[str], limited: bool = True) -> dict[str, Any]:
        """Run tests. code: that of pytest, None if a limit was reached; failed: tests; passed: their number."""
        for name in ("tmp", "project/.hypothesis"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        (self.work / "tmp").mkdir()
        command = [self.python, "-m", "pytest", *PYTEST, *options]
        limit = self.limit if limited else math.inf
        began, used, cpu, idle = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN), 0.0, 0.0
        with (self.work / "output").open("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                while process.poll() is None and cpu < limit and idle < 4 * limit:
                    time.sleep(0.5)
                    before, cpu = cpu, max(cpu, sum(children().values()))
                    idle += 0.5 if cpu - before < 0.015 else 0
            finally:
                ended = process.returncode
                end_children()
            output.seek(0)
            text = output.read()
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        return {
            "code": ended, "failed": FAILED.findall(text), "passed": len(PASSED.findall(text)), "cpu": round(spent, 1),
            "wall": round(time.monotonic() - began, 1), "end": text.strip()[-200:],
        }  # fmt: skip

    @contextmanager
    def changed(self, path: Path, text: str) -> Iterator[None]:
        """While it is entered, a file has another text. Its time comes back, too: caches go by it."""
        before, times = path.read_bytes(), path.stat()
        try:
            path.write_text(text, encoding="utf-8")
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
                cached.unlink()


def run(mutants: list[Mutant], copy: Copy, out: Path) -> None:
    """Write a line of results for each mutant that has none yet. Other lines are of a folder whose tests were run
    without a mutant, and of tests that fail without one: they are left out from then on."""
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    controls = {result["control"]: result for result in known if "control" in result}
    broken = {test for result in known for test in result.get("broken", ())}
    results = {result["number"]: result for result in known if "number" in result}

    def write(result: dict[str, Any]) -> dict[str, Any]:
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        shown = ("number", "control", "broken", "status", "by", "cpu", "wall")
        print(*(f"{name}={result[name]}" for name in shown if result.get(name) is not None), flush=True)
        return result

    def tested(mutant: Mutant) -> dict[str, Any]:
        target = placed(mutant, copy.tree)
        if target is None:
            return {**asdict(mutant), "status": "not applicable"}
        path, text = target
        tests = copy.tests_of(path)
        options = ["-x", *(f"--deselect={test}" for test in sorted(broken)), *map(str, tests)]
        with copy.changed(path, text):
            result = copy.pytest(options)
        status = "killed"
        if result["code"] is None:
            folder = str(copy.folder_of(path).relative_to(copy.tree))
            if folder not in controls:
                with copy.changed(path, path.read_text(encoding="utf-8") + "# without a mutant\n"):
                    controls[folder] = write({"control": folder, **copy.pytest(options)})
            status = "survived at limit" if controls[folder]["code"] is None else "timeout"
        elif result["code"] in (0, 5):  # 5: there are no tests
            status = "survived"
        by = [*result["failed"], result["end"].splitlines()[-1]][0] if status == "killed" else None
        return {**asdict(mutant), "status": status, "by": by, **result}

    while waiting := [mutant for mutant in mutants if mutant.number not in results]:
        for mutant in waiting:
            results[mutant.number] = write(tested(mutant))
        killers = {test for result in results.values() for test in result.get("failed", ())} - broken
        again = copy.pytest(sorted(killers), limited=False) if killers else {"code": 0, "failed": []}
        if again["code"] not in (0, 1):
            sys.exit(f"the tests that killed mutants do not run without them: {again['end']}")
        if again["failed"]:
            broken |= set(write({"broken": again["failed"]})["broken"])
            results = {number: result for number, result in results.items() if result.get("by") not in broken}


def compare(before: Path, after: Path) -> None:
    """Both lists side by side, and the counts."""
    lists = []
    for path in (before, after):
        results = [json.loads(line) for line in path.read_text().splitlines()]
        lists.append({result["number"]: result for result in results if "number" in result})
    print("| mutant | place | operator | before | after |\n|---:|---|---|---|---|")
    for number in sorted(lists[0] | lists[1]):
        first, second = (found.get(number, {"status": "not run"}) for found in lists)
        mutant = lists[0].get(number) or lists[1][number]
        place = f"{mutant['file'].removeprefix('stream_lsh/')}:{mutant['line']} {mutant['function']}"
        print(f"| {number} | {place} | {mutant['operator']} | {first['status']} | {second['status']} |")
    print("\n| result | before | after |\n|---|---:|---:|")
    counts = [Counter(result["status"] for result in found.values()) for found in lists]
    for status in ("killed", "timeout", "survived", "survived at limit", "not applicable"):
        print(f"| {status} | {counts[0][status]} | {counts[1][status]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw mutants, as JSON to the standard output")
    drawing.add_argument("--seed", type=int, default=24)
    drawing.add_argument("--count", type=int, default=60)
    drawing.add_argument("--from", dest="revision", default="HEAD")
    running = commands.add_parser("run", help="run the tests against mutants; those that have a result are skipped")
    running.add_argument("mutants", type=Path)
    running.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    running.add_argument("--python", default=sys.executable)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--limit", type=float, default=60, help="seconds of CPU a mutant (%(default)s)")
    comparing = commands.add_parser("compare", help="two files of results side by side, as Markdown")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        print(json.dumps([asdict(mutant) for mutant in draw(options.seed, options.count, options.revision)], indent=1))
    elif options.command == "run":
        mutants = [Mutant(**fields) for fields in json.loads(options.mutants.read_text())]
        run(mutants, Copy(options.tree.resolve(), options.python, options.out, options.limit), options.out)
    else:
        compare(options.before, options.after)


if __name__ == "__main__":
    main()

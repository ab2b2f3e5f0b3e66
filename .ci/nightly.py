"""All that leaves the gate: every seed, combination and schedule in its long form, what needs a broker with the older
version of Kafka too, two hours of simulations by seeds that no run has had, and 20 runs of the tests that are suspected
to be flaky. `make nightly` calls it.

    python .ci/nightly.py [--minutes 80] [--stage WORDS] [--out results/nightly]

One call runs for at most so many minutes; the next one goes on where it ended, until all is done. What was done for
another commit does not count. The report is OUT/COMMIT/report.md. Exit code 0: all is done and passed; 1: a test
failed; 3: the time was up: call it again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VERSIONS = ("4.1.1", "3.9.1")  # of Kafka
ALL_AT_ONCE = ("-m", "long or not long", "-n", "5", "--dist", "loadgroup", "-p", "no:cacheprovider")
FLAKY = ("tests/kafka/test_same_answers.py::test_updates_deletions_and_tombstones_are_as_their_recorded_order",)
"""Node ids of tests that have failed once for a cause that is not known, or not long enough."""
TIMES = 20
MINUTES = 120
"""Of simulations by new seeds."""
SEEDS = 1000  # at least as many as a test has


@dataclass(frozen=True)
class Stage:
    """One run of pytest, which may take several calls. journal: see tests/support/journal.py."""

    name: str
    journal: Path
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def marker(self) -> Path:
        return self.journal.with_suffix(".done")

    @property
    def tests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def run(self, end: float) -> None:
        """Run what is not in the journal yet, until a time of the monotonic clock, in seconds."""
        limit = (f"--journal={self.journal}", "--resume", f"--minutes={(end - time.monotonic()) / 60:.2f}")
        command = [sys.executable, "-P", "-m", "pytest", *ALL_AT_ONCE, *limit, *self.arguments]
        environment = os.environ | {"CI": "true"} | self.environment
        code = subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode
        if code not in (0, 1, 5):  # 1: a test failed; 5: none was left
            sys.exit(f"{self.name}: pytest ended with {code}")
        if time.monotonic() < end:
            self.marker.touch()


@dataclass(frozen=True)
class Simulations:
    """All simulations, round after round, each with seeds of its own, until they have run for two hours.

    commit: whose number begins the seeds. folder: the journals of the rounds.
    """

    name: str
    commit: str
    folder: Path

    @property
    def marker(self) -> Path:
        return self.folder.with_suffix(".done")

    @property
    def rounds(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"), key=lambda path: int(path.stem))

    @property
    def tests(self) -> list[dict[str, Any]]:
        """Those that failed have the first seed of their round in the name."""
        return [
            json.loads(line) | ({"test": f"{path.stem}: {json.loads(line)['test']}"} if '"failed"' in line else {})
            for path in self.rounds
            for line in path.read_text().splitlines()
        ]

    def run(self, end: float) -> None:
        """Go on with the last round, and begin others, until a time of the monotonic clock, in seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spent = self.folder / "seconds"
        while (now := time.monotonic()) < end:
            before = float(spent.read_text()) if spent.exists() else 0.0
            if before >= 60 * MINUTES:
                self.marker.touch()
                return
            last = self.rounds[-1] if self.rounds else self.folder / f"{int(self.commit[:6], 16) * SEEDS}.jsonl"
            journal = last.with_stem(f"{int(last.stem) + SEEDS}") if last.with_suffix(".done").exists() else last
            environment = {"STREAM_LSH_LONG": "1", "STREAM_LSH_FIRST_SEED": journal.stem}
            round_ = Stage(self.name, journal, ("-m", "simulation"), environment)
            round_.run(min(end, now + 60 * MINUTES - before))
            spent.write_text(f"{before + time.monotonic() - now}\n")


@dataclass(frozen=True)
class Repeated:
    """A test that may be flaky, run 20 times by .ci/flaky; what fails leaves its output in a folder."""

    name: str
    test: str
    folder: Path

    @property
    def marker(self) -> Path:
        return self.folder.with_suffix(".done")

    @property
    def tests(self) -> list[dict[str, Any]]:
        if not self.marker.exists():
            return []
        outputs = [self.folder / f"run-{number}.txt" for number in range(1, TIMES + 1)]
        messages = [path.read_text(errors="replace") if path.exists() else None for path in outputs]
        return [
            {"test": self.test, "outcome": "failed" if text else "passed", "cpu": 0.0, "wall": 0.0, "message": text}
            for text in messages
        ]

    def run(self, end: float) -> None:
        """Run it; it ends somewhat later than `end`, but always."""
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [sys.executable, str(ROOT / ".ci" / "flaky"), self.test, "--times", str(TIMES)]
        code = subprocess.run([*command, "--out", str(self.folder)], cwd=ROOT, check=False).returncode
        if code not in (0, 1):
            sys.exit(f"{self.name}: .ci/flaky ended with {code}")
        self.marker.touch()


def stages(commit: str, out: Path) -> Iterator[Stage | Simulations | Repeated]:
    for place, version in enumerate(VERSIONS):
        long = {"STREAM_LSH_LONG": "1", "STREAM_LSH_TEST_KAFKA_VERSION": version}
        what = ("-m", "broker") if place else ()
        name = "tests with a broker" if place else "all tests"
        yield Stage(f"{name}, Kafka {version}", out / f"{version}.jsonl", what, long)
    yield Simulations(f"simulations by new seeds, {MINUTES} minutes", commit, out / "simulations")
    for number, test in enumerate(FLAKY, 1):
        yield Repeated(f"flaky candidate {number}, {TIMES} runs", test, out / f"flaky-{number}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=80.0, help="of one call (default 80)")
    parser.add_argument("--stage", default="", help="run those alone that have this in their name")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "nightly")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    commit = commit.strip()
    out = given.out / commit
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * given.minutes
    for stage in stages(commit, out):
        if given.stage in stage.name and not stage.marker.exists() and time.monotonic() < end:
            print(f"\n== {stage.name}", flush=True)
            stage.run(end)
    return report(list(stages(commit, out)), out / "report.md")


def report(found: list[Stage | Simulations | Repeated], path: Path) -> int:
    """Write the report; returns the exit code."""
    rows = ["| stage | passed | failed | skipped | schedules | CPU, s | |", "|---|---:|---:|---:|---:|---:|---|"]
    tests = [(stage, test) for stage in found for test in stage.tests]
    for stage in found:
        counts = Counter(test["outcome"] for test in stage.tests)
        numbers = [str(counts[outcome]) for outcome in ("passed", "failed", "skipped")]
        cpu = sum(test["cpu"] for test in stage.tests)
        schedules = sum(test.get("schedules", 0) for test in stage.tests)
        state = "" if stage.marker.exists() else "not complete"
        rows.append(f"| {stage.name} | {' | '.join(numbers)} | {schedules:,} | {cpu:.0f} | {state} |")
    failed = [(stage, test) for stage, test in tests if test["outcome"] == "failed"]
    dearest = sorted((test for _, test in tests), key=lambda test: -test["cpu"])[:15]
    text = [f"# Nightly of {path.parent.name}", "", *rows, "", "## The most expensive tests", ""]
    text += [f"- {test['cpu']:.0f} s of CPU in {test['wall']:.0f} s: `{test['test']}`" for test in dearest]
    for stage, test in failed:
        text += ["", f"## Failed: `{test['test']}` ({stage.name})", "", "```", test["message"][-4000:], "```"]
    path.write_text("\n".join(text) + "\n")
    print("\n".join(rows), f"\n{len(failed)} failed; the report is {path}")
    if failed:
        return 1
    return 0 if all(stage.marker.exists() for stage in found) else 3


if __name__ == "__main__":
    sys.exit(main())

"""A plugin: what became of each test and what it cost in CPU, as JSON lines in the file that `--journal=FILE` names.

{"test": node id, "long": bool, "outcome": passed | failed | skipped, "cpu": seconds, "wall": seconds, "schedules": of a
simulation, "message": of a failure}: setup, call and teardown, with the processes that the test has started and waited
for. The time in which numba compiles is not part of it: it depends on the cache, not on the test. Processes that run on
after the test, such as a broker of the session, are not part of it either.

`--resume` goes on with a journal: tests that it has are not run again. `--minutes N` begins no test after that. Write
`--journal=FILE`, not `--journal FILE`: pytest takes a file that exists for a test of another folder.
"""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import event

NAME = "journal"


class _Compiling(event.Listener):
    """CPU seconds that this process has spent in compiling kernels."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0

    def on_start(self, event: object) -> None:
        if not self._depth:
            self._began = time.process_time()
        self._depth += 1

    def on_end(self, event: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.process_time() - self._began


class Runs:
    """In each process that runs tests: measures them, and leaves out what is done or comes too late.

    Args:
        done: node ids. end: of the monotonic clock, in seconds; None: whenever.
    """

    def __init__(self, done: frozenset[str], end: float | None) -> None:
        self._done = done
        self._end = end
        self._compiling = _Compiling()
        event.register("numba:compile", self._compiling)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if _name(item) in self._done]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if _name(item) not in self._done]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        self._began = self._now()
        return (self._end is not None and time.monotonic() > self._end) or None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield  # type: ignore[misc]
        cpu, wall = (now - before for now, before in zip(self._now(), self._began, strict=True))
        report.user_properties = [
            *((name, value) for name, value in report.user_properties if name != NAME),
            (NAME, {
                "test": _name(item), "long": item.get_closest_marker("long") is not None,
                "cpu": round(cpu, 3), "wall": round(wall, 3),
                **({"schedules": item.function.schedules} if item.get_closest_marker("simulation") else {}),
            }),
        ]  # fmt: skip
        return report

    def _now(self) -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() - self._compiling.seconds + (used.ru_utime + used.ru_stime), time.monotonic()


class Writes:
    """In the process that the reports come to: writes a line for each test."""

    def __init__(self, path: Path, resume: bool, minutes: float | None) -> None:
        self._path = path
        self._minutes = minutes
        self.done = frozenset(line["test"] for line in read(path)) if resume else frozenset()
        if not resume:
            path.write_text("")
        self._worst: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[NAME] = [sorted(self.done), self._minutes]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self._worst.setdefault(report.nodeid, (report.outcome, report.longreprtext))
        if report.when == "teardown":
            outcome, message = self._worst.pop(report.nodeid, ("passed", ""))
            line = dict(report.user_properties)[NAME] | {"outcome": outcome}
            if outcome == "failed":
                line["message"] = message[-20_000:]
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _name(item: pytest.Item) -> str:
    """The node id, without what xdist appends for a group."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid.removesuffix(f"@{group.args[0]}") if group is not None and group.args else item.nodeid


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal", metavar="FILE", help="write what becomes of each test and its CPU, as JSON lines")
    parser.addoption("--resume", action="store_true", help="go on with the journal: what it has is not run again")
    parser.addoption("--minutes", type=float, metavar="N", help="begin no test after so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--journal"):
        return
    if hasattr(config, "workerinput"):
        done, minutes = config.workerinput[NAME]
    else:
        minutes = config.getoption("--minutes")
        writes = Writes(Path(config.getoption("--journal")), config.getoption("--resume"), minutes)
        config.pluginmanager.register(writes, "journal-writes")
        done = writes.done
    end = None if minutes is None else time.monotonic() + 60 * minutes
    config.pluginmanager.register(Runs(frozenset(done), end), "journal-runs")

"""A plugin: what each test costs in CPU, as JSON lines in the file that `--cost FILE` names.

{"test": node id, "long": bool, "cpu": seconds, "wall": seconds}: setup, call and teardown, with the processes that the
test has started and waited for. The time in which numba compiles is not part of it: it depends on the cache, not on the
test. Processes that run on after the test, as a broker of the session, are not part of it either.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import event


class _Compiling(event.Listener):
    """Seconds that this process has spent in compiling kernels."""

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


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Cost:
    """Measures in the process that runs a test; the results travel as properties of its reports."""

    def __init__(self) -> None:
        self._compiling = _Compiling()
        event.register("numba:compile", self._compiling)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._began = self._now()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield  # type: ignore[misc]
        if call.when == "teardown":
            cpu, wall = (now - before for now, before in zip(self._now(), self._began, strict=True))
            marked = item.get_closest_marker("long") is not None
            report.user_properties.append(
                ("cost", {"test": item.nodeid, "long": marked, "cpu": round(cpu, 3), "wall": round(wall, 3)})
            )
        return report

    def _now(self) -> tuple[float, float]:
        return time.process_time() - self._compiling.seconds + _children(), time.monotonic()


class Record:
    """Writes them down, in the process that the reports come to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            with self._path.open("a") as file:
                for name, value in report.user_properties:
                    if name == "cost":
                        file.write(json.dumps(value) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cost", metavar="FILE", help="write what each test costs in CPU, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--cost")
    if path:
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Record(Path(path)), "cost-record")
        config.pluginmanager.register(Cost(), "cost")

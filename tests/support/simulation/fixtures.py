"""What a scenario takes: the fixtures of pytest of these names, with a simulated Kafka for the broker."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.simulation.cluster import Cluster
    from support.simulation.world import World

MEMORY = Path("/dev/shm")


def folder() -> Path:
    """Of this seed, which has a process of its own."""
    return (MEMORY if MEMORY.is_dir() else Path("/tmp")) / f"simulation-{os.getpid()}"


class Log(logging.Handler):
    """What was logged. text: a line each."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.levelname} {record.getMessage()}\n"

    @contextmanager
    def at_level(self, level: int | str, logger: str | None = None) -> Iterator[None]:
        """A seed has a process of its own: nothing sets it back."""
        logging.getLogger(logger).setLevel(level)
        yield


@contextmanager
def given(world: World, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """What every scenario may take, by name."""
    from support.kafka.brokers import making  # here: the clock has to be substituted first

    log = Log()
    logging.getLogger().addHandler(log)
    # No random name: it would take from the seed, and more of it where the name is there.
    path, prefix = folder(), "sim"
    shutil.rmtree(path, ignore_errors=True)  # of a process of this number that was killed
    path.mkdir()
    try:
        yield {
            "world": world, "cluster": cluster, "broker": cluster, "prefix": prefix, "tmp_path": path,
            "make": making(cluster, prefix, path), "monkeypatch": pytest.MonkeyPatch(), "caplog": log,
        }  # fmt: skip
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Fixtures:
    """The fixtures of a test's module: functions of what scenarios may take, some asynchronous, none that yields."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Callable[..., Any], bool]] = {}

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep what `pytest.fixture` decorates meanwhile."""
        before = pytest.fixture

        def fixture(function: Any = None, *, autouse: bool = False, **given: Any) -> Any:
            if function is None:
                return partial(fixture, autouse=autouse, **given)
            self._found[function.__name__] = function, autouse
            return function

        pytest.fixture = fixture  # type: ignore[assignment]
        try:
            yield
        finally:
            pytest.fixture = before

    def call(self, scenario: Callable[..., Any], world: World, values: Mapping[str, Any]) -> Any:
        """Run a scenario with what it names. A fixture may take that of the same name."""
        values, made = dict(values), set[str]()

        def take(function: Callable[..., Any], own: str = "") -> Any:
            for name in inspect.signature(function).parameters:
                if name in self._found and name not in {own, *made}:
                    make(name)
            result = function(**{name: values[name] for name in inspect.signature(function).parameters})
            return world.run(result) if inspect.iscoroutine(result) else result

        def make(name: str) -> None:
            made.add(name)
            values[name] = take(self._found[name][0], name)

        for name, (_, always) in self._found.items():
            if always:
                make(name)
        return take(scenario)

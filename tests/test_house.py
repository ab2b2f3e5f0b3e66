"""The rules of the house (docs/architecture.md): a folder imports only what lies below it, and no files in circles."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "stream_lsh"
# From the ground up. What stands on one floor does not import its neighbours.
FLOORS = (
    ("errors", "wording", "hashing", "settings.errors"),
    ("documents", "text", "settings.sources", "settings.checks"),
    ("families",),
    ("settings.model",),
    ("index.store",),
    ("index.rows",),
    ("index.postings",),
    ("index.batch", "index.matches"),
    ("index.resolution",),
    ("index.kernel",),
    ("index.segments",),
    ("index.shard",),
    ("index.evidence", "index.source_positions", "index.erasure", "index.batch_run"),
    ("index.index",),
    ("index.comparison",),
    ("judging",),
    ("alerts",),
    ("wire",),
    ("embedded",),
    ("api",),
    ("kafka.settings",),
    ("kafka.names",),
    ("kafka.client",),
    ("kafka.topics",),
    ("kafka.run",),
    ("kafka.consumer",),
    ("kafka.match", "kafka.judge", "kafka.forward", "kafka.sequence", "kafka.groups"),
    ("kafka.sign",),  # signers read what the sequencer has accepted
    ("kafka.tools",),
    ("serve",),
    ("evaluation",),
    ("demo",),
    ("cli",),
)
DOORS = {
    "stream_lsh",
    "stream_lsh.__main__",
    "stream_lsh.index",
    "stream_lsh.kafka",
    "stream_lsh.settings",
}  # what a user enters by
# Below this floor nothing opens a socket or reads a clock.
SHELLS = "embedded"
OUTSIDE = {"socket", "ssl", "asyncio", "aiokafka", "faust", "aiohttp", "time"}


@cache
def imports(path: Path) -> list[str]:
    """The modules that a file names, wherever in it; `from a import b` as a.b."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def file_of(module: str) -> str | None:
    """The file of the package that an import leads to, by its module's name."""
    while module.startswith("stream_lsh"):
        if module in FILES:
            return module
        module = module.rpartition(".")[0]
    return None


@cache
def ties() -> set[tuple[str, str]]:
    """Which file imports which."""
    return {
        (name, found)
        for name, path in FILES.items()
        for module in imports(path)
        if (found := file_of(module)) is not None and found not in (name, "stream_lsh")
    }


def room(module: str) -> str:
    """The room of the house that a module stands in."""
    inner = module.removeprefix("stream_lsh.")
    return next(
        (name for floor in FLOORS for name in floor if inner == name or inner.startswith(f"{name}.")), inner
    )  # fmt: skip


def height(name: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if name in floor)


def test_every_file_has_its_place() -> None:
    rooms = {name for floor in FLOORS for name in floor}
    assert {name for name in FILES if room(name) not in rooms} == DOORS


def test_a_folder_imports_only_what_lies_below_it() -> None:
    upwards = {
        (name, found)
        for name, found in ties()
        if not {name, found} & DOORS and room(name) != room(found) and height(room(found)) >= height(room(name))
    }
    assert not upwards, "a file imports what does not lie below it"


def test_no_file_is_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for name, found in ties():
        graph.setdefault(name, set()).add(found)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_the_core_knows_no_socket_and_no_clock() -> None:
    below = [name for name in FILES if name not in DOORS and height(room(name)) < height(SHELLS)]
    found = {
        (name, module.partition(".")[0])
        for name in below
        for module in imports(FILES[name])
        if module.partition(".")[0] in OUTSIDE
    }
    assert not found

"""Layers (docs/internals/modules.md): a package imports only lower layers, and files do not import in circles."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "stream_lsh"
# From the lowest to the highest. Packages of one layer do not import each other.
LAYERS = (
    ("errors", "progress", "wording", "hashing", "settings.errors"),
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
    ("index.evidence", "index.source_positions", "index.erasure", "index.batch_run", "index.represented"),
    ("index.reader",),
    ("index.index",),
    ("index.comparison",),
    ("judging",),
    ("alerts",),
    ("wire",),
    ("embedded",),
    ("webfeeds", "tracing"),
    ("api",),
    ("serve.schemas",),
    ("serve.output_schemas",),
    ("kafka.topic_settings",),
    ("kafka.settings",),
    ("kafka.names", "kafka.partitioner"),
    ("kafka.strimzi",),
    ("kafka.client", "kafka.registry"),
    ("kafka.weaknesses",),
    ("kafka.topics",),
    ("kafka.run",),
    ("kafka.consumer",),
    ("kafka.match", "kafka.judge", "kafka.sequence", "kafka.groups"),
    ("kafka.sign", "kafka.forward"),  # they read what the sequencer has accepted
    ("kafka.lookup",),
    ("kafka.tools", "testing"),
    ("serve",),
    ("client", "mcp"),
    ("audit", "evaluation"),
    ("demo",),
    ("cli",),
)
ENTRIES = {
    "stream_lsh",
    "stream_lsh.__main__",
    "stream_lsh.index",
    "stream_lsh.kafka",
    "stream_lsh.settings",
}  # what users import or run
# Below this layer nothing opens a socket or reads a clock.
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


def package_of(module: str) -> str:
    """The package or module of LAYERS that a module belongs to."""
    inner = module.removeprefix("stream_lsh.")
    return next(
        (name for layer in LAYERS for name in layer if inner == name or inner.startswith(f"{name}.")), inner
    )  # fmt: skip


def height(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


def test_every_file_is_in_a_layer() -> None:
    packages = {name for layer in LAYERS for name in layer}
    assert {name for name in FILES if package_of(name) not in packages} == ENTRIES


def test_package_imports_only_lower_layers() -> None:
    upwards = {
        (name, found)
        for name, found in ties()
        if not {name, found} & ENTRIES
        and package_of(name) != package_of(found)
        and height(package_of(found)) >= height(package_of(name))
    }
    assert not upwards, "a file imports what is not in a lower layer"


def test_no_circular_imports() -> None:
    graph: dict[str, set[str]] = {}
    for name, found in ties():
        graph.setdefault(name, set()).add(found)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_core_uses_no_socket_and_no_clock() -> None:
    below = [name for name in FILES if name not in ENTRIES and height(package_of(name)) < height(SHELLS)]
    found = {
        (name, module.partition(".")[0])
        for name in below
        for module in imports(FILES[name])
        if module.partition(".")[0] in OUTSIDE
    }
    assert not found

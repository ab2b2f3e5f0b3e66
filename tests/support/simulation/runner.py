"""Simulations as tests, and the server that runs them.

    @simulated(seeds=5, and_schedules=[Schedule(12, omitted=(0, 3), documents=7)])
    async def test_a_record_arrives(world: World, cluster: Cluster) -> None: ...

    @simulated()
    @pytest.mark.parametrize("shards", [1, 2])
    async def test_a_topic_is_made(make: Make, tmp_path: Path, shards: int) -> None: ...

A scenario names what it takes, as a test names its fixtures: `fixtures.given`, those of its module, and parameters,
which have to be values of JSON.

Each seed runs in a process that a server forks: one that has substituted the clock (`clock`), imported everything, and
gone no further but that it keeps what earlier seeds have made for all (`remembered`), and loads the kernels that they
have used. So a start costs nothing. As a program, this module is the server. With SIMULATION_TRACE set, a trace has
every request.
"""

from __future__ import annotations

import ast
import base64
import faulthandler
import functools
import gc
import inspect
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from support.long_form import FIRST_SEED, LONG, ROTATION
from support.simulation import remembered
from support.simulation.fixtures import Fixtures, given
from support.simulation.shrinking import Schedule

if TYPE_CHECKING:
    from support.simulation.cluster import Cluster
    from support.simulation.world import World

Scenario = Callable[..., Any]
Work = Callable[["World", "Cluster"], Any]
AT_ONCE = 2
REAL_SECONDS = 6000 if LONG else 600  # that a seed may take
LAST_LINES = 60  # of a trace that failed
_server: subprocess.Popen[str] | None = None


def simulated(
    seeds: int = 1, most: int | None = None, and_schedules: Sequence[Schedule] = (), **options: Any
) -> Callable[[Scenario], Callable[..., None]]:
    """A test of a scenario, a function, asynchronous or not, which runs once for each seed. It is long if it takes
    more than a world and a cluster.

    Args:
        seeds: how many of them.
        most: of so many, others with each commit; STREAM_LSH_LONG=1 runs them all. STREAM_LSH_FIRST_SEED is the first
            of them (`long_form`).
        and_schedules: that have failed once (`shrinking`); they always run.
        options: of `cluster.Cluster`.
    """
    most = most or seeds
    chosen = range(most) if LONG else sorted({(ROTATION * seeds + number) % most for number in range(seeds)})
    schedules = [*and_schedules, *(Schedule(FIRST_SEED + seed) for seed in chosen)]

    def decorated(scenario: Scenario) -> Callable[..., None]:
        def test(**parameters: Any) -> None:
            for schedule, result in zip(schedules, run(scenario, schedules, parameters, **options), strict=True):
                assert result["error"] is None, f"{schedule}:\n{result['error']}"

        functools.update_wrapper(test, scenario)
        marks = getattr(scenario, "pytestmark", [])
        names = [name for mark in marks if mark.name == "parametrize" for name in _names(mark.args[0])]
        parameters = inspect.signature(scenario).parameters
        test.__signature__ = inspect.Signature([parameters[name] for name in names])  # type: ignore[attr-defined]
        test.scenario, test.schedules = scenario, len(schedules)  # type: ignore[attr-defined]
        test = pytest.mark.simulation(test)
        return test if set(parameters) <= {"world", "cluster"} else pytest.mark.long(test)

    return decorated


def _names(names: str | Sequence[str]) -> Sequence[str]:
    """Of parameters, as pytest takes them."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def run(
    scenario: Scenario, schedules: Iterable[int | Schedule], parameters: Mapping[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Run a scenario of a test's module by these seeds or schedules, with these parameters of the test and options of
    the cluster.

    Returns:
        For each: seed, error (None, or a traceback with the end of the trace), digest (None if it took too long: the
        machine's clock ended it), steps, virtual seconds, seconds, and what the scenario returned (for JSON).
    """
    global _server
    if _server is None or _server.poll() is not None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")}
        folders = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        _server = subprocess.Popen(
            [sys.executable, "-P", "-m", "support.simulation.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"PYTHONHASHSEED": "0", "PYTHONPATH": folders},
        )
    assert _server.stdin is not None and _server.stdout is not None
    asked = [asdict(Schedule(one) if isinstance(one, int) else one) for one in schedules]
    job = [scenario.__code__.co_filename, scenario.__name__, asked, dict(parameters or {}), REAL_SECONDS, options]
    print(json.dumps(job), file=_server.stdin, flush=True)
    answer = _server.stdout.readline()
    assert answer, "the server of the simulations has ended"
    return json.loads(answer)


@contextmanager
def another_server() -> Iterator[None]:
    """Run simulations in a server that has run nothing before."""
    global _server
    before, _server = _server, None
    try:
        yield
    finally:
        if _server is not None:
            _server.communicate()
        _server = before


def main() -> None:
    sys.path.append(str(Path(__file__).parents[3]))  # bench, as in tests/conftest.py
    from support.simulation import clock

    clock.install()
    import aiokafka.admin  # bind the virtual clock

    from support.kafka import brokers, stages
    from support.simulation import cluster, codec, wire

    codec.install(wire.STRUCTS.values())
    _sign()
    assert aiokafka and brokers and cluster  # what a seed imports itself could take from its randomness
    stages.warm = lambda: None  # virtual time does not wait for a compiler
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    modules: dict[str, tuple[ModuleType, Fixtures]] = {}
    while line := sys.stdin.readline():
        path, name, asked, parameters, seconds, options = json.loads(line)
        if path not in modules:
            found = Fixtures()
            with found.collecting():
                modules[path] = _module(path), found
        module, fixtures = modules[path]
        inspect.getmodule(sys._getframe())  # it looks at all modules once; Faust asks it for each app
        work = functools.partial(_run, getattr(module, name).scenario, fixtures, parameters)
        print(json.dumps(_forked(work, [Schedule(**one) for one in asked], seconds, options)), flush=True)


def _sign() -> None:
    """Sign a text: what that imports and the tables that it makes, no seed has to."""
    import numpy as np

    from stream_lsh.families.family import signer_of
    from stream_lsh.kafka.settings import KafkaSettings

    signer_of(KafkaSettings().signing).sign("ä".encode(), np.array([2]), want_shingles=True)


def _run(scenario: Scenario, fixtures: Fixtures, parameters: dict[str, Any], world: World, cluster: Cluster) -> Any:
    with given(world, cluster) as values:
        return fixtures.call(scenario, world, values | parameters)


def _module(path: str) -> ModuleType:
    """A test's module, whose assertions tell what they compare, as pytest's do."""
    from _pytest.assertion.rewrite import rewrite_asserts

    source = Path(path).read_bytes()
    tree = ast.parse(source)
    rewrite_asserts(tree, source)
    module = ModuleType(Path(path).stem)
    module.__file__ = path
    exec(compile(tree, path, "exec"), vars(module))
    return module


def _forked(work: Work, schedules: list[Schedule], seconds: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Do the work of each schedule in a child, some at once, for at most so many seconds. The results, in their
    order."""
    kernels = _kernels()
    gc.collect()
    gc.freeze()
    waiting, results, running = list(enumerate(schedules)), dict[int, dict[str, Any]](), dict[int, tuple[int, int]]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            place, schedule = waiting.pop(0)
            end, other = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(end)
                _child(work, schedule, seconds, options, kernels, other)
            os.close(other)
            running[place] = pid, end
        place, (pid, end) = next(iter(running.items()))
        with os.fdopen(end, "rb") as file:
            data = file.read()
        os.waitpid(pid, 0)
        del running[place]
        results[place] = json.loads(data) if data else {"seed": schedules[place].seed, "error": "its process has died"}
        used, made = pickle.loads(base64.b64decode(results[place].pop("kept", _NONE)))
        remembered.made |= made
        for number, arguments in used:
            kernels[number].compile(arguments)
    return [results[place] for place in range(len(schedules))]


_NONE = base64.b64encode(pickle.dumps(([], {})))


def _kernels() -> list[Any]:
    """The kernels of all modules that are imported: to import another could take from a later seed's randomness."""
    from stream_lsh.hashing.compiler import Kernel

    modules = [module for name, module in sys.modules.items() if name.startswith("stream_lsh.")]
    return [kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Kernel)]


class _Warnings(logging.Handler):
    """Keeps the warnings of our own roles."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.warnings.append(f"{self._world.seconds:.3f} {record.name}: {record.getMessage()}")


def _child(
    work: Work, schedule: Schedule, seconds: int, options: dict[str, Any], kernels: list[Any], end: int
) -> None:  # fmt: skip
    from support.simulation.clock import REAL_CLOCK, START, Clock
    from support.simulation.cluster import Cluster
    from support.simulation.world import World

    gc.disable()  # nothing that is collected may run
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    began, error, value = REAL_CLOCK(), None, None
    known, made = [len(kernel.overloads) for kernel in kernels], set(remembered.made)
    world = World(schedule)

    # End the world after so many real seconds, and if that does not help, the process.
    def late(*_: object) -> None:
        signal.alarm(5)
        signal.signal(signal.SIGALRM, lambda *_: (faulthandler.dump_traceback(), os._exit(1)))
        world.late = f"it takes longer than {seconds} s"

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    logging.getLogger("stream_lsh").addHandler(_Warnings(world))
    try:
        cluster = Cluster(world, **options)
        value = work(world, cluster)
    except BaseException:
        error = "\n".join([traceback.format_exc(), *world.trace[-LAST_LINES:], *world.warnings[-LAST_LINES:]])
    used = [(number, types) for number, kernel in enumerate(kernels) for types in [*kernel.overloads][known[number] :]]
    new = {name: value for name, value in remembered.made.items() if name not in made}
    result = {
        "seed": world.seed, "error": error, "value": value, "digest": None if world.late else world.digest,
        "kept": base64.b64encode(pickle.dumps((used, new))).decode(), "steps": world.steps,
        "virtual": round(Clock.now - START, 6), "seconds": round(REAL_CLOCK() - began, 3),
    }  # fmt: skip
    if os.environ.get("SIMULATION_TRACE"):
        result["trace"] = world.trace
    with os.fdopen(end, "wb") as file:
        file.write(json.dumps(result, default=bytes.hex).encode())
    os._exit(0)


if __name__ == "__main__":
    main()

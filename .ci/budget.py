"""Hold the tests to their budget of CPU: `python .ci/budget.py JOURNAL ...`, files that `pytest --journal=FILE` wrote.

A quick test has 5 s, a long one 60 s, kernels warm. A test that was over its budget among the others runs up to three
times more, alone: then its kernels are warm, and no neighbour shares its caches. Exit code 1 if it is over its budget
each time. An exception is named here with its reason; there are at most 15.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

QUICK, LONG = 5.0, 60.0  # seconds of CPU
MOST = 15  # exceptions
TIMES = 3  # that a test runs alone before it is too dear
EXCEPTIONS = {
    "tests/deploy/test_deploy_image.py::test_a_container_compiles_nothing": "installs an image and compiles kernels",
    "tests/kafka/test_chaos.py::test_chaos": "three workers and a broker that are killed and started for a minute",
    "tests/kafka/test_chaos.py::test_a_lost_quorum": "three brokers of its own, two of which start twice",
}
"""Node id, without parameters: why it costs more."""


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def too_dear(costs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are over the budget and no exceptions."""
    over = [cost for cost in costs if cost["cpu"] > (LONG if cost["long"] else QUICK)]
    return [cost for cost in over if cost["test"].partition("[")[0] not in EXCEPTIONS]


def alone(tests: list[str]) -> list[dict[str, Any]]:
    """What these tests cost by themselves."""
    print("\nover the budget, run once more, alone:", *tests, sep="\n  ", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        options = ["-n", "0", "-m", "long or not long", "-p", "no:cacheprovider", f"--journal={journal}"]
        subprocess.run([sys.executable, "-P", "-m", "pytest", *options, *tests], cwd=ROOT, check=True)
        return read(journal)


def main(paths: list[str]) -> int:
    costs = [cost for path in paths for cost in read(Path(path))]
    if not costs:
        print("no test was measured")
        return 1
    for long in (False, True):
        mine = [cost["cpu"] for cost in costs if cost["long"] is long]
        print(f"{len(mine)} {'long' if long else 'quick'} tests, {sum(mine):.0f} s of CPU")
    print("\nthe most expensive tests")
    for cost in sorted(costs, key=lambda cost: -cost["cpu"])[:10]:
        print(f"{cost['cpu']:8.1f} s  {cost['test']}")
    over = too_dear(costs)
    for _ in range(TIMES):
        over = too_dear(alone([cost["test"] for cost in over])) if over else []
    wrong = [f"{cost['test']}: {cost['cpu']:.1f} s of CPU" for cost in over]
    if len(EXCEPTIONS) > MOST:
        wrong.append(f"{len(EXCEPTIONS)} exceptions, and {MOST} are allowed")
    if wrong:
        print(f"\nover the budget ({QUICK:g} s for a quick test, {LONG:g} s for a long one):", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

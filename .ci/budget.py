"""Hold the tests to their budget of CPU: `python .ci/budget.py JOURNAL ...`, files that `pytest --journal=FILE` wrote.

A quick test has 5 s, a long one 60 s, kernels warm. An exception is named here with its reason; there are at most 15.
Exit code 1 if a test is over its budget.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

QUICK, LONG = 5.0, 60.0  # seconds of CPU
MOST = 15  # exceptions
EXCEPTIONS = {
    "tests/kafka/test_chaos.py::test_chaos": "three workers and a broker that are killed and started for a minute",
    "tests/kafka/test_quorum.py::test_a_quorum_that_stays_away": "the last test of three brokers pays for all of them",
}
"""Node id, without parameters: why it costs more."""


def main(paths: list[str]) -> int:
    costs = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    if not costs:
        print("no test was measured")
        return 1
    for long in (False, True):
        mine = [cost["cpu"] for cost in costs if cost["long"] is long]
        print(f"{len(mine)} {'long' if long else 'quick'} tests, {sum(mine):.0f} s of CPU")
    print("\nthe most expensive tests")
    for cost in sorted(costs, key=lambda cost: -cost["cpu"])[:10]:
        print(f"{cost['cpu']:8.1f} s  {cost['test']}")
    over = [cost for cost in costs if cost["cpu"] > (LONG if cost["long"] else QUICK)]
    over = [cost for cost in over if cost["test"].partition("[")[0] not in EXCEPTIONS]
    wrong = [f"{cost['test']}: {cost['cpu']:.1f} s of CPU" for cost in over]
    if len(EXCEPTIONS) > MOST:
        wrong.append(f"{len(EXCEPTIONS)} exceptions, and {MOST} are allowed")
    if wrong:
        print(f"\nover the budget ({QUICK:g} s for a quick test, {LONG:g} s for a long one):", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs seeds of the faults (first seed, last seed), says which fail and why, and prints the table of coverage.

PYTHONPATH=tests python -m support.simulation.report 0 170
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from support.simulation import coverage, runner
from support.simulation.coverage import Triple
from support.simulation.faults import FAULTS

TEST = Path(__file__).parents[2] / "kafka" / "simulation" / "test_faults.py"
NAME = "test_whatever_happens_the_outputs_are_the_embedded_engines"


def main(first: int, last: int) -> int:
    spec = spec_from_file_location(TEST.stem, TEST)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    met: list[Triple] = []
    failed = 0
    for pair in range(first, last, runner.AT_ONCE):
        seeds = range(pair, min(pair + runner.AT_ONCE, last))
        for result in runner.run(getattr(module, NAME).scenario, seeds, nodes=3):
            if result["error"] is None:
                met += [(fault, role, state) for fault, role, state in result["value"]]
            else:
                failed += 1
                print(f"seed {result['seed']}:\n{result['error']}", flush=True)
    print(coverage.table(met, list(FAULTS)))
    print(f"{failed} of {last - first} seeds failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))

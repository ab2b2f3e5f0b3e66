"""Runs seeds of the faults, says which fail and why, and prints the table of coverage. --shrink: and what is left of a
seed that fails, when fewer faults and documents do (`shrinking`).

PYTHONPATH=tests python -m support.simulation.report 0 170 [--shrink]
"""

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from support.simulation import coverage, runner
from support.simulation.coverage import Triple
from support.simulation.faults import FAULTS
from support.simulation.shrinking import Schedule, shrunk

TEST = Path(__file__).parents[2] / "kafka" / "simulation" / "test_faults.py"
NAME = "test_with_any_faults_the_outputs_are_the_embedded_engines"
NODES = 3


def scenarios() -> ModuleType:
    """The test's module."""
    spec = spec_from_file_location(TEST.stem, TEST)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smallest(seed: int, module: ModuleType) -> Schedule:
    """Of the schedules that fail."""

    def fails(schedule: Schedule) -> bool:
        [result] = runner.run(getattr(module, NAME).scenario, [schedule], nodes=NODES)
        print(f"  {schedule} {'fails' if result['error'] else 'passes'}", flush=True)
        return result["error"] is not None

    return shrunk(Schedule(seed), module.AIMS, module.N, fails)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("first", type=int, help="seed")
    parser.add_argument("end", type=int, help="the seed after the last one")
    parser.add_argument("--shrink", action="store_true")
    given = parser.parse_args()
    module = scenarios()
    met: list[Triple] = []
    failed: list[int] = []
    for pair in range(given.first, given.end, runner.AT_ONCE):
        seeds = range(pair, min(pair + runner.AT_ONCE, given.end))
        for result in runner.run(getattr(module, NAME).scenario, seeds, nodes=NODES):
            if result["error"] is None:
                met += [(fault, role, state) for fault, role, state in result["value"]]
            else:
                failed.append(result["seed"])
                print(f"seed {result['seed']}:\n{result['error']}", flush=True)
    for seed in failed if given.shrink else ():
        print(f"FOUND in {TEST.name} gets {smallest(seed, module)}", flush=True)
    print(coverage.table(met, list(FAULTS)))
    print(f"{len(failed)} of {given.end - given.first} seeds failed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main()))

"""Commands whose whole standard output counts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support import commands


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process; what a job writes to standard output goes past Python to the descriptor."""

    def invoke(*words: object, **given: Any) -> Done:
        capfd.readouterr()
        result = commands.run(*words, **given)
        return Done(result.stdout + capfd.readouterr().out, result.stderr)

    return invoke

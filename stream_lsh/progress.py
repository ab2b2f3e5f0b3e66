"""What opening an index waits for, and how far it is. A service reports it while it starts."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One step. done: how many of `all` are done, in `unit`. all: None = unknown."""

    name: str
    done: int = 0
    all: int | None = None
    unit: str = ""

    def __str__(self) -> str:
        if self.all is not None:
            return f"{self.name}, {self.done:,} of {self.all:,} {self.unit}"
        return f"{self.name}, {self.done:,} {self.unit} so far" if self.done else self.name


_now = Step("loading code")


def report(name: str, done: int = 0, all: int | None = None, unit: str = "") -> None:
    """Set the current step of this process."""
    global _now
    _now = Step(name, done, all, unit)


def now() -> Step:
    """The current step of this process."""
    return _now

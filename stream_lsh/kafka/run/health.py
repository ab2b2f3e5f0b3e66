"""Whether a worker is alive: every role has committed, or had nothing to do, a short while ago.

A port that answers proves little: what counts is that work goes on. A role is alive if its last commit, its last look
at an empty input, or its start is less than `ALIVE` seconds old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ALIVE = 60.0  # seconds


@dataclass
class Pulse:
    """When a role last showed life; seconds of the clock of its `Health`. stopped: why it has given up, if it has."""

    started: float
    committed: float | None = None
    idle: float | None = None
    stopped: str | None = None

    @property
    def last(self) -> float:
        """The last sign of life."""
        return max(time for time in (self.started, self.committed, self.idle) if time is not None)


class Health:
    """The pulses of the roles in this process. `ports`: where the processes of the same worker tell theirs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, ports: Sequence[int] = ()) -> None:
        self.clock = clock
        self._ports = tuple(ports)
        self._pulses: dict[str, Pulse] = {}

    def pulse(self, role: str) -> Pulse:
        """The pulse of a role, which starts when it is asked for first."""
        if role not in self._pulses:
            self._pulses[role] = Pulse(self.clock())
        return self._pulses[role]

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Whether all roles are alive, and for each the seconds since start, last commit and last idle look; of one
        that has given up, why."""
        now = self.clock()
        roles: dict[str, dict[str, Any]] = {}
        for role, pulse in self._pulses.items():
            ages = {"started": pulse.started, "committed": pulse.committed, "idle": pulse.idle}
            seconds = {name: None if then is None else round(now - then, 3) for name, then in ages.items()}
            alive = pulse.stopped is None and now - pulse.last < ALIVE
            roles[role] = {"alive": alive, "seconds_since": seconds}
            if pulse.stopped is not None:
                roles[role]["stopped"] = pulse.stopped
        alive = all(role["alive"] for role in roles.values())
        return alive, {"alive": alive, "roles": roles, "ports": self._ports}

"""Health of a worker: whether every role has recently committed, or recently had nothing to do.

An open port proves little; progress does. A role is healthy if its last commit, its last check of an empty input or its
start is less than `LIVE_SECONDS` seconds ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LIVE_SECONDS = 60.0  # seconds


@dataclass
class Pulse:
    """When a role last made progress, in seconds of the clock of its `Health`. stopped: why it has given up, if it
    has. waits: what it waits for, if that is not Kafka."""

    started: float
    committed: float | None = None
    idle: float | None = None
    stopped: str | None = None
    waits: str | None = None

    @property
    def last(self) -> float:
        """The time of the last sign of progress."""
        return max(time for time in (self.started, self.committed, self.idle) if time is not None)


class Health:
    """The pulses of the roles in this process. ports: the HTTP ports of all processes of the worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, ports: Sequence[int] = ()) -> None:
        self.clock = clock
        self._ports = tuple(ports)
        self._pulses: dict[str, Pulse] = {}

    def pulse(self, role: str) -> Pulse:
        """The pulse of a role. The first call starts it."""
        if role not in self._pulses:
            self._pulses[role] = Pulse(self.clock())
        return self._pulses[role]

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Whether all roles are healthy, and the report of /health: for each role the seconds since its start, its last
        commit and its last idle check. For a role that has given up also why."""
        now = self.clock()
        roles: dict[str, dict[str, Any]] = {}
        for role, pulse in self._pulses.items():
            ages = {"started": pulse.started, "committed": pulse.committed, "idle": pulse.idle}
            seconds = {name: None if then is None else round(now - then, 3) for name, then in ages.items()}
            live = pulse.stopped is None and now - pulse.last < LIVE_SECONDS
            roles[role] = {"live": live, "seconds_since": seconds}
            if pulse.stopped is not None:
                roles[role]["stopped"] = pulse.stopped
            if pulse.waits is not None:
                roles[role]["waits"] = pulse.waits
        live = all(role["live"] for role in roles.values())
        return live, {"live": live, "roles": roles, "ports": self._ports}

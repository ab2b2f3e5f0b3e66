"""Consumer groups of a simulated Kafka: membership and generations, static members, committed offsets.

After Kafka's classic GroupCoordinator. A group rebalances in two steps: all members join (PREPARING), the leader among
them assigns (COMPLETING), and then each knows what it has (STABLE).
"""

from __future__ import annotations

import uuid
from asyncio import TimerHandle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from support.simulation.errors import Error
from support.simulation.world import Loop, World

Reply = Callable[[dict[str, Any]], None]
Place = tuple[str, int]


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(eq=False, slots=True)
class Member:
    """A member. Times in seconds; join and sync: how to answer a request that waits."""

    id: str
    instance: str | None
    client: str
    session: float
    rebalance: float
    protocol_type: str
    protocols: dict[str, bytes]
    assignment: bytes = b""
    join: Reply | None = None
    sync: Reply | None = None
    timer: TimerHandle | None = None


@dataclass(slots=True)
class Committed:
    """An offset, and its metadata."""

    offset: int
    metadata: str


@dataclass(slots=True)
class Offsets:
    """What a group has committed, and what transactions (by producer) will commit or not."""

    committed: dict[Place, Committed] = field(default_factory=dict)
    pending: dict[int, dict[Place, Committed]] = field(default_factory=dict)

    def end(self, producer: int, commit: bool) -> None:
        """A transaction has ended."""
        ended = self.pending.pop(producer, {})
        if commit:
            self.committed.update(ended)


class Group:
    """A consumer group. delay: seconds for which the first join of an empty group waits for others."""

    def __init__(self, world: World, loop: Loop, name: str, delay: float) -> None:
        self._world, self._loop, self.name, self._delay = world, loop, name, delay
        self.members: dict[str, Member] = {}
        self.offsets = Offsets()
        self.state = State.EMPTY
        self.generation = 0
        self.protocol = ""
        self.leader = ""
        self._announced: set[str] = set()  # member ids that were given out and have not joined yet
        self._timer: TimerHandle | None = None

    @property
    def _static(self) -> dict[str, Member]:
        return {member.instance: member for member in self.members.values() if member.instance is not None}

    # Joining

    def join(self, ask: Mapping[str, Any], client: str, reply: Reply) -> None:
        """JoinGroup. The answer comes when all have joined."""
        given, instance = ask["member_id"], ask.get("group_instance_id")
        protocols = {one["protocol_name"]: one["protocol_metadata"] for one in ask["group_protocols"]}
        if self.members and not self._supported(protocols):
            return reply(self._refused(Error.INCONSISTENT_GROUP_PROTOCOL, given))
        if instance is not None:
            known = self._static.get(instance)
            if given and (known is None or known.id != given):
                error = Error.UNKNOWN_MEMBER_ID if known is None else Error.FENCED_INSTANCE_ID
                return reply(self._refused(error, given))
            if known is not None and not given:
                return self._replace(known, protocols, ask, reply)
        elif not given:
            announced = f"{client}-{uuid.uuid4()}"
            self._announced.add(announced)
            self._loop.call_later(ask["session_timeout"] / 1000, self._announced.discard, announced)
            return reply(self._refused(Error.MEMBER_ID_REQUIRED, announced))
        member = self.members.get(given)
        if member is None and (instance is not None or given in self._announced):
            self._announced.discard(given)
            member = Member(
                given or f"{instance}-{uuid.uuid4()}", instance, client, 0, 0, ask["protocol_type"], protocols,
            )  # fmt: skip
            if self.state is State.EMPTY:
                self._delayed(member)
            self.members[member.id] = member
            return self._rejoin(member, protocols, ask, reply)
        if member is None:
            return reply(self._refused(Error.UNKNOWN_MEMBER_ID, given))
        same = member.protocols == protocols
        knows = self.state is State.COMPLETING or (self.state is State.STABLE and member.id != self.leader)
        if same and knows:  # the answer was lost
            self._alive(member)
            return reply(self._joined(member))
        return self._rejoin(member, protocols, ask, reply)

    def _rejoin(self, member: Member, protocols: dict[str, bytes], ask: Mapping[str, Any], reply: Reply) -> None:
        member.session = ask["session_timeout"] / 1000
        member.rebalance = ask.get("rebalance_timeout", ask["session_timeout"]) / 1000
        member.protocols, member.join = protocols, reply
        self._prepare()
        self._complete()

    def _replace(self, old: Member, protocols: dict[str, bytes], ask: Mapping[str, Any], reply: Reply) -> None:
        """A static member is back: it has a new id, and what had the old one is fenced."""
        del self.members[old.id]
        self._stop(old)
        for waits in (old.join, old.sync):
            if waits is not None:
                waits(self._refused(Error.FENCED_INSTANCE_ID, old.id) | {"member_assignment": b""})
        member = Member(
            f"{old.instance}-{uuid.uuid4()}", old.instance, old.client, old.session, old.rebalance, old.protocol_type,
            protocols, old.assignment,
        )  # fmt: skip
        leader, was_leader = self.leader, self.leader == old.id
        self.members[member.id] = member
        if was_leader:
            self.leader = member.id
        if self.state is State.STABLE and old.protocols.get(self.protocol) == protocols.get(self.protocol):
            self._alive(member)
            # The old leader's name, so that a leader that is back does not assign: a stable group would not hear it.
            return reply(self._joined(member) | {"leader_id": leader, "members": []})
        return self._rejoin(member, protocols, ask, reply)

    def _delayed(self, member: Member) -> None:
        if self._delay:
            self.state = State.PREPARING
            self._timer = self._loop.call_later(self._delay, self._undelayed)

    def _undelayed(self) -> None:
        self._timer = None
        self._complete()

    def _supported(self, protocols: Mapping[str, bytes]) -> set[str]:
        return set(protocols).intersection(*(member.protocols for member in self.members.values()))

    def _refused(self, error: Error, member: str) -> dict[str, Any]:
        return {
            "error_code": error, "generation_id": -1, "group_protocol": "", "leader_id": "", "member_id": member,
            "members": [],
        }  # fmt: skip

    def _joined(self, member: Member) -> dict[str, Any]:
        members = [
            {"member_id": one.id, "group_instance_id": one.instance, "member_metadata": one.protocols[self.protocol]}
            for one in self.members.values()
        ]
        return {
            "generation_id": self.generation, "group_protocol": self.protocol, "leader_id": self.leader,
            "member_id": member.id, "members": members if member.id == self.leader else [],
        }  # fmt: skip

    # Rebalancing

    def _prepare(self) -> None:
        if self.state is State.PREPARING:
            return
        for member in self.members.values():
            if member.sync is not None:
                waits, member.sync = member.sync, None
                waits({"error_code": Error.REBALANCE_IN_PROGRESS, "member_assignment": b""})
        self.state = State.PREPARING
        self._world.note("group", self.name, "rebalances after generation", self.generation)
        self._again()

    def _again(self) -> None:
        """Wait for all members to join, but not for ever."""
        if self._timer:
            self._timer.cancel()
        longest = max((member.rebalance for member in self.members.values()), default=0.0)
        self._timer = self._loop.call_later(longest, self._late)

    def _late(self) -> None:
        """The rebalance timeout: who has not joined is out, unless it is static."""
        self._timer = None
        if self.state is not State.PREPARING:
            return
        self._announced.clear()
        for member in [m for m in self.members.values() if m.join is None and m.instance is None]:
            self._remove(member)
        if self.members and not any(member.join for member in self.members.values()):
            return self._again()  # static ones alone: their sessions end, or they come
        self._complete(late=True)

    def _complete(self, late: bool = False) -> None:
        if self.state is not State.PREPARING:
            return
        if not self.members:
            self.state = State.EMPTY
            self.generation += 1
            self._halt()
            return
        waiting = self._delay and self._timer and self.generation == 0 and not late
        if not late and (waiting or self._announced or not all(member.join for member in self.members.values())):
            return
        self._halt()
        self.generation += 1
        self.state = State.COMPLETING
        if self.leader not in self.members or self.members[self.leader].join is None:
            self.leader = next(member.id for member in self.members.values() if member.join)
        choices = self._supported(self.members[self.leader].protocols)
        self.protocol = next(name for name in self.members[self.leader].protocols if name in choices)
        for member in self.members.values():
            if member.join is not None:
                waits, member.join = member.join, None
                waits(self._joined(member))
            self._alive(member)
        longest = max(member.rebalance for member in self.members.values())
        self._timer = self._loop.call_later(longest, self._unsynced, self.generation)

    def _unsynced(self, generation: int) -> None:
        """The leader has not assigned in time."""
        if self.state is State.COMPLETING and self.generation == generation:
            for member in [m for m in self.members.values() if m.sync is None]:
                self._remove(member)
            self._prepare()
            self._complete()

    def _halt(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    # Members

    def _alive(self, member: Member) -> None:
        self._stop(member)
        member.timer = self._loop.call_later(member.session, self._expired, member)

    def _stop(self, member: Member) -> None:
        if member.timer:
            member.timer.cancel()

    def _expired(self, member: Member) -> None:
        if self.members.get(member.id) is member and member.join is None:
            self._world.note("group", self.name, "loses", member.id)
            self._leaves(member)

    def expire(self, member: str) -> None:
        """End the session of a member, as if nothing had been heard of it."""
        if member in self.members:
            self._expired(self.members[member])

    def _leaves(self, member: Member) -> None:
        self._remove(member)
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare()
        self._complete()

    def _remove(self, member: Member) -> None:
        del self.members[member.id]
        self._stop(member)

    def _checked(self, ask: Mapping[str, Any]) -> tuple[Member | None, Error]:
        member, instance = self.members.get(ask["member_id"]), ask.get("group_instance_id")
        if instance is not None and instance in self._static and self._static[instance].id != ask["member_id"]:
            return None, Error.FENCED_INSTANCE_ID
        if member is None:
            return None, Error.UNKNOWN_MEMBER_ID
        if ask.get("generation_id", self.generation) != self.generation:
            return member, Error.ILLEGAL_GENERATION
        return member, Error.NONE

    def sync(self, ask: Mapping[str, Any], reply: Reply) -> None:
        """SyncGroup. The answer comes when the leader has assigned."""
        member, error = self._checked(ask)
        if not error and self.state is State.PREPARING:
            error = Error.REBALANCE_IN_PROGRESS
        if error or member is None:
            return reply({"error_code": error, "member_assignment": b""})
        self._alive(member)
        if self.state is State.STABLE:
            return reply({"member_assignment": member.assignment})
        member.sync = reply
        if member.id == self.leader:
            self._halt()
            self.state = State.STABLE
            given = {one["member_id"]: one["member_metadata"] for one in ask["group_assignment"]}
            for one in self.members.values():
                one.assignment = given.get(one.id, b"")
                if one.sync is not None:
                    waits, one.sync = one.sync, None
                    waits({"member_assignment": one.assignment})
            self._world.note("group", self.name, "has generation", self.generation, "of", len(self.members))
        return None

    def heartbeat(self, ask: Mapping[str, Any], reply: Reply) -> None:
        member, error = self._checked(ask)
        if member is not None and not error:
            self._alive(member)
            if self.state is State.PREPARING:
                error = Error.REBALANCE_IN_PROGRESS
        reply({"error_code": error})

    def leave(self, ask: Mapping[str, Any], reply: Reply) -> None:
        member, error = self._checked(ask)
        reply({"error_code": error})
        if member is not None:
            self._leaves(member)

    # Offsets

    def may_commit(self, generation: int, member: str) -> Error:
        """Whether OffsetCommit is taken from such a member."""
        if generation < 0:  # not a member
            return Error.UNKNOWN_MEMBER_ID if self.members else Error.NONE
        found, error = self._checked({"member_id": member, "generation_id": generation})
        if found is not None and not error:
            self._alive(found)
            if self.state is State.COMPLETING:
                error = Error.REBALANCE_IN_PROGRESS
        return error

"""The state of the pipeline: observations from outside -> a report with everything that is wrong; pure.

Facts from Kafka are always there: members of the groups, their positions, what waits for them and since when. Facts
from the workers (size of shards, versions, why a role has stopped) are there as far as workers answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stream_lsh.index.segments.stream_time import BEFORE, shown
from stream_lsh.kafka.judge.gather import Waits
from stream_lsh.kafka.tools.seen import Reader, Seen
from stream_lsh.kafka.tools.workers import Answer
from stream_lsh.wording import count, duration

WAITED = 10.0  # seconds after which a frame that waits for a shard is named
FULL = 0.9  # of `decision_lag`: from here on sequence waits for judge
LATE = 60.0  # seconds that a document may wait for its verdict; as deploy/prometheus/alerts.yml has it
LEFT = 0.25  # of the retention: what has less before a record goes is about to be overtaken
STABLE = ("Stable", "Empty", "Dead")
INPUTS = {
    "sign": "documents", "sequence": "signatures", "match": "frames", "judge": "matches", "forward": "verdicts",
    "group": "memberships",
}  # fmt: skip
"""The topic, as an attribute of `Topics`, that says how far a role is."""
UNITS = {
    "sign": "document", "sequence": "frame", "match": "frame", "judge": "reply", "forward": "document",
    "group": "frame",
}  # fmt: skip
"""What a record of that topic is."""


@dataclass(frozen=True, slots=True)
class Role:
    """working, standing_by: hosts. waiting: records of `unit`; seconds: since the first of them came. left: seconds
    until it might be deleted, and the part of its retention that is; None if nothing waits, or nothing is deleted."""

    name: str
    working: Sequence[str]
    standing_by: Sequence[str]
    waiting: int
    unit: str
    seconds: float
    left: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Shard:
    """owner: host of its worker, None if there is none. documents, bytes, recovering: None without an answer of one."""

    number: int
    owner: str | None
    standbys: Sequence[str]
    waiting: int
    unit: str
    seconds: float
    documents: int | None = None
    bytes: int | None = None
    recovering: int | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong. alert: the one with the same cause; its page in docs/how-to/runbook has the remedy."""

    critical: bool
    alert: str
    text: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The first stage, from the document to the verdict, that has work and does not move. topic, partition, offset: of
    the record that it has to process next. text: a sentence that says so, with the cause."""

    role: str
    topic: str
    partition: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """provisional: documents without a verdict; oldest: seconds since the first of them came. under_way: from the
    sequencer to the judge, of at most `window`. unread: why frames cannot be read, so that waiting is counted in them.
    paused: seconds since which the signers read nothing; None: they read. behind: with a window, seconds that stream
    time is behind the clock. waits: the frame that nothing goes on without, and the shards that have not answered it;
    None if there is none, or none has waited for long. blocked: None if all stages move, or there was one look only.
    """

    time: float
    provisional: int
    oldest: float
    with_verdict: int | None
    under_way: int | None
    window: int
    roles: Sequence[Role]
    shards: Sequence[Shard]
    workers: Sequence[Answer] | None
    unread: str | None
    paused: float | None = None
    behind: float | None = None
    waits: Waits | None = None
    blocked: Blocked | None = None
    troubles: Sequence[Trouble] = ()

    @property
    def versions(self) -> list[str]:
        """Those of the workers that answer."""
        return sorted({worker.version for worker in self.workers or () if worker.version})


def waits_long(seen: Seen) -> bool:
    """Whether a record has waited so long that it matters whether its reader moves."""
    return any(_age(seen, reader.since) >= WAITED for reader in seen.readers)


def report(seen: Seen, window: int, before: Seen | None = None) -> Report:
    """What was seen, put together; what is wrong, the worst first.

    Args:
        window: `decision_lag`.
        before: an earlier look, which shows what moves.
    """
    shards = [_shard(seen, reader) for reader in seen.readers if reader.topic == "frames"]
    under_way = None
    if seen.accepted is not None and seen.with_verdict is not None:
        under_way = max(0, seen.accepted.documents - seen.with_verdict)
    sinces = [since for _, since in seen.provisional.values() if since is not None]
    found = Report(
        time=seen.now,
        provisional=sum(number for number, _ in seen.provisional.values()),
        oldest=_age(seen, min(sinces, default=None)),
        with_verdict=seen.with_verdict,
        under_way=under_way,
        window=window,
        roles=[_role(seen, name, shards) for name in seen.groups],
        shards=shards,
        workers=seen.answers,
        unread=seen.unread,
        paused=_age(seen, seen.pause.since / 1000) if seen.pause else None,
        behind=_behind(seen),
        waits=_waits(seen),
    )
    found = replace(found, troubles=sorted(_troubles(seen, found), key=lambda trouble: not trouble.critical))
    return found if before is None else replace(found, blocked=_blocked(seen, before, found))


def _age(seen: Seen, since: float | None) -> float:
    return 0.0 if since is None else max(0.0, seen.now - since)


def _behind(seen: Seen) -> float | None:
    time = shown(seen.accepted.log if seen.accepted is not None else None)
    return None if time == BEFORE else seen.now - time / 1000


def _waits(seen: Seen) -> Waits | None:
    """By what match has committed, which is behind what it has answered: a shard that is only busy is not named."""
    following = {shard: frame for shard, frame in seen.nexts.items() if frame.predecessor == seen.complete}
    since = {reader.partition: _age(seen, reader.since) for reader in seen.readers if reader.topic == "frames"}
    found = [shard for shard in sorted(following) if since[shard] >= WAITED]
    return Waits(tuple(found), following[found[0]].offset) if found else None


def _blocked(seen: Seen, before: Seen, found: Report) -> Blocked | None:
    positions = {(reader.role, reader.topic, reader.partition): reader.next for reader in before.readers}
    full = found.under_way is not None and found.under_way >= FULL * found.window
    for role in found.roles:
        # These wait for a later or an earlier stage: the window is full, or replies are missing.
        if (role.name == "sequence" and full) or (role.name == "judge" and found.waits is not None):
            continue
        still = [
            reader for reader in seen.readers
            if (reader.role, reader.topic) == (role.name, INPUTS[role.name]) and _age(seen, reader.since) >= WAITED
            and positions.get((reader.role, reader.topic, reader.partition)) == reader.next
            and (role.name != "match" or found.waits is None or reader.partition in found.waits.shards)
        ]  # fmt: skip
        if still:
            reader = max(still, key=lambda reader: _age(seen, reader.since))
            topic, partition = seen.place(reader.topic, reader.partition)
            place = f"{topic}, partition {partition}, offset {reader.next}"
            what = f"shard {reader.partition} does" if role.name == "match" else f"{role.name} does"
            text = f"{what} not move: {place}, waits for {duration(_age(seen, reader.since))}"
            if role.name == "match" and found.waits is not None:
                text += f" (frame {found.waits.frame})"
            return Blocked(role.name, topic, partition, reader.next,
                           f"{text}; {_cause(found, role, reader.partition)}")  # fmt: skip
    return None


def _cause(found: Report, role: Role, partition: int) -> str:
    """Why a role does not move, as far as it is known."""
    if role.name == "sign" and found.paused is not None:
        return "the pipeline is paused"
    shard = next((shard for shard in found.shards if role.name == "match" and shard.number == partition), None)
    if shard is not None and shard.recovering:
        return f"it is recovering: {count(shard.recovering, 'changelog record')} to read"
    hosts = role.working if shard is None else [host for host in [shard.owner] if host is not None]
    if not hosts:
        return "it has no worker"
    stopped = [
        f"{worker.address} has stopped: {worker.roles[role.name]['stopped']}"
        for worker in found.workers or () if worker.host in hosts and "stopped" in worker.roles.get(role.name, ())
    ]  # fmt: skip
    return stopped[0] if stopped else f"look at the log of {', '.join(sorted(set(hosts)))}"


def _role(seen: Seen, name: str, shards: Sequence[Shard]) -> Role:
    topic = INPUTS[name]
    working = [member.host for member, works in seen.members(name, topic) if works]
    resting = [member.host for member, works in seen.members(name, topic) if not works]
    readers = [reader for reader in seen.readers if reader.role == name]
    inputs = [reader for reader in readers if reader.topic == topic]  # without the documents that forward copies
    waiting, unit = _waiting(seen, name, inputs, shards)
    return Role(
        name, sorted(working), sorted(resting), waiting, unit,
        max([_age(seen, reader.since) for reader in inputs], default=0.0),
        min([left for reader in readers if (left := _left(seen, reader)) is not None], default=None),
    )  # fmt: skip


def _left(seen: Seen, reader: Reader) -> tuple[float, float] | None:
    """Seconds until what a reader has to read next may be deleted, and the part of the retention that this is."""
    if reader.overtaken:
        return 0.0, 0.0
    kept = seen.kept.get(seen.place(reader.topic, reader.partition)[0])
    if kept is None or reader.since is None:
        return None
    left = max(0.0, kept - _age(seen, reader.since))
    return left, left / max(kept, 1.0)


def _waiting(seen: Seen, role: str, readers: Sequence[Reader], shards: Sequence[Shard]) -> tuple[int, str]:
    """What waits for a role: documents, where its commits say how many, else records."""
    records = sum(reader.waiting for reader in readers)
    accepted = seen.accepted
    if accepted is not None and role == "sequence":
        signed = [reader for reader in seen.readers if (reader.role, reader.topic) == ("sign", "documents")]
        passed = accepted.positions
        return sum(max(0, reader.next - passed.get(reader.partition, reader.begin)) for reader in signed), "document"
    if role == "match":
        worst = max(shards, key=lambda shard: shard.waiting, default=None)
        return (0, UNITS[role]) if worst is None else (worst.waiting, worst.unit)
    if accepted is not None and seen.with_verdict is not None and role == "judge":
        behind = [shard.waiting for shard in shards if shard.unit == "document"]
        if len(behind) == len(shards):
            return max(0, accepted.documents - max(behind, default=0) - seen.with_verdict), "document"
    return records, UNITS[role]


def _shard(seen: Seen, reader: Reader) -> Shard:
    number, members = reader.partition, seen.groups["match"].members
    has = {
        topic: [member.host for member in members if number in member.partitions.get(seen.names[topic], ())]
        for topic in ("frames", "changelog")
    }
    owner = next(iter(has["frames"]), None)
    standbys = list(has["changelog"])
    if owner in standbys:
        standbys.remove(owner)
    waiting, unit, frame = reader.waiting, UNITS["match"], seen.nexts.get(number)
    if not waiting:
        unit = "document"
    elif seen.accepted is not None and frame is not None:
        waiting, unit = max(0, seen.accepted.documents - frame.documents), "document"
    answered = [answer for answer in seen.answers or () if number in answer.shards]
    facts = [answer.shards[number] for answer in answered]
    # A standby has these facts too, of its own copy: those of the owner count.
    owners = [answer.shards[number] for answer in answered if answer.host == owner] or facts

    def of(name: str) -> list[int]:
        return [fact[name] for fact in owners if name in fact]

    return Shard(
        number, owner, sorted(standbys), waiting, unit, _age(seen, reader.since),
        max(of("documents"), default=None), max(of("bytes"), default=None), min(of("recovering"), default=None),
    )  # fmt: skip


# What is wrong


def _troubles(seen: Seen, found: Report) -> Iterator[Trouble]:
    yield from _missing(seen, found)
    yield from _of_workers(found)
    yield from _overtaken(seen)
    if found.paused is not None:
        text = f"{_documents(seen)} has not been read for {duration(found.paused)}: {seen.pause.by}"
        yield Trouble(False, "StreamLshVerdictsLate", text)
    elif found.oldest >= LATE:
        text = f"the oldest document without a verdict arrived {duration(found.oldest)} ago"
        text += f"; {found.waits}" if found.waits is not None else ""
        yield Trouble(False, "StreamLshVerdictsLate", text)
    if seen.outputs < seen.sources:
        without = f"{count(seen.sources - seen.outputs, 'partition')} of {_documents(seen)}"
        text = f"sign does not read {without}: the outputs have fewer; run `stream-lsh kafka topics create`"
        yield Trouble(False, "StreamLshPartitionsExcluded", text)


def _documents(seen: Seen) -> str:
    return ",".join(seen.documents) or seen.names["documents"]


def _missing(seen: Seen, found: Report) -> Iterator[Trouble]:
    for role in found.roles:
        state = seen.groups[role.name].state
        if state not in STABLE:
            yield Trouble(False, "StreamLshRebalances", f"the consumer group of {role.name} is rebalancing")
        elif not role.working and not role.standing_by:
            yield Trouble(True, "StreamLshNoWorker", f"{role.name} has no worker")
        elif role.name == "match":
            for shard in found.shards:
                if shard.owner is None:
                    yield Trouble(True, "StreamLshShardUnanswered", f"shard {shard.number} has no worker: no verdicts")
    for shard in found.shards:
        if shard.recovering:
            records = count(shard.recovering, "changelog record")
            text = f"shard {shard.number} is recovering: {records} to read"
            yield Trouble(False, "StreamLshRecovering", text)


def _of_workers(found: Report) -> Iterator[Trouble]:
    for worker in found.workers or ():
        if worker.error is not None:
            yield Trouble(False, "StreamLshDown", worker.error)
        for name, role in worker.roles.items():
            if "stopped" in role:
                text = f"{name} at {worker.address} has stopped: {role['stopped']}"
                yield Trouble(True, "StreamLshRoleStopped", text)
            elif not role["live"]:
                yield Trouble(
                    True, "StreamLshNoCommit", f"{name} at {worker.address} has committed nothing for a minute"
                )
    if len(found.versions) > 1:
        yield Trouble(False, "StreamLshVersions", f"workers have different versions: {', '.join(found.versions)}")


def _overtaken(seen: Seen) -> Iterator[Trouble]:
    """Of each reader of a topic the partition that is worst off."""
    found: dict[tuple[str, str], list[tuple[float, float, Reader]]] = {}
    for reader in seen.readers:
        if (left := _left(seen, reader)) is not None and left[1] < LEFT:
            found.setdefault((reader.role, reader.topic), []).append((-reader.overtaken, left[0], reader))
    for (role, topic), readers in found.items():
        _, seconds, reader = min(readers, key=lambda entry: entry[:2])
        where = "{}, partition {}".format(*seen.place(topic, reader.partition))
        where += f" and {len(readers) - 1} more" if len(readers) > 1 else ""
        if reader.overtaken:
            text = f"{count(reader.overtaken, 'record')} were deleted before {role} had read them"
        else:
            text = f"what {role} has to read next may be deleted in {duration(seconds)}"
        yield Trouble(True, "StreamLshRetention", f"{where}: {text}")

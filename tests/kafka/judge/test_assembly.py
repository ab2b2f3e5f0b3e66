"""Replies in parts, of workers that are killed, paused and restarted: each is taken once, and no part is lost."""

import random
from dataclasses import dataclass, field

import pytest
from support.kafka.replica_play import settings_of

from stream_lsh.kafka.judge.gather import Assembly, Gather, Outcome
from stream_lsh.wire.parts import Part, Place, cut

SETTINGS = settings_of()
SHARDS, FRAMES = 2, 5


def reply(shard: int, frame: int) -> bytes:
    return b"%d:%d " % (shard, frame) * 150 * (1 + frame % 3)


def log_of(shard: int, chance: random.Random) -> list[bytes]:
    """What workers write of a shard's replies: some end anywhere, the last one writes all, and others write late."""
    parts = [
        [cut(reply(shard, frame), Place(shard, frame, frame - 1), most, SETTINGS) for frame in range(FRAMES)]
        for most in (300, 420)
    ]
    log, committed = list[bytes](), 0
    for _ in range(3):
        sent = [part for found in chance.choice(parts)[committed:] for part in found]
        log += sent[: chance.randrange(len(sent) + 1)]
    log += [part for found in parts[0] for part in found]
    for _ in range(4):  # late ones: in their order, with other records between them
        late, at = chance.choice(chance.choice(parts)), 0
        for part in late[: chance.randrange(len(late) + 1)]:
            at = chance.randint(at, len(log))
            log.insert(at, part)
            at += 1
    return log


@dataclass
class Judge:
    """A judge whose commits are atomic with what it has taken; `crash` forgets everything else."""

    log: list[bytes]
    out: list[tuple[bytes, ...]] = field(default_factory=list)
    committed: tuple[int, int] = (0, -1)

    def crash(self) -> None:
        self.position, last = self.committed
        self.gather: Gather[bytes] = Gather(SHARDS, last)
        self.assembly = Assembly(self.gather.last_of)

    def read(self, number: int) -> None:
        for data in self.log[self.position : self.position + number]:
            part = Part.decode(data, SETTINGS)
            if self.gather.outcome(*part.place) is Outcome.APPLIED:
                found = self.assembly.add(self.position, part)
                if found is not None:
                    assert self.gather.add(found[0], *part.place, found[1]) is Outcome.APPLIED
            self.position += 1

    def commit(self) -> None:
        while (frame := self.gather.take()) is not None:
            self.out.append(tuple(frame.replies))
        needed = self.assembly.needed(self.gather.needed(self.position))
        assert self.committed[0] <= needed <= self.position
        self.committed = needed, self.gather.last


@pytest.mark.parametrize("seed", range(40))
def test_replies_in_parts_are_taken_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    logs = [log_of(shard, chance) for shard in range(SHARDS)]
    log = list[bytes]()
    while any(logs):
        log.append(chance.choice([each for each in logs if each]).pop(0))
    judge = Judge(log)
    judge.crash()
    while judge.position < len(log):
        judge.read(chance.randint(1, 12))
        if chance.random() < 0.5:
            judge.commit()
        if chance.random() < 0.3:
            judge.crash()
    judge.commit()
    assert judge.out == [tuple(reply(shard, frame) for shard in range(SHARDS)) for frame in range(FRAMES)]

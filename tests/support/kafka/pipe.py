"""A pipeline of several shards without Kafka: sequencer, shards and judge, who may begin again anywhere."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stream_lsh.documents.document import Document
from stream_lsh.kafka.consumer.decisions import KnownDecisions, decisions_due
from stream_lsh.kafka.judge.deciding import Deciding
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply
from stream_lsh.wire.sequenced import Sequenced
from support.kafka.replica_play import change_of, judged, oracle, reply_of

BLOCK = 64


class Pipe:
    """All of it without Kafka: what each has said is at hand as bytes, as it would be in its topic."""

    def __init__(self, settings: Settings, log: list[bytes], folder: Path) -> None:
        self.settings, self.log, self.folder = settings, [Sequenced.decode(data, settings) for data in log], folder
        self.runs = 0
        self.replicas = [self.opened(shard, folder / str(shard)) for shard in range(settings.shards)]
        self.sent: list[list[bytes]] = []  # frames, one a shard
        self.changes: list[list[bytes]] = [[] for _ in range(settings.shards)]
        self.replies: list[list[bytes]] = []
        self.decided: list[bytes] = []
        if settings.late:
            self.judge = self.judging()
        self.said: list[bytes] = []

    def opened(self, shard: int, folder: Path) -> Replica:
        replica = Replica(self.settings, shard, folder)
        replica.activate()
        return replica

    def judging(self) -> Deciding:
        """A judge that takes over. It has only the last decisions, as they were written."""
        known = self.known()
        return Deciding(self.settings, known.since((known.documents // BLOCK - 1) * BLOCK), known.documents)

    def decisions_for(self, sequenced: Sequenced, n: int) -> list[bytes]:
        """The decisions that a sequencer sends with a frame, after it has read what was decided."""
        places = decisions_due(sequenced.first, counted(sequenced, n), BLOCK)
        return [b""] * self.settings.shards if places is None else self.known().records(*places, self.settings)

    def known(self) -> KnownDecisions:
        """What was decided, as it was written."""
        found = KnownDecisions("decisions")
        for offset, data in enumerate(self.decided):
            found.add(offset, Decisions.decode(data, self.settings))
        return found

    def frame(self, n: int, sequenced: Sequenced) -> list[bytes]:
        sent = self.decisions_for(sequenced, n)
        return [replace(sequenced, decisions=decisions).encode(self.settings) for decisions in sent]

    def step(self, sequenced: Sequenced) -> None:
        """A frame through all of them."""
        n = len(Frame.decode(sequenced.frame, self.settings).source)
        late = self.settings.late
        copies = self.frame(n, sequenced) if late else [sequenced.encode(self.settings)] * self.settings.shards
        self.sent.append(copies)
        answers = [replica.match(data) for replica, data in zip(self.replicas, copies, strict=True)]
        self.replies.append([])
        for shard, answer in enumerate(answers):
            assert answer is not None
            self.changes[shard].append(change_of(answer))
            self.replies[-1].append(reply_of(answer))
        if self.settings.late:
            self.decide(self.replies[-1])
        else:
            self.said += judged([Reply.decode(reply, self.settings) for reply in self.replies[-1]], self.settings)

    def decide(self, data: list[bytes]) -> None:
        found, decisions = self.judge.decide([Reply.decode(reply, self.settings) for reply in data])
        self.decided.append(decisions.encode(self.settings))
        self.said += judged(found, self.settings)

    def trouble(self, chance: random.Random) -> None:
        """Somebody begins again, or says again what he has said."""
        shard, kind = chance.randrange(self.settings.shards), chance.randrange(5)
        self.runs += 1
        if kind == 0:  # a worker comes back with its disk
            self.replicas[shard].close()
            self.replicas[shard] = self.opened(shard, self.replicas[shard].folder)
        elif kind == 1:  # or without
            self.replicas[shard].close()
            copy = Replica(self.settings, shard, self.folder / f"{shard}-{self.runs}")
            at = 0
            while at < len(self.changes[shard]):  # in some pieces, some of them opened in between
                n = chance.choice((1, 5, 40))
                copy.apply(enumerate(self.changes[shard][at : at + n], at))
                at += n
                if chance.random() < 0.2:
                    copy.activate()
                    copy.deactivate()
            copy.activate()
            self.replicas[shard] = copy
        elif kind == 2:  # a sequencer has sent some frames twice: the same answers, byte for byte
            for at in chance.sample(range(len(self.sent)), min(5, len(self.sent))):
                answer = self.replicas[shard].match(self.sent[at][shard])
                assert answer is not None
                if answer.reply is not None:
                    assert (change_of(answer), answer.reply) == (self.changes[shard][at], self.replies[at][shard])
        elif kind == 3:  # another judge
            self.judge = self.judging()
        else:  # a judge that had not committed his last frames decides them again
            kept, self.decided = self.decided, self.decided[: -chance.randrange(1, 4)]
            self.judge, said, at = self.judging(), self.said, len(self.decided)
            self.said = []
            for data in self.replies[at:]:
                self.decide(data)
            assert self.decided == kept
            assert self.said == said[len(said) - len(self.said) :]
            self.said = said

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()


def counted(sequenced: Sequenced, n: int) -> int:
    return n if sequenced.accepted is None else int(sequenced.accepted.sum())


def of_shard(
    settings: Settings, data: list[bytes], folder: Path, documents: Sequence[Document]
) -> tuple[list[bytes], list[bytes]]:
    """The frames of the last shard, and its replies, where all shards together answer as the embedded index."""
    found, shard = Pipe(settings, data, folder / "undisturbed"), settings.shards - 1
    for sequenced in found.log:
        found.step(sequenced)
    found.close()
    assert b"\n".join(found.said) == oracle(settings, data, folder / "oracle", documents)
    return [sent[shard] for sent in found.sent], [replies[shard] for replies in found.replies]

"""The owner of a shard that cleans its changelog, without Kafka."""

import shutil
from contextlib import suppress
from pathlib import Path

from stream_lsh.index.erasure.queue import places
from stream_lsh.kafka.match.copy import Rebuild
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import ENDS, Mark
from support.kafka.replica_play import answer, change_of, marks, reply_of

NOW = 10**6  # seconds since the last frame: everything is due


class Changelog:
    """The records of a changelog, whose first one has the offset `start`."""

    def __init__(self) -> None:
        self.start = 0
        self.values: list[bytes] = []

    def add(self, value: bytes) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def since(self, offset: int | None) -> list[tuple[int, bytes]]:
        first = max(self.start, 0 if offset is None else offset + 1)
        return list(enumerate(self.values[first:], first))

    def trim(self, replica: Replica) -> None:
        """As an owner does it."""
        needed = replica.forgetting and replica.forgetting.needed
        self.start = max(self.start, replica.cycle.cleaned or 0, needed or 0)

    @property
    def left(self) -> list[bytes]:
        return self.values[self.start :]


class Owner:
    """A replica that answers, and what it sends. judged: whether all replies of a former owner are in their topic."""

    def __init__(
        self, settings: Settings, folder: Path, log: Changelog, after: int | None = 0, limit: int | None = None,
        shard: int = 0, judged: bool = True,
    ) -> None:  # fmt: skip
        self.log = log
        self.replica = followed(settings, folder, log, after, limit, shard)
        self.replica.activate()
        self.replica.answered = self.replica.last if judged else -1

    def match(self, data: bytes) -> bytes:
        found = answer(self.replica, data)
        self.replica.confirmed(found.offset, self.log.add(change_of(found)))
        self.log.trim(self.replica)
        return reply_of(found)

    def clean(self, steps: int, now: float = NOW) -> list[Mark]:
        """So many steps; the snapshot records sent."""
        marks = []
        for _ in range(steps):
            self.finish()
            found = self.replica.clean(now)
            if found is not None:
                self.replica.confirmed(found[0], self.log.add(found[1]))
                marks.append(found[0])
                self.log.trim(self.replica)
        return marks

    def pace(self) -> list[Mark]:
        """The steps after a frame, as a worker takes them; the snapshot records sent."""
        marks = self.clean(1)
        while self.replica.owes:
            marks += self.clean(1)
        return marks

    def finish(self) -> None:
        """Wait for what is done beside the work."""
        if self.replica._cleaning is not None:
            self.replica._cleaning.erasing.finish()

    def cycle(self, now: float = NOW) -> list[Mark]:
        """A whole cycle."""
        marks: list[Mark] = []
        while not marks or marks[-1].part != ENDS:
            new = self.clean(50, now)
            marks += new
            assert new or not marks
            if not new and not any(place.due <= now for place in places(self.replica.store)):
                return marks
        return marks


def followed(
    settings: Settings, folder: Path, log: Changelog, after: int | None = 0, limit: int | None = None, shard: int = 0
) -> Replica:
    """A replica in a folder that has read the changelog to its end; one that cannot begin there begins anew."""
    replica = Replica(settings, shard, folder, erase_after=after, limit=limit)
    try:
        replica.apply(log.since(replica.changelog_offset), start=log.start)
    except Rebuild as error:
        assert error.whole
        replica.close()
        shutil.rmtree(folder)
        replica = Replica(settings, shard, folder, erase_after=after, limit=limit)
        replica.apply(log.since(replica.changelog_offset), start=log.start)
    assert not replica.gap and replica.cycle.taking is None
    replica.flush(lambda: False)
    return replica


def copied(folder: Path, target: Path) -> None:
    """Copy a folder that is in use, as it is at one moment: RocksDB may write beside the work."""

    def seen() -> set[tuple[Path, int, int]]:
        files = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
        return {(path, found.st_size, found.st_mtime_ns) for path, found in files}

    while True:
        with suppress(OSError):  # a file has gone meanwhile
            before = seen()
            shutil.copytree(folder, target, dirs_exist_ok=True)
            if seen() == before:
                return
        shutil.rmtree(target, ignore_errors=True)


def seen_marks(replica: Replica) -> list[tuple[int, int]]:
    """The marks of the rows in the window. When older ones are deleted is up to each replica."""
    first = 0 if replica.forgetting is None else replica.forgetting.seen
    return [found for found in marks(replica) if found[0] >= first]

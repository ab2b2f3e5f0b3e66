"""Inputs that have moved since an index read them, alone or together with the index."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_lsh.documents.columns import Position
from stream_lsh.embedded.checksums import BLOCK
from stream_lsh.embedded.inputs import Input, InputIdentity, LineInput, stamp_of
from stream_lsh.errors import InputError
from stream_lsh.index.store.rocksdb import Store

INPUT, BLOCKS = "input/", "blocks/"  # and a name of the input: what the index remembers of it; its checksums


def folders_of(known: Iterable[str], folder: Path) -> list[str]:
    """The folders in which an index has been, the present one last."""
    here = os.path.realpath(folder)
    return [*(one for one in known if one != here), here]


def beside(path: str, folder: str, other: str) -> str:
    """The path that lies to another folder as this one to a folder."""
    return os.path.normpath(Path(other) / os.path.relpath(path, folder))


class KnownInputs:
    """What an index remembers of its inputs.

    folders: in which it has been. given: the paths of this run's inputs, with their stamps. What the index knows of one
        of them is of no other, unless the file has moved to another one of them, as logs are rotated.

    Attributes:
        moved: what the index has to remember now of the inputs found at another path, by name.
    """

    def __init__(self, store: Store, folders: Sequence[str], given: Mapping[str, Sequence[int]]) -> None:
        self._store = store
        self._folders = folders
        self.moved: dict[str, Any] = {}
        names = {name.removeprefix(INPUT): record for name, record in store.items(INPUT)}
        self._names = names.keys()
        all_known = {record["path"]: (name, record) for name, record in names.items()}
        self._known = all_known.copy()
        for path in self._moved_within(given):
            del self._known[path]
        self._others = {path: all_known[path] for path in all_known.keys() - (self._known.keys() & given.keys())}
        self._alike = defaultdict[Any, list[str]](list)  # paths of others by what the same file has, too
        for before, (_, record) in self._others.items():
            for key in _keys(record["stamp"]):
                self._alike[key].append(before)

    def _moved_within(self, given: Mapping[str, Sequence[int]]) -> list[str]:
        """The known paths of this run with another file now, whose own file seems to be at another path of the run."""
        stamps = {path: self._known[path][1]["stamp"] for path in given.keys() & self._known.keys()}
        other = {path: stamp for path, stamp in given.items() if not _same_file(stamps.get(path, ()), stamp)}
        moved = defaultdict[Any, list[Sequence[int]]](list)
        for stamp in other.values():
            for key in _keys(stamp):
                moved[key].append(stamp)
        return [
            path for path, before in stamps.items()
            if path in other and any(_same_file(before, stamp) for key in _keys(before) for stamp in moved[key])
        ]  # fmt: skip

    def find(self, input: Input, identity: InputIdentity) -> tuple[str, dict[str, Any] | None]:
        """The name of an input in the index, and what the index remembers of it; None if the index has not read it.

        It has read the file that was at this path. Or the file was at another path: the one at which the index would
        find it if both had stayed where they were, or one from which the file has gone since. Raises InputError.
        """
        path = identity.path
        if path in self._known:
            return self._known[path]
        for before in self._earlier(identity):
            name, record = self._others[before]
            if self._has_read(input, identity, name, record):
                del self._others[before]
                found = {**record, "path": path, "stamp": list(identity.stamp)}
                self.moved[INPUT + name] = found
                return name, found
        name = _hash(path)
        while name in self._names:  # the file that was at this path has moved
            name = _hash(name)
        return name, None

    def _earlier(self, identity: InputIdentity) -> Iterator[str]:
        """The paths at which an input may have been, the likeliest first."""
        if not (stamp := identity.stamp):
            return
        path = identity.path
        with_index = [beside(path, self._folders[-1], folder) for folder in self._folders[-2::-1]]
        yield from [before for before in with_index if before in self._others]
        alike = {before for key in _keys(stamp) for before in self._alike[key] if before in self._others}
        stamps = {before: self._others[before][1]["stamp"] for before in alike}
        gone = [
            before for before, known in stamps.items()
            if _same_file(known, stamp) and not _same_file(known, _stamp_at(before))
        ]  # fmt: skip

        def order(before: str) -> tuple[bool, int, str]:
            ending = os.path.commonprefix([before[::-1], path[::-1]])  # noqa: RUF071 - in characters
            return stamps[before][0] != stamp[0], -len(ending), before

        yield from sorted(gone, key=order)

    def _has_read(self, input: Input, identity: InputIdentity, name: str, record: Mapping[str, Any]) -> bool:
        """Whether an input begins with what the index has read of another path."""
        if not input.matches(InputIdentity(identity.path, record["head"], record["head_bytes"], record["size"])):
            return False
        position, crc = Position(record["offset"], record["line"], record.get("crc") or 0), record.get("crc")
        if not isinstance(input, LineInput) or crc is None:
            return True
        other = record["stamp"][0] != identity.stamp[0]
        with suppress(InputError):  # it is shorter
            return input.difference(position, blocks_of(self._store, name, position), everything=other) is None
        return False


def blocks_of(store: Store, name: str, position: Position) -> list[int]:
    """The checksums of the whole blocks of an input before a position."""
    return [crc for _, chunk in store.items(f"{BLOCKS}{name}/") for crc in chunk][: position.offset // BLOCK]


def _same_file(before: Sequence[int], now: Sequence[int]) -> bool:
    """Whether a stamp is that of a file which has another stamp now: it is unchanged, or something was added to it."""
    if not before or not now:
        return False
    return list(before[1:3]) == list(now[1:3]) or (before[0] == now[0] and before[1] < now[1])


def _keys(stamp: Sequence[int]) -> Iterator[int | tuple[int, ...]]:
    """What two stamps of the same file have in common at least one of: the inode; size and time of change."""
    if stamp:
        yield from (stamp[0], tuple(stamp[1:3]))


def _stamp_at(path: str) -> tuple[int, ...]:
    """The stamp of the file at a path, empty if it is not there. A symbolic link leads to another path."""
    with suppress(OSError):
        if os.path.realpath(path) == path:
            return stamp_of(path)
    return ()


def _hash(path: str) -> str:
    return hashlib.sha256(str(Path(path)).encode("utf-8", "surrogateescape")).hexdigest()[:32]

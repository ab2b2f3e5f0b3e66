"""Where outputs may be written: each to a file of its own, outside of every index, and over nothing that is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
from stream_lsh.embedded.outputs import STANDARD, STANDARD_OUTPUT, status_of
from stream_lsh.embedded.remote import is_remote
from stream_lsh.errors import UsageError
from stream_lsh.index.store.files import is_index

_STANDARD_INPUT = 0


def check_outputs(
    outputs: Mapping[str, str],
    inputs: Iterable[str] = (),
    *,
    folder: Path | None = None,
    read: Mapping[str, Path | str | None] | None = None,
) -> None:
    """Check the files that a command is going to write, before it opens any.

    Args:
        outputs: option -> path, `-` = standard output. inputs: paths, `-` = standard input. folder: of the index of
            the command, which may not be there yet. read: option -> path of another file that is read, None = no file.

    Raises:
        UsageError: two outputs are one file. One is a file that is read. One is in the folder of an index, where only
            --dead-letters may name the index's own file.
    """
    seen: dict[tuple[object, ...], str] = {}
    for path in inputs:
        seen |= dict.fromkeys(_keys(path, _STANDARD_INPUT), f"the input {path}")
    for option, file in (read or {}).items():
        if file is not None:
            seen |= dict.fromkeys(_keys(str(file), _STANDARD_INPUT), option)
    for option, path in outputs.items():
        keys = _keys(path, STANDARD_OUTPUT)
        for key in keys:
            if (other := seen.get(key)) is not None:
                what = "standard output" if path == STANDARD else path
                raise UsageError(f"{option} and {other} are the same file, {what}: give each a file of its own.")
        _check_outside(option, path, folder)
        seen |= dict.fromkeys(keys, option)


def _check_outside(option: str, path: str, folder: Path | None) -> None:
    """Raise UsageError if an output is in the folder of this index or of another one."""
    if path == STANDARD or is_remote(path):
        return
    file, own = Path(os.path.realpath(path)), Path(os.path.realpath(folder)) if folder is not None else None
    if own is not None and option == "--dead-letters" and file == own / DEAD_LETTERS:
        return
    for place in (file, *file.parents):
        if place == own or is_index(place, strict=False):  # what is in a folder above may not be ours to look at
            raise UsageError(
                f"{option} {path} is in the folder of an index, {place}, where it could overwrite the index: name a "
                "file outside of it."
            )


def _keys(path: str, standard: int) -> list[tuple[object, ...]]:
    """What identifies the file a path means; nothing for devices, which may be shared."""
    keys: list[tuple[object, ...]] = []
    status = status_of(path, standard)
    if status is not None and (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
        keys.append((status.st_dev, status.st_ino))
    if path == STANDARD and standard == STANDARD_OUTPUT:
        keys.append((STANDARD,))
    elif path != STANDARD and (status is None or stat.S_ISREG(status.st_mode)):
        keys.append((os.path.realpath(path),))
    return keys

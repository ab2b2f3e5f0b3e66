"""Files that are replaced as a whole: a reader, and a crash, see the old contents or the new ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stream_lsh.errors import OutputError
from stream_lsh.index.store.files import sync_folder


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file; on the disk when it returns. A symbolic link stays, and the file that it names is replaced.

    Args:
        mode: permissions of a new file; those of an existing one stay.

    Raises:
        OutputError: it cannot be written.
    """
    target = path.resolve()
    try:
        if target.exists():
            mode = target.stat().st_mode & 0o777
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None

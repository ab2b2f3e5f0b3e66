"""The engine of a service, which is opened again for reading only while its disk is full."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from stream_lsh.embedded.engine import Engine
from stream_lsh.errors import StreamLshError
from stream_lsh.serve.disk import Disk, is_full

_FULL = "the disk of the index is full: documents can be read, and are refused until there is room (%s)"
_LOG = logging.getLogger("stream_lsh.serve")


class Opening:
    """An engine that was opened for writing or, while the disk is full, for reading only. For one thread.

    Args:
        write: opens the engine for writing.
        read: opens the last commit, for reading only.
        disk: its disk.

    Attributes:
        engine: the current engine.

    Raises:
        StreamLshError: the index cannot be opened.
    """

    def __init__(self, write: Callable[[], Engine], read: Callable[[], Engine], disk: Disk) -> None:
        self.disk = disk
        self._write = write
        self._read = read
        try:
            self.engine = write()
        except StreamLshError as error:
            if not self.failed(error):
                raise

    @property
    def read_only(self) -> bool:
        return self.engine.index.read_only

    def failed(self, error: BaseException) -> bool:
        """Open the last commit again after a failed write. Returns whether that helps: the disk was full."""
        if not is_full(error):
            return False
        self.disk.failed()
        with suppress(Exception):
            self.engine.close()
        try:
            self.engine = self._read()
        except StreamLshError:
            return False
        _LOG.error(_FULL, error)
        return True

    def recover(self) -> bool:
        """Open the index for writing again if there is room. Returns whether another engine is there.

        Raises:
            StreamLshError: the index cannot be opened any more.
        """
        if not self.read_only or self.disk.full:
            return False
        self.engine.close()
        try:
            self.engine = self._write()
            _LOG.info("the disk has room again: documents are accepted")
        except StreamLshError as error:
            if not is_full(error):
                raise
            self.disk.failed()
            self.engine = self._read()
        return True

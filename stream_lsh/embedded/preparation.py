"""What a program of its own does before it opens an index, and a library does only if it is asked."""

from __future__ import annotations

from stream_lsh.index.kernel import compiling
from stream_lsh.index.store.files import raise_limit
from stream_lsh.settings.model import Settings


def prepare(settings: Settings | None = None) -> None:
    """Prepare this process for an index: more open files, and faster compiling.

    The soft limit of open files is raised to the hard limit, because an index has hundreds of files. On a machine
    without compiled kernels, a second process compiles those for matching, which saves some seconds of the first start.
    The command line calls this; a `Deduplicator` does not.

    Args:
        settings: settings of the index, which decide which kernels are needed.
    """
    raise_limit()
    compiling.begin(settings or Settings())

"""What a program of its own does before it opens an index, and a library does only if it is asked."""

from __future__ import annotations

from stream_lsh.index.kernel import compiling
from stream_lsh.index.store.files import raise_limit
from stream_lsh.settings.model import Settings


def prepare(settings: Settings | None = None) -> None:
    """Make this process ready for an index: it may open as many files as the system allows, and a second process
    helps to compile.

    The soft limit of open files is raised to the hard one: an index has hundreds of files. On a machine that has not
    compiled the kernels yet, a process is started that compiles those for matching beside this one, which makes the
    very first start some seconds shorter. `Deduplicator` does neither of these by itself; the command line calls this.

    Args:
        settings: those of the index. They decide which kernels are needed.
    """
    raise_limit()
    compiling.begin(settings or Settings())

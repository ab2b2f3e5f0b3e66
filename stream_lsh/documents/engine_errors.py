"""Documents with which the engine fails: an unforeseen exception costs only the document that raises it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from traceback import walk_tb
from typing import TypeVar

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import StreamLshError

T = TypeVar("T")
ENGINE_ERROR = "engine_error"
SHOWN = 200  # characters of an id
MESSAGE = 200  # characters of an exception's message: it may quote the document


def isolating(work: Callable[[int, int, Mapping[int, Rejection]], T], n: int) -> T:
    """The result of work on n documents; those that make it raise are rejected.

    Without an exception this is one call. Otherwise halves are worked on until each document that raises alone is
    found, in 2 log2 n calls for each, and then all documents again.

    Args:
        work: of (begin, end, rejected): it works on the documents [begin, end), and on nothing of those in `rejected`,
            which are given by place, and only for all documents.

    Raises:
        StreamLshError, MemoryError, OSError: as `work` raised them; they are not due to a document.
        Exception: `work` raises also without the documents that raise alone.
    """
    try:
        return work(0, n, {})
    except Exception as error:
        return work(0, n, _failing(work, 0, n, error))


def _failing(
    work: Callable[[int, int, Mapping[int, Rejection]], object], begin: int, end: int, error: Exception
) -> dict[int, Rejection]:
    """The documents of [begin, end) that raise alone. error: that of all of them together."""
    rejection = rejection_of(error)
    if end - begin == 1:
        return {begin: rejection}
    found: dict[int, Rejection] = {}
    middle = (begin + end) // 2
    for first, last in ((begin, middle), (middle, end)):
        try:
            work(first, last, {})
        except Exception as caught:
            found |= _failing(work, first, last, caught)
    return found


def rejection_of(error: Exception) -> Rejection:
    """Why a document is rejected that has raised this.

    Raises:
        StreamLshError, MemoryError, OSError: the error itself, which is not due to a document.
    """
    if isinstance(error, Refused):
        return Rejection(error.reason, error.detail)
    if isinstance(error, (StreamLshError, MemoryError, OSError)):
        raise error
    message = " ".join(str(error).split())[:MESSAGE].encode("utf-8", "replace").decode("utf-8")
    said = f": {message}" if message else ""
    return Rejection(ENGINE_ERROR, f"the engine raised {type(error).__name__} in {_place(error)}{said}")


def shown_id(id: bytes) -> str:
    """The beginning of an id, as JSON."""
    return id.decode("utf-8", "replace")[:SHOWN]


def _place(error: Exception) -> str:
    """The innermost line of this package that a caught exception has passed."""
    passed = [(frame.f_globals.get("__name__", ""), line) for frame, line in walk_tb(error.__traceback__)]
    module, line = [(module, line) for module, line in passed if module.startswith("stream_lsh.")][-1]
    return f"{module}, line {line}"

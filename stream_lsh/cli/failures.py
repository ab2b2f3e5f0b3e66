"""How the program ends: a message on standard error, and an exit code that a script can test.

0 done, 1 nothing matches (query) or an error without a code of its own, 2 usage, 3 index, 4 input, 5 output, 6 Kafka.
130 Ctrl-C, 141 an output has no reader any more, 143 SIGTERM.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from stream_lsh.embedded.signals import Terminated, postponed
from stream_lsh.errors import OutputError, StreamLshError, UsageError
from stream_lsh.wording import printable

# Keys of click's meta, which all contexts of a run share.
_RESUMES, _COMMAND, _WAITING = "stream_lsh.resumes", "stream_lsh.command", "stream_lsh.waiting"
_HELP: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())  # since click 8.2
INTERRUPTED, READER_GONE, TERMINATED = 130, 141, 143
_ESCAPED = "stream_lsh.escaped"  # how standard output encodes what its encoding has not


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(_ESCAPED, _escaped)


def set_resumes(context: click.Context, folder: Path | None) -> None:
    """Remember whether the same command would go on where this one stops, for the message if it is stopped."""
    context.meta[_RESUMES] = folder is not None


def name_command(context: click.Context) -> None:
    """Remember which command runs, for the hint at its help. A signal that arrived earlier takes effect now.

    Raises:
        KeyboardInterrupt: there was such a signal.
    """
    context.meta[_COMMAND] = context.command_path
    if _WAITING in context.meta:
        context.meta.pop(_WAITING).close()


def complain(message: str) -> None:
    """One message on standard error; nothing if that is closed as well."""
    shown = "\n".join(map(printable, message.split("\n")))
    try:
        click.echo(f"stream-lsh: {shown}", err=True)
    except OSError:
        _discard(2)


def _discard(descriptor: int) -> None:
    # Buffered output is dropped: the interpreter would print an error when it fails to flush at exit.
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def leave(end: SystemExit) -> NoReturn:
    """End the process at once, as `end` says."""
    if isinstance(end.code, str):
        complain(end.code)
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            code = code or StreamLshError.exit_code
    os._exit(code)


def _raise_terminated(_: int, __: FrameType | None) -> None:
    raise Terminated


@contextmanager
def _sigterm_put_back() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler, and only it would receive the signal
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _raise_terminated:  # else the command ignores it for good
            signal.signal(signal.SIGTERM, before)


def _stopped(context: click.Context, what: str) -> str:
    resumes = context.meta.get(_RESUMES)
    if resumes is None:
        return what
    if resumes:
        return f"{what}; run the same command again to go on"
    return f"{what}; with --index DIR the same command would go on from here"


def _explain(error: OSError, context: click.Context) -> str:
    where = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        again = " and run the same command again to go on" if context.meta.get(_RESUMES) else ""
        target = f"writing{where}" if where else "writing"
        return f"no space left while {target}; make room{again}"
    if error.errno == errno.EBADF and not where:
        return "cannot write standard output: it is closed; redirect it to a file or a pipe"
    return f"{where.strip()}: {error.strerror}" if where and error.strerror else str(error)


def claim_standard_descriptors() -> None:
    """Give descriptors 0 to 2 to /dev/null where the caller has closed them (`>&-`): 0 and 1 the wrong way round.

    Otherwise the next file that is opened, perhaps one of the index, gets the number and takes what is written to
    standard output. With /dev/null reading and writing fail, and messages on standard error are dropped.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, mode)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _misuse(error: click.UsageError, context: click.Context) -> int:
    """Say what is wrong with a command line; the exit code. A group without a command shows its help instead."""
    if isinstance(error, _HELP):
        raise error
    from stream_lsh.cli.usage import worded  # here, because it takes pydantic with it

    return _misused(worded(error), (error.ctx or context).command_path)


def _misused(message: str, command: str) -> int:
    complain(f"{message}\nTry '{command} --help'.")
    return UsageError.exit_code


@contextmanager
def guarded(context: click.Context) -> Iterator[None]:
    """Run a command: as `explained`, and SIGTERM ends it as Ctrl-C does.

    Until it is known which command it is (`name_command`) signals wait: for some they are not the end that they are for
    others.
    """
    with explained(context), _sigterm_put_back(), ExitStack() as waiting:
        waiting.enter_context(postponed({signal.SIGTERM: _raise_terminated}))
        context.meta[_WAITING] = waiting
        yield
        _flush()


@contextmanager
def explained(context: click.Context) -> Iterator[None]:
    """Expected errors, interrupts and broken pipes become a message and an exit code."""
    code = 0
    claim_standard_descriptors()
    if isinstance(sys.stdout, io.TextIOWrapper):  # ids may have lone surrogates, and its encoding few letters
        sys.stdout.reconfigure(errors=_ESCAPED)
    try:
        yield
    except UsageError as error:
        code = _misused(str(error), context.meta.get(_COMMAND, context.command_path))
    except click.UsageError as error:
        code = _misuse(error, context)
    except StreamLshError as error:
        complain(str(error))
        code = error.exit_code
    except Terminated:
        complain(_stopped(context, "terminated"))
        code = TERMINATED
    except KeyboardInterrupt:
        complain(_stopped(context, "interrupted"))
        code = INTERRUPTED
    except BrokenPipeError:
        code = READER_GONE
    except OSError as error:
        complain(_explain(error, context))
        unwritten = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EBADF)
        code = OutputError.exit_code if unwritten else StreamLshError.exit_code
    if code:
        with suppress(OSError, ValueError):
            _flush()
        if code == READER_GONE:
            _discard(1)
        context.exit(code)

"""Sending alerts: a courier follows their file at its own pace and keeps its position in a journal.

Delivery is at least once: a line is done when the journal on disk says so. The run that writes the file is independent
of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from stream_lsh.embedded.webhook import Answer, Webhook
from stream_lsh.errors import InputError, OutputError, StoreError
from stream_lsh.index.store.files import append, sync_folder
from stream_lsh.wire.source import Headers

WAIT = 0.5  # seconds between two looks at a file
LONGEST = 300  # seconds between two attempts
_TAIL = 65_536  # bytes in which the last line of a journal ends
_READ = 1 << 20
_KEY = re.compile(r"[\w-]{1,128}", re.ASCII)


@dataclass(slots=True)
class Sent:
    """What became of the alerts."""

    taken: int = 0
    dead_letters: int = 0


def pause(attempt: int, after: float = 0.0) -> float:
    """Seconds behind an attempt that failed, the first of which is 1; at least those that the receiver wants."""
    return max(float(min(2 ** min(attempt - 1, 20), LONGEST)), after)


class Journal:
    """A line for every alert that is done with, the last of which is the position. One sender has it at a time.

    Raises:
        StoreError: another process has it, or it is none. OutputError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _opened(path, "--position")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._last = self._read()
        except BlockingIOError:
            os.close(self._file)
            raise StoreError(f"another process sends by {path}: give each receiver its own with --position") from None
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def offset(self) -> int:
        """How far the file of alerts is done with, in bytes."""
        return int(self._last["offset"])

    def has(self, file: int) -> bool:
        """Whether the line before the position, in the file of alerts (a descriptor), is the one that was sent."""
        size = int(self._last["size"])
        return zlib.crc32(os.pread(file, size, self.offset - size)) == int(self._last["crc"])

    def done(self, line: bytes, key: str, said: str, attempts: int) -> None:
        """A line of the file is done with; on the disk when it returns."""
        self._last = {
            "offset": self.offset + len(line), "size": len(line), "crc": zlib.crc32(line), "key": key, "said": said,
            "attempts": attempts,
        }  # fmt: skip
        _append(self._file, json.dumps(self._last, separators=(",", ":")).encode() + b"\n", self.path)

    def _read(self) -> dict[str, Any]:
        try:
            lines = whole_lines(self._file, b'{"offset":')
            if not lines:
                return {"offset": 0, "size": 0, "crc": 0}
            last = json.loads(lines[-1])
            return {**last, **{name: int(last[name]) for name in ("offset", "size", "crc")}}
        except (ValueError, KeyError, TypeError):
            raise StoreError(
                f"{self.path} is no position of a sender of alerts: name another file with --position"
            ) from None


def _opened(path: Path, option: str) -> int:
    """The descriptor of a file that is appended to. option: names it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        sync_folder(path.parent)
        return file
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; name another file with {option}") from None


def whole_lines(file: int, begins: bytes) -> list[bytes]:
    """The last lines of a file (a descriptor), which is appended to from now on. An incomplete line is truncated: its
    work is done again.

    Raises:
        ValueError: its lines do not begin as expected: it is another program's file, and stays unchanged.
    """
    length = os.fstat(file).st_size
    start = max(0, length - _TAIL)
    tail = os.pread(file, length - start, start)
    end = tail.rfind(b"\n") + 1
    lines, half = tail[:end].splitlines(), tail[end:]
    if (lines and not lines[-1].startswith(begins)) or half[: len(begins)] != begins[: len(half)]:
        raise ValueError
    os.ftruncate(file, start + end)
    os.lseek(file, 0, os.SEEK_END)
    return lines


def _append(file: int, data: bytes, path: Path) -> None:
    try:
        append(file, data)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}; make room, then run the same command again"
        ) from None


@dataclass
class Courier:
    """Sends alerts to a receiver, independent of their origin.

    Args:
        dead_letters: gets what was refused, or failed so many times (`attempts`). tell: takes sentences for people.

    Attributes:
        sent: what became of them.
    """

    webhook: Webhook
    dead_letters: Path
    attempts: int
    tell: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    sent: Sent = field(default_factory=Sent, init=False)

    def send(self, line: bytes, key: str, trace: Headers | None = None) -> tuple[str, int]:
        """Send an alert, a line without its end, with a trace context; what became of it, and after how many attempts.

        Raises:
            OutputError: it cannot be written to the dead letters. Errors of `sleep` pass; the alert is then not done.
        """
        answer, tries = self._tried(line, key, trace)
        if answer.taken:
            self.sent.taken += 1
            return answer.said, tries
        self.tell(f"alert {key}: {self.webhook.name} has not taken it ({answer.said}); it is in {self.dead_letters}")
        _write_dead_letter(self.dead_letters, line, key, answer, tries)
        self.sent.dead_letters += 1
        return f"dead letter: {answer.said}", tries

    def _tried(self, body: bytes, key: str, trace: Headers | None) -> tuple[Answer, int]:
        """The last answer, and how many there were."""
        for attempt in range(1, self.attempts + 1):
            answer = self.webhook.post(body, key, trace)
            if answer.taken or not answer.again or attempt == self.attempts:
                break
            seconds = pause(attempt, answer.after)
            self.tell(f"alert {key}: {self.webhook.name}: {answer.said}; again in {seconds:g} s")
            self.sleep(seconds)
        return answer, attempt


def send(alerts: Path, courier: Courier, journal: Journal, *, until_end: bool = False) -> None:
    """Send the alerts of a file that are not done, in order, and then new ones. until_end: stop at the end of the file.

    Raises:
        InputError: the file cannot be read, or is another one. OutputError: what is done cannot be written down.
    """
    warned = False
    while True:
        lines, short = _lines(alerts, journal, until_end)
        if short and not warned:
            courier.tell(
                f"{alerts} is shorter than what was sent of it: waiting until the run that writes it has come so far "
                f"again; if it is a new file, remove {journal.path}"
            )
        warned = short
        for line in lines:
            key = key_of(line)
            if key is None:
                raise InputError(
                    f"{alerts}: at byte {journal.offset} there is no alert; name the file that dedup --alerts writes"
                )
            journal.done(line, key, *courier.send(line[:-1], key))
        if not lines:
            if until_end:
                return
            courier.sleep(WAIT)


def _lines(alerts: Path, journal: Journal, until_end: bool) -> tuple[list[bytes], bool]:
    """Whole lines behind the position, and whether the file does not even reach so far."""
    try:
        file = os.open(alerts, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if until_end:
            raise InputError(f"{alerts} is not there: name the file that dedup --alerts writes") from None
        return [], journal.offset > 0
    except OSError as error:
        raise InputError(f"cannot read {alerts}: {error.strerror}; name the file that dedup --alerts writes") from None
    try:
        if os.fstat(file).st_size < journal.offset:
            if until_end:
                raise InputError(
                    f"{alerts} is shorter than what was sent of it: let the run that writes it go on first; if it is a "
                    f"new file, remove {journal.path}"
                )
            return [], True
        if not journal.has(file):
            raise InputError(
                f"{alerts} is not the file that was sent before (its bytes before {journal.offset} are others): if it "
                f"is a new one, remove {journal.path}"
            )
        data = os.pread(file, _READ, journal.offset)
        while b"\n" not in data and (more := os.pread(file, _READ, journal.offset + len(data))):
            data += more
    except OSError as error:
        raise InputError(f"cannot read {alerts}: {error.strerror}; name the file that dedup --alerts writes") from None
    finally:
        os.close(file)
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True), False


def key_of(line: bytes) -> str | None:
    """The key of an alert, None if the line is none."""
    with suppress(ValueError, KeyError, TypeError):
        key = json.loads(line)["key"]
        if isinstance(key, str) and _KEY.fullmatch(key):
            return key
    return None


def _write_dead_letter(path: Path, line: bytes, key: str, answer: Answer, attempts: int) -> None:
    said = json.dumps({"key": key, "reason": answer.said, "attempts": attempts}, separators=(",", ":")).encode()
    file = _opened(path, "--dead-letters")
    try:
        whole_lines(file, b'{"key":')
        _append(file, said[:-1] + b',"alert":' + line + b"}\n", path)
    except ValueError:
        raise OutputError(f"{path} has no dead letters in it: name another file with --dead-letters") from None
    finally:
        os.close(file)

"""Programs for the kernel of `avro_json`, each compiled from one Avro schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

LITERAL, LONG, STRING, KEY, BYTES, BOOLEAN, FLOAT, DOUBLE, TIME = range(9)
CHOICE, JUMP, CALL, RETURN, BEGIN, NEXT, LEAVE = range(9, 16)
LITERALS, TRUE_ENDS = b"truefalse", 4  # the beginning of each text

_UTC, _UNITS = b'+00:00"', {"millis": 1000, "micros": 1}
_VALUES: dict[str, tuple[bytes, tuple[int, int], bytes]] = {
    "int": (b"", (LONG, 0), b""), "long": (b"", (LONG, 0), b""), "boolean": (b"", (BOOLEAN, 0), b""),
    "float": (b"", (FLOAT, 4), b""), "double": (b"", (DOUBLE, 8), b""),
    "string": (b'"', (STRING, 0), b'"'), "bytes": (b'"', (BYTES, -1), b'"'), "int-date": (b'"', (TIME, 0), b'"'),
    **{f"long-timestamp-{name}": (b'"', (TIME, unit), _UTC) for name, unit in _UNITS.items()},
    **{f"long-local-timestamp-{name}": (b'"', (TIME, unit), b'"') for name, unit in _UNITS.items()},
}  # fmt: skip
_LEFT = {"bytes-decimal", "fixed-decimal", "string-uuid", "int-time-millis", "long-time-micros"}


class Program(NamedTuple):
    """What turns a value of a schema into JSON.

    Attributes:
        code: int64[n, 3], an operation and its operands in each row:
            LITERAL a b: write text[a:b].
            LONG, BOOLEAN, FLOAT, DOUBLE: read a value and write it; STRING, KEY (of a map): without quotes.
            BYTES a: so many bytes as base64, or if a < 0 those that are counted.
            TIME a: a timestamp in units of so many microseconds; a = 0: a date.
            CHOICE a b: read an index below b; go to targets[a + index].
            JUMP a, CALL a, RETURN: go to a; the same, and RETURN continues behind it. The last RETURN ends.
            BEGIN, NEXT a: begin an array or a map; its next item, or go to `a` behind the last.
            LEAVE: not covered.
        targets: int64[m].
        recursive: a record contains itself, so that values have no limit of nesting.
    """

    code: NDArray[np.int64]
    targets: NDArray[np.int64]
    text: NDArray[np.uint8]
    recursive: bool


def compiled(schema: Any, names: dict[str, Any]) -> Program:
    """The program of a schema that fastavro has parsed. names: the named schemas that it may refer to.

    Raises:
        ValueError: a value could have any number of items in no bytes.
    """
    compiler = _Compiler(names)
    compiler.value(schema)
    compiler.add(RETURN)
    code, targets = np.array(compiler.code, np.int64), np.array(compiler.targets, np.int64)
    return Program(code, targets, np.frombuffer(compiler.text, np.uint8), compiler.recursive)


class _Compiler:
    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self.code: list[list[int]] = []
        self.targets: list[int] = []
        self.text = bytearray(LITERALS)
        self.recursive = False
        self._label = 0  # the last row to which another one goes
        self._records: dict[str, tuple[int, bool | None]] = {}  # the row, and whether values may be empty, once known

    def add(self, operation: int, a: int = 0, b: int = 0) -> list[int]:
        self.code.append([operation, a, b])
        return self.code[-1]

    def _here(self) -> int:
        self._label = len(self.code)
        return self._label

    def _say(self, text: bytes) -> None:
        begin = len(self.text)
        self.text += text
        if len(self.code) > self._label and self.code[-1][0] == LITERAL and self.code[-1][2] == begin:
            self.code[-1][2] = len(self.text)
        elif text:
            self.add(LITERAL, begin, len(self.text))

    def value(self, schema: Any) -> bool:
        """Add what writes a value. Returns whether the value may take no bytes."""
        if isinstance(schema, list):
            return self._choice(schema, self.value)
        kind = schema["type"] if isinstance(schema, dict) else schema
        logical = f"{kind}-{schema.get('logicalType')}" if isinstance(schema, dict) else kind
        if logical in _LEFT or not isinstance(kind, str):
            self.add(LEAVE)
        elif kind in _VALUES:
            before, operation, behind = _VALUES.get(logical) or _VALUES[kind]
            self._say(before)
            self.add(*operation)
            self._say(behind)
        elif kind == "null":
            self._say(b"null")
            return True
        elif kind == "fixed":
            self._say(b'"')
            self.add(BYTES, schema["size"])
            self._say(b'"')
            return bool(schema["size"] == 0)
        elif kind == "enum":
            return self._choice(schema["symbols"], lambda symbol: self._say(orjson.dumps(symbol)))
        elif kind in ("array", "map"):
            self._items(schema)
        elif kind in ("record", "error"):
            return self._record(schema)
        elif kind in self._names:
            return self.value(self._names[kind])
        else:
            self.add(LEAVE)
        return False

    def _choice(self, branches: list[Any], add: Callable[[Any], object]) -> bool:
        first, jumps = len(self.targets), []
        self.add(CHOICE, first, len(branches))
        self.targets += [0] * len(branches)
        for i, branch in enumerate(branches, first):
            self.targets[i] = self._here()
            add(branch)
            jumps.append(self.add(JUMP))
        for jump in jumps:
            jump[1] = self._here()
        return False

    def _items(self, schema: Any) -> None:
        map = schema["type"] == "map"
        self._say(b"{" if map else b"[")
        self.add(BEGIN)
        loop = self._here()
        head = self.add(NEXT)
        if map:
            self._say(b'"')
            self.add(KEY)
            self._say(b'":')
        if self.value(schema["values" if map else "items"]) and not map:
            raise ValueError("it has an array whose items may take no bytes, so that nothing limits their number")
        self.add(JUMP, loop)
        head[1] = self._here()
        self._say(b"}" if map else b"]")

    def _record(self, schema: Any) -> bool:
        """Call a record's routine, which lies behind the first call."""
        name, fields = schema["name"], schema["fields"]
        if name in self._records:
            row, empty = self._records[name]
            self.recursive |= empty is None
            self.add(CALL, row)
            return bool(empty)
        self.add(CALL, len(self.code) + 2)
        jump, row, empty = self.add(JUMP), self._here(), True
        self._records[name] = row, None
        if len({field["name"] for field in fields}) < len(fields):
            self.add(LEAVE)
        for i, field in enumerate(fields):
            self._say((b"," if i else b"{") + orjson.dumps(field["name"]) + b":")
            empty &= self.value(field["type"])
        self._say(b"}" if fields else b"{}")
        self.add(RETURN)
        jump[1] = self._here()
        self._records[name] = row, empty
        return empty

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
MOST_ROWS = 50_000  # of a program
MOST_EMPTY = 10_000  # values of a record that take no bytes
UNLIMITED = 1 << 30

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
        depth: levels of nesting that a value can have; UNLIMITED or more if a record contains itself.
    """

    code: NDArray[np.int64]
    targets: NDArray[np.int64]
    text: NDArray[np.uint8]
    depth: int


def compiled(schema: Any, names: dict[str, Any]) -> Program:
    """The program of a schema that fastavro has parsed. names: the named schemas that it may refer to. The program of a
    schema that needs more than MOST_ROWS covers no value.

    Raises:
        ValueError: a value could have any number of items, or more than MOST_EMPTY others, in no bytes.
    """
    compiler = _Compiler(names)
    depth = compiler.value(schema).depth
    compiler.add(RETURN)
    rows = compiler.code if len(compiler.code) <= MOST_ROWS else [[LEAVE, 0, 0]]
    code, targets = np.array(rows, np.int64), np.array(compiler.targets, np.int64)
    return Program(code, targets, np.frombuffer(compiler.text, np.uint8), depth)


class _Shape(NamedTuple):
    """Of the values of a schema.

    Attributes:
        empty: the number of values inside one, and itself, if they take no bytes; otherwise 0.
        depth: the levels of nesting that one can have.
    """

    empty: int
    depth: int


_LEAF, _RECURSIVE = _Shape(0, 0), _Shape(0, UNLIMITED)


class _Compiler:
    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self.code: list[list[int]] = []
        self.targets: list[int] = []
        self.text = bytearray(LITERALS)
        self._label = 0  # the last row to which another one goes
        self._routines: dict[int, tuple[int, _Shape]] = {}  # the row and the shape by the id of fields or symbols

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

    def value(self, schema: Any) -> _Shape:
        """Add what writes a value."""
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
            return _Shape(1, 0)
        elif kind == "fixed":
            self._say(b'"')
            self.add(BYTES, schema["size"])
            self._say(b'"')
            return _Shape(int(schema["size"] == 0), 0)
        elif kind == "enum":
            return self._routine(schema["symbols"], self._symbols)
        elif kind in ("array", "map"):
            return self._items(schema)
        elif kind in ("record", "error"):
            return self._routine(schema["fields"], self._fields)
        elif kind in self._names:
            return self.value(self._names[kind])
        else:
            self.add(LEAVE)
        return _LEAF

    def _routine(self, parts: list[Any], add: Callable[[list[Any]], _Shape]) -> _Shape:
        """Call the routine of a named schema, which lies behind the first call."""
        if id(parts) in self._routines:
            row, shape = self._routines[id(parts)]
            self.add(CALL, row)
            return shape
        self.add(CALL, len(self.code) + 2)
        jump, row = self.add(JUMP), self._here()
        self._routines[id(parts)] = row, _RECURSIVE
        shape = add(parts)
        self._routines[id(parts)] = row, shape
        self.add(RETURN)
        jump[1] = self._here()
        return shape

    def _choice(self, branches: list[Any], add: Callable[[Any], _Shape]) -> _Shape:
        first, jumps, depth = len(self.targets), [], 0
        self.add(CHOICE, first, len(branches))
        self.targets += [0] * len(branches)
        for i, branch in enumerate(branches, first):
            self.targets[i] = self._here()
            depth = max(depth, add(branch).depth)
            jumps.append(self.add(JUMP))
        for jump in jumps:
            jump[1] = self._here()
        return _Shape(0, 1 + depth)

    def _symbols(self, symbols: list[str]) -> _Shape:
        if len(self.code) + 2 * len(symbols) > MOST_ROWS:
            self.add(LEAVE)
            return _LEAF
        return self._choice(symbols, self._symbol)

    def _symbol(self, symbol: str) -> _Shape:
        self._say(orjson.dumps(symbol))
        return _LEAF

    def _items(self, schema: Any) -> _Shape:
        map = schema["type"] == "map"
        self._say(b"{" if map else b"[")
        self.add(BEGIN)
        loop = self._here()
        head = self.add(NEXT)
        if map:
            self._say(b'"')
            self.add(KEY)
            self._say(b'":')
        items = self.value(schema["values" if map else "items"])
        if items.empty and not map:
            raise ValueError("it has an array whose items may take no bytes, so that nothing limits their number")
        self.add(JUMP, loop)
        head[1] = self._here()
        self._say(b"}" if map else b"]")
        return _Shape(0, 1 + items.depth)

    def _fields(self, fields: list[Any]) -> _Shape:
        shapes = []
        if len({field["name"] for field in fields}) < len(fields):
            self.add(LEAVE)
        for i, field in enumerate(fields):
            self._say((b"," if i else b"{") + orjson.dumps(field["name"]) + b":")
            shapes.append(self.value(field["type"]))
        self._say(b"}" if fields else b"{}")
        empty = 1 + sum(shape.empty for shape in shapes)
        if empty > MOST_EMPTY:
            raise ValueError(f"it has a record of more than {MOST_EMPTY} values that take no bytes")
        depth = 1 + max((shape.depth for shape in shapes), default=0)
        return _Shape(empty if all(shape.empty for shape in shapes) else 0, depth)

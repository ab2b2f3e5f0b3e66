"""What a mutant is, and every mutant that a file of Python has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARISONS = {
    "Lt": ("<", "<="), "LtE": ("<=", "<"), "Gt": (">", ">="), "GtE": (">=", ">"), "Eq": ("==", "!="),
    "NotEq": ("!=", "=="), "Is": ("is", "is not"), "IsNot": ("is not", "is"), "In": ("in", "not in"),
    "NotIn": ("not in", "in"),
}  # fmt: skip
ARITHMETIC = {
    "Add": ("+", "-"), "Sub": ("-", "+"), "Mult": ("*", "+"), "Div": ("/", "*"), "FloorDiv": ("//", "*"),
    "Mod": ("%", "+"), "LShift": ("<<", ">>"), "RShift": (">>", "<<"), "BitAnd": ("&", "|"), "BitOr": ("|", "&"),
    "BitXor": ("^", "&"), "Pow": ("**", "*"),
}  # fmt: skip
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
LOG_CALL = re.compile(r"(.*\.)?_?(log|logger|logging|warnings)\.(debug|info|warn|warning|error|exception|critical)\(")
Change = tuple[str, int, int, str]  # the operator; from which byte to which; what is put there


@dataclass(frozen=True)
class Mutant:
    """before, after: whole lines. occurrence: which of several equal places in the function, from 0."""

    number: int
    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    occurrence: int


def rows(text: str) -> list[str]:
    """The lines as Python counts them, with their ends."""
    return [line.decode() for line in text.encode().splitlines(keepends=True)]


class Source:
    """The text of a file, with the places where its functions and classes are, by their full names."""

    def __init__(self, text: str) -> None:
        self.tree, self.bytes, self.lines = ast.parse(text), text.encode(), rows(text)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.functions: dict[str, list[tuple[int, int]]] = {"<module>": [(1, len(self.lines))]}
        self._read(self.tree, "")

    def _read(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = prefix + child.name
                self.functions.setdefault(name, []).append((child.lineno, child.end_lineno or child.lineno))
                self._read(child, name + ".")
            else:
                self._read(child, prefix)

    def around(self, line: int) -> str:
        """The name of the innermost function or class."""
        return max((start, name) for name, at in self.functions.items() for start, end in at if start <= line <= end)[1]

    def places(self, block: str, function: str) -> list[int]:
        """The first lines of what equals the block, however far indented, in functions of that name."""
        wanted, lines = [line.strip() for line in rows(block)], [line.strip() for line in self.lines]
        spans = self.functions.get(function, [])
        return [n for a, b in spans for n in range(a, b + 1) if lines[n - 1 : n - 1 + len(wanted)] == wanted]

    def edges(self, node: Any) -> tuple[int, int]:
        """From which byte to which a node goes."""
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def changes(self, node: ast.AST, kernel: bool = False) -> Iterator[Change]:
        """Every change below a node that stays clear of docstrings, annotations, decorators, errors and log calls. In a
        kernel, which numba compiles, nothing is returned that is of another type."""
        skipped: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                kernel = kernel or any("njit" in ast.dump(decorator) for decorator in node.decorator_list)
                skipped = [node.returns, *node.decorator_list]
            case ast.ClassDef():
                skipped = [*node.decorator_list, *node.bases]
            case ast.arg() | ast.AnnAssign():
                skipped = [node.annotation]
            case ast.Raise() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):  # columns in f-strings are wrong
                return
            case ast.If() if "TYPE_CHECKING" in ast.dump(node.test) or "__main__" in ast.dump(node.test):
                return
            case ast.Assign() if "__all__" in ast.dump(node.targets[0]):
                return
            case ast.Expr(value=ast.Call()) if LOG_CALL.match(ast.unparse(node)):
                return
        yield from self._changed(node, kernel)
        for child in ast.iter_child_nodes(node):
            if child not in skipped:
                yield from self.changes(child, kernel)

    def _changed(self, node: ast.AST, kernel: bool) -> Iterator[Change]:
        match node:
            case ast.Compare():
                for left, right, kind in zip([node.left, *node.comparators], node.comparators, node.ops, strict=False):
                    yield from self._swapped("comparison", left, right, *COMPARISONS[type(kind).__name__])
            case ast.BinOp() if not re.search(r"^b?['\"]|\| ([A-Z]|None|str|int|float|bytes)|@", ast.unparse(node)):
                yield from self._swapped("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op).__name__])
            case ast.AugAssign():
                old, new = ARITHMETIC[type(node.op).__name__]
                yield from self._swapped("arithmetic", node.target, node.value, old + "=", new + "=")
                yield self._replaced("statement removed", node, "pass")
            case ast.BoolOp():
                swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._swapped("boolean", left, right, *swap)
            case ast.UnaryOp(op=ast.Not()):
                yield self._replaced("not removed", node, "({})", node.operand)
            case ast.Constant(value=bool()):
                yield self._replaced("constant", node, str(not node.value))
            case ast.Constant(value=int() as value):
                yield from (self._replaced("constant", node, str(other)) for other in (value + 1, value - 1))
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield self._replaced("statement removed", node, "pass")
            case ast.Assign() if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
                yield self._replaced("statement removed", node, "pass")
            case ast.Continue() | ast.Break():
                yield self._replaced("jump", node, "break" if isinstance(node, ast.Continue) else "continue")
            case ast.Return(value=ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as result):
                yield self._replaced("return", result, "not ({})", result)
            case ast.Return(value=ast.expr() as result) if not kernel and not isinstance(result, ast.Constant):
                yield self._replaced("return", result, "None")
            case ast.Return(value=ast.BinOp() | ast.Call(func=ast.Attribute(value=ast.Name(id="np"))) as result):
                yield self._replaced("return", result, "({}) + 1", result)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in EXTREMES:
                new = ast.unparse(node.func).removesuffix(name) + EXTREMES[name]
                yield self._replaced("extreme", node.func, new)
            case ast.If() | ast.While() | ast.IfExp():
                yield self._replaced("condition negated", node.test, "not ({})", node.test)
            case ast.comprehension():
                yield from (self._replaced("condition negated", test, "not ({})", test) for test in node.ifs)

    def _replaced(self, name: str, node: ast.AST, new: str, kept: ast.AST | None = None) -> Change:
        """Put `new` in place of a node; {} in it stands for the node that is kept."""
        inner = self.bytes[slice(*self.edges(kept))].decode() if kept else ""
        return (name, *self.edges(node), new.replace("{}", inner))

    def _swapped(self, name: str, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Change]:
        """Put another operator between two nodes."""
        start, end = self.edges(left)[1], self.edges(right)[0]
        gap = self.bytes[start:end].decode()
        if "#" not in gap:
            yield name, start, end, gap.replace(old, new, 1)

    def mutant(self, number: int, file: str, change: Change) -> Mutant | None:
        """A mutant of a change, unless it changes nothing."""
        operator, start, end, new = change
        changed = (self.bytes[:start] + new.encode() + self.bytes[end:]).decode()
        try:
            if ast.dump(ast.parse(changed)) == ast.dump(self.tree):
                return None
        except SyntaxError:
            return None
        first, last = (self.bytes.count(b"\n", 0, at) + 1 for at in (start, end))
        before, after = self.lines[first - 1 : last], rows(changed)
        after = after[first - 1 : len(after) - len(self.lines) + last]
        block, function = "".join(before), self.around(first)
        occurrence = self.places(block, function).index(first)
        return Mutant(number, file, first, function, operator, block, "".join(after), occurrence)


def placed(mutant: Mutant, tree: Path) -> tuple[Path, str] | None:
    """The file in which the mutant's function has its lines now, and the changed text. Its old file comes first."""
    files = sorted((tree / "stream_lsh").rglob("*.py"), key=lambda path: (path != tree / mutant.file, path))
    for path in files:
        source = Source(path.read_text(encoding="utf-8"))
        same = [name for name in source.functions if name.split(".")[-1] == mutant.function.split(".")[-1]]
        for name in sorted(same, key=lambda name: name != mutant.function):
            if places := source.places(mutant.before, name):
                first = places[min(mutant.occurrence, len(places) - 1)] - 1
                old, new = (rows(text) for text in (mutant.before, mutant.after))
                shift = [len(line) - len(line.lstrip()) for line in (old[0], source.lines[first])]
                moved = [" " * shift[1] + line[shift[0] :] for line in new]
                return path, "".join([*source.lines[:first], *moved, *source.lines[first + len(old) :]])
    return None

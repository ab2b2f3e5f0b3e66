"""Hold what people read to short sentences and plain words: `python .ci/prose.py [--list]`.

Counts listed words in 1,000 words, sentences of more than 35 words, and the words of table cells.
Exit code 1 if a limit is exceeded. --list shows each place.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "reference"))

from markup import FENCE, LINK

ROOT = Path(__file__).parents[1]

LISTED = re.compile(
    r"\b(who|whom|whoever|whomever|nobody|somebody|anybody|everybody|he|his|him|she|her"
    r"|stands?|stood|goes|went|gone|comes|came|sleeps?|slept|dies|died|tells|told|knows|knew|inherit(?:s|ed)?"
    r"|heirs?|founders?|founded|successors?|alive|undecided|strangers?|likeness|log time|so long as|whatever"
    r"|wherever)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z0-9][\w'’.-]*")
LONG, CELL = 35, 15  # words of a sentence, of a table cell
LIMITS = (3.0, 4.0, 0)  # listed words in 1,000; sentences that are long, in 100; cells that are too long
SAYS = re.compile(r"(Error|Refused|Rejection|complain|secho|warning|warn|info|error|exception|critical|fail)$")


class Text(NamedTuple):
    """Some prose, and where it is."""

    place: str
    text: str


def markdown(path: Path) -> Iterator[Text]:
    """Paragraphs, items and table cells of a page; a cell begins with a bar."""
    text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"))
    paragraph: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        if paragraph and (not bare or re.match(r"([-*>|#]|\d+\.) ?", bare)):
            yield Text(f"{path}:{start}", " ".join(paragraph))
            paragraph = []
        if bare.startswith("|"):
            cells = re.split(r"(?<!\\)\|", bare.strip("|"))
            yield from (Text(f"{path}:{number}", "|" + cell.strip()) for cell in cells if re.search(r"[A-Za-z]", cell))
        elif bare and not bare.startswith("<"):
            start = start if paragraph else number
            paragraph.append(re.sub(r"^([-*>#]+|\d+\.) ", "", bare))


def docstrings(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                line = getattr(node, "lineno", 1)
                for paragraph in re.split(r"\n\s*\n|\n(?=\s*[\w*, ]+: )", text):
                    yield Text(f"{path}:{line}", " ".join(paragraph.split()))


def messages(path: Path) -> Iterator[Text]:
    """What errors, logs and the command line say: strings in calls that say something; `…` is what is filled in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if SAYS.search(called):
                for argument in node.args:
                    text = _string(argument)
                    if text and " " in text:
                        yield Text(f"{path}:{node.lineno}", text)


def _string(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def helps() -> Iterator[Text]:
    """The help of all commands, and what the settings mean."""
    from command_line_page import commands  # here, because it takes the package with it

    from stream_lsh.cli import main

    for name, command in commands(main, "stream-lsh"):
        for paragraph in re.split(r"\n\s*\n", command.help or ""):
            yield Text(f"{name} --help", " ".join(paragraph.split()))
        for option in command.params:
            yield Text(f"{name} {option.opts[0]}", getattr(option, "help", None) or "")


def plain(text: str) -> str:
    """Without code, addresses and marks."""
    text = LINK.sub(r"\1", text)
    return re.sub(r"``?[^`]*``?|https?://\S+", "x", text).replace("*", "")


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])[\"')]*\s+|(?<=:)\s+(?=[A-Z])|\n", text) if WORD.search(part)]


def check(name: str, texts: Iterator[Text], under: str, show: bool) -> tuple[str, bool]:
    """A row of the table, and whether the limits are kept."""
    words = listed = long = count = cells = 0
    for place, text in texts:
        if under not in place:
            continue
        is_cell = text.startswith("|")
        text = plain(text)
        words += len(WORD.findall(text))
        found = [hit[0] for hit in LISTED.finditer(text)]
        listed += len(found)
        if found and show:
            print(f"{place}: {', '.join(found)}: {text[:160]}")
        if is_cell:
            size = len(WORD.findall(text))
            cells += size > CELL
            if size > CELL and show:
                print(f"{place}: a cell of {size} words: {text[:160]}")
            continue
        for sentence in sentences(text):
            count += 1
            size = len(WORD.findall(sentence))
            long += size > LONG
            if size > LONG and show:
                print(f"{place}: {size} words: {sentence[:160]}")
    rates = (1000 * listed / max(words, 1), 100 * long / max(count, 1), cells)
    row = f"{name:<12} {words:>7,} {rates[0]:>8.1f} {rates[1]:>8.1f} {cells:>7}"
    return row, all(rate <= limit for rate, limit in zip(rates, LIMITS, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="show each place")
    parser.add_argument("only", nargs="*", help="README, docs, changelog, docstrings, messages, help")
    parser.add_argument("--under", default="", help="only places with this in their path or command")
    parser.add_argument("--root", type=Path, default=ROOT)
    given = parser.parse_args()
    root = given.root
    code = sorted((root / "stream_lsh").rglob("*.py"))
    pages = [*sorted((root / "docs").rglob("*.md"))]
    kinds = {
        "README": lambda: markdown(root / "README.md"),
        "docs": lambda: (text for path in pages for text in markdown(path)),
        "changelog": lambda: (
            t for name in ("CHANGELOG.md", "CONTRIBUTING.md") if (root / name).exists() for t in markdown(root / name)
        ),
        "docstrings": lambda: (text for path in code for text in docstrings(path)),
        "messages": lambda: (text for path in code for text in messages(path)),
        "help": helps,
    }
    print(f"{'':<12} {'words':>7} {'listed':>8} {'long, %':>8} {'cells':>7}")
    kept = True
    for name, texts in kinds.items():
        if not given.only or name in given.only:
            row, fine = check(name, texts(), given.under, given.list)
            print(row)
            kept &= fine
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

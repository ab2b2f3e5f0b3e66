"""Feeds of which too much is rejected: what is wrong with the first line, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import orjson

from stream_lsh.errors import StreamLshError
from stream_lsh.wording import count, share

if TYPE_CHECKING:
    from stream_lsh.embedded.report import InputCount, Rejected, Summary

_FIELDS, _SHOWN = 20, 80  # so many names of fields, and characters of a line, are shown
_TABLE = re.compile(rb"[^{].*?[,;\t]")  # what may be the first line of CSV


class Share(click.ParamType):
    """A share: 0.01, or 1 %."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            self.fail(f"{value!r} is not a share; give a number from 0 to 1, such as 0.01, or a percentage, such as 1%")
        return number


def check_rejected(summary: Summary, most: float | None, letters: str | None) -> None:
    """Raise StreamLshError if more than a share of all documents was rejected; without a share, if all of them were, or
    all of an input that has several. letters: where the dead letters are."""
    documents, rejected = (sum(getattr(one, name) for one in summary.inputs) for name in ("documents", "rejected"))
    if most is None:
        least = 1 if rejected == documents else 2
        wrong = next((one for one in summary.inputs if one.rejected == one.documents >= least), None)
        if wrong is not None:
            empty = summary.folder is not None and rejected == documents and not summary.index_documents
            anew = (
                [f"The index {summary.folder} has no documents: delete it before you name other fields."]
                if empty
                else []
            )
            raise StreamLshError(" ".join([*_all_rejected(wrong, summary.first_rejected, letters), *anew]))
        return
    if documents and rejected / documents > most:
        what = f"{rejected:,} of {count(documents, 'document')} ({share(rejected, documents)}) were rejected"
        first = summary.first_rejected
        parts = [f"{what}, more than --max-rejected {share(most, 1)}."]
        raise StreamLshError(" ".join([*parts, *(_explained(first) if first is not None else _see(letters))]))


def _all_rejected(one: InputCount, first: Rejected | None, letters: str | None) -> Iterator[str]:
    name = "standard input" if one.name == "-" else one.name
    yield f"all of {name} was rejected ({count(one.documents, 'document')})."
    yield from _explained(first) if first is not None and first.input == one.name else _see(letters)


def _see(letters: str | None) -> Iterator[str]:
    if letters is not None:
        yield f"The lines and the reasons are in {letters}."


def _explained(first: Rejected) -> Iterator[str]:
    """What is wrong with a line, and what it has instead."""
    place = f"line {first.line} of {'standard input' if first.input == '-' else first.input}"
    what = {"not_json": "it is not JSON: ", "not_utf8": "it is not UTF-8: "}.get(first.reason, "")
    if "JSON" in first.detail:  # the line is JSON, and no object
        what = ""
    yield f"The first is {place}: {what}{first.detail}."
    fields = _fields(first.raw)
    if fields and first.reason == "missing_field":
        shown = ", ".join(fields[:_FIELDS]) + (", ..." if len(fields) > _FIELDS else "")
        yield f"The line has the fields {shown}."
        yield "Name the fields of the id and the text with --id-field and --text-field."
    elif not fields:
        text = first.raw[: 4 * _SHOWN].decode("utf-8", "replace")
        yield f"The line: {text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''}"
        if first.raw.startswith(b"["):
            yield "(Each line must be one object, not an array: `jq -c '.[]'` makes lines of an array.)"
        elif first.reason == "not_json" and first.line == 1 and _TABLE.match(first.raw):
            yield "(If this is CSV, give a file NAME.csv; with tabs between the cells, NAME.tsv.)"


def _fields(raw: bytes) -> list[str]:
    """The names of the fields of a line, those of objects in it as a.b; none if it is no object."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(document, dict):
        return []
    return [
        name if not isinstance(value, dict) else f"{name}.{inner}"
        for name, value in document.items()
        for inner in (value if isinstance(value, dict) and value else ("",))
    ]

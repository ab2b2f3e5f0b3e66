"""What one caller of a shared index sees: the notes of its own values of `match_within`, under ids of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pydantic import StrictInt

from stream_lsh.documents.fields import within_text
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import UsageError

Value = str | int | None
Id = str | StrictInt
_INTEGER = re.compile("0|-?[1-9][0-9]{0,4095}")
_HALF = re.compile("[\ud800-\udfff]")


class Scope:
    """Values of `match_within`, and the ids under which their notes are stored.

    Two scopes never have an id in common: a stored id begins with the values, percent-encoded, each followed by a
    slash. An index without `match_within` has one scope and no prefix.

    Args:
        fields: the index's `match_within`.
        values: one of each field.

    Raises:
        UsageError: the values are not those of the fields, or are none that a document may have.
    """

    def __init__(self, fields: Sequence[str], values: Mapping[str, Value]) -> None:
        if set(fields) != set(values):
            wanted = " ".join(f"--within {name}=VALUE" for name in fields) or "no --within"
            raise UsageError(
                f"the index matches within {', '.join(fields) or 'no field'}, and got values of "
                f"{', '.join(values) or 'none'}; give {wanted}"
            )
        try:
            within_text(values, b"")
        except Refused as error:
            raise UsageError(error.detail) from None
        self.within = {name: values[name] for name in fields}
        # A number and its digits are two values; a quoted string has no plus.
        coded = (quote(value, safe="") if isinstance(value, str) else f"+{value}" for value in self.within.values())
        self.prefix = "".join(f"{value}/" for value in coded)

    def stored(self, id: Id) -> tuple[Id, ...]:
        """The ids under which a note may be stored: the first of them that is there, else the first of all.

        Other programs store integers, too. Without a scope 1 and "1" are two ids, and each one names the other's note
        if it has none itself.
        """
        if self.prefix:
            return (f"{self.prefix}{id}",)
        if isinstance(id, int):
            return id, str(id)
        return (id, int(id)) if _INTEGER.fullmatch(id) else (id,)

    def has(self, id: Id) -> bool:
        """Whether a note with this id in the index is surely of this scope: a tool has stored it."""
        return not self.prefix or (isinstance(id, str) and id.startswith(self.prefix))

    def shown(self, id: Id) -> Id | None:
        """The id that the caller knows; None if no tool can name it: another program has stored it without the prefix,
        or with half a character, which no message can have."""
        shown = id[len(self.prefix) :] if isinstance(id, str) else id
        return shown if self.has(id) and (isinstance(shown, int) or not _HALF.search(shown)) else None

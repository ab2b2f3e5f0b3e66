"""The rules of alerts: a TOML file with tables [[rule]], each of a kind that says what it has
(docs/reference/outputs.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import seconds_of
from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import explain, near
from stream_lsh.settings.sources import read_tables

Source = Annotated[str, Field(min_length=1)] | int
Duration = Annotated[str, AfterValidator(lambda text: seconds_of(text) and text)]


class _Rule(BaseModel):
    """What all rules have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200, description="a name of its own, which its alerts have")
    cooldown: Duration = Field(
        default="1d", description='stream time in which it alerts once for a group (or source): a duration such as "1d"'
    )

    @cached_property
    def cooldown_ms(self) -> int:
        return 1000 * seconds_of(self.cooldown)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of all that it says: a rule that is changed is another one, and begins anew."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class _Timed(_Rule):
    """What rules have that count."""

    within: Duration = Field(description='how long ago counts, in stream time: a duration such as "6h"')

    @cached_property
    def within_ms(self) -> int:
        return 1000 * seconds_of(self.within)


class Spread(_Timed):
    """A group reaches so many members from so many sources within a time."""

    kind: Literal["spread"]
    members: int = Field(ge=2, description="members that came within the time, the first member among them")
    sources: int = Field(ge=1, le=1000, description="different sources that came within the time")


class Growth(_Timed):
    """A group grows by so many members within a time."""

    kind: Literal["growth"]
    members: int = Field(ge=1, description="members that join within the time")


class Share(_Timed):
    """The share of duplicates among the documents of a source is above so much within a time."""

    kind: Literal["share"]
    above: float = Field(ge=0, lt=1, description="the share of duplicates that is still no alert")
    documents: int = Field(ge=1, description="least number of documents of the source within the time")


class Copied(_Rule):
    """A document of a source is copied by another source."""

    kind: Literal["copied"]
    source: Source | None = Field(default=None, description="the source of the document that was kept; any without it")
    by: Source | None = Field(default=None, description="the source of the copy; any other one without it")
    similarity: float = Field(gt=0, le=1, description="least similarity of the two")

    @model_validator(mode="after")
    def _named(self) -> Copied:
        if self.source is None and self.by is None:
            raise ValueError("name one of source and by, or both")
        if self.source == self.by:
            raise ValueError(f"source and by are both {self.by!r}: name two sources, or leave one of them out")
        return self

    @cached_property
    def source_text(self) -> bytes | None:
        """As documents' sources are given: JSON text."""
        return None if self.source is None else id_text(self.source)

    @cached_property
    def by_text(self) -> bytes | None:
        return None if self.by is None else id_text(self.by)


Rule = Spread | Growth | Share | Copied
KINDS: Mapping[str, type[Rule]] = {"spread": Spread, "copied": Copied, "share": Share, "growth": Growth}
SOURCED = (Spread, Share, Copied)  # need the source of a document


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file, in its order.

    Raises:
        UsageError: naming the file, the rule, the key and what is allowed.
    """
    tables = read_tables(path, "rules file", "rule", "rules", "name, kind and what its kind needs")
    return tuple(_rule(table, where) for table, where in tables)


def _rule(table: Mapping[str, Any], where: str) -> Rule:
    if isinstance(name := table.get("name"), str):
        where = f"{where} ({name})"
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        said = "kind is missing" if kind is None else f"kind = {kind!r} is none"
        meant = f" (did you mean {found}?)" if isinstance(kind, str) and (found := near(kind, KINDS)) else ""
        raise UsageError(f"{where}: {said}{meant}; kinds are {', '.join(KINDS)}")
    try:
        return KINDS[kind].model_validate(table)
    except ValidationError as error:
        said = explain(error, table, {}, KINDS[kind], noun="key in a rule of this kind", described=True)
        raise UsageError(f"{where}: {said}") from None

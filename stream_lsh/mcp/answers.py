"""What the tools answer. The field descriptions are what an agent reads."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stream_lsh.mcp.scope import Id


class Found(BaseModel):
    """A note that is similar."""

    id: Id | None = Field(
        description='a number and its digits as a string, 1 and "1", are two ids; null: another program stored the '
        "note under an id that the tools cannot name"
    )
    similarity: float = Field(description="from the threshold of the index to 1")
    text: str | None = Field(description="its beginning; null where the index keeps no texts")


class Similar(BaseModel):
    """Notes that are similar to a text."""

    similar: list[Found] = Field(description="the most similar first")


class Checked(Similar):
    """Whether a text is new."""

    new: bool = Field(description="whether nothing similar is there")


class Added(Checked):
    """The verdict on a note that was added."""

    id: Id = Field(description="of the note, also if it is new")
    kind: Literal["unique", "near_duplicate", "exact_duplicate", "redelivered"] = Field(
        description="redelivered: this id had this text already, and nothing was stored"
    )
    group: int | None = Field(description="number of its group: similar notes and the one they are compared with")


class Note(BaseModel):
    """A note as it is stored."""

    id: Id
    text: str | None = Field(description="null where the index keeps no texts")
    kind: str | None = Field(description="kind of its verdict when it came")
    duplicate_of: Id | None = Field(description="the oldest note that it was similar to; null also if its id is")
    group: int | None


class Compared(BaseModel):
    """Two notes side by side."""

    similarity: float
    threshold: float = Field(description="from which similarity on two notes are near-duplicates")
    near_duplicates: bool
    only_in_first: list[str] = Field(description="parts of the first text that the second has not")
    only_in_second: list[str] = Field(description="the other way round")


class Group(BaseModel):
    """Notes that are similar to one of them."""

    group: int
    notes: int = Field(description="how many there are now")
    representative: Found | None = Field(description="the one that new notes are compared with")


class Groups(BaseModel):
    """A table of groups."""

    groups: list[Group]
    more: bool = Field(description="whether there may be further groups")


class Members(BaseModel):
    """The notes of a group."""

    members: list[Found] = Field(description="in the order of arrival; similarity to the representative of that time")
    more: int = Field(description="how many follow; ask with an offset for them")


class Deleted(BaseModel):
    """The answer to a deletion."""

    id: Id
    deleted: bool = Field(description="false: there was no such note")

"""The JSON objects of the HTTP API, as models: for the OpenAPI document and for `stream_lsh.client`. Later versions may
add fields. Imports nothing of the service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = str | int
Kind = Literal["unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"]
State = Literal["kept", "dropped"]
Range = Annotated[list[int], Field(min_length=2, max_length=2, description="begin and end, in characters")]


class Model(BaseModel):
    """An object of the API. Unknown fields are kept."""

    model_config = ConfigDict(extra="allow")


class Passage(Model):
    """A common run of words of two documents, under `containment`."""

    words: int
    newer: Range
    older: Range


class Match(Model):
    """An earlier document that is similar."""

    id: Id | None
    seq: int
    similarity: float
    terms: list[str] | None = Field(default=None, description="tf-idf: the terms with most weight")
    contained_in: float | None = Field(
        default=None, description="containment: share of the document found in the match"
    )
    contains: float | None = Field(default=None, description="containment: share of the match found in the document")
    passages: list[Passage] | None = Field(
        default=None, description="containment: shared runs of words, the longest first"
    )
    more_passages: int | None = Field(default=None, description="number of passages that are not listed")


class Representative(Model):
    """The document that represents a group."""

    id: Id | None
    seq: int
    group: int | None = None


class AsOf(Model):
    """The frame that a check of a pipeline on Kafka is as of."""

    frame: int = Field(description="offset in signatures")
    next_seq: int = Field(description="all documents with a smaller seq are known")
    documents_behind: int = Field(description="at most so many documents have verdicts in later frames")
    seconds_behind: float = Field(description="since the first of these verdicts was seen")


class Verdict(Model):
    """The answer to a document."""

    id: Id | None
    seq: int | None = Field(description="number of the document, from 0 on, in the order of arrival; null for a check")
    kind: Kind
    duplicate_of: Id | None = Field(description="the oldest match; under tf-idf the most similar one")
    similarity: float | None = Field(description="with that match, 0 to 1")
    group: int | None = Field(description="number of the group: the seq of its first member")
    matches: list[Match]
    truncated: int | None = Field(default=None, description="number of matches that are not listed")
    not_compared: int | None = Field(default=None, description="buckets and candidates that were not compared")
    replaces: int | None = Field(default=None, description="seq of the version that was replaced or deleted")
    new_representative: Representative | None = None
    new_representatives: list[Representative] | None = None
    supersedes: Id | None = Field(default=None, description="id of the kept document whose place this one takes")
    redelivered: int | None = Field(
        default=None, description="seq of the repetition of a document; all other fields are those of the first answer"
    )
    first_kind: Kind | None = Field(
        default=None, description="of a redelivered document whose first answer is not known"
    )
    deleted: bool | None = Field(default=None, description="of a deletion: whether there was such a document")
    reason: str | None = Field(default=None, description="why the document was rejected")
    detail: str | None = None
    as_of: AsOf | None = None


class Source(Model):
    """The place of a record on Kafka."""

    topic: str
    partition: int
    offset: int


class Accepted(Model):
    """Only with a pipeline on Kafka: the document is sent, and its verdict is not there in time."""

    id: Id | None
    taken: bool
    source: Source
    look: str = Field(description="address at which the verdict will be")
    detail: str


class Document(Model):
    """What is stored of a document."""

    id: Id | None
    seq: int | None = Field(description="the version: number of the current text")
    kind: Kind | None
    duplicate_of: Id | None
    similarity: float | None
    group: int | None
    time: int | None = Field(description="event time in ms since 1970")
    state: State
    text: str | None = Field(default=None, description="with `text=true`")
    source: Source | None = Field(default=None, description="with a pipeline on Kafka: the record")


class Side(Document):
    """A document in a comparison."""

    spans: list[Range] = Field(description="ranges of characters that common shingles cover")
    cut: bool = Field(description="whether the text is too long to be shown completely")
    shingles: int | None


class ComparedPassage(Model):
    """A common run of words of two compared documents."""

    words: int
    a: Range
    b: Range


class Comparison(Model):
    """Two documents side by side."""

    a: Side
    b: Side
    shared: int | None = Field(description="number of common shingles")
    similarity: float
    threshold: float
    match: bool
    why: str
    same_group: bool
    terms: list[str] | None = None
    passages: list[ComparedPassage] | None = None
    more_passages: int | None = None


class GroupRow(Model):
    """A row of the table of groups."""

    group: int
    representative: Representative
    version: int
    total_members: int
    live_members: int
    first: int | None = Field(description="earliest event time, ms since 1970")
    last: int | None
    sources: int
    first_sources: list[Id]
    joined_since: int | None = Field(default=None, description="members that joined within `since`")


class Member(Model):
    """A version of a member of a group."""

    group: int
    id: Id | None
    seq: int
    kind: Kind
    similarity: float | None
    time: int | None
    source: Id | None
    removed_by: int | None = None
    removed_at: int | None = None
    representative: bool | None = None


class Group(GroupRow):
    """A group with a page of its members."""

    members: list[Member]
    next_cursor: str | None = Field(default=None, description="`cursor` of the next page; null if there is none")


class Groups(Model):
    """A page of the table of groups."""

    groups: list[GroupRow]
    next_cursor: str | None = Field(default=None, description="`cursor` of the next page; null if there is none")


class Headline(Model):
    """What a list shows of a document; all null if it is not there."""

    id: Id
    headline: str | None = Field(description="first line of the text, shortened")
    source: Id | None
    time: int | None = Field(description="event time in ms since 1970")


class Headlines(Model):
    """The headlines of documents, in the order of their ids."""

    documents: list[Headline]


class Pair(Model):
    """Two similar documents."""

    older: Id | None
    newer: Id | None
    older_seq: int
    newer_seq: int
    similarity: float
    verified: Literal["exact", "signature"]


class Pairs(Model):
    """The latest pairs, the newest first."""

    pairs: list[Pair]
    next_cursor: str | None = Field(description="`cursor` of the next page; null if there is none")


class RaisedAlert(Model):
    """An alert, and when it was raised."""

    cursor: str
    raised: int | None = Field(description="time of the commit in ms since 1970; null if it is not known")
    alert: dict[str, object] = Field(description="as `dedup --alerts` writes it")


class Alerts(Model):
    """The latest alerts, the newest first."""

    alerts: list[RaisedAlert]
    next_cursor: str | None


class DeadLetter(Model):
    """An alert that a receiver did not accept."""

    cursor: str
    said: str = Field(description="the last answer")
    attempts: int
    alert: dict[str, object]


class Webhook(Model):
    """A receiver of alerts."""

    name: str
    url: str = Field(description="without its secret parts")
    waiting: int
    attempts: int = Field(description="failed ones for the alert that is being sent")
    next_attempt: int | None = Field(description="ms since 1970")
    said: str | None = Field(description="the last answer")
    dead_letters: list[DeadLetter]


class Webhooks(Model):
    """The receivers of alerts."""

    webhooks: list[Webhook]


class TestedWebhook(Model):
    """The answer of a receiver to a test alert."""

    name: str
    taken: bool
    said: str


class TestedWebhooks(Model):
    """The answers of receivers to a test alert."""

    webhooks: list[TestedWebhook]


class Resent(Model):
    """How many dead letters are sent again."""

    resent: int


class DiskState(Model):
    """The disk of the index."""

    free_bytes: int
    reserve_bytes: int = Field(description="free bytes below which writes are refused")
    full: bool


class IndexState(Model):
    """What the index has."""

    documents: int
    next_seq: int
    stream_time: int | None
    jumps: int
    bytes: int | None
    disk: DiskState | None = None
    checks: bool
    texts: bool
    groups: bool
    settings: dict[str, object]


class Places(Model):
    """The places from and to which events are kept."""

    begin: str = Field(alias="from")
    to: str


class ServiceState(Model):
    """The service now."""

    waiting: int
    started: str
    now: str
    listeners: int
    events: Places
    limits: dict[str, int]


class Totals(Model):
    """What was done since the start of the service."""

    documents: int
    kinds: dict[Kind, int]
    rejected: dict[str, int]
    pairs: int
    truncated: int
    not_compared: int
    replaced: int
    group_events: int
    alerts: int
    refused_requests: int


class Second(Model):
    """One second of the service."""

    at: int
    kinds: dict[Kind, int]
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None = Field(description="latency of the slowest answer")


class Stats(Model):
    """The index, the service, and what was done."""

    index: IndexState
    service: ServiceState
    totals: Totals
    seconds: list[Second]


class BackupRequest(Model):
    """A backup that is wanted."""

    name: str | None = Field(default=None, pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class Backup(Model):
    """A backup of the index."""

    name: str
    folder: str
    next_seq: int = Field(description="all documents before this number are in it")
    bytes: int


class Live(Model):
    """The process runs."""

    status: Literal["live"]


class Step(Model):
    """A step of the start: how many of `all` are done, in `unit`."""

    name: str
    done: int
    all: int | None
    unit: str


class Ready(Model):
    """Documents are accepted."""

    status: Literal["ready"]


class Problem(Model):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str = Field(description="stable; docs/reference/problems.md lists them")
    detail: str
    field: str | None = Field(default=None, description="the parameter, header, field or setting that is wrong")
    verdict: Verdict | None = Field(default=None, description="of a rejected document")
    health: Literal["starting", "not_ready", "stopping"] | None = None
    progress: Step | None = Field(default=None, description="what the start waits for")

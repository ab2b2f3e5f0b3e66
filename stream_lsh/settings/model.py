"""One settings model: command line over STREAM_LSH_* variables over a TOML file over the defaults.

Nothing here reads inputs or state; `Settings.signing` and `Settings.fingerprint` are all that the core sees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from stream_lsh.documents.fields import LINE_ID, Envelope, Fields
from stream_lsh.documents.items import Item, item_of
from stream_lsh.documents.times import duration_of, seconds_of
from stream_lsh.errors import UsageError
from stream_lsh.families.containment import MOST_SAMPLING, OF_SAMPLING, SEGMENT, check, sampling_of
from stream_lsh.families.curve import Curve
from stream_lsh.families.measure import (
    BY_DISTANCE,
    DEFAULTS,
    MEASURE_SETTINGS,
    OF_BITS,
    SCOPE_BITS,
    Measure,
    banding_of,
    check_extent,
    check_order,
    similarity_at,
    unused,
)
from stream_lsh.families.tuning import SIGNATURE_ERROR, Banding
from stream_lsh.settings.checks import (
    MOST_POSTINGS,
    check_keep,
    check_keep_per,
    check_room,
    check_used,
    refuse_others,
)
from stream_lsh.settings.errors import allowed, explain, is_flag
from stream_lsh.settings.sources import gathered
from stream_lsh.text.settings import STEPS, SigningSettings, parse_shingles, parse_steps

# What an answer depends on: an index made with other values of these gives other answers.
ANSWERS = (
    "threshold", "signature_size", "bands", "rows", "shingles", "bag", "normalize", "tokens", "verify", "compare_with",
    "max_bucket_rows", "max_candidates", "max_verified_matches", "shards", "segment_documents", "id_field",
    "text_field",
    "set_field",
)  # fmt: skip
ENVELOPE = "envelope"
KEEP = ("keep", "rank_field", "rank_order")  # fix answers where a kept document may be superseded
PER = ("keep_per", "source_field")  # fix answers where every source keeps a copy
LATE, WITHIN = "decision_lag", "match_within"  # fix answers where some are decided late, and where it is given
WINDOW = ("window", "max_future", "time_field")  # fix answers where there is a window
UPDATES = ("on_conflict", "time_field", "deleted_field")  # fix answers where ids are updated
TIMED = ("time_field",)  # of stories, which end by time


class Settings(BaseModel):
    """All settings of the engine; frozen, validated, with the documentation of each beside it.

    `Settings(...)` in Python means what it says; files and variables enter only through `load`.

    Raises:
        UsageError: an unknown name, or a value out of range. It suggests what to write.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    measure: Measure = Field(
        default="jaccard",
        description="how similarity is computed: jaccard (texts, sets), weighted-jaccard (sets with weights), "
        "containment (passages), tf-idf (stories), levenshtein (short texts), cosine or euclidean "
        "(vectors), hamming (bit vectors)",
    )
    threshold: float = Field(
        default=0.8, gt=0, le=1,
        description="similarity from which two documents match (tf-idf: 0.26)",
    )  # fmt: skip
    max_distance: float | None = Field(
        default=None, ge=0, le=1e30, allow_inf_nan=False,
        description="distance up to which two documents match: euclidean, hamming (bits), levenshtein "
        "(characters)",
    )  # fmt: skip
    dimensions: int | None = Field(
        default=None, ge=1, le=16384, description="numbers of a vector, or bits of a bit vector (a multiple of 8)"
    )
    target_recall: float = Field(
        default=0.999, gt=0, lt=1, description="probability with which a pair at the threshold is found"
    )
    signature_size: int | None = Field(
        default=None, ge=1, le=4096, description="numbers K of a signature (default: tuned)"
    )
    bands: int | None = Field(default=None, ge=1, le=1024, description="bands b of a signature (default: tuned)")
    rows: int | None = Field(default=None, ge=1, le=64, description="numbers r of a band (default: tuned)")
    min_shingles: int = Field(
        default=32, ge=1, le=10000,
        description="containment: shingles that a text needs for the promised recall",
    )  # fmt: skip
    sampling: int | None = Field(
        default=None, ge=1, le=MOST_SAMPLING,
        description="containment: one of this many shingles is a key (default: from threshold, target_recall and "
        "min_shingles)",
    )  # fmt: skip
    min_passage_words: int = Field(
        default=12, ge=1, le=10000, description="containment: words of the shortest passage that a match names"
    )
    shingles: str = Field(
        default="words:3/8",
        description="what a shingle is: words:K, chars:K, or words:K/C with C characters in scripts without spaces",
    )
    bag: bool = Field(default=False, description="count repeated shingles (Jaccard similarity of bags)")
    normalize: str = Field(
        default="lower,space,nfc,ignorable",
        description="how a text is changed before it is compared: lower, space, nfc, ignorable, punctuation, markup, "
        "nfkc, or none",
    )
    tokens: Literal["unicode", "word"] | None = Field(
        default=None,
        description="what a word is: letters with their marks, or one CJK character (unicode); Python's \\w+ "
        "(word) (default: unicode, with words:K word)",
    )
    verify: Literal["exact", "signature"] = Field(
        default="exact", description="how a candidate is checked: by the exact similarity, or by the signature"
    )
    compare_with: Literal["kept", "all"] = Field(
        default="kept", description="what a document is compared with: kept documents, or all earlier documents"
    )
    keep: Literal["first", "longest", "newest", "best"] = Field(
        default="first",
        description="which of similar documents is kept: the first, the longest, the newest, or the best by rank_field",
    )
    rank_field: str | None = Field(
        default=None, min_length=1,
        description="keep = best: field of the rank, a number of which the highest is best, or a value of rank_order; "
        "all others rank lowest",
    )  # fmt: skip
    rank_order: tuple[str, ...] = Field(
        default=(), description="keep = best: values of rank_field, the best first; all others rank lowest"
    )
    keep_per: Literal["source"] | None = Field(
        default=None,
        description="source: each source (source_field) keeps a copy of its own (default: one copy is kept of all)",
    )
    on_conflict: Literal["reject", "update"] = Field(
        default="reject",
        description="what happens to another text under a known id: it is rejected, or it replaces the version before",
    )
    envelope: Envelope | None = Field(
        default=None,
        description="events that have the document inside: debezium (changes of a database) or cloudevents "
        "(default: none)",
    )
    id_field: str = Field(
        default="id", min_length=1, description="field of the id, a dotted path; @line takes input and line number"
    )
    text_field: tuple[str, ...] = Field(
        default=("text",), description="field of the text; several are joined by a line break"
    )
    time_field: str | None = Field(
        default=None, min_length=1, description="field of the event time (ms or s since 1970, or ISO 8601)"
    )
    source_field: str | None = Field(
        default=None, min_length=1, description="field of the source, such as an outlet; groups count sources"
    )
    deleted_field: str | None = Field(
        default=None, min_length=1, description="field that is true if the document deletes its id"
    )
    match_within: tuple[str, ...] = Field(
        default=(), description="field whose values must be equal for documents to match, such as lang"
    )
    set_field: str | None = Field(
        default=None,
        min_length=1,
        description="field of a list that is compared as a set; with weighted-jaccard also an object of weights "
        "(default: set)",
    )
    vector_field: str | None = Field(
        default=None, min_length=1,
        description="cosine, euclidean: field of the vector, as numbers or as float32 in base64 (default: vector)",
    )  # fmt: skip
    bits_field: str | None = Field(
        default=None, min_length=1,
        description="hamming: field of the bits, as hexadecimal, base64 or an integer (default: bits)",
    )  # fmt: skip
    shards: int = Field(default=1, ge=1, le=64, description="number of shards, which work side by side")
    max_matches: int = Field(default=10, ge=0, description="best matches that a verdict lists; 0 = all found")
    max_verified_matches: int = Field(
        default=10,
        ge=0,
        description="matches after which no more candidates are verified; 0 = verify all (compare_with = all only)",
    )
    max_candidates: int = Field(
        default=32, ge=1, le=65536,
        description="most candidates verified for one document, the best by signature (weighted-jaccard: 128)",
    )  # fmt: skip
    max_bucket_rows: int = Field(
        default=64, ge=2, le=4096,
        description="newest rows of a bucket that are read (tf-idf: 256, euclidean and weighted-jaccard: 1024)",
    )  # fmt: skip
    decision_lag: int = Field(
        default=16384,
        ge=2,
        le=2**20,
        multiple_of=2,
        description="documents after which every shard has the decision on a document (several shards, "
        "compare_with = kept); on Kafka also the most documents in flight",
    )
    window: str | None = Field(
        default=None,
        examples=["7d"],
        description="how long documents are compared with later ones, in stream time: 90s, 15m, 12h, 7d, 2w, or "
        "ISO 8601 (default: for good)",
    )
    max_future: str | None = Field(
        default=None,
        examples=["10m"],
        description="with window: how far an event time may be ahead of the clock; a later one counts as just "
        "that far (default: no limit, on Kafka 10m)",
    )
    segment_documents: int | None = Field(
        default=None, ge=1, le=2**27, description="documents of a segment (default: as many as fit)"
    )
    erase_hours: float | None = Field(
        default=24, ge=0, le=87600,
        description="hours until deleted and replaced versions are erased from the disk",
    )  # fmt: skip
    memtable_documents: int = Field(
        default=65536, ge=16, le=4194304, description="documents in a memtable before it is flushed"
    )
    cache_bytes: int = Field(
        default=32 * 2**20, ge=2**20, le=2**40,
        description="bytes of RocksDB's block cache, which all indexes of a process share",
    )  # fmt: skip
    max_document_bytes: int = Field(
        default=16 * 2**20, ge=64, le=2**30, description="bytes of the longest document; longer ones are dead letters"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag(cls, value: object, info: ValidationInfo) -> object:
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and not is_flag(field):  # would be taken for 0 or 1
            raise ValueError(f"give {allowed(field)}")
        return value

    @field_validator("text_field", "match_within", "rank_order", mode="before")
    @classmethod
    def _fields(cls, value: object) -> object:
        names = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value
        texts = "".join(map(str, names)) if isinstance(names, Sequence) else ""
        if any("\ud800" <= each <= "\udfff" for each in texts):
            raise ValueError("give names that are UTF-8")
        return names

    @field_validator("text_field")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(value):
            raise ValueError("at least one field name, none of them empty")
        return value

    @field_validator("match_within")
    @classmethod
    def _within(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise ValueError("field names, none of them empty")
        return tuple(sorted(set(value)))  # equal sets of fields are equal settings

    @field_validator("window", "max_future")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        return None if value is None else duration_of(seconds_of(value))  # equal durations are equal settings

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        own = DEFAULTS.get(self.measure, {})
        self.__dict__.update((name, own[name]) for name in own.keys() - self.model_fields_set)  # still not given
        # None is "to be chosen", as if not given: an index has its own, and one of three would not fit the others.
        self.model_fields_set.difference_update(name for name in Banding._fields if getattr(self, name) is None)
        check_used(self, self.measure, unused(self.measure))
        check_order(self.measure, self.shards, self.compare_with)
        check_extent(self.measure, self.dimensions or 0, self.max_distance or 0.0)
        if self.measure == "containment":
            check(self.threshold, self.normalize, several_keep=self.late)
        _ = self.signing  # an impossible choice of shingles or bands is an error now, not at the first document
        if self.compare_with == "kept" and self.max_verified_matches == 0:
            raise ValueError(
                "max_verified_matches = 0 (all) is for compare_with = 'all'; among what was kept few are similar"
            )
        check_keep(
            self.keep, self.rank_field, self.rank_order, self.compare_with,
            texts=self.item is None and self.set_field is None,
        )  # fmt: skip
        check_keep_per(self.keep_per, self.source_field, self.compare_with)
        if self.max_future is not None and self.window is None:
            raise ValueError("max_future is for indexes with a window; give window too, or leave it out")
        if self.envelope == "debezium" and not self.updates:
            raise ValueError(
                "envelope = 'debezium': a database's rows are updated and deleted; give on_conflict = 'update' too"
            )
        if self.envelope == "debezium" and self.id_field == LINE_ID:
            raise ValueError(
                f"envelope = 'debezium' needs the ids of an id_field; with {LINE_ID!r} a deletion has no document"
            )
        if self.deleted_field is not None and not self.updates:
            raise ValueError(
                "deleted_field is for indexes whose documents change; give on_conflict = 'update' too, or leave it out"
            )
        check_room(self.segment_documents, self.memtable_documents, self.most_rows, self.banding.bands)
        return self

    @cached_property
    def banding(self) -> Banding:
        """K, b and r: as given, the rest chosen from threshold and recall (MMDS 3.4.3)."""
        # Where the estimate is the last word it must be a good one: a larger signature, with the same bands.
        error = SIGNATURE_ERROR if self.verify == "signature" else None
        return banding_of(
            self.measure, self.threshold, self.target_recall, self.signature_size, self.bands, self.rows, error=error,
            distance=self.max_distance or 0.0, dimensions=self.dimensions or 0,
        )  # fmt: skip

    @property
    def least(self) -> float:
        """The similarity from which two documents are alike, as verdicts have it."""
        if self.measure not in BY_DISTANCE:
            return self.threshold
        return similarity_at(self.measure, self.max_distance or 0.0, self.dimensions or 1)

    @cached_property
    def curve(self) -> Curve:
        """How surely a pair becomes a candidate."""
        asked = self.least if self.measure not in BY_DISTANCE else self.max_distance or 0.0
        sampling, shingles = (self.sampled, self.min_shingles) if self.measure == "containment" else (1, 0)
        return Curve(self.measure, self.banding, asked, self.dimensions or 0, sampling, shingles)

    @property
    def document_fields(self) -> Fields:
        """The JSON fields that hold the parts of a document."""
        return Fields(
            self.id_field, self.text_field, self.time_field, self.set_field, self.max_document_bytes,
            self.source_field, timed=self.window is None, match_within=self.match_within,
            deleted_field=self.deleted_field, item=self.item, rank_field=self.rank_field, rank_order=self.rank_order,
            envelope=self.envelope,
        )  # fmt: skip

    @property
    def item(self) -> Item | None:
        """What documents have instead of a text; None of texts and sets."""
        return item_of(self.measure, self.dimensions or 0, self.vector_field, self.bits_field, self.set_field)

    @cached_property
    def signing(self) -> SigningSettings:
        """What fixes the signature of a text."""
        kind, k, continuous_k = parse_shingles(self.shingles, self.set_field)
        steps = parse_steps(self.normalize)
        # words:K alone is the textbook's shingle, K consecutive \\w+; with /C it is ours for all scripts.
        tokens = self.tokens or ("word" if kind == "words" and "/" not in self.shingles else "unicode")
        return SigningSettings(
            kind=kind, k=k, continuous_k=continuous_k, bag=self.bag, tokens=tokens,
            **{step: step in steps for step in STEPS},
            signature_size=self.banding.signature_size, bands=self.banding.bands, rows=self.banding.rows,
            measure=self.measure, dimensions=self.dimensions or 0, max_distance=self.max_distance or 0.0,
            scope_bits=SCOPE_BITS if self.match_within and self.measure in OF_BITS else 0,
            sampling=self.sampled if self.measure == "containment" else 0,
            passage=self.min_passage_words if self.measure == "containment" else 0,
        )  # fmt: skip

    @cached_property
    def sampled(self) -> int:
        """One in so many shingles is a key, of quotations."""
        return self.sampling or sampling_of(self.threshold, self.target_recall, self.min_shingles)

    @property
    def late(self) -> bool:
        """Whether a shard learns what was kept from the others' answers, and so later: `decision_lag`."""
        return self.compare_with == "kept" and self.shards > 1

    @property
    def superseded_late(self) -> bool:
        """Whether a shard learns later what was superseded, as `late`."""
        return self.late and self.keep != "first"

    @property
    def block(self) -> int:
        """Documents of the log that are resolved together; 0 where no document is provisional."""
        return self.decision_lag // 2 if self.late else 0

    @property
    def ranks(self) -> bool:
        """Whether a row has a rank."""
        return self.keep in ("longest", "best")

    @property
    def updates(self) -> bool:
        """Whether an id may get another text, and be deleted."""
        return self.on_conflict == "update"

    @property
    def marks_rows(self) -> bool:
        """Whether a row may be deleted or superseded later."""
        return self.updates or self.keep != "first"

    @property
    def most_rows(self) -> int:
        """Rows that a document may come to: one more posts a new representative."""
        return 2 if self.updates else 1

    @property
    def window_ms(self) -> int:
        """The window in milliseconds, 0 = nothing is forgotten."""
        return 0 if self.window is None else 1000 * seconds_of(self.window)

    @property
    def keeps_time(self) -> bool:
        """Whether stream time counts for the index."""
        return self.window is not None

    @property
    def max_future_ms(self) -> int | None:
        """How far ahead of the clock an event time may be, in milliseconds; None = as far as it likes."""
        return None if self.max_future is None else 1000 * seconds_of(self.max_future)

    @cached_property
    def documents_of_a_segment(self) -> int:
        """As set, or as many as postings can be counted of with 32 bits."""
        most = SEGMENT if self.measure == "containment" else 2**27
        return self.segment_documents or min(most, MOST_POSTINGS // (self.most_rows * (self.banding.bands + 3)))

    @cached_property
    def answers(self) -> dict[str, Any]:
        """The settings that fix the answers, with their effective values, ready for JSON."""
        signing = self.signing
        shingles = f"{signing.kind}:{signing.k}/{signing.continuous_k}" if signing.kind == "words" else self.shingles
        values: dict[str, Any] = {name: getattr(self, name) for name in ANSWERS} | {
            **self.banding._asdict(),
            "shingles": shingles,
            "tokens": signing.tokens,
            "normalize": ",".join(step for step in STEPS if getattr(signing, step)) or "none",
            "segment_documents": self.documents_of_a_segment,
        }
        if self.measure not in ("jaccard", "containment"):
            values |= {name: getattr(self, name) for name in MEASURE_SETTINGS}
        if self.item is not None:
            values |= {f"{self.item.kind}_field": self.item.name}
        if self.measure == "containment":
            values |= {"measure": self.measure, "sampling": self.sampled, "min_passage_words": self.min_passage_words}
        for matter, names in (
            (self.late, (LATE,)), (self.match_within, (WITHIN,)), (self.envelope, (ENVELOPE,)),
            (self.window is not None, WINDOW),
            (self.updates, UPDATES), (self.measure == "tf-idf", TIMED), (self.keep != "first", KEEP),
            (self.keep_per is not None, PER),
        ):  # fmt: skip
            values |= {name: getattr(self, name) for name in names if matter}
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]  # tuples become lists

    @cached_property
    def fingerprint(self) -> str:
        """Hash of `answers`, 16 hexadecimal digits: equal where the same documents get the same verdicts."""
        return hashlib.sha256(json.dumps(self.answers, sort_keys=True).encode()).hexdigest()[:16]

    def where_not_given(self, **values: Any) -> Self:
        """These settings with other values for those that were not given.

        Raises:
            UsageError: they do not go together.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return self._made({**values, **given}, {}) if values.keys() - given.keys() else self

    if not TYPE_CHECKING:  # a type checker knows the arguments from the fields

        def __init__(self, **values: Any) -> None:
            self._fill(values, {})

    @classmethod
    def _made(cls, values: Mapping[str, Any], sources: Mapping[str, str]) -> Self:
        """Settings with these values, each with its source."""
        made = cls.__new__(cls)
        made._fill(values, sources)
        return made

    def _fill(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UsageError(explain(error, values, sources, type(self))) from None
        except ValueError as error:  # raised by `signing`
            raise UsageError(str(error)) from None

    def of_index(self, stored: Mapping[str, Any], where: str) -> Self:
        """These settings for an index that was made with the answers `stored`: what was not given is the index's own.

        Args:
            where: the index, for messages.

        Raises:
            StoreError: something that was given is another there, with its name and both values.
        """
        known = self._with_defaults(stored)
        given = self.model_fields_set
        names = {*ANSWERS, *KEEP, *PER, ENVELOPE, LATE, WITHIN, *WINDOW, *UPDATES, *MEASURE_SETTINGS, *OF_SAMPLING}
        own = {
            name: value for name, value in known.items()
            if name in names
            and name not in given
            and not (name == "tokens" and "shingles" in given)
            and not (name in (*Banding._fields, "sampling") and {"target_recall", "min_shingles"} & given)
            and name not in unused(known["measure"])
        }  # fmt: skip
        mine, clash, compared = self, "", names
        try:
            mine = self.where_not_given(**own)
        except UsageError as error:  # what was given does not go together with what the index has
            compared, clash = compared & given, str(error)
        other = [
            f"{name} = {there!r} (now {here!r})"
            for name, (there, here) in mine.differences(stored).items()
            if name in compared
        ]
        refuse_others(where, other, clash)
        return mine

    def differences(self, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The settings that differ in an index made with the answers `stored`: their values there, and here (None for a
        setting of a later version)."""
        known, mine = self._with_defaults(stored), self._with_defaults(self.answers)
        return {name: (there, here) for name, there in known.items() if there != (here := mine.get(name))}

    def _with_defaults(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        # A setting that a later version has added means, where it is missing, what was done before.
        names = (*ANSWERS, *KEEP, PER[0], "window", "on_conflict", "measure")
        lists: dict[str, Any] = {WITHIN: [], "rank_order": [], ENVELOPE: None}
        return {name: type(self).model_fields[name].default for name in names} | lists | dict(stored)

    @classmethod
    def load(cls, config: Path | None = None, defaults: Mapping[str, Any] | None = None, **given: Any) -> Self:
        """The settings from all sources; `given` (the command line) wins over the environment, that over the file.

        One file serves the embedded engine and Kafka: the engine ignores the settings that only Kafka has. `defaults`:
        used where no source has a value, instead of the model's own.

        Raises:
            UsageError: names the setting, its value, its source and what is allowed.
        """
        values, sources = gathered(cls, config, defaults or {}, given)
        return cls._made(values, sources)

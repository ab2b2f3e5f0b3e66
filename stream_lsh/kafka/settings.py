"""The settings of the pipeline on Kafka: those of the engine, and how to reach the broker, topics, batches, delivery.

Nothing here imports a Kafka client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_lsh.documents.fields import LINE_ID
from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import unknown
from stream_lsh.settings.model import Settings

ROLES = ("sign", "sequence", "match", "judge", "forward")
"""What a worker can do, in the order of the pipeline."""
GROUP = "group"
"""One more with the setting `groups`."""
OWN_TOPICS = {
    "verdicts": "verdicts", "pairs": "pairs", "unique": "unique", "dead_letters": "dead-letters",
    "state": "state", "signatures": "signatures", "frames": "frames", "matches": "matches", "decisions": "decisions",
    "memberships": "memberships", "groups": "groups", "alerts": "alerts", "group_changelog": "group-changelog",
    "changelog": "match-shards-changelog",  # as Faust calls that of the table `shards` of the application PREFIX.match
}  # fmt: skip
"""What the pipeline writes, by attribute of `Topics` the name without the prefix."""

Partitioner = Literal["murmur2", "crc32"]
"""Ways to choose the partition of a key."""

MOST_CANDIDATES = 128
"""Where several shards keep, and the judge needs all matches of a frame in one record."""

MOST_DECIDED = 32_768
"""Where they do and ids are updated: a verdict may name as many representatives as a block has documents."""

MAX_FUTURE = "10m"
"""With a window, how far ahead of its frame's append time an event time may be, if nothing else is said."""

ACCEPTED = ("accept_deleted_records", "accept_lost_position", "accept_trimmed_changelog")
"""The settings with which an operator accepts a loss. Each names the place of the loss, so it is of no effect later."""

OF_TOPIC = (
    "document_format", "key_is_id", "id_prefix", "envelope", "id_field", "text_field", "time_field", "deleted_field",
    "source_field",
)  # fmt: skip
"""The settings that each of several documents topics may have for itself."""
IN_ALL = ("time_field", "source_field")
"""Those of them that either all topics have, or none."""

SHARED = frozenset(Settings.model_fields) - {"cache_bytes"} | {
    "documents_topic", "documents", "id_prefix", "partitions", "retention_hours", "erase_hours", "allow_weak_topics",
    "key_is_id", "partitioner", "groups", "http_port",
    "frame_documents",  # because decision_lag depends on it
}  # fmt: skip
"""The settings of the pipeline as a whole, which commands take from its topic `state` where they are not given."""

INSYNC, UNCLEAN, POLICY = "min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy"
RETENTION, RETENTION_BYTES = "retention.ms", "retention.bytes"
WEAK = (INSYNC, UNCLEAN, POLICY, RETENTION, RETENTION_BYTES)
"""The topic settings, by Kafka's names, by which records may be lost; see `weaknesses`."""

_PLACE = re.compile(r"[A-Za-z0-9._-]{1,249}:\d+:\d+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Kafka allows names of 249 characters; the longest of ours adds 22 to the prefix.
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
"""An id without its prefix that is an integer in JSON keys."""
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]/]+)(:(\d{1,5}))?")
_REGISTRY = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_USER, _TOKEN = ("sasl_username", "sasl_password"), ("sasl_oauth_token_file",)
_BY_USER = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_REGISTRY_SETTINGS = ("registry_url", "registry_username", "registry_password", "registry_cafile")
_SSL = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")


class KafkaSettings(Settings):
    """All settings of the engine and of its pipeline on Kafka; frozen, validated, documented beside each field."""

    bootstrap_servers: str = Field(
        default="127.0.0.1:9092", description="brokers to ask first, HOST:PORT, separated by commas"
    )
    topic_prefix: str = Field(
        default="stream-lsh", description="first part of the names of topics, consumer groups and transactional ids"
    )
    documents_topic: str | None = Field(default=None, description="topic of the documents (default: PREFIX.documents)")
    documents: dict[str, dict[str, Any]] = Field(
        default={},
        description="several documents topics: a TOML table for each, with the settings that differ there "
        "(default: one topic)",
    )
    id_prefix: str = Field(
        default="", pattern=r"^[A-Za-z0-9._:/-]{0,250}$",
        description="text before each id of a documents topic (default: none; of several topics TOPIC:)",
    )  # fmt: skip
    partitions: int = Field(
        default=4, ge=1, le=4096, description="partitions of a documents topic that `topics create` makes"
    )
    replication_factor: int | None = Field(
        default=None, ge=1, le=32767, description="replicas of each topic (default: as the broker has it)"
    )
    retention_hours: int = Field(
        default=168,
        ge=1,
        le=2_000_000,
        description="hours for which topics keep records; tables and changelogs keep them longer",
    )
    unique_timestamps: Literal["LogAppendTime", "CreateTime"] = Field(
        default="LogAppendTime",
        description="timestamps in the topic unique: when the broker writes a record, or those of the documents",
    )
    allow_weak_topics: tuple[str, ...] = Field(
        default=(),
        description=f"topic settings that may be weak, of {', '.join(WEAK)}; otherwise a worker ends with an error",
    )
    erase_hours: float | None = Field(
        default=None, ge=0, le=87600,
        description="hours until deleted and replaced versions are erased from shards and changelogs "
        "(default: by min_cleanable_bytes only)",
    )  # fmt: skip
    min_cleanable_bytes: int = Field(
        default=64 * 2**20, ge=0, le=2**62,
        description="with updates and one shard: bytes from which on the changelog of match is cleaned when much of it "
        "is of deleted and replaced versions, which are erased then (0: never)",
    )  # fmt: skip
    document_format: Literal["json", "text", "registry"] = Field(
        default="json",
        description="what a record is: json, an object as value; text, the text as value and the id as key; registry, "
        "Avro, JSON or Protobuf with a schema of a Schema Registry",
    )
    registry_url: str | None = Field(
        default=None, description="address of the Schema Registry, for document_format = registry"
    )
    registry_username: str | None = Field(default=None, min_length=1, description="user of the Schema Registry")
    registry_password: SecretStr | None = Field(default=None, description="its password")
    registry_cafile: Path | None = Field(
        default=None,
        description="PEM file with the certificates that the registry's is checked with (default: the system's)",
    )
    key_is_id: Literal["json", "string"] | None = Field(
        default=None,
        description="how the key of a tombstone gives the id that it deletes: as JSON (json), or as text (string) "
        "(default: a tombstone is a dead letter)",
    )
    partitioner: Partitioner = Field(
        default="murmur2",
        description="hash of the key that chooses a document's partition: murmur2, as Java clients and aiokafka; "
        "crc32, as `consistent` of librdkafka",
    )
    trace_headers: tuple[str, ...] = Field(
        default=("traceparent", "tracestate", "baggage"), description="headers that are passed on to verdicts and pairs"
    )
    cloudevents_source: str | None = Field(
        default=None, min_length=1,
        description="URI that names this pipeline: outputs have the headers of CloudEvents, with it as ce_source "
        "(default: no such headers)",
    )  # fmt: skip
    cloudevents_schemas: str | None = Field(
        default=None, min_length=1,
        description="address of the folder with the JSON Schemas of outputs, for the header ce_dataschema (default: no "
        "such header)",
    )  # fmt: skip
    linger_ms: int = Field(
        default=20, ge=0, le=10_000,
        description="milliseconds that a document may wait for others to share its frame, up to 50 times as many while "
        "all signers together send 250 frames a second",
    )  # fmt: skip
    frame_documents: int = Field(default=1000, ge=1, le=4096, description="most documents in a frame")
    frame_bytes: int = Field(
        default=900_000, ge=1024, le=32 * 2**20, description="most bytes in a frame, unless a single document has more"
    )
    record_bytes: int = Field(
        default=1_000_000, ge=256, le=32 * 2**20,
        description="most bytes of a record between roles; longer ones are sent in parts",
    )  # fmt: skip
    accept_deleted_records: tuple[str, ...] = Field(
        default=(),
        description="places, as errors print them, from which on a role continues without records that Kafka deleted "
        "before it had read them",
    )
    accept_lost_position: tuple[str, ...] = Field(
        default=(),
        description="places, as errors print them, at which a signer continues whose committed position is lost",
    )
    accept_trimmed_changelog: tuple[str, ...] = Field(
        default=(),
        description="places, as errors print them, from which on a shard is rebuilt although its changelog has lost "
        "its start",
    )
    standbys: int = Field(default=0, ge=0, le=16, description="standbys of each shard")
    groups: bool = Field(default=False, description="keep groups of duplicates, and write their events")
    alerts: Path | None = Field(
        default=None, description="TOML file with the rules of alerts, for the role group (default: no alerts)"
    )
    data_folder: Path = Field(
        default=Path("stream-lsh-data"), description="folder of a worker's shards and groups; each worker needs its own"
    )
    instance: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="name of this worker; a restart within session_timeout_ms moves no work to others (default: none)",
    )
    session_timeout_ms: int = Field(
        default=10_000,
        ge=1000,
        le=1_800_000,
        description="milliseconds of silence after which a worker counts as failed",
    )
    transaction_timeout_ms: int = Field(
        default=10_000,
        ge=1000,
        le=900_000,
        description="milliseconds after which the broker aborts an abandoned transaction",
    )
    give_up_seconds: float = Field(
        default=300, gt=0, description="seconds of retries without progress after which a worker ends with exit code 6"
    )
    http_port: int | None = Field(
        default=None, ge=1, le=65535,
        description="port of /health and /metrics; further processes of a worker take the next ports (default: none)",
    )  # fmt: skip
    http_host: str = Field(default="127.0.0.1", min_length=1, description="address on which the http_port listens")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="whether the connection has TLS (SSL) and a login (SASL)"
    )
    ssl_cafile: Path | None = Field(
        default=None,
        description="PEM file with the certificates that the broker's is checked with (default: the system's)",
    )
    ssl_certfile: Path | None = Field(
        default=None, description="PEM file with the certificate that is shown to the broker"
    )
    ssl_keyfile: Path | None = Field(default=None, description="PEM file with its private key (default: ssl_certfile)")
    ssl_password: SecretStr | None = Field(default=None, description="password of the private key")
    ssl_check_hostname: bool = Field(
        default=True, description="check that the broker's certificate has the name of its address"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None = Field(
        default=None, description="mechanism of the login"
    )
    sasl_username: str | None = Field(default=None, min_length=1, description="user for PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(default=None, description="password for PLAIN and SCRAM")
    sasl_kerberos_service_name: str = Field(
        default="kafka", min_length=1, description="GSSAPI: service name of the broker"
    )
    sasl_oauth_token_file: Path | None = Field(
        default=None, description="OAUTHBEARER: file with the token; it is read again whenever a token is needed"
    )

    @field_validator("trace_headers", "allow_weak_topics", *ACCEPTED, mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allow_weak_topics")
    @classmethod
    def _weak(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in WEAK:
                raise ValueError(f"{name!r} is no setting of topics that may be weak; there are {', '.join(WEAK)}")
        return value

    @field_validator(*ACCEPTED)
    @classmethod
    def _places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place in value:
            if not _PLACE.fullmatch(place):
                raise ValueError(f"{place!r} is not TOPIC:PARTITION:OFFSET; the error that needs it prints the place")
        return value

    @model_validator(mode="before")
    @classmethod
    def _ahead(cls, values: Any) -> Any:
        # A pipeline runs unattended: a few wrong times of one partition must not end the window of all.
        return {"max_future": MAX_FUTURE, **values} if values.get("window") is not None else values

    @model_validator(mode="after")
    def _erases(self) -> KafkaSettings:
        if self.erase_hours is None:
            return self
        reason = (
            f"compare_with = {self.compare_with!r} finds documents through deleted ones" if self.compare_with != "kept"
            else f"with shards = {self.shards} other shards have ids of deleted documents" if self.shards > 1
            else None
        )  # fmt: skip
        if reason is not None:
            raise ValueError(
                f"erase_hours = {self.erase_hours:g}: on Kafka erasing needs compare_with = 'kept' and one shard, "
                f"and {reason}; leave erase_hours out"
            )
        return self

    @model_validator(mode="after")
    def _grouped(self) -> KafkaSettings:
        if self.groups and self.compare_with != "kept":
            raise ValueError(
                "groups: only under compare_with = 'kept' there are any: what was dropped for one document"
            )
        for name in ("source_field", "alerts"):
            if not self.groups and getattr(self, name) is not None and (name == "alerts" or self.keep_per is None):
                raise ValueError(
                    f"{name} = {str(getattr(self, name))!r} is for groups: set groups = true too, or leave it out"
                )
        return self

    @property
    def cleans(self) -> bool:
        """Whether the size of the changelog lets its owner clean it."""
        erasable = self.updates and self.compare_with == "kept" and self.shards == 1
        return erasable and self.min_cleanable_bytes > 0

    @property
    def plain_documents(self) -> bool:
        """Whether the records of the documents topic are documents, not events."""
        return self.envelope is None and self.document_format != "registry"

    @property
    def by_topic(self) -> dict[str, KafkaSettings]:
        """The settings of each documents topic, as those of a pipeline that has only this one; in the order that
        numbers the topics."""
        return self._of_tables or {self.documents_topic or f"{self.topic_prefix}.documents": self}

    @cached_property
    def _of_tables(self) -> dict[str, KafkaSettings]:
        given = {name: getattr(self, name) for name in self.model_fields_set - {"documents", "documents_topic"}}
        return {topic: self._of_topic(topic, table, given) for topic, table in self.documents.items()}

    def _of_topic(self, topic: str, table: Mapping[str, Any], given: Mapping[str, Any]) -> KafkaSettings:
        for name in table.keys() - {*OF_TOPIC}:
            if isinstance(table[name], dict):
                raise ValueError(
                    f'[documents.{topic}.{name}]: a name with dots is quoted: [documents."{topic}.{name}"]'
                )
            raise ValueError(f"[documents.{topic}]: {unknown(name, OF_TOPIC, None, 'setting of one topic')}")
        values = {"id_prefix": f"{topic}:", **given, **table, "documents_topic": topic}
        if values.get("id_field") == LINE_ID and "id_prefix" not in table:
            del values["id_prefix"]
        if values.get("document_format") != "registry":
            values = {name: value for name, value in values.items() if name not in _REGISTRY_SETTINGS}
        try:
            found = KafkaSettings(**values)
        except UsageError as error:
            raise ValueError(f"[documents.{topic}]: {error}") from None
        for name in IN_ALL:
            if (getattr(found, name) is None) != (getattr(self, name) is None):
                raise ValueError(
                    f"[documents.{topic}]: {name} is set, and not for the pipeline: set it above the tables, too"
                )
        return found

    @property
    def one_topic(self) -> KafkaSettings:
        """The settings of the documents topic that a command writes to.

        Raises:
            UsageError: there are several, and documents_topic names none of them.
        """
        if self.documents_topic is None and len(self.by_topic) > 1:
            raise UsageError(
                f"the pipeline has the documents topics {', '.join(self.by_topic)}: name one with --documents-topic"
            )
        return self.by_topic[self.documents_topic or next(iter(self.by_topic))]

    def prefixed(self, id: bytes) -> bytes:
        """An id (JSON text) with `id_prefix`. An integer becomes a text by it."""
        if not self.id_prefix or id == b"null":
            return id
        return b'"%b%b"' % (self.id_prefix.encode(), id[1:-1] if id[:1] == b'"' else id)

    def of_id(self, id: bytes) -> tuple[KafkaSettings, bytes]:
        """The settings of the topic that an id (JSON text) is from by its prefix, and the id as the document has it.
        With `key_is_id` = json, digits are an integer."""
        for topic in sorted(self.by_topic.values(), key=lambda topic: -len(topic.id_prefix)):
            prefix = topic.id_prefix
            if not prefix:
                return topic, id
            if id.startswith(b'"%b' % prefix.encode()):
                inside = id[1 + len(prefix) : -1]
                return topic, inside if topic.key_is_id == "json" and INTEGER.fullmatch(inside) else b'"%b"' % inside
        return self, id

    @property
    def keeps_time(self) -> bool:
        """Whether stream time counts for the index, or for groups and alerts."""
        return self.window is not None or self.groups

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that there are with these settings."""
        return (*ROLES, GROUP) if self.groups else ROLES

    @cached_property
    def answers(self) -> dict[str, Any]:
        """As the engine's; what fixes the groups, for they are kept from the beginning on or not at all; and which
        records delete, if some do by their key. Of several documents topics those of the first."""
        if self.documents:
            return next(iter(self.by_topic.values())).answers
        groups = {"groups": True, "source_field": self.source_field} if self.groups else {}
        own = {name: value for name in ("key_is_id", "id_prefix") if (value := getattr(self, name))}
        return super().answers | groups | own

    def _with_defaults(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return {"groups": False, "source_field": None, "key_is_id": None, "id_prefix": ""} | super()._with_defaults(
            stored
        )

    @model_validator(mode="after")
    def _possible(self) -> KafkaSettings:
        if not self.late:
            return self
        where = f"compare_with = 'kept' with shards = {self.shards} on Kafka needs"
        if self.block < self.frame_documents:  # at most one block begins in a frame
            raise ValueError(
                f"{where} decision_lag of at least two frames: raise it from {self.decision_lag}, or lower "
                f"frame_documents from {self.frame_documents} to {self.block}"
            )
        if self.max_candidates > MOST_CANDIDATES:
            raise ValueError(f"{where} candidates of at most {MOST_CANDIDATES} (it is {self.max_candidates})")
        if self.updates and self.decision_lag > MOST_DECIDED:
            raise ValueError(
                f"{where} decision_lag of at most {MOST_DECIDED} with on_conflict = 'update' (it is "
                f"{self.decision_lag}): one verdict names the representatives of half as many documents"
            )
        return self

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers(cls, value: str) -> str:
        servers = [part.strip() for part in value.split(",")]
        for server in servers:
            match = _SERVER.fullmatch(server)
            if match is None or (match[3] is not None and not 1 <= int(match[3]) <= 65535):
                raise ValueError(f"{server!r} is not host:port (several with commas between them)")
        return ",".join(servers)

    @field_validator("topic_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not _PREFIX.fullmatch(value) or value.strip(".") == "":
            raise ValueError("up to 200 letters, digits, dots, underscores and hyphens")
        return value

    @field_validator("documents_topic")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        if value is not None and (not _TOPIC.fullmatch(value) or value.strip(".") == ""):
            raise ValueError("a topic's name has up to 249 letters, digits, dots, underscores and hyphens")
        return value

    @field_validator("documents", mode="before")
    @classmethod
    def _tables(cls, value: object) -> object:
        if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
            raise ValueError("give a table [documents.TOPIC] for each topic in the settings file")
        return value

    @model_validator(mode="after")
    def _possible_on_kafka(self) -> KafkaSettings:
        if self.key_is_id is not None and not self.updates:
            raise ValueError(
                "key_is_id is for indexes whose documents change; give on_conflict = 'update' too, or leave it out"
            )
        if self.key_is_id is not None and self.id_field == LINE_ID:
            raise ValueError(f"key_is_id needs the ids of an id_field; with {LINE_ID!r} no key is one")
        if self.key_is_id is not None and self.envelope == "debezium":
            raise ValueError(
                "key_is_id is not used with envelope = 'debezium', whose events name the id; leave key_is_id out"
            )
        if self.key_is_id == "json" and self.document_format == "text":
            raise ValueError("key_is_id = 'json': with document_format = 'text' the key is plain: give 'string'")
        if self.document_format == "text":
            if self.item is not None:
                raise ValueError(
                    f"measure = {self.measure} needs document_format = 'json'; the values of 'text' are texts, not "
                    f"{self.item.plural}"
                )
            for name in (
                "envelope", "set_field", "time_field", "match_within", "deleted_field", "source_field", "rank_field"
            ):  # fmt: skip
                if getattr(self, name):
                    raise ValueError(
                        f"{name} = {getattr(self, name)!r} needs document_format = 'json'; the values of 'text' have "
                        "no fields"
                    )
        if self.document_format != "registry":
            if all(table.get("document_format") != "registry" for table in self.documents.values()):
                self._unused(_REGISTRY_SETTINGS, "document_format", "registry")
        elif self.registry_url is None:
            raise ValueError("document_format = 'registry' needs registry_url")
        elif not _REGISTRY.fullmatch(self.registry_url):  # not quoted: it may have a password
            raise ValueError(
                "registry_url is not http://HOST:PORT/PATH or https://HOST:PORT/PATH; a user and password are given as "
                "registry_username and registry_password"
            )
        elif (self.registry_username is None) != (self.registry_password is None):
            raise ValueError("registry_username and registry_password belong together; give both, or leave both out")
        if self.cloudevents_schemas is not None and self.cloudevents_source is None:
            raise ValueError("cloudevents_schemas is for CloudEvents: give cloudevents_source too, or leave it out")
        own = {f"{self.topic_prefix}.{name}" for name in OWN_TOPICS.values()}
        if self.documents_topic in own:
            raise ValueError(
                f"documents_topic = {self.documents_topic!r} is a topic that the pipeline writes itself; "
                "give another one, or another topic_prefix"
            )
        if self.documents and self.documents_topic not in (None, *self.documents):
            raise ValueError(
                f"documents_topic = {self.documents_topic!r} has no table [documents.{self.documents_topic}], and "
                f"{', '.join(self.documents)} have one: name one of these, or leave documents_topic out"
            )
        if self.documents and self.id_prefix:
            raise ValueError("id_prefix: with several documents topics each has its own: set it in their tables")
        self._check_prefixes()
        return self

    def _check_prefixes(self) -> None:
        """Check that an id says by its prefix how its topic is read. Raises ValueError, also if a topic's settings are
        impossible."""
        for (one, its), (other, others) in permutations(self.by_topic.items(), 2):
            first, second = its.id_prefix, others.id_prefix
            if first and first != second and second.startswith(first):
                raise ValueError(
                    f"[documents.{one}] has the id_prefix {first!r} and [documents.{other}] {second!r}, so different "
                    "ids would become one: let neither begin with the other"
                )
            if first == second and its.key_is_id != others.key_is_id:
                raise ValueError(
                    f"[documents.{one}] and [documents.{other}] have the same id_prefix and another key_is_id: give "
                    "both the same"
                )

    @model_validator(mode="after")
    def _secure(self) -> KafkaSettings:
        protocol = self.security_protocol
        sasl, tls = protocol.startswith("SASL_"), protocol.endswith("SSL")
        if not sasl:
            self._unused(("sasl_mechanism", *_USER, *_TOKEN), "security_protocol", "SASL_SSL or SASL_PLAINTEXT")
        elif self.sasl_mechanism is None:
            raise ValueError(f"security_protocol = {protocol} needs sasl_mechanism")
        else:
            by_user, by_token = self.sasl_mechanism in _BY_USER, self.sasl_mechanism == "OAUTHBEARER"
            self._needed(*(_USER if by_user else _TOKEN if by_token else ()))
            if not by_user:
                self._unused(_USER, "sasl_mechanism", " or ".join(_BY_USER))
            if not by_token:
                self._unused(_TOKEN, "sasl_mechanism", "OAUTHBEARER")
        if not tls:
            self._unused(_SSL, "security_protocol", "SSL or SASL_SSL")
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_password"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is set, but ssl_certfile is not; both belong to a certificate")
        return self

    def _needed(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is None:
                secret = " (in the environment or the settings file)" if name == "sasl_password" else ""
                raise ValueError(f"sasl_mechanism = {self.sasl_mechanism} needs {name}{secret}")

    def _unused(self, names: tuple[str, ...], by: str, others: str) -> None:
        """Raise if one of these is set: the value of the setting `by` does not use it, `others` would."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is set, but {by} = {getattr(self, by)} does not use it; set {by} to {others}, or leave "
                    f"{name} out"
                )

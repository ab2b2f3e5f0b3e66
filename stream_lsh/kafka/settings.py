"""The settings of the pipeline on Kafka: those of the engine, and how to reach the broker, topics, batches, delivery.

Nothing here imports a Kafka client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_lsh.kafka.topic_settings import TopicSettings
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

MOST_DECISION_LAG = 32_768
"""Where they do and ids are updated: a verdict may name as many representatives as a block has documents."""

MAX_FUTURE = "10m"
"""With a window, how far ahead of its frame's append time an event time may be, if nothing else is said."""

ACCEPTED = ("accept_deleted_records", "accept_lost_position", "accept_trimmed_changelog")
"""The settings with which an operator accepts a loss. Each names the place of the loss, so it is of no effect later."""

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
# Kafka allows names of 249 characters; the longest of ours adds 22 to the prefix.
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]/]+)(:(\d{1,5}))?")
_REGISTRY = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_URI = re.compile(r"([A-Za-z0-9._~:/?#@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})+")  # or a relative one
_OF_REGISTRY = ("registry_username", "registry_password", "registry_cafile")
_USER, _TOKEN = ("sasl_username", "sasl_password"), ("sasl_oauth_token_file",)
_BY_USER = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SSL = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")


class KafkaSettings(TopicSettings):
    """All settings of the engine and of its pipeline on Kafka; frozen, validated, documented beside each field."""

    bootstrap_servers: str = Field(
        default="127.0.0.1:9092", description="brokers to ask first, HOST:PORT, separated by commas"
    )
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
        description="hours after which deleted and replaced versions are erased from shards and changelogs "
        "(default: by min_cleanable_bytes only)",
    )  # fmt: skip
    min_cleanable_bytes: int = Field(
        default=64 * 2**20, ge=0, le=2**62,
        description="with updates: bytes from which on the changelog of a shard is cleaned when much of it is of "
        "deleted and replaced versions, which are erased then (0: never)",
    )  # fmt: skip
    registry_url: str | None = Field(
        default=None,
        description="address of the Schema Registry, for document_format = registry and for outputs in Avro",
    )
    registry_username: str | None = Field(default=None, min_length=1, description="user of the Schema Registry")
    registry_password: SecretStr | None = Field(default=None, description="its password")
    registry_cafile: Path | None = Field(
        default=None,
        description="PEM file with the certificates that the registry's is checked with (default: the system's)",
    )
    output_format: Literal["json", "avro"] = Field(
        default="json",
        description="values of the topics verdicts, pairs, groups and alerts: JSON, or Avro with schemas that are "
        "registered in the Schema Registry of registry_url",
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
        default=None,
        description="URI that names this pipeline: outputs have the headers of CloudEvents, with it as ce_source "
        "(default: no such headers)",
    )  # fmt: skip
    cloudevents_schemas: str | None = Field(
        default=None,
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

    @field_validator(
        "alerts", "data_folder", "registry_cafile", "ssl_cafile", "ssl_certfile", "ssl_keyfile",
        "sasl_oauth_token_file", mode="before",
    )  # fmt: skip
    @classmethod
    def _path(cls, value: object) -> object:
        if value == "":
            raise ValueError("it is empty; give a path")
        return value

    @field_validator("trace_headers")
    @classmethod
    def _headers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not name.isprintable() or name != name.strip() or not name:
                raise ValueError(f"{name!r} is no name of a header; it has no line breaks and no spaces around it")
        return value

    @field_validator("cloudevents_source", "cloudevents_schemas")
    @classmethod
    def _uri(cls, value: str | None) -> str | None:
        if value is not None and not _URI.fullmatch(value):
            raise ValueError("give a URI, such as /news or https://example.org/news; a space in it is %20")
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
        needs = (
            f"compare_with = 'kept': {self.compare_with!r} finds documents through deleted ones"
            if self.compare_with != "kept"
            else f"keep = 'first' or one shard: with keep = {self.keep!r} and shards = {self.shards} other shards have "
            "ids of superseded documents"
            if self.superseded_late
            else None
        )
        if needs is not None:
            raise ValueError(
                f"erase_hours = {self.erase_hours:g}: on Kafka erasing needs {needs}; leave erase_hours out"
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
        return self.updates and self.compare_with == "kept" and self.min_cleanable_bytes > 0

    @property
    def plain_documents(self) -> bool:
        """Whether the records of the documents topic are documents, not events."""
        return self.envelope is None and self.document_format != "registry"

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
        if self.updates and self.decision_lag > MOST_DECISION_LAG:
            raise ValueError(
                f"{where} decision_lag of at most {MOST_DECISION_LAG} with on_conflict = 'update' (it is "
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

    @model_validator(mode="after")
    def _possible_on_kafka(self) -> KafkaSettings:
        self._check_registry()
        if self.output_format == "avro" and self.cloudevents_source is not None:
            raise ValueError(
                "cloudevents_source says that outputs are JSON, and output_format = 'avro' writes Avro: leave one out"
            )
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

    def _check_registry(self) -> None:
        if self.registry_url is None:
            if self.document_format == "registry":
                raise ValueError("document_format = 'registry' needs registry_url")
            if self.output_format == "avro":
                raise ValueError("output_format = 'avro' needs registry_url, where its schemas are registered")
            for name in _OF_REGISTRY:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is set, but registry_url is not: give both, or leave both out")
        elif not _REGISTRY.fullmatch(self.registry_url):  # not quoted: it may have a password
            raise ValueError(
                "registry_url is not http://HOST:PORT/PATH or https://HOST:PORT/PATH; a user and password are given as "
                "registry_username and registry_password"
            )
        elif (self.registry_username is None) != (self.registry_password is None):
            raise ValueError("registry_username and registry_password belong together; give both, or leave both out")

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

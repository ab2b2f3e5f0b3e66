"""The options that commands share, each declared once; those of the engine come from the model of the settings."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Option
from stream_lsh.embedded.remote import is_remote
from stream_lsh.errors import UsageError
from stream_lsh.families.measure import DEFAULTS, MEASURES, unused
from stream_lsh.settings.errors import choices_of, is_list, near
from stream_lsh.settings.model import KEEP, PER, Settings
from stream_lsh.settings.sources import CONFIG, PREFIX


class Number(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not in the range of numbers", param, ctx)
        return found


class _Path(click.Path):
    """A path, which is not empty: an empty one would be the current folder."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not os.fspath(value):
            self.fail(f"it is empty; give a {'file' if self.file_okay else 'folder'}", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(_Path):
    """A folder of this machine, as a Path."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if isinstance(value, str) and is_remote(value):
            self.fail(f"{value} is an address; it has to be a folder of this machine", param, ctx)
        try:
            os.fsdecode(value).encode()
        except UnicodeEncodeError:  # RocksDB takes no other names
            self.fail(f"{os.fsdecode(value)} is not UTF-8; give a folder with another name", param, ctx)
        return super().convert(value, param, ctx)


PATH, NAME = _Path(path_type=Path), _Path(readable=False)
"""A path that the command reads itself; the name of an input or output: also of an object store, or -."""
FILE, FOLDER = _Path(path_type=Path, dir_okay=False), _Folder()
_CONFIG_SHOWN = "stream_lsh.config_shown"  # key of click's meta
Model = TypeVar("Model", bound=Settings)

CONFIG_FILE = Path("stream-lsh.toml")
"""The settings file of the current folder, which is read when no other is named."""
SIMILARITY, DOCUMENTS, INDEX, OUTPUTS, RUNNING = "Similarity", "Documents", "Index", "Outputs", "Running"
GROUPS = "Groups"
KAFKA, TOPICS, RECORDS, LOSSES, WORKER = "Kafka", "Topics", "Records", "Lost records", "Worker"
FOLDING = "Groups and alerts"
SECTIONS = {
    SIMILARITY: (
        "measure", "threshold", "max_distance", "dimensions", "target_recall", "signature_size", "bands", "rows",
        "min_shingles", "sampling", "min_passage_words", "shingles", "bag", "normalize", "tokens", "verify",
        "compare_with",
        "max_matches", "max_verified_matches", "max_candidates",
    ),
    DOCUMENTS: (
        "envelope", "id_field", "text_field", "time_field", "deleted_field", "match_within", "set_field",
        "vector_field", "bits_field", "max_document_bytes",
    ),
    INDEX: (
        *KEEP, PER[0], "on_conflict", "window", "max_future", "shards", "decision_lag", "max_bucket_rows",
        "segment_documents", "memtable_documents", "cache_bytes", "erase_hours",
    ),
}  # fmt: skip
SETTINGS = tuple(name for names in SECTIONS.values() for name in names)
SECTIONS[GROUPS] = ("source_field",)  # embedded of dedup only
COMMON = (*SETTINGS, "source_field")
OF_TOPICS = ("partitions", "replication_factor", "unique_timestamps")
"""What only `topics create` looks at."""
# Those of `KafkaSettings`. Passwords are no options: every user of the machine could read them.
KAFKA_SECTIONS = {
    KAFKA: ("bootstrap_servers", "topic_prefix", "documents_topic"),
    TOPICS: (*OF_TOPICS, "retention_hours", "allow_weak_topics"),
    RECORDS: ("document_format", "key_is_id", "id_prefix", "partitioner"),
    FOLDING: ("groups", "alerts"),
    LOSSES: ("accept_deleted_records", "accept_lost_position", "accept_trimmed_changelog"),
    WORKER: ("data_folder", "instance", "standbys", "http_port"),
}  # fmt: skip
KAFKA_SETTINGS = tuple(name for names in KAFKA_SECTIONS.values() for name in names)
PROPERTIES = (
    "security_protocol", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "sasl_mechanism",
    "sasl_username", "sasl_kerberos_service_name", "sasl_oauth_token_file", "linger_ms", "frame_documents",
    "frame_bytes", "record_bytes", "min_cleanable_bytes", "session_timeout_ms", "transaction_timeout_ms",
    "give_up_seconds", "trace_headers",
    "http_host", "cloudevents_source", "cloudevents_schemas", "output_format", "registry_url", "registry_username",
    "registry_cafile",
)  # fmt: skip
"""Settings of connections and of delivery, which are given as `-X KEY=VALUE` instead of by options of their own."""
SHOWN = {
    "measure": "jaccard, tf-idf, cosine, hamming ...",
    "threshold": "similarity from which two match",
    "id_field": "field of the id",
    "text_field": "field of the text",
    "time_field": "field of the event time",
    "source_field": "field of the source, for groups",
    "match_within": "field that must be equal",
    "on_conflict": "another text under a known id",
    "window": "forget older documents: 12h, 7d, 2w",
    "shards": "number of shards",
    "bootstrap_servers": "brokers",
    "topic_prefix": "begins all names",
    "groups": "keep groups of duplicates",
    "alerts": "TOML file with the rules of alerts",
    "data_folder": "shards and groups",
    "http_port": "port of /health and /metrics",
    "partitions": "partitions of the documents topic",
    "replication_factor": "replicas of each topic",
    "retention_hours": "how long records are kept",
}
"""What `--help` says of settings. `--help-all` has the others, `--measure NAME --help` those of a measure, too."""
METAVARS = {
    "measure": "NAME", "threshold": "S", "max_distance": "D", "target_recall": "P", "signature_size": "K", "bands": "B",
    "rows": "R",
    "shingles": "KIND:K", "normalize": "STEPS", "max_document_bytes": "BYTES", "window": "DURATION",
    "max_future": "DURATION", "match_within": "FIELD", "rank_order": "VALUE",
    "bootstrap_servers": "HOST:PORT", "topic_prefix": "NAME", "documents_topic": "TOPIC", "data_folder": "DIR",
    "instance": "NAME", "id_prefix": "TEXT", "alerts": "FILE", "allow_weak_topics": "SETTING",
    **dict.fromkeys(KAFKA_SECTIONS[LOSSES], "TOPIC:PARTITION:OFFSET"),
}  # fmt: skip


def _metavar(name: str, field: FieldInfo) -> str:
    if name in METAVARS:
        return METAVARS[name]
    if choices := choices_of(field):
        return "|".join(choices)
    return "FIELD" if name.endswith("_field") else "N"


def _shown(default: Any) -> str:
    if default in (None, ()) or isinstance(default, bool):
        return ""
    return f"  [{', '.join(default) if isinstance(default, tuple) else default}]"


def setting(name: str, model: type[Settings] = Settings, default: Any = None) -> Option:
    """The option of one setting. Its value stays text: the model checks the values of all sources. default: the
    command's own, as the help shows it."""
    field = model.model_fields[name]
    section = next(title for title, names in (SECTIONS | KAFKA_SECTIONS).items() if name in names)
    flag = name.replace("_", "-")
    repeatable = is_list(field)
    users = [measure for measure in MEASURES if name not in unused(measure)]
    given: dict[str, Any] = {
        "common": name in SHOWN, "brief": SHOWN.get(name), "measures": None if len(users) == len(MEASURES) else users,
        "defaults": {measure: own[name] for measure, own in DEFAULTS.items() if name in own and default is None},
    }  # fmt: skip
    help_text = (field.description or "") + ("; repeatable" if repeatable else "")
    if field.annotation is bool:
        return Option([f"--{flag}/--no-{flag}", name], default=None, help=help_text, section=section, **given)
    return Option(
        [f"--{flag}", name], metavar=_metavar(name, field), multiple=repeatable, default=None, section=section,
        help=help_text + _shown(field.default if default is None else default), **given,
    )  # fmt: skip


def option(
    section: str, declared: str, text: str, type: Any = None, *, name: str | None = None, **given: Any
) -> Option:  # fmt: skip
    """An option that is no setting.

    Args:
        section: of the help.
        declared: as the help shows it: `--quiet, -q` is a flag, `--max-body BYTES` has a value. A flag has no type.
        text: the help; a default is added.
        name: of the parameter, if it is not that of the option. given: for `Option`.
    """
    *others, last = declared.split(", ")
    flag, _, metavar = last.partition(" ")
    if not metavar and type is None and "/" not in flag:
        given["is_flag"] = True
    if metavar == "FILE" and type is None:
        type = NAME
    shown = "" if given.get("show_default") else _shown(given.get("default"))
    return Option(
        [*others, flag, *([] if name is None else [name])], type=type, metavar=metavar or None, section=section,
        help=text + shown, **given,
    )  # fmt: skip


def config_option() -> Option:
    """`--config FILE`: settings as TOML."""
    return option(
        RUNNING, "--config FILE", "TOML file with settings; variables STREAM_LSH_* and the command line have precedence"
        f"  [{CONFIG_FILE}, if it is there]", PATH, envvar=f"{PREFIX}{CONFIG}",
    )  # fmt: skip


def properties_option() -> Option:
    """`-X KEY=VALUE`: the settings of `PROPERTIES`."""
    text = f"settings of the connection and of delivery: {', '.join(PROPERTIES)}; repeatable"
    return option(
        KAFKA, "-X KEY=VALUE", text, name="properties", multiple=True, brief="further settings of Kafka"
    )  # fmt: skip


def properties_of(context: click.Context) -> dict[str, str]:
    """The settings that -X gives. Raises UsageError: no KEY=VALUE, an unknown key, or one that has an option."""
    found: dict[str, str] = {}
    for text in context.params.get("properties", ()):
        name, equals, value = text.partition("=")
        if name not in PROPERTIES:
            meant = near(name, PROPERTIES)
            hint = f"did you mean {meant}?" if meant is not None else f"there are {', '.join(PROPERTIES)}"
            where = f"it is the option --{name.replace('_', '-')}" if name in KAFKA_SETTINGS + COMMON else hint
            raise UsageError(f"-X {name}: there is no key {name!r}; {where}")  # not the value: it may be a password
        if not equals:
            raise UsageError(f"-X {name}: give a value, -X {name}=VALUE")
        found[name] = value
    return found


def index_option(*, required: bool = False, made: bool = True) -> Option:
    """`--index DIR`: the persistent index. made: the command makes it if it is missing and not required."""
    text = "folder of the index, made if missing; default: a temporary index"
    if required or not made:
        text = "folder of the index"
    return option(INDEX, "--index DIR", text, FOLDER, name="folder", required=required)


def erase_option() -> Option:
    """`--erase-hours N`, for a command that has no other settings."""
    field = Settings.model_fields["erase_hours"]
    return option(INDEX, "--erase-hours N", f"{field.description} (default: {field.default})", float)


def quiet_option() -> Option:
    """`--quiet`: neither progress nor summary."""
    return option(RUNNING, "--quiet, -q", "only errors: no progress, no summary")


def json_option(section: str = OUTPUTS, text: str = "JSON lines, also on a terminal") -> Option:
    """`--json`: an output for machines."""
    return option(section, "--json", text, name="as_json")


def within_option(text: str) -> Option:
    """`--within FIELD=VALUE`; text: whose values."""
    text += " of a --match-within field; a number, true, false, null or a quoted string is JSON, anything else is text"
    return option(DOCUMENTS, "--within FIELD=VALUE", f"{text}; repeatable", multiple=True)


def groups_options() -> list[Option]:
    """`--no-groups`, the settings of groups, and the rules of alerts."""
    no = option(GROUPS, "--no-groups", "a new index keeps no groups, which is faster; it has no alerts either")
    rules = option(GROUPS, "--rules FILE", "TOML file with the rules of --alerts", PATH)
    return [no, *(setting(name) for name in SECTIONS[GROUPS]), rules]


def output_options(standard: str) -> list[Option]:
    """The outputs, and --overwrite. By default `standard` is written to standard output."""
    texts = {
        "unique": "the unique documents, byte for byte",
        "pairs": "the pairs of near-duplicates",
        "verdicts": "one verdict for every document",
        "groups": "an event for every document that changes a group, with the row of the group",
        "alerts": "the alerts of the rules in --rules",
        "dead_letters": "the rejected documents, with the reason",
    }
    files = [
        option(
            OUTPUTS, f"--{name.replace('_', '-')} FILE", text + "; default: standard output" * (name == standard)
        )
        for name, text in texts.items()
        if name not in ("groups", "alerts") or standard == "unique"
    ]  # fmt: skip
    overwrite = option(
        OUTPUTS, "--overwrite",
        "with --index, replace files that are not outputs of that index; without --index they are always replaced",
    )  # fmt: skip
    only_new = option(
        OUTPUTS, "--only-new",
        "with --index, write only what is new since the last finished run; default: outputs cover all of the inputs, "
        "with the first decisions",
    )  # fmt: skip
    final = option(
        OUTPUTS, "--final",
        "write the unique documents at the end of the inputs, without those that were superseded or deleted",
        common=False,
    )  # fmt: skip
    return [*files, overwrite, only_new, *([final] if standard == "unique" else [])]


def settings_options(names: Iterable[str] = SETTINGS, model: type[Settings] = Settings) -> list[Option]:
    """The options of these settings, and --config; read them with `load_settings`."""
    names = tuple(names)
    properties = [properties_option()] if "bootstrap_servers" in names else []
    return [*(setting(name, model) for name in names if name not in PROPERTIES), *properties, config_option()]


@overload
def load_settings(context: click.Context, *, defaults: Mapping[str, Any] | None = None) -> Settings: ...


@overload
def load_settings(
    context: click.Context, model: type[Model], *, defaults: Mapping[str, Any] | None = None
) -> Model: ...


def load_settings(
    context: click.Context, model: type[Settings] = Settings, *, defaults: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a command with `settings_options`; only options on the command line count as given. defaults:
    the command's own, instead of the model's.

    Raises:
        UsageError: names the setting, its value and its source.
    """
    given = {
        name: context.params[name]
        for name in SETTINGS + SECTIONS[GROUPS] + KAFKA_SETTINGS
        if name in context.params.keys() & model.model_fields.keys()  # dedup has --groups FILE and --alerts FILE
        and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    return model.load(config_of(context), defaults, **given, **properties_of(context))


def config_of(context: click.Context) -> Path | None:
    """The settings file of a command with --config: the one that is named, else that of the current folder, which is
    said once on standard error unless --quiet is given."""
    config: Path | None = context.params.get("config")
    if config is not None or not CONFIG_FILE.is_file():
        return config
    if not context.params.get("quiet") and not context.meta.get(_CONFIG_SHOWN):
        complain(f"settings are read from {CONFIG_FILE} in this folder; --config FILE reads another")
    context.meta[_CONFIG_SHOWN] = True
    return CONFIG_FILE

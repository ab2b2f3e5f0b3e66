"""The page of all settings, from the models `Settings` and `KafkaSettings`."""

from __future__ import annotations

import re
from typing import Any

from markup import prose, sentence
from pydantic.fields import FieldInfo

from stream_lsh.cli.options import KAFKA_SECTIONS, KAFKA_SETTINGS, PROPERTIES, SECTIONS, SETTINGS
from stream_lsh.families.measure import MEASURE_SETTINGS, MEASURES, unused
from stream_lsh.kafka.settings import ACCEPTED, KafkaSettings
from stream_lsh.kafka.topic_settings import OF_TOPIC
from stream_lsh.settings.errors import allowed, choices_of, is_flag, is_list, is_secret
from stream_lsh.settings.model import ANSWERS, Settings
from stream_lsh.settings.sources import PREFIX

INTRODUCTION = f"""\
# Settings

Each setting has one name. You give it in one of three ways:

| way | example |
|---|---|
| option of a command | `--max-matches 0` |
| environment variable | `{PREFIX}MAX_MATCHES=0` |
| key of a TOML file | `max_matches = 0` |

```toml
threshold = 0.7
text_field = ["title", "body"]
time_field = "published"
window = "7d"
```

The command line has precedence over the environment, and the environment over the file. `--config FILE` or
`{PREFIX}CONFIG` names the file. Without either, a command reads `stream-lsh.toml` in the current folder if it is there.

- A list is a repeated option, a comma list in a variable, and a TOML list in a file.
- An empty variable gives no value: the setting is as if the variable were not there.
- One file can serve all commands: the embedded commands ignore the settings of Kafka.
- An unknown name in the file or the environment is an error, with the closest known name.
- In Python only the arguments of `Settings(...)` count. `Settings.load(path)` also reads a file and the environment.

## Settings of an existing index

An index keeps the settings that its answers depend on. They are marked *fixed* below. Later runs take them from the
index, so you can leave them out. A different value is refused, with the names and both values.

Settings without the mark may differ from run to run.

`pairs` makes a new index with other defaults: `compare_with = "all"`, `max_verified_matches = 1000`,
`max_candidates = 1000`. It lists up to 1,000 matches of a document.
"""
KAFKA_INTRODUCTION = """\
The pipeline on Kafka takes all settings above, too, and these. `erase_hours` has no default there, and `max_future` is
`10m` with a window. With `compare_with = "kept"` and several shards, `decision_lag` must be at least twice
`frame_documents`, and `max_candidates` at most 128. With `id_field = "@line"` the id is `TOPIC:PARTITION:OFFSET`.

Settings marked `-X` have no option of their own: `-X linger_ms=5`. Passwords are never options, because every user of
the machine can read the command line of a process. Set them in the file or the environment.
"""
GROUPED = (
    ("Similarity", (*SECTIONS["Similarity"][:-3],)),
    ("Limits", ("max_matches", "max_verified_matches", "max_candidates", "max_bucket_rows")),
    ("Documents", (*SECTIONS["Documents"], "source_field")),
    ("Index", tuple(name for name in SECTIONS["Index"] if name != "max_bucket_rows")),
)
KAFKA_GROUPED = (
    ("Topics", ("topic_prefix", "documents_topic", "documents", *KAFKA_SECTIONS["Topics"])),
    ("Records", ("document_format", "key_is_id", "id_prefix", "partitioner", "trace_headers")),
    ("Schema Registry", ("output_format", "registry_url", "registry_username", "registry_password", "registry_cafile")),
    ("CloudEvents", ("cloudevents_source", "cloudevents_schemas")),
    ("Frames", ("linger_ms", "frame_documents", "frame_bytes", "record_bytes")),
    ("Groups and alerts", ("groups", "alerts")),
    (
        "Workers",
        (
            "data_folder", "instance", "standbys", "min_cleanable_bytes", "session_timeout_ms",
            "transaction_timeout_ms", "give_up_seconds", "http_port", "http_host",
        ),
    ),
    ("Accepted losses", ACCEPTED),
    (
        "Connection",
        (
            "bootstrap_servers", "security_protocol", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password",
            "ssl_check_hostname", "sasl_mechanism", "sasl_username", "sasl_password", "sasl_kerberos_service_name",
            "sasl_oauth_token_file",
        ),
    ),
)  # fmt: skip
ALWAYS = "once an index exists"
WHEN = {
    "target_recall": "if the value leads to other bands",
    "min_shingles": "if the value leads to another `sampling`",
    "decision_lag": 'with several shards and `compare_with = "kept"`',
    "time_field": 'with `window`, with `on_conflict = "update"`, and under `tf-idf`',
    "deleted_field": 'with `on_conflict = "update"`',
    "source_field": "if the index keeps groups, and with `keep_per`",
    "groups": "for a `topic_prefix`",
    "key_is_id": "for a `topic_prefix`",
    "document_format": "for a `topic_prefix`",
    "partitioner": "for a `topic_prefix`",
    "documents_topic": "for a `topic_prefix`",
    "documents": "for a `topic_prefix`; topics may be added behind the last one",
    "id_prefix": "for a `topic_prefix`",
}
ALSO = (
    "envelope",
    "match_within",
    "keep",
    "rank_field",
    "rank_order",
    "keep_per",
    "window",
    "max_future",
    "on_conflict",
    "sampling",
    "min_passage_words",
)
MORE = {
    "instance": "At most 200 letters, digits, dots, underscores and hyphens.",
    "measure": "[Choosing a measure](../explanation/choosing-a-measure.md) compares them.",
    "threshold": "Under `containment` it is the share of one text's shingles that the other text has. "
    "[How to choose it](../how-to/choose-a-threshold.md).",
    "max_distance": "It replaces the threshold: bits that differ (`hamming`), or characters inserted, deleted or "
    "replaced (`levenshtein`).",
    "target_recall": "Pairs above the threshold are found with higher probability. Under `hamming` and `levenshtein` "
    "all pairs within the distance are found.",
    "shingles": "[How to choose it](../how-to/choose-a-threshold.md#shingles).",
    "normalize": "[What each does](../how-to/choose-a-threshold.md#shingles).",
    "verify": "`signature` needs no texts in the index.",
    "keep": "[Which copy is kept](../explanation/how-matching-works.md#which-copy-is-kept).",
    "keep_per": "[Which copy is kept](../explanation/how-matching-works.md#which-copy-is-kept).",
    "on_conflict": "[Updates and deletions](../how-to/update-and-delete.md).",
    "output_format": "[Outputs in Avro](../how-to/connect-your-topic.md#outputs-in-avro).",
    "envelope": "[Change events and CloudEvents](../how-to/connect-your-topic.md#change-events-and-cloudevents).",
    "id_field": "`a.b` is the field `b` in the object `a`, unless there is a field `a.b`.",
    "match_within": "Documents with different values never match. A missing value counts as null.",
    "window": "[Windows and event time](../explanation/windows-and-event-time.md).",
    "erase_hours": "On Kafka no time counts by default, but `min_cleanable_bytes` does. Erasing by time "
    'needs `compare_with = "kept"`, and with several shards `keep = "first"`.',
    "decision_lag": "[Decisions](../internals/decisions.md#several-shards-under-kept) says why there is a lag.",
    "key_is_id": 'It needs `on_conflict = "update"`.',
    "partitioner": "All producers of the documents topic need the same: "
    "[Choose keys](../how-to/connect-your-topic.md#choose-keys).",
    "documents_topic": "With several topics it names the one that `produce` and `delete` write to.",
    "documents": "[Several topics](../how-to/connect-your-topic.md#several-topics). A table has "
    + ", ".join(f"`{name}`" for name in OF_TOPIC)
    + ".",
    "id_prefix": "It makes the ids of several topics different. An integer becomes a text.",
    "accept_deleted_records": "[Lost records](errors.md#lost-records) says what is lost.",
    "accept_lost_position": "[Lost records](errors.md#lost-records) says when to use it.",
    "accept_trimmed_changelog": "[Shards and data folders](errors.md#shards-and-data-folders) says what is lost.",
    "retention_hours": "[Topics](topics.md) has the exceptions.",
    "unique_timestamps": "`topics create` sets `message.timestamp.type` to it. Retention counts from these times. With "
    "`CreateTime` Kafka may delete old documents of a backfill before anything has read them. Kafka Streams takes them "
    "for event times. With `LogAppendTime` it needs a `TimestampExtractor`.",
    "allow_weak_topics": "[Weak topics](topics.md#weak-topics) says what is weak.",
    "shards": "Another number of shards needs a [reindex](../how-to/operate-kafka.md#reindex) on Kafka.",
    "groups": 'Groups need `compare_with = "kept"`.',
    "alerts": "In `dedup`, `--alerts` names the output, and `--rules` names the rules.",
}


DEFAULTS = {
    "set_field": "none; under `weighted-jaccard` `set`",
    "vector_field": "`vector`",
    "bits_field": "`bits`",
    "tokens": "`unicode`; with `words:K` `word`",
    "sampling": "from `threshold`, `target_recall` and `min_shingles`",
    "max_future": "no limit; on Kafka `10m`",
}


def default_of(name: str, field: FieldInfo) -> str:
    """What counts if nothing is given."""
    if name in DEFAULTS:
        return DEFAULTS[name]
    value = field.default
    if value in (None, (), {}, ""):
        text = field.description or ""
        return text.rpartition("(default: ")[2].removesuffix(")") if "(default: " in text else "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


def meaning_of(field: FieldInfo) -> str:
    """The description without the default, as a sentence; measures are code."""
    text = (field.description or "").partition(" (default: ")[0]
    names = "|".join(sorted(MEASURES, key=len, reverse=True))
    text = re.sub(rf"^(({names})(, )?)+: ", "", text)  # the list below has the measures
    return prose(re.sub(rf"(?<![\w-])({names})(?![\w-])", r"`\1`", sentence(text[:1].upper() + text[1:])))


def option_of(name: str, field: FieldInfo) -> str:
    """How the command line takes it; empty for passwords."""
    if is_secret(field.annotation):
        return ""
    if name in PROPERTIES:
        return f"`-X {name}=VALUE`"
    flag = name.replace("_", "-")
    if is_flag(field):
        return f"`--{flag}`, `--no-{flag}`"
    return f"`--{flag}`" + (" (repeatable)" if is_list(field) else "")


def fixed(name: str) -> str:
    """Whether it belongs to the index, and when."""
    if name in WHEN:
        return WHEN[name]
    return ALWAYS if name in (*ANSWERS, *MEASURE_SETTINGS, *ALSO) else ""


def values_of(field: FieldInfo) -> str:
    """What it takes; empty where any text will do."""
    if choices := choices_of(field):
        return ", ".join(f"`{choice}`" for choice in choices)
    said = allowed(field).partition(" that matches ")[0]
    return (
        ""
        if said in ("a text", "a text that is not empty", "a path, as text", "true or false") or is_list(field)
        else prose(said)
    )


def entry(name: str, field: FieldInfo) -> str:
    """One setting."""
    measures = [measure for measure in MEASURES if name not in unused(measure)]
    facts: dict[str, Any] = {
        "Default": prose(default_of(name, field)),
        "Values": values_of(field),
        "Measures": ", ".join(f"`{measure}`" for measure in measures) if len(measures) < len(MEASURES) else "",
        "Set by": "the file"
        if name == "documents"
        else ", ".join(filter(None, (option_of(name, field), f"`{PREFIX}{name.upper()}`"))),
        "Fixed": fixed(name),
    }
    lines = "\n".join(f"- {title}: {text}" for title, text in facts.items() if text)
    more = f" {MORE[name]}" if name in MORE else ""
    return f"### {name}\n\n{meaning_of(field)}{more}\n\n{lines}\n"


def rendered() -> str:
    """The whole page."""
    out = [INTRODUCTION]
    for title, names in GROUPED:
        out += [f"## {title}\n", *(entry(name, Settings.model_fields[name]) for name in names)]
    out += ["## Kafka\n", KAFKA_INTRODUCTION]
    for title, names in KAFKA_GROUPED:
        out += [f"## {title} on Kafka\n", *(entry(name, KafkaSettings.model_fields[name]) for name in names)]
    return "\n".join(out)


def missing() -> set[str]:
    """Settings that the page leaves out, or has options of that it does not know."""
    named = {name for _, names in (*GROUPED, *KAFKA_GROUPED) for name in names}
    return (KafkaSettings.model_fields.keys() | {*SETTINGS, *KAFKA_SETTINGS}) ^ named

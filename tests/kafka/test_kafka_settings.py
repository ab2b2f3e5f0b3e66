"""Kafka's settings: the same sources as the engine's, one file for both, what is refused and how."""

from pathlib import Path
from typing import Any

import pytest
from support.kafka.measures import FIELDS, SETTINGS

from stream_lsh.cli.options import KAFKA_SETTINGS, PROPERTIES
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import MAX_FUTURE, KafkaSettings
from stream_lsh.kafka.tools.delete import line_of
from stream_lsh.settings.errors import is_secret
from stream_lsh.settings.model import Settings

OWN = [name for name in KafkaSettings.model_fields if name not in Settings.model_fields]


pytestmark = pytest.mark.usefixtures("no_variables")


def refused(**given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        KafkaSettings.load(None, **given)
    return str(caught.value)


def test_every_setting_but_passwords_and_tables_is_an_option_or_a_property() -> None:
    secrets = {name for name in OWN if is_secret(KafkaSettings.model_fields[name].annotation)}
    assert secrets == {"ssl_password", "sasl_password", "registry_password"}
    assert sorted((*KAFKA_SETTINGS, *PROPERTIES, "documents")) == sorted(set(OWN) - secrets)  # documents: tables
    assert all(KafkaSettings.model_fields[name].description for name in OWN)


def test_sources_win_over_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('threshold = 0.7\ntopic_prefix = "file"\nlinger_ms = 7\npartitions = 9\ntrace_headers = ["a"]\n')
    monkeypatch.setenv("STREAM_LSH_TOPIC_PREFIX", "variable")
    monkeypatch.setenv("STREAM_LSH_LINGER_MS", "8")
    monkeypatch.setenv("STREAM_LSH_DATA_FOLDER", "/data")
    settings = KafkaSettings.load(file, linger_ms="9")
    assert (settings.threshold, settings.topic_prefix, settings.linger_ms) == (0.7, "variable", 9)
    assert (settings.partitions, settings.trace_headers, settings.data_folder) == (9, ("a",), Path("/data"))
    monkeypatch.setenv("STREAM_LSH_TRACE_HEADERS", "x, y")
    assert KafkaSettings.load(file).trace_headers == ("x", "y")


def test_accepted_loss_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_LSH_ACCEPT_DELETED_RECORDS", "")
    assert KafkaSettings.load().accept_deleted_records == ()
    monkeypatch.setenv("STREAM_LSH_ACCEPT_DELETED_RECORDS", "news.documents:0:10,b:1:2")
    assert KafkaSettings.load().accept_deleted_records == ("news.documents:0:10", "b:1:2")
    monkeypatch.setenv("STREAM_LSH_ACCEPT_DELETED_RECORDS", "true")
    with pytest.raises(UsageError, match="'true' is not TOPIC:PARTITION:OFFSET"):
        KafkaSettings.load()


def test_the_embedded_engine_takes_a_file_with_kafkas_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('threshold = 0.7\ntopic_prefix = "news"\nsasl_password = "secret"\n')
    settings = Settings.load(file)
    assert type(settings) is Settings
    assert settings.threshold == 0.7
    file.write_text('threshold = 0.7\ntopic_prefix = "news"\ntopic_prefixes = "x"\n')
    with pytest.raises(UsageError, match="topic_prefixes: there is no such setting") as caught:
        Settings.load(file)
    assert "topic_prefix:" not in str(caught.value)


def test_none_of_them_changes_the_answers() -> None:
    plain = Settings(threshold=0.7)
    other = KafkaSettings(threshold=0.7, topic_prefix="x", frame_documents=7, document_format="text")
    assert other.fingerprint == plain.fingerprint


def test_which_records_delete_fixes_the_answers() -> None:
    update = KafkaSettings(on_conflict="update")
    keyed = KafkaSettings(on_conflict="update", key_is_id="string")
    assert len({update.fingerprint, keyed.fingerprint, KafkaSettings().fingerprint}) == 3
    assert update.fingerprint == Settings(on_conflict="update").fingerprint
    assert keyed.differences(update.answers) == {"key_is_id": (None, "string")}
    assert update.differences(keyed.answers) == {"key_is_id": ("string", None)}
    assert keyed.differences(keyed.answers) == {}


def test_what_deleting_by_a_key_needs() -> None:
    assert "give on_conflict = 'update' too" in refused(key_is_id="string")
    assert "no key is one" in refused(on_conflict="update", key_is_id="json", id_field="@line")
    assert "needs registry_url" in refused(document_format="registry")
    registry = {"document_format": "registry", "registry_url": "https://u:geheim@registry:8081"}
    assert "registry_username" in refused(**registry) and "geheim" not in refused(**registry)
    assert "belong together" in refused(**{**registry, "registry_url": "http://r"}, registry_username="u")
    assert "registry_cafile is set, but registry_url is not" in refused(registry_cafile="ca.pem")
    assert "output_format = 'avro' needs registry_url" in refused(output_format="avro")
    events = {"output_format": "avro", "registry_url": "http://r", "cloudevents_source": "/news"}
    assert "cloudevents_source says that outputs are JSON" in refused(**events)
    assert "give on_conflict = 'update' too" in refused(envelope="debezium")
    assert "needs the ids of an id_field" in refused(envelope="debezium", on_conflict="update", id_field="@line")
    assert "leave key_is_id out" in refused(envelope="debezium", on_conflict="update", key_is_id="json")
    assert "needs document_format = 'json'" in refused(envelope="cloudevents", document_format="text")
    text = {"on_conflict": "update", "document_format": "text"}
    assert "give 'string'" in refused(**text, key_is_id="json")
    assert "deleted_field = 'gone' needs document_format = 'json'" in refused(**text, deleted_field="gone")
    assert KafkaSettings.load(None, **text, key_is_id="string").key_is_id == "string"


@pytest.mark.parametrize("uri", ["has space", "/news\n", "\n/news", "", "/grüße", "/%2", "<news>", "/a\ud800"])
@pytest.mark.parametrize("name", ["cloudevents_source", "cloudevents_schemas"])
def test_names_of_cloud_events_are_uris(name: str, uri: str) -> None:
    good = {"cloudevents_source": "https://[::1]:80/a%20b?c=d#e", "cloudevents_schemas": "/news"}
    assert KafkaSettings.load(None, **good).cloudevents_source == good["cloudevents_source"]
    assert "give a URI" in refused(**{**good, name: uri})


@pytest.mark.parametrize("name", ["a\n", "a\r\nb", "a\0", " a", "a ", "", "a\ud800"])
def test_trace_headers_are_names(name: str) -> None:
    assert "is no name of a header" in refused(trace_headers=("traceparent", name))
    assert KafkaSettings.load(None, trace_headers="größe, a b").trace_headers == ("größe", "a b")


def test_settings_that_erasing_allows() -> None:
    assert KafkaSettings().erase_hours is None and KafkaSettings(erase_hours=24).erase_hours == 24
    assert KafkaSettings(erase_hours=1).fingerprint == KafkaSettings().fingerprint
    assert KafkaSettings(erase_hours=1, window="7d").fingerprint == KafkaSettings(window="7d").fingerprint
    assert KafkaSettings(erase_hours=1, shards=2).late and KafkaSettings(erase_hours=1, keep="longest").erase_hours == 1
    for given, why in (
        ({"compare_with": "all"}, "compare_with = 'kept': 'all' finds documents through deleted ones"),
        (
            {"shards": 2, "keep": "longest"},
            "keep = 'first' or one shard: with keep = 'longest' and shards = 2 other shards have ids of superseded",
        ),
    ):
        assert f"erase_hours = 24: on Kafka erasing needs {why}" in refused(erase_hours=24, **given)


def test_settings_that_a_window_allows() -> None:
    settings = KafkaSettings(window="P7D", shards=2)
    assert (settings.window, settings.max_future) == ("7d", MAX_FUTURE)
    assert settings.fingerprint == Settings(window="7d", max_future="10m", shards=2).fingerprint
    assert KafkaSettings(window="7d", max_future="1d").max_future == "1d"
    assert KafkaSettings().max_future is None and "window" not in KafkaSettings().answers
    KafkaSettings(window="7d", on_conflict="update", groups=True)
    KafkaSettings(window="7d", on_conflict="update", groups=True, shards=2)


def test_what_several_shards_that_keep_need() -> None:
    assert KafkaSettings().compare_with == "kept" and KafkaSettings(shards=2).late
    message = refused(shards=2, decision_lag=1000)
    assert "raise it from 1000, or lower frame_documents from 1000 to 500" in message
    assert "candidates of at most 128" in refused(shards=2, max_candidates=129)
    for given in ({"compare_with": "all"}, {"shards": 1}, {"frame_documents": 500}):
        KafkaSettings(**{"shards": 2, "decision_lag": 1000, **given})
    KafkaSettings(compare_with="all", shards=2, max_candidates=129)
    changing = {"shards": 2, "on_conflict": "update"}
    assert "decision_lag of at most 32768" in refused(**changing, decision_lag=40_000)
    KafkaSettings(**changing, groups=True)


def test_plain_text_is_no_vector() -> None:
    for measure in FIELDS:
        message = refused(document_format="text", **SETTINGS[measure])
        assert f"measure = {measure} needs document_format = 'json'" in message
    assert "vector_field is not used with measure = jaccard" in refused(document_format="text", vector_field="v")
    assert "bits_field is not used with measure = jaccard" in refused(document_format="text", bits_field="b")


SASL = {"security_protocol": "SASL_SSL"}
PLAIN = {**SASL, "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "s3cret"}
GSSAPI = {**SASL, "sasl_mechanism": "GSSAPI"}
OAUTH = {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_file": "token"}


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"frame_documents": 4097}, ["frame_documents", "4096"]),
        ({"frame_documents": 0}, ["frame_documents", "1"]),
        ({"bootstrap_servers": ""}, ["bootstrap_servers", "host:port"]),
        ({"bootstrap_servers": "a:1,b:99999"}, ["b:99999"]),
        ({"bootstrap_servers": "a:1 b:2"}, ["host:port"]),
        ({"topic_prefix": "news/today"}, ["topic_prefix", "letters"]),
        ({"topic_prefix": "."}, ["topic_prefix"]),
        ({"topic_prefix": "x" * 201}, ["topic_prefix", "200"]),
        ({"documents_topic": "a b"}, ["documents_topic", "249"]),
        ({"documents_topic": "stream-lsh.frames"}, ["documents_topic", "itself"]),
        ({"document_format": "csv"}, ["document_format", "json"]),
        ({"replication_factor": 0}, ["replication_factor"]),
        ({"allow_weak_topics": ["retention.hours"]}, ["'retention.hours'", "min.insync.replicas", "retention.ms"]),
        ({"http_port": 70000}, ["http_port"]),
        *(({"document_format": "text", x: "x"}, [x, "json"]) for x in ("time_field", "set_field", "match_within")),
        (SASL, ["needs sasl_mechanism"]),
        ({**SASL, "sasl_mechanism": "PLAIN"}, ["PLAIN needs sasl_username"]),
        (
            {**SASL, "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "u"},
            ["SCRAM-SHA-256 needs sasl_password", "environment"],
        ),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, ["sasl_oauth_token_file"]),
        ({**SASL, "sasl_mechanism": "MD5"}, ["sasl_mechanism", "SCRAM-SHA-512"]),
        ({"sasl_username": "u"}, ["sasl_username", "PLAINTEXT", "SASL_SSL"]),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, ["sasl_mechanism", "does not use it"]),
        (
            {**PLAIN, "sasl_oauth_token_file": "token"},
            ["sasl_oauth_token_file is set", "sasl_mechanism = PLAIN does not use it", "OAUTHBEARER"],
        ),
        (
            {**OAUTH, "sasl_username": "u"},
            ["sasl_username is set", "sasl_mechanism = OAUTHBEARER does not use it", "SCRAM-SHA-512"],
        ),
        ({**GSSAPI, "sasl_password": "s3cret"}, ["sasl_password is set", "GSSAPI does not use it", "PLAIN"]),
        ({"ssl_cafile": "ca.pem"}, ["ssl_cafile", "SSL"]),
        ({"security_protocol": "SSL", "ssl_password": "s3cret"}, ["ssl_password", "ssl_certfile"]),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(given: dict[str, Any], parts: list[str]) -> None:
    message = refused(**given)
    assert all(part in message for part in parts), message
    assert "s3cret" not in message


@pytest.mark.parametrize("servers", ["localhost", "a.b-c:9092", "[::1]:9092", "10.0.0.1:1, 10.0.0.2:2"])
def test_servers(servers: str) -> None:
    assert KafkaSettings(bootstrap_servers=servers).bootstrap_servers == servers.replace(" ", "")


@pytest.mark.parametrize("given", [GSSAPI, OAUTH, {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"}])
def test_each_login_needs_no_more_than_what_it_uses(given: dict[str, Any]) -> None:
    KafkaSettings.load(None, **given)


def test_passwords_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_LSH_SASL_PASSWORD", "s3cret")
    settings = KafkaSettings.load(None, **{name: value for name, value in PLAIN.items() if name != "sasl_password"})
    assert settings.sasl_password is not None
    assert settings.sasl_password.get_secret_value() == "s3cret"
    assert "s3cret" not in f"{settings!r} {settings}"
    assert "s3cret" not in settings.model_dump_json()
    assert "s3cret" not in refused(sasl_password=["s3cret"])


def test_groups_fix_answers_and_what_is_for_them_needs_them() -> None:
    plain, grouped = KafkaSettings(), KafkaSettings(groups=True, source_field="outlet")
    assert (plain.roles[-1], grouped.roles[-1]) == ("forward", "group")
    assert plain.fingerprint == Settings().fingerprint != grouped.fingerprint
    assert grouped.fingerprint != KafkaSettings(groups=True).fingerprint
    assert grouped.fingerprint == KafkaSettings(groups=True, source_field="outlet", alerts="rules.toml").fingerprint
    assert grouped.differences(plain.answers) == {"groups": (False, True), "source_field": (None, "outlet")}
    assert plain.differences(grouped.answers) == {"groups": (True, False), "source_field": ("outlet", None)}
    assert "source_field = 'outlet' is for groups: set groups = true" in refused(source_field="outlet")
    assert "alerts = 'rules.toml' is for groups: set groups = true" in refused(alerts="rules.toml")
    assert "only under compare_with = 'kept'" in refused(groups="true", compare_with="all")
    assert "have no fields" in refused(groups="true", source_field="outlet", document_format="text")


TOPICS = """
text_field = "body"
[documents.news]
id_prefix = ""
[documents.crawl]
id_field = "url"
text_field = ["title", "main"]
"""


def test_a_documents_topic_has_the_settings_of_its_table(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(TOPICS)
    settings = KafkaSettings.load(file)
    news, crawl = settings.by_topic["news"], settings.by_topic["crawl"]
    assert (news.id_field, news.text_field, news.id_prefix) == ("id", ("body",), "")
    assert (crawl.id_field, crawl.text_field, crawl.id_prefix) == ("url", ("title", "main"), "crawl:")
    # A pipeline whose only topic was news can go on with both.
    assert settings.fingerprint == news.fingerprint == KafkaSettings(text_field="body").fingerprint
    assert crawl.fingerprint != news.fingerprint
    assert KafkaSettings.load(file, documents_topic="crawl").one_topic == crawl
    with pytest.raises(UsageError, match="topics news, crawl: name one with --documents-topic"):
        _ = settings.one_topic
    line = line_of(KafkaSettings(deleted_field="gone", id_prefix="crawl:", on_conflict="update"), "crawl:7", 1)
    assert (line.key, line.value) == (b"7", b'{"id":"7","gone":true}')
    assert settings.of_id(b'"crawl:7"') == (crawl, b'"7"')
    assert settings.of_id(b"7") == (news, b"7")
    numbered = KafkaSettings(key_is_id="json", id_prefix="n:", on_conflict="update")
    ids = [b'"n:17"', b'"n:-4"', b'"n:017"', b'"n:x"']
    assert [numbered.of_id(id)[1] for id in ids] == [b"17", b"-4", b'"017"', b'"x"']
    assert [line_of(numbered, id, 1).key for id in ("n:17", "n:017")] == [b"17", b'"017"']


def test_only_some_topics_need_a_schema_registry() -> None:
    tables = {"rows": {"document_format": "registry", "envelope": "debezium"}, "wire": {"document_format": "text"}}
    given = {"registry_url": "http://registry:8081", "on_conflict": "update"}
    topics = KafkaSettings(documents=tables, **given).by_topic
    assert [topic.document_format for topic in topics.values()] == ["registry", "text"]
    avro = KafkaSettings(documents=tables, output_format="avro", **given)
    assert {topic.output_format for topic in avro.by_topic.values()} == {"avro"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[documents.a]\ntext_feild = 'b'", r"\[documents.a\]: text_feild: there is no .* did you mean text_field\?"),
        ("[documents.a]\nshards = 2", r"\[documents.a\]: shards: there is no such setting of one topic"),
        ("[documents.a]\n[documents.a]", r"settings.toml is not TOML: .*documents.*twice"),
        ("documents = 'a'", r"documents = 'a' .*: give a table \[documents.TOPIC\] for each topic"),
        ("[documents.'a b']", "a topic's name has up to 249 letters"),
        ("[documents.a]\ntime_field = 't'", r"\[documents.a\]: time_field is set, and not for the pipeline"),
        ("[documents.a]\nset_field = 's'", r"\[documents.a\]: set_field is set, and not for the pipeline"),
        (
            "match_within = ['l', 'm']\n[documents.a]\nmatch_within = ['n']",
            r"\[documents.a\]: match_within is another one than for the pipeline",
        ),
        (
            "match_within = ['l', 'm']\n[documents.a]\nmatch_within = ['l', 'n']",
            "another name for one field, not for several",
        ),
        ("[documents.a]\nrank_order = ['x']", r"\[documents.a\]: rank_order: there is no such setting of one topic"),
        ("[documents.a]\ndocument_format = 'registry'", "document_format = 'registry' needs registry_url"),
        ("[documents.'stream-lsh.unique']", "is a topic that the pipeline writes itself"),
        ("documents_topic = 'b'\n[documents.a]", r"has no table \[documents.b\], and a have one"),
        ("id_prefix = 'x'\n[documents.a]", "each has its own: set it in their tables"),
        ("[documents.a.b]", r'a name with dots is quoted: \[documents."a.b"\]'),
        ("[documents.a]\n[documents.b]\nid_prefix = 'a:b'", "'a:' and .* 'a:b', so different ids would become one"),
        (
            "on_conflict = 'update'\n[documents.a]\nid_prefix = ''\nkey_is_id = 'json'\n[documents.b]\nid_prefix = ''",
            "the same id_prefix and another key_is_id",
        ),
    ],
)  # fmt: skip
def test_a_wrong_table_of_a_documents_topic_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        KafkaSettings.load(file)

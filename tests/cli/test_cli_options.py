"""The options of the settings: all of them, and which source wins."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from stream_lsh.cli.group import LazyGroup
from stream_lsh.cli.options import GROUPS, SECTIONS, SETTINGS, load_settings, quiet_option, setting, settings_options
from stream_lsh.settings.model import Settings

pytestmark = pytest.mark.usefixtures("no_variables")


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[Result, Settings | None]:
    loaded: list[Settings] = []

    @click.command(params=[*settings_options(), quiet_option()])
    @click.pass_context
    def probe(context: click.Context, **_: object) -> None:
        loaded.append(load_settings(context))

    group = LazyGroup("stream-lsh", commands_help={}, package="none")
    group.commands_help = {"probe": ""}  # type: ignore[assignment]
    group.get_command = lambda context, name: probe  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["probe", *arguments], env=env)
    return result, loaded[0] if loaded else None


def test_every_setting_is_an_option_and_every_option_a_setting() -> None:
    assert sorted(SETTINGS + SECTIONS[GROUPS]) == sorted(Settings.model_fields)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_bytes("\ufeffthreshold = 0.5\ntarget_recall = 0.9\nmax_matches = 7\n".encode())  # a byte order mark
    env = {"STREAM_LSH_THRESHOLD": "0.6", "STREAM_LSH_TARGET_RECALL": "0.95"}
    _, settings = run("--config", str(config), "--threshold", "0.7", env=env)
    assert settings is not None
    assert (settings.threshold, settings.target_recall, settings.max_matches) == (0.7, 0.95, 7)
    assert settings.id_field == "id"


def test_a_default_on_the_line_takes_back_what_is_in_the_environment() -> None:
    _, settings = run("--no-bag", "--threshold", "0.8", env={"STREAM_LSH_BAG": "true", "STREAM_LSH_THRESHOLD": "0.6"})
    assert settings is not None
    assert (settings.bag, settings.threshold) == (False, 0.8)


@pytest.mark.parametrize(
    ("arguments", "env", "parts"),
    [
        (["--threshold", "1.5"], {}, ["threshold", "1.5", "command line", "1"]),
        ([], {"STREAM_LSH_BANDS": "many"}, ["bands", "many", "STREAM_LSH_BANDS", "integer"]),
        (["--verify", "perhaps"], {}, ["verify", "perhaps", "exact", "signature"]),
        (["--shingles", "lines:3"], {}, ["shingles", "lines:3", "words:"]),
        (["--normalize", "lower,shout"], {}, ["normalize", "shout", "lower"]),
        (
            [],
            {"STREAM_LSH_TRESHOLD": "0.7"},
            ["variable STREAM_LSH_TRESHOLD: there is no such setting; did you mean STREAM_LSH_THRESHOLD?"],
        ),
        ([], {"STREAM_LSH_threshold": "0.7"}, ["did you mean STREAM_LSH_THRESHOLD?"]),
        ([], {"STREAM_LSH_LINGER": "0.7"}, ["did you mean STREAM_LSH_LINGER_MS?"]),
        ([], {"STREAM_LSH_": "0.7"}, ["variable STREAM_LSH_: there is no such setting; unset it"]),
    ],
)
def test_a_wrong_value_is_named_with_its_source_and_what_is_allowed(
    arguments: list[str], env: dict[str, str], parts: list[str]
) -> None:
    result, settings = run(*arguments, env=env)
    assert settings is None
    assert result.exit_code == 2
    assert result.stderr.startswith("stream-lsh: ")
    assert all(part in result.stderr for part in parts), result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("treshold = 0.5", "treshold: there is no such setting (from {file}); did you mean threshold?"),
        ("text-field = 'a'", "text-field: there is no such setting (from {file}); did you mean text_field?"),
        ("Threshold = 0.5", "did you mean threshold?"),
        ("nothing_like_it = 1", "leave it out"),
        ("threshold = 1.5", "threshold = 1.5 (from {file}): give a number above 0 and of at most 1"),
        ("threshold = true", "threshold = true (from {file}): give a number"),
        ("threshold = {a = 1}", "threshold = {'a': 1} (from {file}): give a number"),
        ("threshold = nan", "give a number"),
        ("bands = 2.5", "give an integer from 1 to 1024"),
        ("verify = 'exct'", "give exact or signature (did you mean exact?)"),
        ("window = 2020-01-01", "window = 2020-01-01 (from {file}): give a text"),
        ("window = '0s'", "'0s' is not between a second and 200 years"),
        ("max_future = '1d'", "max_future is for indexes with a window; give window too, or leave it out"),
        ("text_field = [1]", "give a text, or a list of texts"),
        ("bag = 'maybe'", "give true or false"),
        ("[settings]\nthreshold = 0.7", "[settings] (from {file}): settings have no tables; write threshold above"),
        ("[tresholds]", "[tresholds] (from {file}): settings have no tables"),
        ("dimensions = 8", "dimensions is not used with measure = jaccard; leave it out (dimensions from {file})"),
        ("threshold = ", "is not TOML"),
        (b"threshold = 0.5 # \xff", "is not TOML: byte 18 is not UTF-8"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file_and_the_remedy(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    config = tmp_path / "settings.toml"
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    result, settings = run("--config", str(config))
    assert settings is None
    assert result.exit_code == 2
    assert said.replace("{file}", str(config)) in result.stderr
    assert "Input should" not in result.stderr


ADDRESS = "tcp://10.96.0.11:8080"


@pytest.mark.parametrize(
    "variables",
    [
        {"LINGER_MS": "9", "SASL_PASSWORD": "x", "LONG": "1", "WINDOW": ""},  # of Kafka and of the tests
        {  # what Kubernetes sets for a service of that name
            "SERVICE_HOST": "10.96.0.11", "SERVICE_PORT": "8080", "SERVICE_PORT_HTTP": "8080", "PORT": ADDRESS,
            "PORT_8080_TCP": ADDRESS, "PORT_8080_TCP_PROTO": "tcp", "PORT_8080_TCP_ADDR": "10.96.0.11",
            "MATCH_0_SERVICE_HOST": "10.96.0.12", "HTTP_PORT": ADDRESS,
        },
    ],
)  # fmt: skip
def test_other_variables_are_no_mistake(variables: dict[str, str]) -> None:
    _, settings = run(env={f"STREAM_LSH_{name}": value for name, value in variables.items()})
    assert settings == Settings()


def test_the_file_of_the_folder_is_read_and_said_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stream-lsh.toml").write_text("threshold = 0.6\n")
    (tmp_path / "other.toml").write_text("target_recall = 0.9\n")
    result, settings = run()
    assert settings is not None
    assert settings.threshold == 0.6
    assert "settings are read from stream-lsh.toml" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    result, settings = run("--quiet")
    assert settings is not None
    assert (settings.threshold, result.stderr) == (0.6, "")
    for arguments, env in ((["--config", "other.toml"], {}), ([], {"STREAM_LSH_CONFIG": "other.toml"})):
        result, settings = run(*arguments, env=env)
        assert settings is not None
        assert (settings.threshold, settings.target_recall, result.stderr) == (0.8, 0.9, "")


def test_a_choice_shows_what_there_is_to_choose_from_though_it_may_be_excluded() -> None:
    assert setting("tokens").metavar == "unicode|word"
    assert setting("verify").metavar == "exact|signature"

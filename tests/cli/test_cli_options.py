"""The options of the settings: all of them, and which source wins."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from stream_lsh.cli.group import LazyGroup
from stream_lsh.cli.options import GROUPS, SECTIONS, SETTINGS, load_settings, setting, settings_options, with_options
from stream_lsh.settings import Settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"STREAM_LSH_{name.upper()}", raising=False)


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[Result, Settings | None]:
    loaded: list[Settings] = []

    @click.command()
    @with_options(settings_options())
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


def test_defaults_are_those_of_the_model() -> None:
    _, settings = run()
    assert settings == Settings.load(None)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("threshold = 0.5\nrecall = 0.9\nmax_matches = 7\n")
    env = {"STREAM_LSH_THRESHOLD": "0.6", "STREAM_LSH_RECALL": "0.95"}
    _, settings = run("--config", str(config), "--threshold", "0.7", env=env)
    assert settings is not None
    assert (settings.threshold, settings.recall, settings.max_matches) == (0.7, 0.95, 7)
    assert settings.id_field == "id"


def test_a_flag_on_the_line_can_take_back_one_in_the_environment() -> None:
    _, settings = run("--no-bag", env={"STREAM_LSH_BAG": "true"})
    assert settings is not None
    assert settings.bag is False


def test_a_value_on_the_line_that_is_the_default_still_wins() -> None:
    _, settings = run("--threshold", "0.8", env={"STREAM_LSH_THRESHOLD": "0.6"})
    assert settings is not None
    assert settings.threshold == 0.8


@pytest.mark.parametrize(
    ("arguments", "env", "parts"),
    [
        (["--threshold", "1.5"], {}, ["threshold", "1.5", "command line", "1"]),
        ([], {"STREAM_LSH_BANDS": "many"}, ["bands", "many", "STREAM_LSH_BANDS", "integer"]),
        (["--verify", "perhaps"], {}, ["verify", "perhaps", "exact", "signature"]),
        (["--shingles", "lines:3"], {}, ["shingles", "lines:3", "words:"]),
        (["--normalize", "lower,shout"], {}, ["normalize", "shout", "lower"]),
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


def test_an_unknown_setting_in_the_file_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("treshold = 0.5\n")
    result, _ = run("--config", str(config))
    assert result.exit_code == 2
    assert "treshold" in result.stderr
    assert str(config) in result.stderr


def test_a_choice_shows_what_there_is_to_choose_from_though_it_may_be_left_out() -> None:
    assert setting("tokens").metavar == "unicode|word"
    assert setting("verify").metavar == "exact|signature"

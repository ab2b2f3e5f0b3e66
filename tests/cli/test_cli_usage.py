"""A wrong command line: what is wrong, what is allowed, and what may be meant."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.types import FloatParamType, IntParamType
from support import commands

ALL = dict(commands.every())
LIMITED = click.Choice | IntParamType | FloatParamType


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("groups abc --index i", "argument abc: give an integer of at least 0"),
        ("groups --index i --order larges", "give largest, newest or growing (did you mean largest?)"),
        ("query x --index i --threshold 7", "--threshold 7: give a number from 0 to 1"),
        ("tune --sample 'a is not a valid b'", "--sample a is not a valid b: give an integer"),
        ('tune --sample "it\'s"', "--sample it's: give an integer"),
        ("tune --sample ''", "--sample '': give an integer"),
        ("demo --documents 3.0", "--documents 3.0: give an integer from 40 to 200000"),
        ("tune --sample x", "--sample x: give an integer of at least 2"),
        ("serve --port 99999", "--port 99999: give an integer from 0 to 65535"),
        ("kafka produce x --rate 0", "--rate 0: give a number above 0"),
        ("schema foo", "argument foo: give verdict, pair, group, alert or dead-letter"),
        ("dedup x --max-rejected y", "--max-rejected: 'y' is not a share; give a number from 0 to 1"),
        ("dedup x --match-within a --match-within b\udcff", "(from command line): give names that are UTF-8"),
        ("dedup x --index index\udcff", "--index: index\\udcff is not UTF-8; give a folder with another name"),
        ("dedup --treshold 1", "there is no option --treshold; did you mean --threshold?"),
        ("dedup --no-group", "there is no option --no-group; did you mean --no-groups?"),
        ("dedup --on-same-id x", "there is no option --on-same-id\n"),
        ("kafka status --every 1", "there is no option --every\n"),
        ("delete --json-id -5 --index i", "there is no option -5; write -- before values that begin with -"),
        ("query --index", "--index: give a value"),
        ("query --quiet=3", "--quiet: it takes no value"),
        ("query x", "--index is missing: folder of the index"),
        ("serve token add", "NAME is missing"),
        ("info a b c", "too many arguments: b c"),
        ("serve token xyz", "there is no command xyz; there are add, list, revoke"),
        ("serve token ''", "there is no command ''; there are add, list, revoke"),
        ("kafka topics shwo", "there is no command shwo; did you mean show?"),
        ("--foo", "there is no option --foo"),
        ("kafka produce --rate nan feed.jsonl", "--rate nan: give a number above 0"),
        ("kafka drain --timeout inf", "--timeout inf: give a number of at least 0"),
    ],
)
def test_what_is_said_of_a_wrong_command_line(words: str, said: str) -> None:
    result = commands.run(*shlex.split(words), code=2)
    assert said in result.stderr and result.stdout == ""
    assert result.stderr.startswith("stream-lsh: ")
    named = max((name for name in map(" ".join, ALL) if f"{words} ".startswith(f"{name} ")), key=len, default="")
    assert result.stderr.endswith(f"\nTry '{f'stream-lsh {named}'.strip()} --help'.\n")


def test_a_file_for_a_folder_and_a_folder_for_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert f"argument {file}: it is a file; give a folder" in commands.run("info", file, code=2).stderr
    told = commands.run("serve", "--token-file", tmp_path, code=2).stderr
    assert f"--token-file {tmp_path}: it is a folder; give a file" in told


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    told = commands.run("info", "--index", tmp_path, code=2).stderr
    assert told.startswith(f"stream-lsh: --index {tmp_path}: this user may not read it\n")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (words, param.opts[0])
        for words, command in ALL.items()
        for param in command.params
        if isinstance(param, click.Option) and not param.is_flag and isinstance(param.type, LIMITED)
    ],
)
def test_every_option_of_limited_values_says_which(words: tuple[str, ...], flag: str) -> None:
    assert f"{flag} @: give " in commands.run(*words, flag, "@", code=2).stderr


def test_a_group_without_a_command_shows_its_help() -> None:
    assert "Commands:" in commands.run("kafka", code=2).output


def test_an_empty_variable_gives_no_value(tmp_path: Path) -> None:
    (tmp_path / "feed.jsonl").write_text('{"id": "a", "text": "one two three four"}\n')
    feed = ("dedup", tmp_path / "feed.jsonl", "-q")
    commands.run(*feed, threshold="")
    assert "threshold = '7'" in commands.run(*feed, threshold="7", code=2).stderr
    assert "STATE: there is no such setting; unset it" in commands.run(*feed, state="1", code=2).stderr


def test_a_number_for_a_duration_shows_the_quotes(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("window = 7\n")
    error = commands.run("dedup", tmp_path / "none", "--config", tmp_path / "c.toml", code=2).stderr
    assert "window = 7 (from" in error and 'give a text in quotes, such as "7d"' in error


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (words, param.opts[0])
        for words, command in ALL.items()
        for param in command.params
        if isinstance(param.type, click.Path)
    ],
)
def test_an_empty_path_is_refused(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    error = commands.run(*words, *([name] if name.startswith("-") else []), "", code=2).stderr
    said = name if name.startswith("-") else "argument"
    assert re.match(rf"stream-lsh: {said}: it is empty; give a (file|folder)\n", error)


@pytest.mark.parametrize("flag", ["--alerts", "--data-folder", "-X ssl_cafile="])
def test_an_empty_path_of_a_setting_is_refused(flag: str) -> None:
    words = flag.split() if "=" in flag else [flag, ""]
    error = commands.run("kafka", "worker", "--groups", *words, "--bootstrap-servers", "localhost:1", code=2).stderr
    assert "= '' (from command line): it is empty; give a path" in error

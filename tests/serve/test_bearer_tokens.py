"""The tokens file, and the commands that write it."""

import hashlib
import os
import tomllib
from pathlib import Path

import pytest
from support.commands import run
from support.json_lines import read_lines
from support.serving import entry, write

from stream_lsh.errors import UsageError
from stream_lsh.serve import tokens as module
from stream_lsh.serve.tokens import Token, Tokens, read_tokens


def allowed(tokens: Tokens, secret: str) -> frozenset[str]:
    token = tokens.find(secret)
    return frozenset() if token is None else token.permissions


def test_token_has_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "long and random", "read", "write") + entry("screen", "another one", "read"))
    tokens = Tokens(path)
    assert allowed(tokens, "long and random") == {"read", "write"}
    assert allowed(tokens, "another one") == {"read"}
    for wrong in ("", "long and rando", "long and random ", "desk", "\udcff"):
        assert tokens.find(wrong) is None


def test_expired_token_is_invalid_and_loses_its_streams(tmp_path: Path) -> None:
    path, now, ended = tmp_path / "tokens.toml", [1_799_999_999.0], []
    path.write_text(entry("desk", "one", "read") + "expires = 2027-01-15T08:00:00Z\n")
    tokens = Tokens(path, lambda: now[0])
    token = tokens.find("one")
    assert token is not None and token.expires == 1_800_000_000
    with tokens.stream(token, "read", lambda: ended.append("stream")):
        tokens.end_streams()
        assert not ended
        now[0] += 1
        assert tokens.find("one") is None
        tokens.end_streams()
    assert ended == ["stream"]


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "one", "read"))
    tokens = Tokens(path)
    write(path, entry("desk", "two", "read"))
    tokens.refresh()
    assert tokens.find("one") is None and allowed(tokens, "two") == {"read"}
    write(path, "[desk\n")
    tokens.refresh()
    assert allowed(tokens, "two") == {"read"}
    assert "the previous tokens stay valid" in caplog.text and "two" not in caplog.text
    path.unlink()
    tokens.refresh()
    assert allowed(tokens, "two") == {"read"}


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "one", "read"))

    def read(file: Path) -> tuple[Token, ...]:
        found = read_tokens(file)
        write(path, entry("desk", "another one", "read"))
        return found

    monkeypatch.setattr(module, "read_tokens", read)
    tokens = Tokens(path)
    monkeypatch.undo()
    tokens.refresh()
    assert tokens.find("one") is None and allowed(tokens, "another one") == {"read"}


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens.toml")
    with pytest.raises(UsageError, match="no regular file"):
        Tokens(tmp_path / "tokens.toml")  # which would wait for a writer


HASH = f'sha256 = "{"0" * 64}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[a]\nsha256 = "00"\npermissions = ["read"]', "64 hexadecimal digits"),
        (f'[a]\n{HASH}permissions = ["all"]', 'a list of "read", "write" and "delete"'),
        (f"[a]\n{HASH}permissions = []", 'a list of "read", "write" and "delete"'),
        (f"[a]\n{HASH}", "must have sha256, permissions and perhaps expires"),
        (f'[a]\n{HASH}scopes = ["read"]', "must have sha256, permissions and perhaps expires"),
        (f'[a]\n{HASH}permissions = ["read"]\nexpires = "soon"', "a date or a time without quotes"),
        (f'["a b"]\n{HASH}permissions = ["read"]', "cannot be the name of a token"),
        ("a = 1", "must have sha256, permissions and perhaps expires"),
        ("[a", "is not TOML"),
    ],
)
def test_a_file_that_says_something_else(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(Exception, match=says) as error:
        Tokens(path)
    assert str(path) in str(error.value)


def test_commands_add_list_and_revoke_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    option = ("--token-file", path)
    path.write_text("# of the news desk\n" + entry("desk", "old", "read"))
    added = run("serve", "token", "add", "feed", *option, "--permission", "write", "--permission", "delete")
    secret = added.stdout.strip()
    assert len(secret) > 40 and secret not in added.stderr + path.read_text()
    assert hashlib.sha256(secret.encode()).hexdigest() == tomllib.loads(path.read_text())["feed"]["sha256"]
    assert path.read_text().startswith("# of the news desk\n")
    run("serve", "token", "add", "guest", *option, "--expires", "2100-01-31")
    assert "has a token feed" in run("serve", "token", "add", "feed", *option, code=2).stderr
    assert "this time is over" in run("serve", "token", "add", "x", *option, "--expires", "2001-01-31", code=2).stderr
    assert allowed(Tokens(path), secret) == {"write", "delete"}
    run("serve", "token", "revoke", "desk", *option)
    assert read_lines(run("serve", "token", "list", *option, "--json").stdout) == [
        {"name": "feed", "permissions": ["write", "delete"], "expires": None, "expired": False},
        {"name": "guest", "permissions": ["read"], "expires": "2100-01-31T00:00:00Z", "expired": False},
    ]
    assert "2100-01-31T00:00:00Z" in run("serve", "token", "list", *option).stdout
    assert "has no token 'desk'" in run("serve", "token", "revoke", "desk", *option, code=2).stderr


def test_commands_make_a_missing_tokens_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    secret = run("serve", "token", "add", "desk", "--token-file", path).stdout.strip()
    assert allowed(Tokens(path), secret) == {"read"}

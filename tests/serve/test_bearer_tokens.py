"""The tokens file."""

from pathlib import Path

import pytest
from support.serving import entry, write

from stream_lsh.errors import UsageError
from stream_lsh.serve import tokens as module
from stream_lsh.serve.tokens import Holder, Tokens, read_tokens


def test_a_token_has_its_scopes_and_no_other_has_any(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "long and random", "read", "write") + entry("screen", "another one", "read"))
    tokens = Tokens(path)
    assert tokens.scopes("long and random") == {"read", "write"}
    assert tokens.scopes("another one") == {"read"}
    for wrong in ("", "long and rando", "long and random ", "desk", "\udcff"):
        assert tokens.scopes(wrong) is None


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "one", "read"))
    tokens = Tokens(path)
    write(path, entry("desk", "two", "read"))
    tokens.refresh()
    assert tokens.scopes("one") is None and tokens.scopes("two") == {"read"}
    write(path, "[desk\n")
    tokens.refresh()
    assert tokens.scopes("two") == {"read"}
    assert "the previous tokens stay valid" in caplog.text and "two" not in caplog.text
    path.unlink()
    tokens.refresh()
    assert tokens.scopes("two") == {"read"}


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("desk", "one", "read"))

    def read(file: Path) -> tuple[Holder, ...]:
        found = read_tokens(file)
        write(path, entry("desk", "another one", "read"))
        return found

    monkeypatch.setattr(module, "read_tokens", read)
    tokens = Tokens(path)
    monkeypatch.undo()
    tokens.refresh()
    assert tokens.scopes("one") is None and tokens.scopes("another one") == {"read"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[a]\nsha256 = "00"\nscopes = ["read"]', "64 hexadecimal digits"),
        (f'[a]\nsha256 = "{"0" * 64}"\nscopes = ["all"]', 'a list of "read" and "write"'),
        (f'[a]\nsha256 = "{"0" * 64}"\nscopes = []', 'a list of "read" and "write"'),
        (f'[a]\nsha256 = "{"0" * 64}"', "must have sha256 and scopes, and nothing else"),
        ("a = 1", "must have sha256 and scopes, and nothing else"),
        ("[a", "is not TOML"),
    ],
)
def test_a_file_that_says_something_else(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says) as error:
        Tokens(path)
    assert str(path) in str(error.value)

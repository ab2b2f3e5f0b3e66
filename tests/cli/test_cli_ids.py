"""What standard output has no characters for is shown escaped."""

import click
import pytest
from click.testing import CliRunner

from stream_lsh import Match
from stream_lsh.cli.failures import guarded
from stream_lsh.cli.query import show


@click.command()
@click.pass_context
def greeting(context: click.Context) -> None:
    with guarded(context):
        print("aé\ud800")


@pytest.mark.parametrize(("charset", "shown"), [("ascii", r"a\u00e9\ud800"), ("utf-8", r"aé\ud800")])
def test_standard_output_escapes_what_its_encoding_has_not(charset: str, shown: str) -> None:
    assert CliRunner(charset=charset).invoke(greeting).stdout == shown + "\n"


def test_the_table_of_a_query_escapes_ids(capsys: pytest.CaptureFixture[str]) -> None:
    show([Match("a\ud800\x1b[2J", 0, 1.0, {})])
    assert r"1.000  a\ud800\x1b[2J    0" in capsys.readouterr().out

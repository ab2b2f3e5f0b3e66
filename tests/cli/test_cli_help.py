"""The help: fast to come, complete, with examples."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from stream_lsh.cli import COMMANDS, main


def test_the_help_lists_every_command_with_examples() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in COMMANDS)
    assert result.output.rstrip().splitlines()[-1].startswith("  stream-lsh ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_ends_with_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    title, _, examples = result.output.rpartition("Example")
    assert title
    lines = examples.splitlines()[1:]
    assert lines
    assert all(f"stream-lsh {name}" in line for line in lines)


def test_the_help_imports_nothing_that_takes_time() -> None:
    script = (
        "import sys\n"
        "from stream_lsh.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'numba', 'numpy', 'pydantic', 'rich', 'rocksdict', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(slow)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_misspelt_command_is_guessed() -> None:
    result = CliRunner().invoke(main, ["dedupe"])
    assert result.exit_code == 2
    assert "Did you mean 'dedup'?" in result.output


def test_an_unknown_command_names_the_known_ones() -> None:
    result = CliRunner().invoke(main, ["xyzzy"])
    assert result.exit_code == 2
    assert "There are dedup, pairs, query" in result.output

"""What only fails, or helps, never waits for a compiler."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
import sys
from click.testing import CliRunner
from stream_lsh.cli import COMMANDS, main
from stream_lsh.hashing import notice

compiled = []
notice.say = compiled.append
wrong = [
    ["dedup", "missing"], ["pairs", "missing"], ["evaluate", "missing"], ["tune", "missing"],
    *([command, "text", "--index", "missing"] for command in ("query", "delete")),
    *([command, "--index", "missing"] for command in ("info", "groups", "erase")),
]
for words in wrong + [[name, "--no-such-option"] for name in COMMANDS]:
    done = CliRunner().invoke(main, words)
    assert done.exit_code in (2, 3, 4), (words, done.output)
    assert not compiled, words
for name in COMMANDS:
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
assert not compiled
assert not os.path.exists("missing")
assert not [name for _, _, names in os.walk(sys.argv[1]) for name in names if name.endswith(".nbc")]
"""


def test_help_and_errors_compile_nothing(tmp_path: Path) -> None:
    """With an empty cache."""
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cache], cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

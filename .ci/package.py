"""Build the sdist, and the wheel from it, as a release does. Then use the wheel as a user does: in an environment of
its own, without extras.

    python .ci/package.py [--out dist]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
FEED = [{"id": "a", "text": TEXT}, {"id": "b", "text": TEXT + " It is the third."}, {"id": "c", "text": "Rain."}]
KEPT = ["a", "c"]


def run(*command: str | Path, code: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command, which has to end with the exit code."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"{command} ended with {done.returncode} instead of {code}\n{done.stdout}{done.stderr}")
    return done


def build(out: Path) -> Path:
    """Make the sdist and the wheel; the wheel's path."""
    run(sys.executable, "-m", "build", "--outdir", out)
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir())
    [wheel] = out.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """The wheel has every file of the package that git has, and no other."""
    tracked = set(run("git", "ls-files", "stream_lsh").stdout.splitlines())
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("stream_lsh/")}
    if tracked != packed:
        sys.exit(f"the wheel lacks {sorted(tracked - packed)}, and git does not have {sorted(packed - tracked)}")


def use(wheel: Path, folder: Path) -> None:
    """Install the wheel, and run its command twice over a small feed."""
    venv.create(folder / "venv", with_pip=True)
    commands = folder / "venv" / "bin"
    run(commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    command = commands / "stream-lsh"
    print(run(command, "--version").stdout.strip())
    (folder / "feed.jsonl").write_text("".join(json.dumps(document) + "\n" for document in FEED))
    given = command, "dedup", "feed.jsonl", "--index", "index"
    first = run(*given, cwd=folder).stdout
    kept = [json.loads(line)["id"] for line in first.splitlines()]
    if kept != KEPT or run(*given, cwd=folder).stdout != first:
        sys.exit(f"it has kept {kept}, or others in a second run")
    refused = run(command, "serve", "--index", "index", code=1, cwd=folder).stderr
    if "stream-lsh[serve]" not in refused:
        sys.exit(f"serve does not say which extra it needs:\n{refused}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for the sdist and the wheel (default: they are not kept)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        wheel = build(folder / "dist")
        check_contents(wheel)
        use(wheel, folder)
        if given.out is not None:
            shutil.copytree(folder / "dist", given.out, dirs_exist_ok=True)


if __name__ == "__main__":
    main()

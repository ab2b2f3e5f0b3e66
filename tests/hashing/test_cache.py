"""The cache of compiled kernels: it goes by content, is trusted only where nobody else writes, compiles once."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import IndexDataCacheFile

import stream_lsh
from stream_lsh.hashing import cache, notice, siphash
from stream_lsh.hashing.kernels import njit

HASH = """
import numpy as np
from stream_lsh.hashing import siphash
from stream_lsh.hashing.siphash import siphash128
print(siphash128(b"a text", np.array([6]), np.array([1, 2], np.uint64)).tolist())
print(sum(siphash._hash_all.stats.cache_misses.values()), sum(siphash._hash_all.stats.cache_hits.values()))
"""


def begin(package: Path, folder: Path) -> subprocess.Popen[str]:
    """A process that hashes with the package in a folder, and writes the hash, and how often it compiled and loaded."""
    environment = os.environ | {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(folder)}
    environment.pop("NUMBA_CACHE_DIR", None)
    say = "import logging; logging.basicConfig(format='%(message)s', level=logging.INFO)"
    return subprocess.Popen(
        [sys.executable, "-c", say + HASH], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The hash, and how often the process compiled and loaded."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    hashed, counts = out.splitlines()
    return hashed, counts


COMPILED, LOADED = "1 0", "0 1"


@pytest.fixture(scope="module")
def package() -> Path:
    """The folder that the package is in."""
    return Path(stream_lsh.__file__).parents[1]


def test_no_source_with_a_kernel_is_missing(package: Path) -> None:
    """Else a kernel would be loaded as it was before a change."""
    kernels = {
        path
        for path in (package / "stream_lsh").rglob("*.py")
        if re.search(r"^@(njit|far)\b", path.read_text(), re.MULTILINE)
    }
    assert kernels and kernels <= set(cache.sources())


def test_kernel_in_another_package_is_an_error(package: Path) -> None:
    """However it is made: a change would not be seen."""
    code = compile("def function(x):\n    return x\n", str(package / "stream_lsh" / "judging" / "folding.py"), "exec")
    made: dict[str, Any] = {}
    exec(code, made)
    with pytest.raises(RuntimeError, match="its package is not in _PACKAGES"):
        njit(made["function"])


@pytest.mark.long
def test_copies_share_what_is_compiled_and_other_sources_do_not(tmp_path: Path, package: Path) -> None:
    folder = tmp_path / "cache"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package / "stream_lsh", tmp_path / name / "stream_lsh", ignore=ignored)
    hashed, counts = end(begin(tmp_path / "one", folder))
    assert counts == COMPILED
    assert end(begin(tmp_path / "two", folder)) == (hashed, LOADED)
    with (tmp_path / "two" / "stream_lsh" / "hashing" / "murmur.py").open("a") as file:
        file.write("# another version of a kernel that another file has\n")
    assert end(begin(tmp_path / "two", folder)) == (hashed, COMPILED)
    assert len([*(folder / "stream-lsh").iterdir()]) == 2


@pytest.mark.long
def test_damaged_files_are_compiled_again(tmp_path: Path, package: Path) -> None:
    hashed, _ = end(begin(package, tmp_path))
    for damaged in (*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")):
        damaged.write_bytes(damaged.read_bytes()[:100])
    assert end(begin(package, tmp_path)) == (hashed, COMPILED)
    assert end(begin(package, tmp_path)) == (hashed, LOADED)


@pytest.mark.long
def test_of_two_processes_one_compiles(tmp_path: Path, package: Path) -> None:
    lock, home = siphash._hash_all._cache._lock, cache.FOLDER
    assert lock is not None and home is not None
    held = tmp_path / "stream-lsh" / f"numba-{cache.VERSION}" / lock.relative_to(home)
    held.parent.mkdir(parents=True, mode=0o700)
    held.parents[1].chmod(0o700)
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        processes = [begin(package, tmp_path) for _ in range(2)]
        for process in processes:  # both have found that it is not compiled
            assert process.stderr is not None and process.stderr.readline().strip() == notice.TEXT
    found = [end(process) for process in processes]
    assert sorted(counts for _, counts in found) == [LOADED, COMPILED]
    assert found[0][0] == found[1][0]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """The user's folder, the temporary one, and that of the environment, none of them there yet."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cache.sys, "prefix", str(tmp_path / "environment"))
    own = tmp_path / "home" / "stream-lsh" / "numba-v"
    return own, tmp_path / f"stream-lsh-{os.getuid()}-v", tmp_path / "environment" / "share" / "stream-lsh" / "numba-v"


def test_the_folder_is_below_the_cache_of_the_user(places: tuple[Path, Path, Path]) -> None:
    own, temporary, _ = places
    assert cache.folders("v") == (own, [own])
    assert not temporary.exists()


def test_the_environment_variable_of_numba_names_another_folder(
    places: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache.folders("v")[0] == tmp_path / "chosen" / "numba-v"


def test_a_folder_that_cannot_be_written_is_read(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, temporary, _ = places
    monkeypatch.setattr(cache.os, "access", lambda path, mode: path != own)
    assert cache.folders("v") == (temporary, [own, temporary])


def test_kernels_of_the_environment_are_read(places: tuple[Path, Path, Path]) -> None:
    own, _, shipped = places
    shipped.mkdir(parents=True)
    shipped.chmod(0o755)
    assert cache.folders("v") == (own, [shipped, own])


def test_a_folder_in_which_others_may_write_is_refused(places: tuple[Path, Path, Path]) -> None:
    own, temporary, shipped = places
    for folder in (own, temporary, shipped):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    assert cache.folders("v") == (None, [])


def test_a_folder_of_another_user_is_refused(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    own, temporary, shipped = places
    user = os.getuid()
    for folder in (own, temporary, shipped):
        folder.mkdir(parents=True, mode=0o700)
        if user == 0:
            os.chown(folder, 12345, 12345)
    if user != 0:
        (temporary.parent / f"stream-lsh-{user + 1}-v").mkdir(mode=0o700)
        monkeypatch.setattr(cache.os, "getuid", lambda: user + 1)
    assert cache.folders("v") == (None, [])


def test_a_link_is_refused(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    own, temporary, _ = places
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    for link in (own, temporary):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tmp_path / "elsewhere")
    assert cache.folders("v") == (None, [])


def test_kernel_is_in_the_cache_only_with_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba writes the index before the code; a process that looks in between has to wait, not to compile again."""
    file, kernel = IndexDataCacheFile(str(tmp_path), "kernel", "stamp"), siphash._hash_all
    monkeypatch.setattr(kernel._cache, "_files", [file])
    file._save_index({kernel._cache._index_key((), kernel.targetctx.codegen()): "kernel.1.nbc"})
    assert not kernel.ready()
    (tmp_path / "kernel.1.nbc").write_bytes(b"code")
    assert kernel.ready()

"""Reads of the kernels: what a signal interrupts or what gives less is gone on with; what is not there is an error."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import WORDS, nasty
from support.indexes import fed, once, opened
from support.missing import missing

from stream_lsh.hashing.kernels import read_at
from stream_lsh.settings.model import Settings

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
# Reads of an index's own files fail or fall short; how often they did is written to $COUNTS at the end.
INTERRUPTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long calls, interrupted, shortened;

static ssize_t reading(const char *name, int fd, void *to, size_t size, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (!strstr(path, "/segments/")) return real(fd, to, size, at);
    if (calls++ % 3 == 0) { interrupted++; errno = EINTR; return -1; }
    if (size > 16) { shortened++; size = 1 + size / 3; }
    return real(fd, to, size, at);
}

ssize_t pread(int fd, void *to, size_t size, off_t at) { return reading("pread", fd, to, size, at); }
ssize_t pread64(int fd, void *to, size_t size, off_t at) { return reading("pread64", fd, to, size, at); }

__attribute__((destructor)) static void done(void) {
    FILE *file = fopen(getenv("COUNTS"), "w");
    if (file) { fprintf(file, "%ld %ld", interrupted, shortened); fclose(file); }
}
"""


@pytest.mark.long
def test_reads_that_are_interrupted_or_fall_short(tmp_path: Path) -> None:
    """Nothing of it is seen in the answers."""
    if CC is None or not sys.platform.startswith("linux"):
        missing("needs a C compiler, and Linux")
    source, library, counts = tmp_path / "interrupting.c", tmp_path / "interrupting.so", tmp_path / "counts"
    source.write_text(INTERRUPTING)
    subprocess.run([str(CC), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    more: dict[str, Any] = {"memtable_documents": 16, "segment_documents": 300, "max_bucket_rows": 16}
    settings, feed = Settings(**more), nasty(5, 600, words=WORDS[:60])
    whole = once(feed, settings, tmp_path / "whole")
    with opened(settings, tmp_path / "index") as index:  # the process opens it again: rows and heads are in files
        fed(index, feed[:300], 0, 64)
        index.commit({"feed": {"next": 300}})
    command = [tmp_path / "index", json.dumps(more), "5", "600", "60", tmp_path / "out"]
    environment = {**os.environ, "LD_PRELOAD": str(library), "COUNTS": str(counts)}
    subprocess.run([sys.executable, "-m", "support.feeder", *command], env=environment, check=True)
    interrupted, shortened = map(int, counts.read_text().split())
    assert interrupted > 100 and shortened > 100
    assert [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()] == whole[300:]


def test_what_is_read_is_what_is_there(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(100_000)
    (tmp_path / "file").write_bytes(data)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        out = np.zeros(100_001, np.uint8)
        for size, position in ((0, 5), (1, 99_999), (99_999, 1), (100_000, 0)):
            read_at(fd, out.ctypes.data, size, position)
            assert out[:size].tobytes() == data[position : position + size]
        for size, position in ((1, 100_000), (2, 99_999), (100_001, 0), (1, 2**40)):
            with pytest.raises(OSError, match="cannot be read as far as it was written"):
                read_at(fd, out.ctypes.data, size, position)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="cannot be read"):  # the descriptor is closed: it fails again and again
        read_at(fd, out.ctypes.data, 1, 0)

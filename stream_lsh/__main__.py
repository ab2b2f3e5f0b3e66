"""`python -m stream_lsh`, where the script `stream-lsh` is not installed."""

from __future__ import annotations

from stream_lsh.cli import main

if __name__ == "__main__":
    main(prog_name="stream-lsh")

"""stream-lsh with caches that are full after a few thousand documents: only what grows with the index is left.

python -m bench.serve_soak --documents 600000 --program "python -m bench.small_caches serve --quiet --index"
"""

from stream_lsh.cli import main
from stream_lsh.index import shard


def shrink() -> None:
    """Give this process small caches, for indexes that it opens from now on."""
    shard.CACHED_SHINGLES, shard.CACHED_HEADS = 1 << 17, 4 << 20


if __name__ == "__main__":
    shrink()
    main()

"""The column families of a store: their names and options.

Most values are blobs of many rows, written once. The values of a segment are deleted together. Ids and texts can be
erased one by one: they have column families of their own, with values beside the keys.
"""

from __future__ import annotations

from rocksdict import BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DBCompressionType, Options

FACTS = "default"
ROWS, ANSWERS, GROUPS, QUEUE = "rows", "answers", "groups", "queue"
SEGMENT = "segment-"  # followed by its number; for ids, texts and the journal by what it has, and the shard
REWRITE_BLOBS = {"enable_blob_garbage_collection": "true", "blob_garbage_collection_age_cutoff": "1.0"}
_BUFFER = 8 << 20  # bytes of a column family's write buffer
_ROWS_BUFFER = 32 << 20  # for the rows of a memtable: most are deleted before they would be flushed
_LOG_BYTES = 128 << 20
_BLOB_BYTES = 1024  # larger values are in blob files, which a compaction of keys does not copy
_OPEN_FILES = 512
_CACHE_BYTES = 32 << 20  # until `limit_cache`
_BLOCKS = Cache(_CACHE_BYTES)  # of all stores of the process: with a cache each, memory would grow with the segments


def limit_cache(size: int) -> None:
    """Limit the block cache, which all stores of the process share, to so many bytes."""
    _BLOCKS.set_capacity(size)


def alone(name: str) -> bool:
    """Whether a column family has only the ids or texts of a segment, or its journal."""
    return name.startswith(SEGMENT) and name.count("-") > 1


def options(name: str) -> Options:
    """Options of a column family."""
    options = Options(raw_mode=True)
    # Texts are compressed already, signatures do not compress.
    options.set_compression_type(DBCompressionType.zstd() if name == QUEUE else DBCompressionType.none())
    options.set_write_buffer_size(_ROWS_BUFFER if name == ROWS else _BUFFER)
    options.set_max_write_buffer_number(2)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(_BLOCKS)
    options.set_block_based_table_factory(blocks)
    if alone(name) or name in (GROUPS, QUEUE):
        options.set_target_file_size_base(_BUFFER)
    elif name not in (FACTS, ROWS):
        options.set_enable_blob_files(True)
        options.set_min_blob_size(_BLOB_BYTES)
    if name == GROUPS:  # a rewritten value passes through all levels, with the whole first one
        options.set_max_bytes_for_level_base(4 * _BUFFER)
    if name == ANSWERS:
        # Deleted values leave the disk: a blob file is rewritten when more than half of it is deleted. Not for
        # segments, which are deleted as a whole: each compaction of keys would rewrite the texts, and delete files that
        # a reader has open.
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(1.0)
        options.set_blob_gc_force_threshold(0.5)
    return options


def database(*, read_only: bool) -> Options:
    """Options of the database."""
    found = options(FACTS)
    found.create_if_missing(not read_only)
    found.set_keep_log_file_num(2)
    found.set_max_total_wal_size(_LOG_BYTES)
    # A reader opens all files at once: the writer may delete them meanwhile.
    found.set_max_open_files(-1 if read_only else _OPEN_FILES)
    found.set_skip_stats_update_on_db_open(True)
    return found


def anew() -> CompactOptions:
    """Options of a compaction that rewrites files without older values. By default RocksDB moves a file to the last
    level unchanged if it overlaps another one in only one key."""
    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options

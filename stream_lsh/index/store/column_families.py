"""The column families of a store: their names, and how RocksDB keeps what is in each.

Values are blobs of many rows, written once. What a segment has goes as a whole; ids and texts, of which some are
erased one by one, are in families of their own, and in the files of the keys.
"""

from __future__ import annotations

from rocksdict import BottommostLevelCompaction, CompactOptions, DBCompressionType, Options

FACTS = "default"
ROWS, ANSWERS, GROUPS = "rows", "answers", "groups"
SEGMENT = "segment-"  # and its number; what it has alone, and the shard, follow
BLOBS_ANEW = {"enable_blob_garbage_collection": "true", "blob_garbage_collection_age_cutoff": "1.0"}
_BUFFER = 8 << 20  # bytes of a column family in memory before they are written to a file
_ROWS_BUFFER = 32 << 20  # those of a memtable: most are deleted before they would be written
_LOG_BYTES = 128 << 20
_BLOB_BYTES = 1024  # values from this size on lie in files of their own, which merges of keys do not copy
_OPEN_FILES = 512


def alone(name: str) -> bool:
    """Whether a column family has only ids or texts of a segment."""
    return name.startswith(SEGMENT) and name.count("-") > 1


def options(name: str) -> Options:
    """How a column family is kept."""
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())  # texts are compressed, signatures do not compress
    options.set_write_buffer_size(_ROWS_BUFFER if name == ROWS else _BUFFER)
    options.set_max_write_buffer_number(2)
    if alone(name) or name == GROUPS:
        options.set_target_file_size_base(_BUFFER)
    elif name not in (FACTS, ROWS):
        options.set_enable_blob_files(True)
        options.set_min_blob_size(_BLOB_BYTES)
    if name == GROUPS:  # what is written anew goes through all levels, and takes the whole first one along
        options.set_max_bytes_for_level_base(4 * _BUFFER)
    if name == ANSWERS:
        # What is deleted leaves the disk: files more than half of which is gone are written again. Not those of a
        # segment, which goes as a whole: every merge of its keys would write its texts again, and take the files
        # away from who reads beside.
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(1.0)
        options.set_blob_gc_force_threshold(0.5)
    return options


def database(*, read_only: bool) -> Options:
    """How the database with them is opened."""
    found = options(FACTS)
    found.create_if_missing(not read_only)
    found.set_keep_log_file_num(2)
    found.set_max_total_wal_size(_LOG_BYTES)
    # A reader opens all files at once: whoever writes may delete them meanwhile.
    found.set_max_open_files(-1 if read_only else _OPEN_FILES)
    found.set_skip_stats_update_on_db_open(True)
    return found


def anew() -> CompactOptions:
    """How files are written anew, without what was there before: RocksDB moves files that share no key but one, of
    which both have a value, to the last level as they are."""
    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options

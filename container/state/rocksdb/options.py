"""RocksDB's own options, made from the settings.

Owner: the task thread. Every column family of a database gets the same. Features that cost speed and gain
nothing here are off: no write-ahead log (checkpoints are what a job restarts from), no statistics dumps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    WriteOptions,
)

from yarrow.container.state.rocksdb.memory import DatabaseMemory
from yarrow.runtime.config.options import rocksdb
from yarrow.runtime.config.options.rocksdb import CompactionStyle, PredefinedOptionsName
from yarrow.runtime.config.settings import Settings

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
#: Flushed files before they are merged into the next level. A checkpoint may add two of them. With Flink's 4,
#: every second checkpoint would upload a merged level besides its own changes.
_LEVEL_ZERO_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The configured options, as plain values."""

    write_buffer_size: int
    write_buffers: int
    block_size: int
    style: CompactionStyle
    target_file_size: int
    level_base: int
    dynamic_levels: bool
    background_threads: int
    #: 0 = no filter.
    bloom_bits: float
    readahead: int = 0


def database_settings(settings: Settings) -> DatabaseSettings:
    """The predefined set, overridden by single options."""
    chosen = settings.get(rocksdb.PREDEFINED_OPTIONS)
    base = DatabaseSettings(
        write_buffer_size=settings.get(rocksdb.WRITE_BUFFER_SIZE).bytes,
        write_buffers=settings.get(rocksdb.WRITE_BUFFER_COUNT),
        block_size=settings.get(rocksdb.BLOCK_SIZE).bytes,
        style=settings.get(rocksdb.COMPACTION_STYLE),
        target_file_size=settings.get(rocksdb.COMPACTION_TARGET_FILE_SIZE).bytes,
        level_base=settings.get(rocksdb.COMPACTION_LEVEL_BASE).bytes,
        dynamic_levels=settings.get(rocksdb.COMPACTION_DYNAMIC_SIZE),
        background_threads=settings.get(rocksdb.BACKGROUND_THREADS),
        bloom_bits=settings.get(rocksdb.BLOOM_BITS_PER_KEY) if settings.get(rocksdb.BLOOM_FILTER) else 0.0,
    )
    if chosen is PredefinedOptionsName.DEFAULT:
        return base
    threads = base.background_threads if settings.is_set(rocksdb.BACKGROUND_THREADS) else 4
    found = replace(base, background_threads=threads)
    if chosen is PredefinedOptionsName.FLASH_SSD_OPTIMIZED:
        return found
    # Disks that seek: read far ahead in compactions.
    found = replace(found, readahead=2 * _MIB)
    if chosen is PredefinedOptionsName.SPINNING_DISK_OPTIMIZED_HIGH_MEM:
        if not settings.is_set(rocksdb.COMPACTION_TARGET_FILE_SIZE):
            found = replace(found, target_file_size=256 * _MIB)
        if not settings.is_set(rocksdb.COMPACTION_LEVEL_BASE):
            found = replace(found, level_base=1024 * _MIB)
        if not settings.is_set(rocksdb.WRITE_BUFFER_COUNT):
            found = replace(found, write_buffers=4)
        if not settings.is_set(rocksdb.BLOCK_SIZE):
            found = replace(found, block_size=128 * _KIB)
    return found


def rocksdb_options(chosen: DatabaseSettings, memory: DatabaseMemory) -> Options:
    """The options of a database and of each of its column families."""
    tables = BlockBasedOptions()
    tables.set_block_cache(memory.cache)
    tables.set_block_size(chosen.block_size)
    # Index and filters are in the cache too: otherwise they would grow with the state without a limit.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_format_version(5)
    if chosen.bloom_bits:
        tables.set_bloom_filter(int(chosen.bloom_bits), False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(tables)
    if memory.write_buffers is not None:
        options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(chosen.write_buffer_size)
    options.set_max_write_buffer_number(chosen.write_buffers)
    style = {
        CompactionStyle.LEVEL: DBCompactionStyle.level,
        CompactionStyle.UNIVERSAL: DBCompactionStyle.universal,
    }
    options.set_compaction_style(style[chosen.style]())
    options.set_level_zero_file_num_compaction_trigger(_LEVEL_ZERO_FILES)
    options.set_target_file_size_base(chosen.target_file_size)
    options.set_max_bytes_for_level_base(chosen.level_base)
    options.set_level_compaction_dynamic_level_bytes(chosen.dynamic_levels)
    options.set_max_background_jobs(max(2, chosen.background_threads))
    if chosen.readahead:
        options.set_compaction_readahead_size(chosen.readahead)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_use_fsync(False)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(4 * _MIB)
    return options


def write_options() -> WriteOptions:
    """Without a write-ahead log.

    A write that RocksDB would delay fails at once, because it would hold the GIL too.
    """
    # The binding's stubs have a method in place of an attribute.
    options: Any = WriteOptions()
    options.disable_wal = True
    options.no_slowdown = True
    made: WriteOptions = options
    return made

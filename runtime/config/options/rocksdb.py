"""Options of the RocksDB state backend.

Owner: any thread; declarations only. Nothing here reads a value; keys and defaults are Flink's, and the text says so
where they are not. Options of Flink's that RocksDB's Python binding has no call for are not declared.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import (
    BOOLEAN,
    DIRECTORIES,
    POSITIVE,
    enum_of,
    floating,
    integer,
    memory_size,
)
from yarrow.runtime.config.values.option import option, optional


class CompactionStyle(enum.Enum):
    """The way in which RocksDB merges its files."""

    LEVEL = "LEVEL"
    UNIVERSAL = "UNIVERSAL"


class PredefinedOptionsName(enum.Enum):
    """Sets of options for kinds of disk; the names of `PredefinedOptions`."""

    DEFAULT = "DEFAULT"
    SPINNING_DISK_OPTIMIZED = "SPINNING_DISK_OPTIMIZED"
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = "SPINNING_DISK_OPTIMIZED_HIGH_MEM"
    FLASH_SSD_OPTIMIZED = "FLASH_SSD_OPTIMIZED"


LOCAL_DIR: Final = optional(
    "state.backend.rocksdb.localdir",
    DIRECTORIES,
    "Directories of RocksDB's files; the databases of a worker are dealt out among them.",
    unset="below `io.tmp.dirs`",
)
MEMORY_MANAGED: Final = option(
    "state.backend.rocksdb.memory.managed",
    BOOLEAN,
    "true",
    "Whether the databases of a slot share one cache and one bound on their write buffers, within the slot's budget.",
)
MEMORY_PER_SLOT: Final = optional(
    "state.backend.rocksdb.memory.fixed-per-slot",
    memory_size("256 mb"),
    "Memory of RocksDB in each slot.",
    unset="two fifths of the slot's budget, if the memory is managed",
)
WRITE_BUFFER_RATIO: Final = option(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    floating(0.05, 0.95),
    "0.5",
    "The part of RocksDB's memory in a slot that write buffers may take; the rest caches blocks read.",
)
PREDEFINED_OPTIONS: Final = option(
    "state.backend.rocksdb.predefined-options",
    enum_of(PredefinedOptionsName),
    "DEFAULT",
    "A set of options for a kind of disk. Single options go before the set.",
)
TRANSFER_THREADS: Final = option(
    "state.backend.rocksdb.checkpoint.transfer.thread.num",
    POSITIVE,
    "4",
    "Files of a database that are read at once at a restore; a checkpoint writes its files one by one.",
)
BACKGROUND_THREADS: Final = option(
    "state.backend.rocksdb.thread.num",
    POSITIVE,
    "2",
    "Flushes and compactions of one database that may run at once.",
)
BLOCK_CACHE_SIZE: Final = option(
    "state.backend.rocksdb.block.cache-size",
    memory_size("8 mb"),
    "8 mb",
    "Cache of each database where the memory is not managed.",
)
BLOCK_SIZE: Final = option(
    "state.backend.rocksdb.block.blocksize",
    memory_size("4 kb"),
    "4 kb",
    "Data that is read, compressed and cached as one piece.",
)
WRITE_BUFFER_SIZE: Final = option(
    "state.backend.rocksdb.writebuffer.size",
    memory_size("64 mb"),
    "64 mb",
    "A state's write buffer is written to a file at this size, or earlier where the slot's bound is reached.",
)
WRITE_BUFFER_COUNT: Final = option(
    "state.backend.rocksdb.writebuffer.count",
    integer(2, example="2"),
    "2",
    "Write buffers of a state; further writes wait until one is on disk.",
)
COMPACTION_STYLE: Final = option(
    "state.backend.rocksdb.compaction.style",
    enum_of(CompactionStyle),
    "LEVEL",
    "How files are merged.",
)
COMPACTION_TARGET_FILE_SIZE: Final = option(
    "state.backend.rocksdb.compaction.level.target-file-size-base",
    memory_size("64 mb"),
    "64 mb",
    "Size of a file that a compaction writes.",
)
COMPACTION_LEVEL_BASE: Final = option(
    "state.backend.rocksdb.compaction.level.max-size-level-base",
    memory_size("256 mb"),
    "256 mb",
    "Size of the first level above the files that were flushed.",
)
COMPACTION_DYNAMIC_SIZE: Final = option(
    "state.backend.rocksdb.compaction.level.use-dynamic-size",
    BOOLEAN,
    "true",
    "Whether the sizes of the levels follow from the last; Flink's default is false.",
)
BLOOM_FILTER: Final = option(
    "state.backend.rocksdb.use-bloom-filter",
    BOOLEAN,
    "true",
    "Whether files carry a filter that tells which keys they do not hold; Flink's default is false.",
)
BLOOM_BITS_PER_KEY: Final = option(
    "state.backend.rocksdb.bloom-filter.bits-per-key",
    floating(1, 64, "10"),
    "10",
    "Bits of that filter for each key.",
)

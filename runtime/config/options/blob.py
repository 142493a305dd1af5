"""Options of the blob store, which carries job code and what is too large for a message.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import (
    COUNT,
    PORT_RANGE,
    POSITIVE,
    STRING,
    duration,
    memory_size,
)
from yarrow.runtime.config.values.option import option, optional

SERVER_PORT: Final = option(
    "blob.server.port",
    PORT_RANGE,
    "0",
    "The port, or the range to choose from, of the blob store.",
    no_effect="blobs travel over the RPC port of the JobManager (`jobmanager.rpc.port`)",
)
STORAGE_DIRECTORY: Final = optional(
    "blob.storage.directory",
    STRING,
    "Where blobs are kept on the local disk.",
    unset="a directory below `io.tmp.dirs`",
    no_effect="blobs are kept below `io.tmp.dirs`, or in `high-availability.storageDir`",
)
OFFLOAD_MIN_SIZE: Final = option(
    "blob.offload.minsize",
    memory_size("1 mb"),
    "1048576",
    "Size from which parts of a message go through the blob store.",
    no_effect="job code always goes through the blob store, and messages never do",
)
FETCH_RETRIES: Final = option(
    "blob.fetch.retries",
    COUNT,
    "5",
    "How often a failed download is repeated.",
    no_effect="a download that fails fails its deployment, which the restart strategy makes anew",
)
FETCH_CONCURRENT: Final = option(
    "blob.fetch.num-concurrent",
    POSITIVE,
    "50",
    "Downloads that the blob store serves at the same time.",
    no_effect="the RPC server of the JobManager bounds what it does at a time",
)
CLEANUP_INTERVAL: Final = option(
    "blob.service.cleanup.interval",
    duration("s", "1 h"),
    "3600",
    "Time after which a process drops blobs of jobs that ended; a bare number counts in seconds.",
    deprecated_keys=("library-cache-manager.cleanup.interval",),
    no_effect="blobs of a job are removed when it ends",
)

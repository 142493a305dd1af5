"""Options of high availability: leader election and what survives the master process.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import COUNT, DURATION, FILE_SYSTEM_PATH, PORT_RANGE, STRING
from yarrow.runtime.config.values.option import option, optional

TYPE: Final = option(
    "high-availability.type",
    STRING,
    "NONE",
    "How a leader is chosen: `NONE` or `zookeeper`.",
    deprecated_keys=("high-availability", "recovery.mode"),
)
CLUSTER_ID: Final = option(
    "high-availability.cluster-id",
    STRING,
    "/default",
    "The name that tells clusters of one ZooKeeper apart.",
    deprecated_keys=("high-availability.zookeeper.path.namespace", "recovery.zookeeper.path.namespace"),
)
STORAGE_DIR: Final = optional(
    "high-availability.storageDir",
    FILE_SYSTEM_PATH,
    "Where job graphs and pointers to checkpoints are kept.",
    unset="required with `zookeeper`",
    deprecated_keys=("high-availability.zookeeper.storageDir", "recovery.zookeeper.storageDir"),
)
JOB_MANAGER_PORT: Final = option(
    "high-availability.jobmanager.port",
    PORT_RANGE,
    "0",
    "RPC ports of the masters when there is more than one.",
    deprecated_keys=("recovery.jobmanager.port",),
)
ZOOKEEPER_QUORUM: Final = optional(
    "high-availability.zookeeper.quorum",
    STRING,
    "The ZooKeeper servers, as `host:port` separated by commas.",
    unset="required with `zookeeper`",
    deprecated_keys=("recovery.zookeeper.quorum",),
)
ZOOKEEPER_PATH_ROOT: Final = option(
    "high-availability.zookeeper.path.root",
    STRING,
    "/flink",
    "The node below which everything is kept.",
    deprecated_keys=("recovery.zookeeper.path.root",),
)
ZOOKEEPER_SESSION_TIMEOUT: Final = option(
    "high-availability.zookeeper.client.session-timeout",
    DURATION,
    "1 min",
    "Timeout of the ZooKeeper session.",
    deprecated_keys=("recovery.zookeeper.client.session-timeout",),
)
ZOOKEEPER_CONNECTION_TIMEOUT: Final = option(
    "high-availability.zookeeper.client.connection-timeout",
    DURATION,
    "15 s",
    "How long connecting may take.",
    deprecated_keys=("recovery.zookeeper.client.connection-timeout",),
)
ZOOKEEPER_RETRY_WAIT: Final = option(
    "high-availability.zookeeper.client.retry-wait",
    DURATION,
    "5 s",
    "Pause between two attempts.",
    deprecated_keys=("recovery.zookeeper.client.retry-wait",),
)
ZOOKEEPER_MAX_RETRY_ATTEMPTS: Final = option(
    "high-availability.zookeeper.client.max-retry-attempts",
    COUNT,
    "3",
    "Attempts before the client gives up.",
    deprecated_keys=("recovery.zookeeper.client.max-retry-attempts",),
)
ZOOKEEPER_ACL: Final = option(
    "high-availability.zookeeper.client.acl",
    STRING,
    "open",
    "Access to the nodes: `open` or `creator`.",
)

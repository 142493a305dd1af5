"""Settings of high availability, read from a configuration in one place.

Owner: any thread; pure. Each error names the key, says what was found and what to do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.config.options import high_availability as options
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError

#: Schemes of file systems that `runtime.fs` reads and writes.
_SCHEMES = ("file", "hdfs", "webhdfs")
#: Below the storage directory: checkpoints of jobs without execution.checkpointing.dir, a folder for each job.
CHECKPOINTS_FOLDER: Final = "checkpoints"


class ZooKeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The way to ZooKeeper. Times are in seconds."""

    quorum: str
    #: Node above all nodes of the cluster id, absolute.
    root: str
    session_timeout: float = 60.0
    connection_timeout: float = 15.0
    retry_wait: float = 5.0
    #: Repetitions of a call that failed for want of a connection.
    max_retries: int = 3
    #: True = only processes with the cluster's secret may write its nodes, or read more than the leaders.
    creator_only: bool = False


def is_highly_available(config: Settings) -> bool:
    """Whether high-availability.type is zookeeper; ConfigError for an unknown type."""
    kind = config.get(options.TYPE).strip()
    if kind.upper() == "NONE":
        return False
    if kind.lower() == "zookeeper":
        return True
    raise ConfigError(
        f"high-availability.type: {kind} is not known: expected NONE or zookeeper.", (options.TYPE.key,)
    )


def zookeeper_settings(config: Settings) -> ZooKeeperSettings:
    """The way to the ZooKeeper of a configuration; ConfigError names the missing or wrong key."""
    quorum = (config.get(options.ZOOKEEPER_QUORUM) or "").strip()
    if not quorum:
        raise _missing(
            options.ZOOKEEPER_QUORUM.key, "name the servers, for example `zk1:2181,zk2:2181,zk3:2181`"
        )
    for server in quorum.split(","):
        host, colon, port = server.strip().rpartition(":")
        if colon and (not host or not port.isdigit() or not 0 < int(port) < 65536):
            raise ConfigError(
                f"{options.ZOOKEEPER_QUORUM.key}: {server.strip()!r} is no server: expected host:port, several"
                " separated by commas.",
                (options.ZOOKEEPER_QUORUM.key,),
            )
    acl = config.get(options.ZOOKEEPER_ACL).strip().lower()
    if acl not in ("open", "creator"):
        raise ConfigError(
            f"{options.ZOOKEEPER_ACL.key}: {acl} is not known: expected open or creator.",
            (options.ZOOKEEPER_ACL.key,),
        )
    session = config.get(options.ZOOKEEPER_SESSION_TIMEOUT).seconds
    if session <= 0:
        raise ConfigError(
            f"{options.ZOOKEEPER_SESSION_TIMEOUT.key} must be above 0: leadership lasts as long as the session.",
            (options.ZOOKEEPER_SESSION_TIMEOUT.key,),
        )
    return ZooKeeperSettings(
        quorum=quorum,
        root=join(f"/{config.get(options.ZOOKEEPER_PATH_ROOT).strip('/')}", cluster_id(config)),
        session_timeout=session,
        connection_timeout=config.get(options.ZOOKEEPER_CONNECTION_TIMEOUT).seconds,
        retry_wait=config.get(options.ZOOKEEPER_RETRY_WAIT).seconds,
        max_retries=config.get(options.ZOOKEEPER_MAX_RETRY_ATTEMPTS),
        creator_only=acl == "creator",
    )


def cluster_id(config: Settings) -> str:
    """high-availability.cluster-id as part of a path."""
    name = config.get(options.CLUSTER_ID).strip("/")
    if not name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ConfigError(
            f"{options.CLUSTER_ID.key}: {config.get(options.CLUSTER_ID)!r} is no name of a cluster: expected parts"
            " joined by /, none of them empty, `.` or `..`.",
            (options.CLUSTER_ID.key,),
        )
    return name


def storage_directory(config: Settings) -> str:
    """The folder of the cluster id below high-availability.storageDir; ConfigError when that is not set."""
    directory = (config.get(options.STORAGE_DIR) or "").strip()
    if not directory:
        raise _missing(
            options.STORAGE_DIR.key, "name a folder that all masters reach, for example `hdfs:///yarrow/ha`"
        )
    if scheme_of(directory) not in _SCHEMES:
        raise FileSystemError(
            f"{options.STORAGE_DIR.key}: {directory} has no file system here: expected hdfs://... or a shared folder."
        )
    return join(directory, cluster_id(config))


def _missing(key: str, remedy: str) -> ConfigError:
    return ConfigError(f"{options.TYPE.key}: zookeeper needs {key}, which is not set: {remedy}.", (key,))

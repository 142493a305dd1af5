"""The REST token of a standalone cluster that listens on more than loopback: where commands of this host find it.

Owner: the main thread; blocking. It is read from the private directory of the cluster, and given to that
cluster's own addresses only. An address that a user names with -m must not learn it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from yarrow.runtime.config.options import jobmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.security.result_proof import result_key
from yarrow.standalone.cluster_directory import ClusterDirectory


def cluster_token(config: Settings) -> str:
    """The token of the configured cluster; empty if its directory is not here."""
    directory = ClusterDirectory.find(config)
    secrets = None if directory is None else directory.find_secrets()
    return "" if secrets is None else secrets.rest_token


def cluster_result_key(config: Settings) -> bytes:
    """The key of that cluster's sealed rows; b"" if its directory is not here. It is never sent."""
    directory = ClusterDirectory.find(config)
    secrets = None if directory is None else directory.find_secrets()
    return b"" if secrets is None else result_key(secrets.data_secret)


def token_for(config: Settings, host: str, port: int) -> str:
    """The token if host and port are the cluster's; else empty."""
    directory = ClusterDirectory.find(config)
    secrets = None if directory is None else directory.find_secrets()
    if directory is None or secrets is None:
        return ""
    leader = directory.leaders.present()
    if leader is None:
        return secrets.rest_token if host == config.get(jobmanager.RPC_ADDRESS) else ""
    own = urlsplit(leader.web_address)
    hosts = {own.hostname, config.get(jobmanager.RPC_ADDRESS)}
    return secrets.rest_token if host in hosts and port == own.port else ""

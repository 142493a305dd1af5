"""REST clients of a cluster's master, at the configured address or at that of the elected leader.

Owner: any thread; blocking with elected masters, because ZooKeeper is asked.
"""

from __future__ import annotations

from yarrow.client.errors import CommandError
from yarrow.client.rest.cluster_token import cluster_result_key, cluster_token, token_for
from yarrow.client.rest.leader_lookup import leading_rest_url
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.config.options import jobmanager, rest
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.settings import is_highly_available


def masters_rest_client(config: Settings) -> RestClient:
    """A REST client for rest.address, or for the present and later leaders of elected masters."""
    host, port = rest_address(config)
    key = cluster_result_key(config)
    if follows_leader(config):
        # Every address in ZooKeeper belongs to the cluster.
        token = cluster_token(config)
        return RestClient.of(
            config, host, port, token=token, locate=lambda: leading_rest_url(config), result_key=key
        )
    return RestClient.of(config, host, port, token=token_for(config, host, port), result_key=key)


def split_address(address: str) -> tuple[str, str]:
    """Host and port of `host:port`. Raises CommandError for anything else."""
    host, colon, port = address.removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandError(f"-m {address!r} is no address: expected host:port, for example localhost:8081.")
    return host.strip("[]"), port


def follows_leader(config: Settings) -> bool:
    """Whether masters are elected; -m names one REST server, which then finds the leader itself."""
    return is_highly_available(config)


def rest_address(config: Settings) -> tuple[str, int]:
    """Host and port of the cluster's REST server."""
    if follows_leader(config):
        host, port = split_address(leading_rest_url(config).partition("://")[2])
        return host, int(port)
    return config.get(rest.ADDRESS) or config.get(jobmanager.RPC_ADDRESS), config.get(rest.REST_PORT)

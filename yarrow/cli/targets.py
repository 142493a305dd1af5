"""Where a command goes: the configuration that flags make, and the target they mean.

Owner: the main thread; reads the configuration file once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import yarrow
from yarrow.cli.errors import CommandError
from yarrow.runtime.config.files import load_settings
from yarrow.runtime.config.options import execution, rest
from yarrow.runtime.config.settings import Settings

LOCAL, REMOTE = "local", "remote"


def default_conf_directory() -> Path | None:
    """`conf` beside the package, as in a checkout; an installation has none but by YARROW_CONF_DIR."""
    folder = Path(yarrow.__file__).resolve().parent.parent / "conf"
    return folder if folder.is_dir() else None


def load_configuration(dynamic: Iterable[str]) -> Settings:
    """The file of YARROW_CONF_DIR, FLINK_CONF_DIR or `conf`, below the -D arguments; checked."""
    settings = load_settings(os.environ, default_conf_directory(), dynamic)
    settings.validate()
    return settings


def with_target(config: Settings, target: str | None, address: str | None) -> Settings:
    """The configuration with -t and -m in it; `-m host:port` means a remote cluster."""
    if address is not None:
        host, port = split_address(address)
        config = config.overlay(
            {rest.ADDRESS.key: host, rest.REST_PORT.key: port, execution.TARGET.key: REMOTE}, "-m"
        )
    if target is not None:
        config = config.overlay({execution.TARGET.key: target}, "-t")
    return config


def with_running_cluster(config: Settings) -> Settings:
    """Where nothing names a target: the cluster that start-cluster has started with this configuration."""
    if config.is_set(execution.TARGET):
        return config
    from yarrow.cli.cluster_directory import ClusterDirectory, start_ticks

    directory = ClusterDirectory.find(config)
    leader = None if directory is None else directory.leader()
    if leader is None or start_ticks(leader.pid) is None:
        return config
    print(f"Running on the cluster at {leader.web_address}; -t local runs it here instead.", file=sys.stderr)
    return with_target(config, None, leader.web_address.partition("://")[2])


def split_address(address: str) -> tuple[str, str]:
    """Host and port of `host:port`; CommandError for anything else."""
    host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandError(f"-m {address!r} is no address: expected host:port, for example localhost:8081.")
    return host.strip("[]"), port


def rest_address(config: Settings) -> tuple[str, int]:
    """Host and port of the cluster's REST server."""
    from yarrow.runtime.config.options import jobmanager

    return config.get(rest.ADDRESS) or config.get(jobmanager.RPC_ADDRESS), config.get(rest.REST_PORT)

"""The configuration and the target that a command's flags mean.

Owner: the main thread; reads the configuration file once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import yarrow
from yarrow.cli.parameters.yarn_flags import YarnFlags, check_flags, target_of, with_flags
from yarrow.client.errors import CommandError
from yarrow.client.rest.masters import follows_leader, masters_rest_client, split_address
from yarrow.client.targets import REMOTE, YARN_CLUSTER, YARN_SESSION, YARN_TARGETS
from yarrow.runtime.config.files import load_settings
from yarrow.runtime.config.options import execution, high_availability, rest, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate

if TYPE_CHECKING:
    from yarrow.client.rest.rest_client import RestClient

NO_FLAGS = YarnFlags()
_FILE = "the properties file"
#: Marks the origin of a configuration file's settings.
_LINE = ", line "


def default_conf_directory() -> Path | None:
    """`conf` beside the package, as in a checkout; an installation has one only by YARROW_CONF_DIR."""
    folder = Path(yarrow.__file__).resolve().parent.parent / "conf"
    return folder if folder.is_dir() else None


def load_configuration(dynamic: Iterable[str]) -> Settings:
    """The checked file of YARROW_CONF_DIR, FLINK_CONF_DIR or `conf`, overridden by the -D arguments."""
    settings = load_settings(os.environ, default_conf_directory(), dynamic)
    validate(settings)
    return settings


def with_target(
    config: Settings, target: str | None, address: str | None, flags: YarnFlags = NO_FLAGS
) -> Settings:
    """The configuration with -t, -m and the flags of YARN; `-m host:port` means a remote cluster."""
    target = target_of(target, address, flags)
    if address is not None and address != YARN_CLUSTER:
        host, port = split_address(address)
        config = config.overlay(
            {
                rest.ADDRESS.key: host,
                rest.REST_PORT.key: port,
                execution.TARGET.key: REMOTE,
                high_availability.TYPE.key: "NONE",
            },
            "-m",
        )
    if target is not None:
        config = config.overlay({execution.TARGET.key: target}, "-t")
    config = with_flags(config, flags)
    if config.get(execution.TARGET) is None and config.is_set(yarn.APPLICATION_ID):
        config = config.overlay({execution.TARGET.key: YARN_SESSION}, yarn.APPLICATION_ID.key)
    check_flags(config.get(execution.TARGET), flags)
    return config


def with_default_target(config: Settings) -> Settings:
    """Without a named target: the session of the properties file, else the cluster of start-cluster."""
    config = with_session(config)
    return config if config.is_set(execution.TARGET) else with_running_cluster(config)


def with_session(config: Settings) -> Settings:
    """Without a named target: the session of the properties file, if there is one; prints a line with it."""
    if config.is_set(execution.TARGET):
        return config
    from yarrow.client.yarn.application_files import ApplicationFiles

    files = ApplicationFiles.of(config)
    session = files.read_properties()
    if session is None:
        return config
    secrets = files.read_secrets(session.application_id)
    name = "" if secrets is None else f" {secrets.name!r}"
    print(
        f"Found Yarn properties file {files.properties_path}: using its session{name}, {session.application_id}.",
        file=sys.stderr,
    )
    own = {execution.TARGET.key: YARN_SESSION, yarn.APPLICATION_ID.key: session.application_id}
    # The session's start settings override the configuration file, and this command's own override both.
    given = {key for key in config if _LINE not in config.origin_of(key)}
    of_session = {key: value for key, value in session.dynamic_properties.items() if key not in given}
    return config.overlay(of_session, str(files.properties_path)).overlay(own, _FILE)


def rest_client(config: Settings) -> RestClient:
    """REST of the cluster or application of the target."""
    target = config.get(execution.TARGET)
    if target in YARN_TARGETS:
        from yarrow.client.yarn.applications import application_of, rest_of

        if target != YARN_SESSION and not config.is_set(yarn.APPLICATION_ID):
            raise CommandError(f"{execution.TARGET.key} is {target}: name the application with -yid.")
        return rest_of(config, application_of(config))
    return masters_rest_client(config)


def with_running_cluster(config: Settings) -> Settings:
    """Without a named target: the cluster that start-cluster has started with this configuration."""
    if config.is_set(execution.TARGET):
        return config
    from yarrow.standalone.cluster_directory import ClusterDirectory, start_ticks

    directory = ClusterDirectory.find(config)
    leader = None if directory is None else directory.leaders.present()
    if leader is None or start_ticks(leader.pid) is None:
        return config
    if follows_leader(config):
        return with_target(config, REMOTE, None)
    print(f"Running on the cluster at {leader.web_address}; -t local runs it here instead.", file=sys.stderr)
    return with_target(config, None, leader.web_address.partition("://")[2])


def means_cluster(config: Settings) -> bool:
    """Whether a command without an application means the standalone cluster: no session, but a cluster is known."""
    from yarrow.client.rest.cluster_token import cluster_token
    from yarrow.client.yarn.application_files import ApplicationFiles

    if config.is_set(yarn.APPLICATION_ID) or ApplicationFiles.of(config).read_properties() is not None:
        return False
    return bool(cluster_token(config))

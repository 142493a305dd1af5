"""The HDFS settings of this process: the folder of Hadoop's files, and how long failures are borne.

Owner: the process's start, which calls `use_hdfs_settings` once, or a program that is built there; any thread reads.
A path's scheme alone selects its file system, wherever the path comes from. So these settings belong to the process
and not to a call. Connects nowhere; looks up names of hosts if one machine may have several.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.config.options import cluster
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_login import HadoopLogin

#: Default of `dfs.namenode.http-address` since Hadoop 3.
DEFAULT_HTTP_PORT = 9870
#: Default of `dfs.namenode.https-address`.
DEFAULT_HTTPS_PORT = 9871
#: The port of a name node's RPC server, for an address without one.
_RPC_PORT = 8020
_RPC_KEY = "dfs.namenode.rpc-address"
#: Seconds without a setting in a process that somebody waits for: a wrong address must be reported soon.
_CLIENT_RETRY_SECONDS = 10.0
_FILES = ("core-site.xml", "hdfs-site.xml")


class HdfsSettings(msgspec.Struct, frozen=True):
    """The HDFS settings of one process."""

    #: Folders that settings name, in the order to look.
    folders: tuple[str, ...] = ()
    #: Seconds for which a request is repeated that fails as it does while HDFS restarts; 0 = never.
    retry_seconds: float = _CLIENT_RETRY_SECONDS
    #: Where HDFS asks for Kerberos and no token was given.
    login: HadoopLogin = HadoopLogin()

    @classmethod
    def of(cls, config: Settings, *, is_client: bool = False) -> HdfsSettings:
        """A client gives up sooner, unless fs.webhdfs.retry-timeout is set."""
        named = (config.get(cluster.HADOOP_CONF_DIR), config.get(cluster.YARN_CONF_DIR))
        seconds = config.get(cluster.WEBHDFS_RETRY_TIMEOUT).seconds
        if is_client and not config.is_set(cluster.WEBHDFS_RETRY_TIMEOUT):
            seconds = min(seconds, _CLIENT_RETRY_SECONDS)
        return cls(tuple(folder for folder in named if folder), seconds, HadoopLogin.of(config))


_settings = HdfsSettings()
#: The settings are the choice of the process's start, and no offer.
_are_chosen = False


def use_hdfs_settings(settings: HdfsSettings) -> HdfsSettings:
    """Make these the settings of the process; returns the former ones."""
    global _settings, _are_chosen
    former, _settings, _are_chosen = _settings, settings, True
    return former


def offer_hdfs_settings(settings: HdfsSettings) -> None:
    """Make these the settings of a process whose start has chosen none.

    A program's sources and sinks look at their files before any cluster has started.
    """
    global _settings
    if not _are_chosen:
        _settings = settings


def hdfs_settings() -> HdfsSettings:
    """The settings of the process."""
    return _settings


def named_folders() -> tuple[str, ...]:
    """The folders that settings and variables name, in the order of the search."""
    variables = (os.environ.get("HADOOP_CONF_DIR"), os.environ.get("YARN_CONF_DIR"))
    return (*_settings.folders, *(folder for folder in variables if folder))


def configuration_folder() -> Path | None:
    """The folder of Hadoop's files; None where none of the names has the files.

    It is that of env.hadoop.conf.dir or env.yarn.conf.dir, else HADOOP_CONF_DIR or YARN_CONF_DIR.

    A setting comes from the machine where it was written. On another machine the folder may be missing, and
    the machine's own variable names the right one.
    """
    for folder in named_folders():
        if any((Path(folder) / name).is_file() for name in _FILES):
            return Path(folder)
    return None


def hadoop_configuration() -> dict[str, str]:
    """Properties of core-site.xml and hdfs-site.xml in that folder; empty where there is none."""
    folder = configuration_folder()
    properties: dict[str, str] = {}
    if folder is None:
        return properties
    # Without Hadoop every process of a cluster does without the parser.
    from xml.etree import ElementTree

    for name in _FILES:
        file = folder / name
        if not file.exists():
            continue
        try:
            root = ElementTree.parse(file).getroot()
        except (ElementTree.ParseError, OSError) as error:
            raise FileSystemError(f"{file} cannot be read: {error}") from None
        for entry in root.iter("property"):
            properties[entry.findtext("name", "").strip()] = entry.findtext("value", "").strip()
    return properties


def http_addresses(path: str, properties: Mapping[str, str]) -> list[str]:
    """The WebHDFS addresses of the name nodes that `path` means, in the order to try them.

    Raises FileSystemError for `hdfs:///path` when no default file system is configured, and for a port that is none.
    """
    address = urlsplit(path)
    if _rpc_port(address) is None:
        raise FileSystemError(
            f"{path} names no valid port: expected a number up to 65535, as in hdfs://host:port/..."
        )
    if address.scheme == "webhdfs" and address.netloc:
        return [f"http://{address.netloc}"]
    if not address.netloc:
        default = urlsplit(properties.get("fs.defaultFS", ""))
        if default.scheme != "hdfs" or not default.netloc:
            raise FileSystemError(
                f"{path} names no name node and fs.defaultFS is not set: write hdfs://host:port/... or set "
                f"HADOOP_CONF_DIR (or {cluster.HADOOP_CONF_DIR.key}) to the folder of core-site.xml"
            )
        address = default
    secure = properties.get("dfs.http.policy") == "HTTPS_ONLY"
    scheme, key = ("https", "dfs.namenode.https-address") if secure else ("http", "dfs.namenode.http-address")
    name_nodes = properties.get(f"dfs.ha.namenodes.{address.netloc}", "")
    if name_nodes:
        named = [properties.get(f"{key}.{address.netloc}.{node.strip()}") for node in name_nodes.split(",")]
        return [f"{scheme}://{node}" for node in named if node]
    host, _, port = _configured_address(address, key, properties).rpartition(":")
    if host in ("", "0.0.0.0"):
        host = address.hostname or "localhost"
    return [f"{scheme}://{host}:{port or (DEFAULT_HTTPS_PORT if secure else DEFAULT_HTTP_PORT)}"]


def _configured_address(address: SplitResult, key: str, properties: Mapping[str, str]) -> str:
    """The `host:port` that Hadoop's files give the web server of this name node; "" where they speak of another's.

    Theirs is that of fs.defaultFS: who names another HDFS must not be served by it.
    """
    for name, value in properties.items():
        if name.startswith(_RPC_KEY) and _is_same(address, urlsplit(f"hdfs://{value}")):
            named = properties.get(key + name.removeprefix(_RPC_KEY), "")
            if named:
                return named
    named = properties.get(f"{key}.{address.netloc}", properties.get(key, ""))
    host = named.rpartition(":")[0]
    default = urlsplit(properties.get("fs.defaultFS", ""))
    if host in ("", "0.0.0.0") or (default.scheme == "hdfs" and _is_same(address, default)):
        return named
    asked = address.hostname or ""
    is_its_own = _is_one_machine(host, asked) and not _is_one_machine(default.hostname or "", asked)
    return named if is_its_own or f"{key}.{address.netloc}" in properties else ""


def _is_same(address: SplitResult, other: SplitResult) -> bool:
    """Whether both name one RPC server; names are looked up only where nothing else tells."""
    if not other.hostname or _rpc_port(address) != _rpc_port(other):
        return False
    return _is_one_machine(address.hostname or "", other.hostname)


def _rpc_port(address: SplitResult) -> int | None:
    """None if the text is no port: Hadoop's files may hold `${variables}`."""
    try:
        return address.port or _RPC_PORT
    except ValueError:
        return None


def _is_one_machine(host: str, other: str) -> bool:
    return host == other or bool(_machines(host) & _machines(other))


def _machines(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()

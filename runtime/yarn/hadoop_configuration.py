"""Hadoop's own configuration as its clients have it: core-site.xml and yarn-site.xml, and the addresses in them.

Owner: any thread; read once, immutable, a few small files. It knows the keys that are asked here and their defaults,
not Hadoop's default files; `${name}` in a value is replaced as Hadoop does it. It connects nowhere but in
`check_answers`.
"""

from __future__ import annotations

import os
import re
import socket
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from yarrow.runtime.config.options import cluster
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import YarnError, YarnUnreachableError
from yarrow.runtime.yarn.hadoop_overlay import configured_properties

_FILES: Final = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_VARIABLE: Final = re.compile(r"\$\{([^{}$\s]+)\}")
#: As deep as Hadoop follows variables in variables.
_MOST_SUBSTITUTIONS: Final = 20
_RM_PORT: Final = 8032
_RM_WEB_PORT: Final = 8088
_RM_SECURE_WEB_PORT: Final = 8090
_NAME_NODE_PORT: Final = 8020


@dataclass(frozen=True, slots=True)
class HadoopConfiguration:
    """Properties of one configuration folder."""

    folder: Path
    #: Setting or variable that named the folder.
    origin: str
    properties: Mapping[str, str] = field(repr=False)

    @staticmethod
    def load(config: Settings, environment: Mapping[str, str] | None = None) -> HadoopConfiguration:
        """The configuration that env.yarn.conf.dir, YARN_CONF_DIR, env.hadoop.conf.dir or HADOOP_CONF_DIR names.

        Raises YarnError when none does, or when the folder has no yarn-site.xml or one that cannot be read.
        """
        folder, origin = _folder_of(config, os.environ if environment is None else environment)
        if not (folder / "yarn-site.xml").is_file():
            raise YarnError(
                f"{origin} is {folder}, but there is no yarn-site.xml: name the folder with the configuration"
                " of the Hadoop cluster (core-site.xml, hdfs-site.xml, yarn-site.xml)."
            )
        properties: dict[str, str] = {}
        for name in _FILES:
            if (folder / name).is_file():
                properties |= _read(folder / name)
        return HadoopConfiguration(folder, origin, properties | configured_properties(config))

    def get(self, key: str, default: str = "") -> str:
        """A property with its variables replaced."""
        value = self.properties.get(key, default)
        for _ in range(_MOST_SUBSTITUTIONS):
            found = _VARIABLE.search(value)
            if found is None:
                break
            name = found[1].removeprefix("env.")
            known = os.environ.get(name, "") if found[1].startswith("env.") else self.properties.get(name, "")
            value = value[: found.start()] + known + value[found.end() :]
        return value.strip()

    @property
    def is_secured(self) -> bool:
        """True when the cluster wants Kerberos."""
        return self.get("hadoop.security.authentication", "simple").lower() == "kerberos"

    def resource_manager_addresses(self) -> Sequence[str]:
        """`host:port` of each ResourceManager's RPC."""
        return self._resource_managers("yarn.resourcemanager.address", _RM_PORT)

    def resource_manager_web_addresses(self) -> Sequence[str]:
        """`http(s)://host:port` of each ResourceManager's web server."""
        if self.get("yarn.http.policy", "HTTP_ONLY") == "HTTPS_ONLY":
            found = self._resource_managers("yarn.resourcemanager.webapp.https.address", _RM_SECURE_WEB_PORT)
            return [f"https://{address}" for address in found]
        found = self._resource_managers("yarn.resourcemanager.webapp.address", _RM_WEB_PORT)
        return [f"http://{address}" for address in found]

    def name_node_addresses(self) -> Sequence[str]:
        """`host:port` of each NameNode of fs.defaultFS; empty when it is no HDFS."""
        default = urlsplit(self.get("fs.defaultFS", "file:///"))
        if default.scheme != "hdfs" or not default.netloc:
            return []
        name_nodes = self.get(f"dfs.ha.namenodes.{default.netloc}")
        if name_nodes:
            keys = [
                f"dfs.namenode.rpc-address.{default.netloc}.{node.strip()}" for node in name_nodes.split(",")
            ]
            return [address for address in map(self.get, keys) if address]
        return [_with_port(default.netloc, _NAME_NODE_PORT)]

    def _resource_managers(self, key: str, port: int) -> Sequence[str]:
        if self.get("yarn.resourcemanager.ha.enabled", "false").lower() != "true":
            return [self._resource_manager(key, "", port)]
        ids = [one.strip() for one in self.get("yarn.resourcemanager.ha.rm-ids").split(",") if one.strip()]
        return [self._resource_manager(key, f".{one}", port) for one in ids]

    def _resource_manager(self, key: str, suffix: str, port: int) -> str:
        address = self.get(f"{key}{suffix}")
        if address:
            return _with_port(address, port)
        return f"{self.get(f'yarn.resourcemanager.hostname{suffix}', '0.0.0.0')}:{port}"


def check_answers(
    addresses: Sequence[str], what: str, key: str, hadoop: HadoopConfiguration, timeout: float
) -> None:
    """Raises YarnUnreachableError when none of the addresses takes a connection within `timeout` seconds.

    Hadoop's own clients would try for a quarter of an hour before they say so.
    """
    tried = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout).close()
            return
        except (OSError, ValueError) as error:
            tried.append(f"{address} ({_reason(error, timeout)})")
    if tried:
        raise YarnUnreachableError(
            f"{what} does not answer; tried {', '.join(tried)}. The address is {key} in {hadoop.folder}"
            f" ({hadoop.origin}): check that it runs and that the address is right."
        )


def has_hadoop(config: Settings) -> bool:
    """Whether a Hadoop cluster is named and its configuration can be read."""
    try:
        HadoopConfiguration.load(config)
    except YarnError:
        return False
    return True


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _folder_of(config: Settings, environment: Mapping[str, str]) -> tuple[Path, str]:
    for option, variable in (
        (cluster.YARN_CONF_DIR, "YARN_CONF_DIR"),
        (cluster.HADOOP_CONF_DIR, "HADOOP_CONF_DIR"),
    ):
        configured = config.get(option)
        if configured:
            return Path(configured), option.key
        if environment.get(variable):
            return Path(environment[variable]), variable
    raise YarnError(
        "No Hadoop cluster is named: set HADOOP_CONF_DIR or YARN_CONF_DIR (or env.hadoop.conf.dir,"
        " env.yarn.conf.dir) to the folder with its core-site.xml and yarn-site.xml."
    )


def _read(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise YarnError(f"{path} cannot be read: {error}.") from None
    return {
        entry.findtext("name", "").strip(): entry.findtext("value", "").strip()
        for entry in root.iter("property")
    }


def _with_port(address: str, port: int) -> str:
    return address if re.search(r":\d+$", address) else f"{address}:{port}"

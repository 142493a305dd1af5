"""Properties that go before a Hadoop configuration, for one JVM of ours alone: a jar with `hadoop-site.xml`.

Owner: any thread; pure but for the file it writes. Hadoop reads that old name between core-site.xml and
yarn-site.xml wherever it is on the class path. No cluster has used it for long, so it hides nothing. Values
are marked final: later files then cannot change them, and an administrator's final values in core-site.xml
stay.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings

#: Anywhere on the class path; a container's own folder is on that of Skein's ApplicationMaster.
OVERLAY_JAR: Final = "yarrow-hadoop.jar"
_ENTRY: Final = "hadoop-site.xml"
#: For Skein's Java ApplicationMaster: its own messages, and of Hadoop's no complaint that our properties are final.
LOG_SETTINGS_FILE: Final = "yarrow-log4j.properties"
LOG_SETTINGS: Final = """\
log4j.rootLogger=INFO, console
log4j.logger.org.apache.hadoop.conf.Configuration=ERROR
log4j.logger.com.anaconda.skein.shaded.org.eclipse.jetty=WARN
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.Target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{2} - %m%n
"""
_NO_LIMIT: Final = str((1 << 31) - 1)
#: A fixed time: the same properties make the same file.
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
#: Hadoop's calls say soon that nobody answers: Hadoop's own patience is a quarter of an hour.
IMPATIENT_CALLS: Final[Mapping[str, str]] = {
    "ipc.client.connect.max.retries": "3",
    "ipc.client.connect.retry.interval": "500",
    "ipc.client.connect.max.retries.on.timeouts": "2",
    "ipc.client.connect.timeout": "5000",
}
#: So does a client.
_IMPATIENT: Final[Mapping[str, str]] = {
    **IMPATIENT_CALLS,
    "yarn.resourcemanager.connect.retry-interval.ms": "500",
    "yarn.resourcemanager.connect.max-wait.ms": "15000",
}


def client_properties(config: Settings) -> dict[str, str]:
    """For Skein's driver."""
    replication = config.get(yarn.FILE_REPLICATION)
    uploads = {"dfs.replication": str(replication)} if replication > 0 else {}
    return {**_IMPATIENT, **uploads, **configured_properties(config)}


def master_properties(config: Settings) -> dict[str, str]:
    """Hadoop properties for Skein's ApplicationMaster.

    The master exchanges requests and grants with the ResourceManager every half of this interval, but at most
    every five seconds. It uses the interval for nothing else. The ResourceManager's own interval, which
    decides when a master is lost, stays. The number of the last attempt is the lesser of two values. One is
    the application's attempts, which the client has bounded by the cluster's limit. The other is a property
    that only the ResourceManager's machine needs.
    """
    interval = max(1, config.get(yarn.CONTAINER_REQUEST_INTERVAL))
    return {
        "yarn.am.liveness-monitor.expiry-interval-ms": str(2 * interval),
        "yarn.resourcemanager.am.max-attempts": _NO_LIMIT,
        **configured_properties(config),
    }


def configured_properties(config: Settings) -> dict[str, str]:
    """The properties that `flink.hadoop.KEY` and `flink.yarn.KEY` set: KEY, and `yarn.KEY`."""
    yarn_properties = {f"yarn.{key}": value for key, value in config.below("flink.yarn.").items()}
    return {**config.below("flink.hadoop."), **yarn_properties}


def write_overlay(path: Path, properties: Mapping[str, str]) -> None:
    """Writes the jar."""
    root = ElementTree.Element("configuration")
    for key, value in sorted(properties.items()):
        entry = ElementTree.SubElement(root, "property")
        for name, text in (("name", key), ("value", value), ("final", "true")):
            ElementTree.SubElement(entry, name).text = text
    content = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr(zipfile.ZipInfo(_ENTRY, _WHEN), content)

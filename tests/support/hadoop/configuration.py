"""The configuration files of a cluster: Hadoop's XML, ZooKeeper's properties, logging.

Owner: the caller's thread, before daemons start. Timeouts are seconds where production has minutes, so that
tests of failures do not wait; what a container may use is checked as in production.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.hadoop import kerberos
from tests.support.hadoop.layout import CONTAINER_VARIABLES, LOOPBACK, NODE_ADDRESSES, Layout
from tests.support.services.ports import Ports

#: What each NodeManager offers.
NODE_MEMORY_MB = 6656
NODE_VCORES = 8
#: Queues below root with their share of the cluster in percent; `small` cannot grow beyond it.
QUEUES = {"default": 90, "small": 10}

_LOGGING = """\
# Daemons set hadoop.root.logger to INFO; commands warn only.
hadoop.root.logger=WARN,console
log4j.rootLogger=${hadoop.root.logger}
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


def write(
    layout: Layout, ports: Ports, jars: Path, secured: bool = False, node_heartbeat_ms: int = 500
) -> None:
    """Writes all files of the cluster; folders are made as needed."""
    core = kerberos.core_site() if secured else {}
    hdfs = kerberos.hdfs_site(layout) if secured else {}
    yarn = kerberos.yarn_site(layout) if secured else {}
    for name in ("", *NODE_ADDRESSES):
        folder = layout.conf_of(name)
        _write_xml(folder / "core-site.xml", {**core_site(layout, ports), **core})
        patience = node_manager_hdfs_site() if name else {}
        _write_xml(folder / "hdfs-site.xml", {**hdfs_site(layout, ports), **patience, **hdfs})
        node = node_manager_site(layout, ports, name) if name else {}
        _write_xml(
            folder / "yarn-site.xml", {**yarn_site(layout, ports, jars, node_heartbeat_ms), **node, **yarn}
        )
        (folder / "log4j.properties").write_text(_LOGGING, encoding="utf-8")
        # The jars of HDFS lack the web pages, and its servers do not start without the folders.
        for page in ("hdfs", "datanode", "secondary"):
            empty = folder / "webapps" / page / "WEB-INF" / "web.xml"
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.write_text("<web-app/>\n", encoding="utf-8")
    _write_xml(layout.conf / "capacity-scheduler.xml", capacity_scheduler())
    (layout.conf / "zoo.cfg").write_text(zookeeper_properties(layout, ports), encoding="utf-8")


def core_site(layout: Layout, ports: Ports) -> dict[str, str]:
    """Properties that HDFS and YARN share."""
    return {
        "fs.defaultFS": f"hdfs://{LOOPBACK}:{ports['namenode.rpc']}",
        "hadoop.tmp.dir": str(layout.root / "tmp"),
        # A server that is down is found in seconds, and one that comes back as well.
        "ipc.client.connect.max.retries": "5",
        "ipc.client.connect.retry.interval": "500",
        "ipc.client.connect.timeout": "5000",
        "hadoop.http.staticuser.user": "nobody",
    }


def hdfs_site(layout: Layout, ports: Ports) -> dict[str, str]:
    """Properties of NameNode, DataNode and their clients."""
    return {
        "dfs.namenode.name.dir": f"file://{layout.data_of('namenode')}",
        "dfs.datanode.data.dir": f"file://{layout.data_of('datanode')}",
        "dfs.namenode.http-address": f"{LOOPBACK}:{ports['namenode.web']}",
        "dfs.datanode.address": f"{LOOPBACK}:{ports['datanode.data']}",
        "dfs.datanode.http.address": f"{LOOPBACK}:{ports['datanode.web']}",
        "dfs.datanode.ipc.address": f"{LOOPBACK}:{ports['datanode.rpc']}",
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.replication": "1",
        "dfs.namenode.replication.min": "1",
        "dfs.permissions.enabled": "true",
        "dfs.webhdfs.enabled": "true",
        "dfs.namenode.safemode.extension": "1000",
        # A DataNode is dead after two rechecks and ten heartbeats: 14 seconds.
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.heartbeat.recheck-interval": "2000",
        "dfs.namenode.stale.datanode.interval": "5000",
    }


def node_manager_hdfs_site() -> dict[str, str]:
    """Of a NodeManager as a client of HDFS: it waits for a NameNode that restarts, as it would for one of two that take
    over from each other. By default it gives up at the first refusal, and every attempt of an application is spent
    within seconds.
    """
    return {"dfs.client.retry.policy.enabled": "true", "dfs.client.retry.policy.spec": "500,120"}


def yarn_site(layout: Layout, ports: Ports, jars: Path, node_heartbeat_ms: int) -> dict[str, str]:
    """Properties of the ResourceManager, of clients and of all NodeManagers."""
    manager = {
        "yarn.resourcemanager.address": "rpc",
        "yarn.resourcemanager.scheduler.address": "scheduler",
        "yarn.resourcemanager.resource-tracker.address": "tracker",
        "yarn.resourcemanager.admin.address": "admin",
        "yarn.resourcemanager.webapp.address": "web",
    }
    addresses = {key: f"{LOOPBACK}:{ports[f'resourcemanager.{use}']}" for key, use in manager.items()}
    return addresses | {
        "yarn.resourcemanager.hostname": LOOPBACK,
        "yarn.application.classpath": f"{layout.conf},{jars}/*",
        # Who is lost is found within seconds.
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": str(node_heartbeat_ms),
        "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
        "yarn.am.liveness-monitor.expiry-interval-ms": "45000",
        "yarn.resourcemanager.container.liveness-monitor.interval-ms": "5000",
        "yarn.resourcemanager.rm.container-allocation.expiry-interval-ms": "60000",
        "yarn.resourcemanager.connect.retry-interval.ms": "1000",
        "yarn.resourcemanager.connect.max-wait.ms": "60000",
        # A ResourceManager that comes back takes up the applications that run. On a local folder, so that
        # a fault of HDFS or ZooKeeper is not one of YARN as well.
        "yarn.resourcemanager.recovery.enabled": "true",
        "yarn.resourcemanager.store.class": (
            "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
        ),
        "yarn.resourcemanager.fs.state-store.uri": f"file://{layout.data_of('resourcemanager')}",
        "yarn.resourcemanager.work-preserving-recovery.enabled": "true",
        "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
        "yarn.resourcemanager.am.max-attempts": "20",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.maximum-allocation-mb": str(NODE_MEMORY_MB),
        "yarn.scheduler.maximum-allocation-vcores": str(NODE_VCORES),
        "yarn.node-labels.enabled": "false",
        "yarn.log-aggregation-enable": "true",
        "yarn.log-aggregation.retain-seconds": "86400",
        "yarn.nodemanager.remote-app-log-dir": "/tmp/logs",
    }


def node_manager_site(layout: Layout, ports: Ports, name: str) -> dict[str, str]:
    """Properties of one NodeManager."""
    host = NODE_ADDRESSES[name]
    return {
        "yarn.nodemanager.hostname": host,
        "yarn.nodemanager.bind-host": host,
        "yarn.nodemanager.address": f"{host}:{ports[f'{name}.rpc']}",
        "yarn.nodemanager.localizer.address": f"{host}:{ports[f'{name}.localizer']}",
        "yarn.nodemanager.webapp.address": f"{host}:{ports[f'{name}.web']}",
        "yarn.nodemanager.local-dirs": str(layout.local_dir(name)),
        "yarn.nodemanager.log-dirs": str(layout.log_dir(name)),
        "yarn.nodemanager.resource.memory-mb": str(NODE_MEMORY_MB),
        "yarn.nodemanager.resource.cpu-vcores": str(NODE_VCORES),
        "yarn.nodemanager.pmem-check-enabled": "true",
        # By default the check leaves it to control groups, also where there are none, and nothing is ended.
        "yarn.nodemanager.resource.memory.enforced": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
        # As by default. Each look reads all of /proc once a container: one a second takes half of a node's time.
        "yarn.nodemanager.container-monitor.interval-ms": "3000",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.delete.debug-delay-sec": "0",
        "yarn.nodemanager.env-whitelist": CONTAINER_VARIABLES,
        # A node outlives its ResourceManager's absence; clients give up earlier.
        "yarn.resourcemanager.connect.max-wait.ms": "900000",
    }


def capacity_scheduler() -> dict[str, str]:
    """Properties of the queues: by memory alone, one user may fill a queue."""
    prefix = "yarn.scheduler.capacity"
    properties = {
        f"{prefix}.root.queues": ",".join(QUEUES),
        f"{prefix}.maximum-am-resource-percent": "0.9",
        f"{prefix}.resource-calculator": "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator",
        f"{prefix}.node-locality-delay": "-1",
        # Hadoop's default is 5 ms, which takes a third of the ResourceManager's time.
        f"{prefix}.schedule-asynchronously.scheduling-interval-ms": "50",
    }
    for queue, share in QUEUES.items():
        properties |= {
            f"{prefix}.root.{queue}.capacity": str(share),
            f"{prefix}.root.{queue}.maximum-capacity": "100" if queue == "default" else str(share),
            f"{prefix}.root.{queue}.user-limit-factor": "10",
            f"{prefix}.root.{queue}.state": "RUNNING",
        }
    return properties


def zookeeper_properties(layout: Layout, ports: Ports) -> str:
    """zoo.cfg of one server; sessions from one second to a minute."""
    properties = {
        "dataDir": str(layout.data_of("zookeeper")),
        "clientPort": str(ports["zookeeper.client"]),
        "clientPortAddress": LOOPBACK,
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def entries(properties: Mapping[str, str]) -> str:
    """Properties as they stand between the tags of a configuration."""
    return "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    )


def xml(properties: Mapping[str, str]) -> str:
    """Hadoop's form of properties."""
    return f'<?xml version="1.0"?>\n<configuration>\n{entries(properties)}</configuration>\n'


def _write_xml(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(xml(properties), encoding="utf-8")

"""The properties of the nodes: each node is broker and controller (KRaft), on loopback alone.

Owner: the caller's thread while it writes files. Buffers are small, and what a broker does at intervals comes sooner
than by default, since tests wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.kafka.layout import LOOPBACK, Layout, node_id, node_names
from tests.support.services.ports import Ports

#: A Kafka cluster's own id: 22 characters of base64, the same for every cluster, since each has its own ports.
CLUSTER_ID = "eWFycm93LXRlc3RzLWthZg"
_PARTITIONS = 4
#: Who may log in at the port with passwords.
USER, PASSWORD = "tests", "password-of-tests"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = Out
appender.out.type = Console
appender.out.name = Out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
"""


def port_names(nodes: int) -> list[str]:
    """The names of all ports of a cluster: each node has one for clients, one with passwords, one for controllers."""
    return [f"{name}.{use}" for name in node_names(nodes) for use in ("client", "secured", "controller")]


def bootstrap_servers(ports: Ports) -> str:
    """`host:port` of every node, with commas."""
    return ",".join(f"{LOOPBACK}:{port}" for name, port in ports.items() if name.endswith(".client"))


def secured_servers(ports: Ports) -> str:
    """`host:port` of every node for clients that log in by SASL PLAIN as USER, with commas."""
    return ",".join(f"{LOOPBACK}:{port}" for name, port in ports.items() if name.endswith(".secured"))


def write(layout: Layout, ports: Ports, nodes: int) -> None:
    """Writes the properties of every node, and those of their log lines."""
    layout.logging.write_text(_LOGGING, encoding="utf-8")
    for name in node_names(nodes):
        properties = node_properties(layout, ports, name, nodes)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        layout.configuration_of(name).write_text(text, encoding="utf-8")


def node_properties(layout: Layout, ports: Ports, name: str, nodes: int) -> Mapping[str, str]:
    """Properties of one node of a cluster of so many."""
    client = f"PLAINTEXT://{LOOPBACK}:{ports[f'{name}.client']}"
    secured = f"SECURED://{LOOPBACK}:{ports[f'{name}.secured']}"
    voters = [f"{node_id(node)}@{LOOPBACK}:{ports[f'{node}.controller']}" for node in node_names(nodes)]
    # A topic of three nodes outlives one of them, and takes writes of the other two.
    copies, least = (3, 2) if nodes > 2 else (1, 1)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id(name)),
        "listeners": f"{client},{secured},CONTROLLER://{LOOPBACK}:{ports[f'{name}.controller']}",
        "advertised.listeners": f"{client},{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{_LOGIN} required user_{USER}="{PASSWORD}";',
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(layout.data_of(name)),
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(least),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": str(_PARTITIONS),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(least),
        "transaction.state.log.num.partitions": str(_PARTITIONS),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(least),
        "group.initial.rebalance.delay.ms": "0",
        # A transaction whose time is over is aborted within a second of it, not within ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # A node that was killed is found within seconds; only then may it come back.
        "broker.session.timeout.ms": "4000" if nodes > 1 else "2500",
        "broker.heartbeat.interval.ms": "500",
        "controlled.shutdown.enable": "true" if nodes > 1 else "false",
    }

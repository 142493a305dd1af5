"""The properties of the nodes: each node is broker and controller (KRaft), on loopback alone.

Owner: the caller's thread while it writes files. Buffers are small, and what a broker does at intervals comes sooner
than by default, since tests wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.kafka.credentials import AUDIENCE, ISSUER, PASSWORD, SCRAM_PASSWORD, USER, Credentials
from tests.support.kafka.layout import LOOPBACK, Layout, node_id, node_names
from tests.support.services.ports import Ports

#: A Kafka cluster's own id: 22 characters of base64, the same for every cluster, since each has its own ports.
CLUSTER_ID = "eWFycm93LXRlc3RzLWthZg"
_PARTITIONS = 4
#: Ports for clients, and what is spoken there.
_PROTOCOLS = {
    "client": "PLAINTEXT",
    "relayed": "PLAINTEXT",  # Reached by the relay of a test.
    "secured": "SASL_PLAINTEXT",  # PLAIN
    "tls": "SSL",
    "mutual": "SSL",  # The client shows a certificate too.
    "expired": "SSL",  # The broker's certificate has expired.
    "misnamed": "SSL",  # The broker's certificate is that of another host.
    "scram": "SASL_SSL",
    "oauth": "SASL_SSL",
}
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SECURITY = "org.apache.kafka.common.security"

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
    """The names of all ports of a cluster.

    Each node has one for each way to connect, and one for controllers. At the last one a test may put a relay.
    """
    uses = (*_PROTOCOLS, "controller", "relay")
    return [f"{name}.{use}" for name in node_names(nodes) for use in uses]


def bootstrap_servers(ports: Ports, use: str = "client") -> str:
    """`host:port` of every node, with commas, for one way to connect."""
    return ",".join(f"{LOOPBACK}:{port}" for name, port in ports.items() if name.endswith(f".{use}"))


def scram_users() -> list[str]:
    """The arguments by which a new storage knows who may log in by SCRAM."""
    user = f"[name={USER},password={SCRAM_PASSWORD}]"
    return [argument for mechanism in _SCRAM for argument in ("--add-scram", f"{mechanism}={user}")]


def write(layout: Layout, ports: Ports, nodes: int) -> None:
    """Writes the properties of every node, and those of their log lines."""
    layout.logging.write_text(_LOGGING, encoding="utf-8")
    for name in node_names(nodes):
        properties = node_properties(layout, ports, name, nodes)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        layout.configuration_of(name).write_text(text, encoding="utf-8")


def _listeners(places: Mapping[str, int]) -> str:
    """Ways to connect with their ports, as properties have them."""
    return ",".join(f"{use.upper()}://{LOOPBACK}:{port}" for use, port in places.items())


def node_properties(layout: Layout, ports: Ports, name: str, nodes: int) -> Mapping[str, str]:
    """Properties of one node of a cluster of so many."""
    places = {use: ports[f"{name}.{use}"] for use in _PROTOCOLS}
    listeners = _listeners(places)
    # Clients of this port are sent to the relay that a test may put between them and the node.
    advertised = _listeners(places | {"relayed": ports[f"{name}.relay"]})
    protocols = ",".join(f"{use.upper()}:{protocol}" for use, protocol in _PROTOCOLS.items())
    voters = [f"{node_id(node)}@{LOOPBACK}:{ports[f'{node}.controller']}" for node in node_names(nodes)]
    # A topic of three nodes outlives one of them, and takes writes of the other two.
    copies, least = (3, 2) if nodes > 2 else (1, 1)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id(name)),
        "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{ports[f'{name}.controller']}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        **_tls_properties(Credentials(layout.credentials)),
        **_sasl_properties(Credentials(layout.credentials)),
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


def _tls_properties(credentials: Credentials) -> dict[str, str]:
    """The certificate and key that the broker shows at each listener with TLS."""
    found: dict[str, str] = {}
    for use, protocol in _PROTOCOLS.items():
        if "SSL" in protocol:
            prefix = f"listener.name.{use}.ssl"
            found |= {
                f"{prefix}.keystore.type": "PEM",
                f"{prefix}.keystore.location": str(credentials.broker_store(use)),
            }
    return found | {
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(credentials.authority),
    }


def _sasl_properties(credentials: Credentials) -> dict[str, str]:
    """How clients log in at each listener with SASL."""
    plain, scram = f"{_SECURITY}.plain.PlainLoginModule", f"{_SECURITY}.scram.ScramLoginModule"
    token, oauth = f"{_SECURITY}.oauthbearer", "listener.name.oauth"
    return {
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{plain} required user_{USER}="{PASSWORD}";',
        "listener.name.scram.sasl.enabled.mechanisms": ",".join(_SCRAM),
        **{f"listener.name.scram.{name.lower()}.sasl.jaas.config": f"{scram} required;" for name in _SCRAM},
        f"{oauth}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{oauth}.oauthbearer.sasl.jaas.config": f"{token}.OAuthBearerLoginModule required;",
        f"{oauth}.oauthbearer.sasl.server.callback.handler.class": f"{token}.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": credentials.token_keys.as_uri(),
        f"{oauth}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{oauth}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.jwks.endpoint.url": credentials.token_keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }

"""The names of properties: Java's name for each, and librdkafka's.

Owner: none (tables). Programs written for PyFlink name properties as Java's clients do. `security_settings` has those
of TLS and SASL.

Sources: "Consumer Configs" and "Producer Configs" of Kafka's documentation, CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

from typing import Final

#: Properties of every client: Java's name -> librdkafka's.
CONNECTION: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable": "socket.keepalive.enable",
    "socket.timeout.ms": "socket.timeout.ms",
    "broker.address.family": "broker.address.family",
    "security.protocol": "security.protocol",
}

#: Properties of Java's clients that mean nothing to librdkafka: metrics, Java's providers, renewal of its tickets.
WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.secure.random.implementation",
    }
)
#: The same by the beginnings of their names.
PREFIXES_WITHOUT_EFFECT: Final = ("metrics.", "sasl.login.refresh.")

CONSUMER: Final = {
    "allow.auto.create.topics": "allow.auto.create.topics",
    "auto.offset.reset": "auto.offset.reset",
    "check.crcs": "check.crcs",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "queued.max.messages.kbytes": "queued.max.messages.kbytes",
    "queued.min.messages": "queued.min.messages",
}

#: Properties of a consumer that mean nothing where the engine assigns partitions and keeps positions.
CONSUMER_WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "enable.auto.commit",
        "exclude.internal.topics",
        "flink.disable-metrics",
        "flink.poll-timeout",
        "group.remote.assignor",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "interceptor.classes",
        "key.deserializer",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "value.deserializer",
        # Programs for Kafka 0.8 name it, and every later consumer passes over it.
        "zookeeper.connect",
    }
)

PRODUCER: Final = {
    "acks": "acks",
    "allow.auto.create.topics": "allow.auto.create.topics",
    "batch.size": "batch.size",
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.level": "compression.level",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "message.max.bytes": "message.max.bytes",
    "message.timeout.ms": "message.timeout.ms",
    "partitioner": "partitioner",
    "queue.buffering.max.kbytes": "queue.buffering.max.kbytes",
    "queue.buffering.max.messages": "queue.buffering.max.messages",
    "retries": "retries",
    "sticky.partitioning.linger.ms": "sticky.partitioning.linger.ms",
    "transaction.timeout.ms": "transaction.timeout.ms",
}

#: Properties of a producer that mean nothing where librdkafka sends and the sink serializes.
PRODUCER_WITHOUT_EFFECT: Final = frozenset(
    {
        "interceptor.classes",
        "key.serializer",
        "max.block.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "value.serializer",
    }
)
#: Names of partitioners that librdkafka has; the first chooses as Java's clients do.
PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "random",
    "fnv1a_random",
    "fnv1a",
)


def has_no_effect(key: str) -> bool:
    """Whether the property means something to Java's clients alone, and may be passed over."""
    return key in WITHOUT_EFFECT or key.startswith(PREFIXES_WITHOUT_EFFECT)

"""When a node serves: an open port is not enough.

Owner: the caller's thread. A node is ready when it knows a controller and counts itself among the brokers.
"""

from __future__ import annotations

import logging
import socket

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka.layout import LOOPBACK, node_id
from tests.support.services.ports import Ports

_SECONDS = 2.0
#: What the client says of a broker that does not answer is in the result already.
_silent = logging.getLogger("yarrow.tests.kafka.readiness")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def what_is_missing(ports: Ports, node: str) -> str | None:
    """Why a node does not serve yet; None when it does."""
    address = (LOOPBACK, ports[f"{node}.client"])
    try:
        socket.create_connection(address, _SECONDS).close()
    except OSError as error:
        return f"it does not answer ({error})"
    servers = f"{LOOPBACK}:{address[1]}"
    admin = AdminClient({"bootstrap.servers": servers}, logger=_silent)
    try:
        metadata = admin.list_topics(timeout=_SECONDS)
    except KafkaException as error:
        return f"it does not answer ({error})"
    if node_id(node) not in metadata.brokers:
        return "the controller does not count it among the brokers"
    return None if metadata.controller_id in metadata.brokers else "it knows no controller"


def what_is_unknown(ports: Ports, node: str, topic: str, partitions: int) -> str | None:
    """Why a node cannot tell yet who leads the partitions of a topic; None when it can."""
    admin = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{ports[f'{node}.client']}"}, logger=_silent)
    try:
        found = admin.list_topics(topic, timeout=_SECONDS).topics[topic]
    except KafkaException as error:
        return f"it does not answer ({error})"
    led = [each for each in found.partitions.values() if each.leader >= 0]
    return None if len(led) == partitions else f"it knows {len(led)} of {partitions} partitions of {topic}"

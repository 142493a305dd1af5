"""The settings of librdkafka as those of the protocol library, so that both clients reach the same brokers.

Owner: none (pure but for files of certificates, which it reads). A provider of tokens is not among them. Source: the
documentation of kafka-python's KafkaAdminClient and CONFIGURATION.md of librdkafka. Must not import either library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yarrow.datastream.connectors.kafka.cluster.tls_context import tls_context

_SAME = {
    "client.id": "client_id",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}


def protocol_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The keyword arguments of the protocol library's connections.

    Raises KafkaConnectorError for a file that cannot be used.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    found: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings["bootstrap.servers"].split(",")],
        "security_protocol": protocol,
    }
    found |= {ours: settings[theirs] for theirs, ours in _SAME.items() if theirs in settings}
    if "SASL" in protocol:
        found["sasl_mechanism"] = settings["sasl.mechanism"].upper()
    if "SSL" in protocol:
        found["ssl_context"] = tls_context(settings)
    return found

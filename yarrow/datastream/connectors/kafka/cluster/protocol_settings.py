"""The settings of librdkafka as those of the protocol library, so that both clients reach the same brokers.

Owner: none (pure but for files of certificates, which it reads). Source: the documentation of kafka-python's
KafkaAdminClient and CONFIGURATION.md of librdkafka. Must not import either library.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaConnectorError

_SAME = {
    "client.id": "client_id",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}


def protocol_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The keyword arguments of the protocol library's connections.

    Raises KafkaConnectorError for a mechanism or a file that the protocol library cannot use.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    found: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings["bootstrap.servers"].split(",")],
        "security_protocol": protocol,
    }
    found |= {ours: settings[theirs] for theirs, ours in _SAME.items() if theirs in settings}
    if "SASL" in protocol:
        found["sasl_mechanism"] = settings["sasl.mechanism"].upper()
        if found["sasl_mechanism"] == "OAUTHBEARER":
            raise KafkaConnectorError(
                "KafkaSink: exactly-once with sasl.mechanism OAUTHBEARER is not there yet. Use SCRAM, PLAIN or GSSAPI,"
                " or at-least-once"
            )
    if "SSL" in protocol:
        found["ssl_context"] = tls_context(settings)
    return found


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What TLS trusts and shows. Raises KafkaConnectorError naming the property that cannot be used."""
    if "ssl.keystore.location" in settings:
        raise KafkaConnectorError(
            "KafkaSink: exactly-once needs the client's certificate in PEM. Set ssl.certificate.location and"
            " ssl.key.location instead of ssl.keystore.location"
        )
    for key in ("ssl.certificate.pem", "ssl.key.pem"):
        if key in settings:
            raise KafkaConnectorError(
                f"KafkaSink: exactly-once reads the client's certificate from files. Set ssl.certificate.location"
                f" and ssl.key.location instead of {key}"
            )
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings["ssl.key.location"],
                settings.get("ssl.key.password"),
            )
        if "ssl.cipher.suites" in settings:
            context.set_ciphers(settings["ssl.cipher.suites"])
        if "ssl.crl.location" in settings:
            context.load_verify_locations(settings["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        raise KafkaConnectorError(f"KafkaSink: its ssl properties cannot be used: {error}") from error
    return context

"""The protocol library connects as librdkafka does."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaConnectorError
from yarrow.datastream.connectors.kafka.cluster.protocol_settings import protocol_settings

SERVERS = {"bootstrap.servers": "a:1, b:2"}


def test_plain_connections() -> None:
    assert protocol_settings(SERVERS) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
    }


def test_users_and_passwords() -> None:
    sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "plain", "sasl.username": "u"}
    found = protocol_settings({**SERVERS, **sasl, "sasl.password": "p"})
    assert (found["security_protocol"], found["sasl_mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("u", "p")


def test_names_of_hosts_are_checked_unless_they_must_not_be() -> None:
    tls = {**SERVERS, "security.protocol": "SSL"}
    assert protocol_settings(tls)["ssl_context"].check_hostname
    unchecked = {**tls, "ssl.endpoint.identification.algorithm": "none"}
    assert not protocol_settings(unchecked)["ssl_context"].check_hostname


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ssl.keystore.location": "/nowhere/x.p12"}, "/nowhere/x.p12 cannot be read on the machine"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "ssl properties cannot be used"),
        ({"ssl.certificate.pem": "x", "ssl.key.pem": "y"}, "certificate and key of ssl.certificate.pem"),
    ],
)
def test_what_the_protocol_library_cannot_use_is_named(settings: dict[str, str], told: str) -> None:
    with pytest.raises(KafkaConnectorError, match=told):
        protocol_settings({**SERVERS, "security.protocol": "SSL", **settings})

"""TLS and SASL on a real broker: source, sink and the end of transactions log in alike, and refusals tell why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.kafka.secured_connections import SecuredConnections, store
from tests.kafka.test_kafka_source import rows_of
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import PASSWORD, USER
from tests.support.kafka.token_endpoint import token_endpoint
from yarrow.common.serialization import SimpleStringSchema
from yarrow.container.protocol.failure import failure_cause
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, KafkaSourceBuilder
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaTopicMissingError,
)
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

ROWS = [f"row {number}" for number in range(20)]
WAYS = [
    "TLS",
    "TLS with a store in PEM",
    "TLS with an encrypted key",
    "TLS with PKCS12",
    "TLS with texts",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
]


@pytest.fixture
def connections(kafka: KafkaCluster) -> Iterator[SecuredConnections]:
    with token_endpoint(kafka.credentials) as tokens:
        yield SecuredConnections(kafka, tokens)


@pytest.fixture
def target(kafka: KafkaCluster, new_topic: Callable[..., str]) -> TopicUnderTest:
    return TopicUnderTest(kafka, new_topic())


def source_of(topic: str, properties: Mapping[str, str]) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_topics(topic).set_value_only_deserializer(SimpleStringSchema())
    return builder.set_bounded(KafkaOffsetsInitializer.latest()).set_properties(properties)


@pytest.mark.parametrize("way", WAYS)
def test_source_sink_and_commit_log_in(
    target: TopicUnderTest, connections: SecuredConnections, way: str
) -> None:
    properties = connections.named(way)
    job = target.job(sink=target.sink(properties=properties))
    job.write(ROWS[:10])
    job.complete(job.take_checkpoint())
    job.write(ROWS[:15])
    job.kill()
    # Another process commits what the checkpoint holds, and aborts the rest: both by the protocol.
    job.start()
    assert sorted(target.rows()) == sorted(ROWS[:10])
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)
    assert sorted(rows_of(source_of(target.topic, properties))) == sorted(ROWS)


def refused(connections: SecuredConnections, case: str) -> tuple[dict[str, str], str]:
    """Properties of a client that the broker refuses, or that refuses the broker, and what the error tells."""
    files = connections.files
    match case:
        case "expired broker":
            return connections.tls("expired"), "has expired on .* UTC. Renew it on the broker"
        case "untrusted broker":
            other = {"ssl.truststore.location": str(files.other_authority)}
            return connections.tls("tls", **other), "issuer .CN=authority of tests. is not in .*other-ca.pem"
        case "another host":
            return connections.tls("misnamed"), "is that of elsewhere.example, not of 127.0.0.1"
        case "no certificate":
            return connections.tls("mutual"), "wants the certificate of a client .* ssl.certificate.location"
        case "expired client":
            own = store(str(files.expired_store))
            return connections.tls(
                "mutual", **own
            ), "client's certificate of .*client-expired.pem has expired on"
        case "untrusted client":
            own = store(str(files.stranger_store))
            return connections.tls("mutual", **own), "does not accept the client's certificate"
        case "wrong key password":
            key = {"ssl.certificate.location": str(files.certificate), "ssl.key.location": str(files.key)}
            own = {**key, "ssl.key.password": "not-the-secret"}
            return connections.tls("mutual", **own), "client.crt cannot be used: .* ssl.key.password opens it"
        case "no TLS there":
            return connections.tls("client"), "does not speak TLS at this port"
        case "TLS there":
            return {
                "bootstrap.servers": connections.tls("tls")["bootstrap.servers"]
            }, "speaks TLS at this port"
        case "wrong password":
            return connections.scram(password="not-the-secret"), "refuses the login: .* invalid credentials"
        case "wrong mechanism":
            return connections.scram("PLAIN"), "broker's supported mechanisms: SCRAM-SHA-512"
        case "wrong secret":
            return connections.oauth("not-the-secret"), "(Failed to acquire|answered status 401)"
    raise KeyError(case)


CASES = [
    "expired broker",
    "untrusted broker",
    "another host",
    "no certificate",
    "expired client",
    "untrusted client",
    "wrong key password",
    "no TLS there",
    "TLS there",
    "wrong password",
    "wrong mechanism",
    "wrong secret",
]


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_is_told_where_source_and_sink_start(
    target: TopicUnderTest, connections: SecuredConnections, case: str
) -> None:
    properties, expected = refused(connections, case)
    reading = {**properties, "default.api.timeout.ms": "4000"}
    with pytest.raises(KafkaConnectorError, match=expected) as by_source:
        rows_of(source_of(target.topic, reading))
    texts = [str(by_source.value)]
    assert failure_cause(by_source.value).needs_user
    for guarantee in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
        with pytest.raises(KafkaConnectorError, match=expected) as by_sink:
            target.job(sink=target.sink(guarantee, properties))
        texts.append(str(by_sink.value))
        assert failure_cause(by_sink.value).needs_user
    for text in texts:
        assert "not-the-secret" not in text and "\n" not in text


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_a_topic_that_is_missing_is_told_where_the_sink_starts(
    target: TopicUnderTest, guarantee: DeliveryGuarantee
) -> None:
    missing = TopicUnderTest(target.cluster, f"{target.topic}-missing")
    with pytest.raises(KafkaTopicMissingError, match=f"has no topic {missing.topic}. Make the topic first"):
        missing.job(sink=missing.sink(guarantee))


@pytest.mark.parametrize("case", ["expired broker", "wrong secret", "wrong key password"])
def test_the_end_of_a_transaction_tells_a_refusal_too(connections: SecuredConnections, case: str) -> None:
    properties, expected = refused(connections, case)
    client = TransactionClient(producer_settings("test", properties), ClientProperties(properties), 3.0)
    try:
        with pytest.raises(KafkaConnectorError, match=expected):
            client.listed("p", "Ongoing")
    finally:
        client.close()


def test_a_password_without_tls_or_by_half_is_refused_while_the_program_is_built(
    target: TopicUnderTest,
) -> None:
    half = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER}
    for build in (
        source_of(target.topic, half).set_bootstrap_servers("b:1").build,
        lambda: target.sink(properties=half),
    ):
        with pytest.raises(InvalidProgramError, match=r"sasl\.password is missing") as failed:
            build()
        assert PASSWORD not in str(failed.value)

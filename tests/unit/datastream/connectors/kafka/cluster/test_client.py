"""Clients of a cluster that does not answer: errors name servers, question and remedy, and hide secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.free_ports import free_port
from tests.support.services.http_threads import running_in_thread
from yarrow.container.protocol.failure import failure_cause
from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient, _ClientLog
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import consumer_settings, producer_settings
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaLoginRefusedError,
    KafkaUnreachableError,
)
from yarrow.datastream.connectors.kafka.cluster.property_names import PRODUCER
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition


def client(**properties: str) -> ClusterClient:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClusterClient(consumer_settings("KafkaSource", named), ClientProperties(named), 0.5)


def test_absent_broker_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(KafkaUnreachableError) as failed:
        client(bootstrap_servers=address).topics()
    text = str(failed.value)
    assert text.startswith(f"Kafka at {address} did not answer for the list of topics within 0.5 s: ")
    assert "Connection refused" in text and "Check bootstrap.servers" in text
    assert not failed.value.needs_user and not failed.value.is_final, "the broker may come"


@contextmanager
def endpoint_with(status: int) -> Iterator[str]:
    """A server of tokens that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody reads these lines."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running_in_thread(server, "token-endpoint"):
        yield f"http://127.0.0.1:{server.server_port}/token"


def client_with_tokens_of(url: str) -> ClusterClient:
    named = {
        "bootstrap.servers": f"127.0.0.1:{free_port()}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "not-to-be-told",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    return ClusterClient(consumer_settings("KafkaSource", named), ClientProperties(named), 3)


def failure_with_tokens_of(url: str) -> KafkaConnectorError:
    with pytest.raises(KafkaConnectorError, match="Failed to acquire SASL OAUTHBEARER token") as failed:
        client_with_tokens_of(url).topics()
    assert "not-to-be-told" not in str(failed.value)
    return failed.value


def test_an_endpoint_of_tokens_that_is_away_may_come_back() -> None:
    away = failure_with_tokens_of(f"http://127.0.0.1:{free_port()}/token")
    assert type(away) is KafkaUnreachableError and away.is_transient and not away.needs_user
    assert "did not answer for the list of topics" in str(away)


def test_an_endpoint_of_tokens_that_refuses_the_client_is_for_the_user() -> None:
    with endpoint_with(401) as url:
        refused = failure_with_tokens_of(url)
    assert type(refused) is KafkaLoginRefusedError and refused.needs_user and not refused.is_transient


def test_brokers_that_refuse_a_token_are_told_whatever_the_endpoint_said_before() -> None:
    asking = client_with_tokens_of(f"http://127.0.0.1:{free_port()}/token")
    login = KafkaError._AUTHENTICATION
    for text in ("Failed to acquire SASL OAUTHBEARER token: Connection refused", "the token is not for us"):
        asking._note(KafkaError(login, text))
    assert asking._refusal(KafkaError(login), 1.0) == "the token is not for us"


def test_the_endpoint_of_tokens_gets_what_is_left_of_the_time_for_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []

    def is_away(settings: Mapping[str, str], most_seconds: float) -> bool:
        limits.append(most_seconds)
        return True

    monkeypatch.setattr("yarrow.datastream.connectors.kafka.cluster.client.endpoint_is_away", is_away)
    away = failure_with_tokens_of(f"http://127.0.0.1:{free_port()}/token")
    assert type(away) is KafkaUnreachableError
    # The question has 3 s in all, and the client needs some of them to notice that there is no token.
    assert limits and all(0 < limit < 3 for limit in limits)


def test_missing_file_of_certificates_is_named() -> None:
    with pytest.raises(KafkaConnectorError, match=r"ssl.ca.location: the file /no-such-file does not exist"):
        client(bootstrap_servers="localhost:1", security_protocol="SSL", ssl_ca_location="/no-such-file")


def test_settings_that_the_client_refuses_are_named() -> None:
    with pytest.raises(KafkaConnectorError, match=r"refuses its properties: .*socket.timeout.ms") as refused:
        client(bootstrap_servers="localhost:1", request_timeout_ms="few").topics()
    # The restart strategy of jobs with checkpoints would try it again without an end.
    assert failure_cause(refused.value).is_final


def test_the_reason_of_a_failed_transaction_comes_from_the_clients_log() -> None:
    told: list[tuple[str, str]] = []
    log = _ClientLog(lambda code, text: told.append((code, text)))
    log.log(20, "%s", "ADDPARTS [rdkafka#producer-3] [thrd:main]: Failed to add a partition")
    assert told == []
    line = "TXNERR [rdkafka#producer-3] [thrd:main]: Current transaction failed in state InTransaction: "
    log.log(20, line + "Failed to add partition(s): denied (after 3 ms) (TOPIC_AUTHORIZATION_FAILED)")
    assert told == [
        ("TOPIC_AUTHORIZATION_FAILED", "Failed to add partition(s): denied (after 3 ms)"),
    ]


class NewTopic:
    """The answers of a cluster whose partition has no leader at first."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)

    def list_topics(self, topic: str | None, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(topics={})

    def poll(self, seconds: float) -> int:
        return 0


def test_offsets_of_a_topic_that_was_just_made_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, place = client(bootstrap_servers="localhost:1"), KafkaTopicPartition("t", 0)
    new = NewTopic(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    monkeypatch.setattr(asked, "_admin", new)
    assert asked.ends([place]) == {place: 7}
    refused = NewTopic(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(asked, "_admin", refused)
    with pytest.raises(KafkaConnectorError, match="refused offsets of t-0") as denied:
        asked.ends([place])
    assert denied.value.needs_user, "a right is missing"
    monkeypatch.setattr(asked, "_admin", NewTopic(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1000))
    with pytest.raises(KafkaConnectorError, match="refused offsets of t-0"):
        asked.ends([place])


def test_absent_broker_is_named_by_a_sink_too() -> None:
    address = f"127.0.0.1:{free_port()}"
    properties = ClientProperties({"bootstrap.servers": address})
    asked = ClusterClient(producer_settings("KafkaSink", properties), properties, 0.5, PRODUCER)
    expected = rf"Kafka at {address} did not answer for its setting transaction.max.timeout.ms within 0.5 s: .*refused"
    with pytest.raises(KafkaUnreachableError, match=expected):
        asked.broker_setting("transaction.max.timeout.ms")


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TRANSPORT])
def test_what_passes_is_asked_again_and_other_answers_are_not(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked, place = client(bootstrap_servers="localhost:1"), KafkaTopicPartition("t", 0)
    passing = NewTopic(code)
    monkeypatch.setattr(asked, "_admin", passing)
    assert asked.ends([place]) == {place: 7}
    refused = NewTopic(KafkaError.CLUSTER_AUTHORIZATION_FAILED, code)
    monkeypatch.setattr(asked, "_admin", refused)
    with pytest.raises(KafkaConnectorError, match="refused offsets of t-0") as failed:
        asked.ends([place])
    assert not failed.value.is_transient and refused.errors == [code], "it was asked once"


class Group:
    """The answer about a group's offset, with an error of its partition at first."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_consumer_group_offsets(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        error = KafkaError(self.errors.pop(0)) if self.errors else None
        found = SimpleNamespace(topic="t", partition=0, offset=5, error=error)
        answer.set_result(SimpleNamespace(topic_partitions=[found]))
        return {"g": answer}


def test_an_offset_that_is_not_told_now_does_not_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = client(bootstrap_servers="localhost:1", group_id="g")
    place = KafkaTopicPartition("t", 0)
    monkeypatch.setattr(asked, "_admin", Group(KafkaError.UNSTABLE_OFFSET_COMMIT))
    assert asked.committed([place]) == {place: 5}
    monkeypatch.setattr(asked, "_admin", Group(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaConnectorError, match="refused committed offsets of group g"):
        asked.committed([place])

"""Registries behind TLS and logins: each way in works, each refusal is one sentence, and no secret shows anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import is_running
from tests.kafka.test_kafka_secrets import answers, files, processes, require_hidden
from tests.kafka.test_registry_avro import FIRST
from tests.kafka.test_registry_writing import values_to
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import CLIENT_ID, CLIENT_SECRET, KEY_PASSWORD, Credentials
from tests.support.kafka.token_endpoint import token_endpoint
from tests.support.registry.gateway import READER, TOKEN, WRITER, RegistryGateway, basic, registry_gateway
from tests.support.registry.server import RegistryServer
from yarrow.common import WatermarkStrategy
from yarrow.datastream.connectors.kafka import KafkaSink, KafkaSource
from yarrow.datastream.formats.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    RegistrySubject,
    SchemaRegistryError,
)
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

#: In the form in which a request has it, too.
SECRETS = [WRITER.partition(":")[2], basic(WRITER).partition(" ")[2]]
by_generic = ConfluentRegistryAvroSerializationSchema.for_generic
BRIEF = {"retry.timeout.ms": 300}


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    made = Credentials(tmp_path_factory.mktemp("credentials"))
    made.make()
    return made


@pytest.fixture
def gateway(registry: RegistryServer, credentials: Credentials) -> Iterator[RegistryGateway]:
    with registry_gateway(registry.url, credentials.broker_store("good")) as running:
        yield running


def round_trip(subject: str, url: str, properties: dict[str, Any]) -> None:
    """Register a schema, write by it, and read by what the registry gives."""
    message = by_generic(subject, json.dumps(FIRST), url, properties).serialize({"id": 7})
    reader = ConfluentRegistryAvroDeserializationSchema.for_generic(RegistrySubject(subject), url, properties)
    assert reader.deserialize(message) == {"id": 7}


def trusting(credentials: Credentials, **more: Any) -> dict[str, Any]:
    return {"ssl.ca.location": str(credentials.authority), **BRIEF, **more}


@pytest.mark.parametrize("way", ["basic", "basic of the URL", "token"])
def test_a_login_over_tls(gateway: RegistryGateway, credentials: Credentials, way: str) -> None:
    url, properties, login = gateway.url, trusting(credentials), basic(WRITER)
    match way:
        case "basic":
            properties["basic.auth.user.info"] = WRITER
        case "basic of the URL":
            url = url.replace("https://", f"https://{WRITER}@")
        case "token":
            properties["bearer.auth.token"] = TOKEN
            login = f"Bearer {TOKEN}"
    round_trip("logins", url, properties)
    assert set(gateway.seen) == {login}


def test_a_client_of_tokens_logs_in(gateway: RegistryGateway, credentials: Credentials) -> None:
    with token_endpoint(credentials) as endpoint:
        properties = trusting(credentials) | {
            "bearer.auth.client.id": CLIENT_ID,
            "bearer.auth.client.secret": CLIENT_SECRET,
            "bearer.auth.scope": "registry",
            "bearer.auth.issuer.endpoint.url": endpoint.url,
        }
        made = by_generic("logins", json.dumps(FIRST), gateway.url, properties)
        # A token that the gateway does not take.
        with pytest.raises(SchemaRegistryError, match=r"HTTP 401"):
            made.serialize({"id": 1})
        gateway.issued = endpoint.tokens
        round_trip("logins", gateway.url, properties)
        assert set(gateway.seen) <= {f"Bearer {token}" for token in endpoint.tokens}
        wrong = properties | {"bearer.auth.client.secret": "wrong-secret"}
        with pytest.raises(
            SchemaRegistryError, match=r"Check the properties bearer.auth.client.id"
        ) as caught:
            by_generic("logins", json.dumps(FIRST), gateway.url, wrong).serialize({"id": 1})
        assert "wrong-secret" not in str(caught.value)


def test_a_client_shows_its_certificate(registry: RegistryServer, credentials: Credentials) -> None:
    pair = {
        "ssl.certificate.location": str(credentials.certificate),
        "ssl.key.location": str(credentials.key),
        "ssl.key.password": KEY_PASSWORD,
        "basic.auth.user.info": WRITER,
    }
    store = credentials.broker_store("good")
    with registry_gateway(registry.url, store, credentials.authority) as gateway:
        round_trip("logins", gateway.url, trusting(credentials, **pair))
        for name in ("ssl.certificate.location", "ssl.key.location", "ssl.key.password"):
            del pair[name]
        with pytest.raises(SchemaRegistryError, match=r"cannot be asked for the registration of a schema"):
            round_trip("logins", gateway.url, trusting(credentials, **pair))


@pytest.mark.parametrize(
    ("user", "status"),
    [("writer:wrong-password", 401), ("", 401), (READER, 403)],
    ids=["wrong", "none", "reader"],
)
def test_a_login_that_may_not_is_one_sentence(
    gateway: RegistryGateway, credentials: Credentials, user: str, status: int
) -> None:
    login = {"basic.auth.user.info": user} if user else {}
    made = by_generic("refused", json.dumps(FIRST), gateway.url, trusting(credentials, **login))
    with pytest.raises(
        SchemaRegistryError,
        match=rf"refuses the registration .* subject 'refused' \(HTTP {status}\): .*Give basic.auth.user",
    ) as caught:
        made.serialize({"id": 1})
    assert len(gateway.seen) == 1, "a refusal is final"
    assert "password" not in str(caught.value)


def test_failures_that_pass_are_tried_again_until_the_deadline(
    gateway: RegistryGateway, credentials: Credentials
) -> None:
    properties = trusting(credentials) | {"basic.auth.user.info": WRITER, "retry.timeout.ms": 60_000}
    gateway.failures = [503, 500, 429]
    round_trip("failing", gateway.url, properties)
    gateway.failures = [502] * 1000
    made = by_generic("failing", json.dumps(FIRST), gateway.url, properties | BRIEF)
    with pytest.raises(SchemaRegistryError, match=r"\(HTTP 502\): .*tried for 0.3 s"):
        made.serialize({"id": 1})


@pytest.mark.parametrize("shown", ["expired", "misnamed", "stranger"])
def test_a_certificate_that_is_not_trusted_is_one_sentence(
    registry: RegistryServer, credentials: Credentials, shown: str
) -> None:
    authority = credentials.other_authority if shown == "stranger" else credentials.authority
    properties = {"ssl.ca.location": str(authority), "basic.auth.user.info": WRITER}
    with registry_gateway(registry.url, credentials.broker_store(shown)) as gateway:
        made = by_generic("untrusted", json.dumps(FIRST), gateway.url, properties)
        with pytest.raises(
            SchemaRegistryError, match=r"(?i)certificate.*Check the URL, and ssl.ca.location"
        ) as caught:
            made.serialize({"id": 1})
        assert gateway.seen == [] and WRITER not in str(caught.value)


def test_a_file_that_is_missing_is_named(gateway: RegistryGateway) -> None:
    made = by_generic("files", json.dumps(FIRST), gateway.url, {"ssl.ca.location": "/no/such/file.pem"})
    with pytest.raises(InvalidProgramError, match=r"Schema registry https://.*files of certificates"):
        made.serialize({"id": 1})


def test_no_secret_of_a_job_shows(
    kafka: KafkaCluster,
    gateway: RegistryGateway,
    credentials: Credentials,
    new_topic: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read, target, logs = new_topic(), TopicUnderTest(kafka, new_topic()), tmp_path / "logs"
    properties = trusting(credentials) | {"basic.auth.user.info": WRITER}
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(read)
    text = json.dumps(FIRST)
    writer = by_generic(f"{target.topic}-value", text, gateway.url, properties)
    reader = ConfluentRegistryAvroDeserializationSchema.for_generic(text, gateway.url, properties)
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    sink.set_record_serializer(values_to(target.topic, writer))
    settings = {
        "parallelism.default": "1",
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": f"{tmp_path}/checkpoints",
    }
    with (
        caplog.at_level(logging.DEBUG),
        mini_cluster(task_executors=1, slots=1, configuration={"env.log.dir": str(logs)}) as cluster,
    ):
        env = cluster.get_execution_environment(settings)
        stream = env.from_source(
            builder.set_value_only_deserializer(reader).build(), WatermarkStrategy.no_watermarks(), "orders"
        )
        stream.sink_to(sink.build())
        plan = env.get_execution_plan()
        client = cluster.submit(env.get_job_graph("orders"))
        wait_until(lambda: is_running(client))
        assert gateway.seen == [basic(WRITER)], "the sink has asked when it opened"
        savepoint = client.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
        assert savepoint
        shown = [("plan", plan.encode()), ("schemas", f"{writer!r} {reader!r}".encode())]
        job = answers(cluster, str(client.get_job_id()))
        looked = require_hidden(SECRETS, job, processes(), files(logs, tmp_path / "savepoints"), iter(shown))
        assert looked > 10
    require_hidden(SECRETS, iter([("the log", caplog.text.encode())]))

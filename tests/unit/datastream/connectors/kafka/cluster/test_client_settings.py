"""Properties of Java's clients become settings of librdkafka; what is unknown or set by half is refused."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.client_settings import consumer_settings
from yarrow.runtime.common.errors import InvalidProgramError

SERVERS = {"bootstrap.servers": "localhost:9092"}
PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a \\"b\\" c";'
)


def settings(**properties: str) -> dict[str, str]:
    return consumer_settings("KafkaSource", SERVERS | named(properties))


def named(properties: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in properties.items()}


def test_names_are_translated() -> None:
    found = settings(fetch_max_wait_ms="7", request_timeout_ms="9", receive_buffer_bytes="11")
    assert found["fetch.wait.max.ms"] == "7"
    assert found["socket.timeout.ms"] == "9"
    assert found["socket.receive.buffer.bytes"] == "11"


def test_positions_belong_to_the_engine() -> None:
    found = settings(enable_auto_commit="true", auto_commit_interval_ms="5", max_poll_records="1")
    assert found["enable.auto.commit"] == "false"
    assert "auto.commit.interval.ms" not in found and "max.poll.records" not in found


def test_defaults_show_committed_records_and_lose_none() -> None:
    found = settings()
    assert (found["isolation.level"], found["auto.offset.reset"]) == ("read_committed", "error")
    assert settings(auto_offset_reset="none")["auto.offset.reset"] == "error"
    assert settings(auto_offset_reset="earliest")["auto.offset.reset"] == "earliest"


def test_jaas_gives_user_and_password() -> None:
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN)
    assert (found["sasl.username"], found["sasl.password"]) == ("me", 'a "b" c')
    assert "sasl.jaas.config" not in found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("username='me' password='p w; x=1'", ("me", "p w; x=1")),
        ("""username='a "b"' password='it\\'s'""", ('a "b"', "it's")),
        ("""username="it's" password='q'""", ("it's", "q")),
    ],
)
def test_jaas_takes_both_kinds_of_quotes(options: str, expected: tuple[str, str]) -> None:
    text = f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=text)
    assert (found["sasl.username"], found["sasl.password"]) == expected


@pytest.mark.parametrize(
    "key",
    [
        "ssl.protocol",
        "ssl.enabled.protocols",
        "sasl.login.refresh.buffer.seconds",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "enable.metrics.push",
        "metrics.recording.level",
        "auto.include.jmx.reporter",
        "security.providers",
        "zookeeper.connect",
        "flink.poll-timeout",
    ],
)
def test_what_only_java_needs_has_no_effect(key: str) -> None:
    assert consumer_settings("KafkaSource", {**SERVERS, key: "1"}) == settings()


def test_oauthbearer_takes_a_token_endpoint() -> None:
    found = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config="OAuthBearerLoginModule required clientId=me clientSecret=s3 scope=read;",
        sasl_oauthbearer_token_endpoint_url="https://tokens",
    )
    assert found["sasl.oauthbearer.client.secret"] == "s3"
    assert found["sasl.oauthbearer.method"] == "oidc"


def test_host_names_of_certificates_may_be_left_unchecked() -> None:
    found = settings(security_protocol="SSL", ssl_endpoint_identification_algorithm="")
    assert found["ssl.endpoint.identification.algorithm"] == "none"


def test_servers_may_be_addresses_and_have_the_usual_port() -> None:
    servers = "broker, 127.0.0.1:9092,[::1]:9092,SSL://broker-2.shop:19092"
    assert consumer_settings("KafkaSource", {"bootstrap.servers": servers})["bootstrap.servers"] == servers


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"bootstrap.servers": " "}, "set bootstrap.servers"),
        (
            {"bootstrap.servers": "broker:port"},
            "bootstrap.servers has 'broker:port' instead of host:port. Write for example 'broker-1:9092",
        ),
        ({"bootstrap.servers": "one:9092,two:"}, "bootstrap.servers has 'two:'"),
        ({"bootstrap.servers": "one:9092 two:9092"}, "bootstrap.servers has 'one:9092 two:9092'"),
        (
            {"bootstrap.servers": "one:9092,"},
            "bootstrap.servers has an empty entry instead of host:port. Write",
        ),
        ({"fetch.min.byte": "1"}, "fetch.min.byte is not known; did you mean fetch.min.bytes"),
        ({"nonsense": "1"}, "property nonsense is not known"),
        ({"isolation.level": "all"}, "isolation.level must be read_committed or read_uncommitted, not 'all'"),
        ({"auto.offset.reset": "first"}, "auto.offset.reset must be earliest, latest or none, not 'first'"),
        ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location is set, but security.protocol is PLAINTEXT"),
        (
            {"sasl.username": "me", "security.protocol": "SSL"},
            "sasl.username is set, but security.protocol is SSL",
        ),
        ({"security.protocol": "SSL", "ssl.key.location": "k.pem"}, "set without ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "c.pem"}, "set without ssl.key.location"),
        ({"security.protocol": "SSL", "ssl.key.password": "p"}, "ssl.key.password is set without"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MD5"}, "sasl.mechanism must be one of PLAIN"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"},
            "needs sasl.username and sasl.password, and sasl.password is missing",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "topsecret"},
            "sasl.jaas.config has no username",
        ),
    ],
)
def test_what_is_wrong_is_named(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidProgramError) as refused:
        consumer_settings("KafkaSource", SERVERS | properties)
    assert expected in str(refused.value)
    assert "topsecret" not in str(refused.value)


def test_a_reader_does_not_wait_a_second_behind_a_full_queue() -> None:
    settings = consumer_settings("KafkaSource", {"bootstrap.servers": "b:1"})
    assert int(settings["fetch.queue.backoff.ms"]) <= 50

"""TLS by Java's names of properties: PEM and PKCS12 work, JKS is refused with the command that converts it."""

from __future__ import annotations

import sys

import pytest

from yarrow.datastream.connectors.kafka.cluster import client_library
from yarrow.datastream.connectors.kafka.cluster.client_library import require_mechanism
from yarrow.datastream.connectors.kafka.cluster.client_settings import consumer_settings
from yarrow.runtime.common.errors import InvalidProgramError

TLS = {"bootstrap.servers": "localhost:9093", "security.protocol": "SSL"}
TRUSTED = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}


def settings(properties: dict[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in consumer_settings("KafkaSource", {**TLS, **properties}).items()
        if key.startswith(("ssl.", "sasl."))
    }


def test_stores_in_pem_become_files() -> None:
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "client.pem", "ssl.key.password": "k"}
    assert settings({**TRUSTED, **store}) == {
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "client.pem",
        "ssl.key.location": "client.pem",
        "ssl.key.password": "k",
    }


def test_texts_in_pem_stay_texts() -> None:
    texts = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
    }
    expected = {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CERTIFICATE", "ssl.key.pem": "KEY"}
    assert settings(texts) == expected


def test_a_keystore_in_pkcs12_stays_one() -> None:
    store = {"ssl.keystore.location": "c.p12", "ssl.keystore.password": "p"}
    assert settings({**store, "ssl.keystore.type": "PKCS12"}) == settings(store) == store


def test_the_handler_that_java_needs_for_tokens_has_no_effect() -> None:
    token = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "i",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens",
    }
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    found = settings({**token, "sasl.login.callback.handler.class": handler})
    assert found == settings(token)
    assert (found["sasl.oauthbearer.client.id"], found["sasl.oauthbearer.client.secret"]) == ("i", "s")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"ssl.truststore.location": "a.jks"},
            r"type JKS, .* PEM \(keytool -list -rfc -keystore a.jks > ca.pem",
        ),
        ({"ssl.truststore.location": "a.p12"}, r"type PKCS12, .* PEM \(openssl pkcs12 -in a.p12 -nokeys"),
        ({"ssl.truststore.type": "PEM"}, "ssl.truststore.type is set without a truststore"),
        ({"ssl.truststore.password": "p"}, "ssl.truststore.password is set without"),
        ({**TRUSTED, "ssl.truststore.password": "p"}, "does not go with ssl.truststore.type=PEM"),
        ({**TRUSTED, "ssl.ca.location": "b.pem"}, "set beside ssl.ca.location"),
        ({**TRUSTED, "ssl.truststore.certificates": "CA"}, "set beside ssl.ca.pem"),
        ({"ssl.ca.location": "b.pem", "ssl.ca.pem": "CA"}, "beside certificates as a text"),
        ({"ssl.keystore.location": "k.jks"}, r"type JKS, .* by keytool -importkeystore -srckeystore k.jks"),
        ({"ssl.keystore.password": "p"}, "ssl.keystore.password is set without a keystore"),
        ({"ssl.keystore.type": "PEM"}, "ssl.keystore.type is set without a keystore"),
        (
            {"ssl.keystore.location": "k.p12", "ssl.key.location": "k.pem"},
            "ssl.keystore.location is set beside ssl.key.location",
        ),
        (
            {"ssl.keystore.location": "k", "ssl.keystore.type": "PEM", "ssl.keystore.password": "p"},
            "does not go with ssl.keystore.type=PEM",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.login.callback.handler.class": "com.example.Login",
            },
            "names a class of Java",
        ),
    ],
)
def test_what_is_set_by_half_is_named_with_its_remedy(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidProgramError, match=expected):
        settings(properties)


@pytest.mark.skipif(client_library._client_has_kerberos(), reason="this client was built with Kerberos")
def test_kerberos_is_refused_where_the_client_was_built_without() -> None:
    found = consumer_settings(
        "KafkaSource",
        {**TLS, "security.protocol": "SASL_PLAINTEXT"} | {"sasl.kerberos.service.name": "kafka"},
    )
    with pytest.raises(InvalidProgramError, match=r"GSSAPI .* built without it, .*pip install --no-binary"):
        require_mechanism("KafkaSource", found, commits=False)


def test_a_commit_by_kerberos_needs_one_more_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_library, "_client_has_kerberos", lambda: True)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    found = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    require_mechanism("KafkaSink", found, commits=False)
    with pytest.raises(InvalidProgramError, match="pip install gssapi"):
        require_mechanism("KafkaSink", found, commits=True)

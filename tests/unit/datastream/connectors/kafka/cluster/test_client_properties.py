"""Properties as a program gives them: secrets are hidden, and values become texts."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties, as_text
from yarrow.runtime.common.errors import InvalidProgramError

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a \\"b\\" c";'
)


def test_secrets_are_hidden() -> None:
    properties = ClientProperties(
        {"bootstrap.servers": "b:1", "sasl.password": "pa55", "sasl.jaas.config": PLAIN, "ssl.key.pem": "KEY"}
    )
    assert "pa55" not in repr(properties) and "me" not in repr(properties) and "KEY" not in repr(properties)
    assert "b:1" in repr(properties)
    assert properties.with_secrets_hidden("login with pa55 refused") == "login with ****** refused"


@pytest.mark.parametrize("option", ['password="hunter2"', "password='hunter2'", "clientSecret=hunter2"])
def test_secrets_within_jaas_are_hidden(option: str) -> None:
    properties = ClientProperties({"sasl.jaas.config": f'x required username="u" {option};'})
    assert properties.with_secrets_hidden("bad secret hunter2") == "bad secret ******"


def test_values_become_texts() -> None:
    assert as_text("KafkaSource", "a", True) == ("a", "true")
    assert as_text("KafkaSource", "a", 5) == ("a", "5")
    with pytest.raises(InvalidProgramError, match="property a must be a str or a number, not list"):
        as_text("KafkaSource", "a", [])
    with pytest.raises(InvalidProgramError, match="must be a str, not 3"):
        as_text("KafkaSource", 3, "x")

"""ClientProperties: the properties of a Kafka client as a program gives them, which hide their secrets.

Owner: none (pure values). Names are those of Java's clients; `client_settings` translates them. Must not import the
client library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.datastream.connectors.kafka.cluster.jaas import jaas_secrets
from yarrow.runtime.common.errors import InvalidProgramError

#: How the ids of clients begin: a property of sources and sinks, which the client does not know.
CLIENT_ID_PREFIX: Final = "client.id.prefix"

#: Whether sources and sinks show the metrics of their clients. Each has one of them, and programs share properties.
CONSUMER_METRICS: Final = "register.consumer.metrics"
PRODUCER_METRICS: Final = "register.producer.metrics"

_PRIVATE_KEYS: Final = frozenset({"ssl.key.pem", "ssl.keystore.key"})


def is_secret(key: str) -> bool:
    """Whether the value of this property must not be shown."""
    return is_secret_key(key) or key in _PRIVATE_KEYS


class ClientProperties(Mapping[str, str]):
    """Properties by name, as texts. `repr` hides the values of secrets."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values = dict(properties)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = {key: REDACTED if is_secret(key) else value for key, value in self._values.items()}
        return f"ClientProperties({shown})"

    def with_secrets_hidden(self, text: str) -> str:
        """`text`, for example an error of the client, without the values of secrets."""
        secrets = {value for key, value in self._values.items() if is_secret(key)}
        secrets |= jaas_secrets(self._values.get("sasl.jaas.config", ""))
        # A secret may be a part of a longer one.
        for value in sorted(secrets, key=len, reverse=True):
            if value:
                text = text.replace(value, REDACTED)
        return text


def as_text(owner: str, key: object, value: object) -> tuple[str, str]:
    """A property as programs give it, in the form of texts. Raises InvalidProgramError for another kind of value."""
    if not isinstance(key, str):
        raise InvalidProgramError(f"{owner}: the name of a property must be a str, not {key!r}")
    if isinstance(value, bool):
        return key, "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise InvalidProgramError(
            f"{owner}: property {key} must be a str or a number, not {type(value).__name__}"
        )
    return key, str(value)

"""Properties of Kafka's Java clients as settings of librdkafka, checked before anything connects.

Owner: none (pure values and functions). Programs written for PyFlink name properties as Java's clients do. A property
that librdkafka calls otherwise is translated. An unknown or half-configured one is refused with its remedy. Secrets
stay out of `repr`. Must not import the client library.

Sources: "Consumer Configs" and "Producer Configs" of Kafka's documentation, CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.runtime.common.errors import InvalidProgramError

#: How the ids of clients begin: a property of sources and sinks, which the client does not know.
CLIENT_ID_PREFIX: Final = "client.id.prefix"

#: Properties of every client: Java's name -> librdkafka's.
CONNECTION: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable": "socket.keepalive.enable",
    "socket.timeout.ms": "socket.timeout.ms",
    "broker.address.family": "broker.address.family",
    "security.protocol": "security.protocol",
}

_SASL: Final = {
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "sasl.kerberos.keytab": "sasl.kerberos.keytab",
    "sasl.kerberos.principal": "sasl.kerberos.principal",
    "sasl.kerberos.kinit.cmd": "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions": "sasl.oauthbearer.extensions",
}

_SSL: Final = {
    "ssl.ca.location": "ssl.ca.location",
    "ssl.ca.pem": "ssl.ca.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.location",
    "ssl.certificate.pem": "ssl.certificate.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.location",
    "ssl.key.pem": "ssl.key.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.crl.location": "ssl.crl.location",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}

#: Properties of Java's clients that mean nothing to librdkafka: metrics, Java's providers, renewal of its tickets.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.secure.random.implementation",
    }
)
#: The same by the beginnings of their names.
_PREFIXES_WITHOUT_EFFECT: Final = ("metrics.", "sasl.login.refresh.")

CONSUMER: Final = {
    "allow.auto.create.topics": "allow.auto.create.topics",
    "auto.offset.reset": "auto.offset.reset",
    "check.crcs": "check.crcs",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "queued.max.messages.kbytes": "queued.max.messages.kbytes",
    "queued.min.messages": "queued.min.messages",
}

#: Properties of a consumer that mean nothing where the engine assigns partitions and keeps positions.
CONSUMER_WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "enable.auto.commit",
        "exclude.internal.topics",
        "flink.disable-metrics",
        "flink.poll-timeout",
        "group.remote.assignor",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "interceptor.classes",
        "key.deserializer",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "value.deserializer",
        # Programs for Kafka 0.8 name it, and every later consumer passes over it.
        "zookeeper.connect",
    }
)

PRODUCER: Final = {
    "acks": "acks",
    "allow.auto.create.topics": "allow.auto.create.topics",
    "batch.size": "batch.size",
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.level": "compression.level",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "message.max.bytes": "message.max.bytes",
    "message.timeout.ms": "message.timeout.ms",
    "partitioner": "partitioner",
    "queue.buffering.max.kbytes": "queue.buffering.max.kbytes",
    "queue.buffering.max.messages": "queue.buffering.max.messages",
    "retries": "retries",
    "sticky.partitioning.linger.ms": "sticky.partitioning.linger.ms",
    "transaction.timeout.ms": "transaction.timeout.ms",
}

#: Properties of a producer that mean nothing where librdkafka sends and the sink serializes.
PRODUCER_WITHOUT_EFFECT: Final = frozenset(
    {
        "interceptor.classes",
        "key.serializer",
        "max.block.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "value.serializer",
    }
)
#: Names of partitioners that librdkafka has; the first chooses as Java's clients do.
_PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "random",
    "fnv1a_random",
    "fnv1a",
)

_STORES: Final = {
    "ssl.truststore.location": "ssl.ca.location, a file with the certificates of the authorities in PEM",
    "ssl.truststore.password": "ssl.ca.location, which needs no password",
    "ssl.truststore.type": "ssl.ca.location, a file in PEM",
    "ssl.trustmanager.algorithm": "ssl.ca.location, a file in PEM",
    "ssl.keymanager.algorithm": "ssl.certificate.location and ssl.key.location, files in PEM",
    "ssl.provider": "ssl.ca.location: OpenSSL is the provider",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.token.endpoint.url with client id and secret",
    "sasl.client.callback.handler.class": "sasl.username and sasl.password",
    "sasl.login.class": "sasl.username and sasl.password",
}
#: Keystores that OpenSSL reads.
_READABLE_STORES: Final = {"PKCS12", "PEM"}

#: An option of a JAAS text: its name and its value in double quotes, in single quotes or in none.
_JAAS_OPTION: Final = re.compile(
    r"""([A-Za-z]\w*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
#: Options of a JAAS login module: JAAS's name -> librdkafka's.
_JAAS: Final = {
    "username": "sasl.username",
    "password": "sasl.password",
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_JAAS_SECRETS: Final = frozenset({"password", "clientSecret"})
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def is_secret(key: str) -> bool:
    """Whether the value of this property must not be shown."""
    return is_secret_key(key) or key in {"sasl.jaas.config", "ssl.key.pem", "ssl.keystore.key"}


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
        options = _jaas_options(self._values.get("sasl.jaas.config", ""))
        secrets |= {value for name, value in options if name in _JAAS_SECRETS}
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


def connection_settings(
    owner: str,
    properties: Mapping[str, str],
    own: Mapping[str, str],
    without_effect: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """The settings of librdkafka for the properties of a client.

    `own` has the names of this kind of client besides those of every client. Names of `without_effect` are left out.
    Raises InvalidProgramError naming `owner` and the property that is unknown, half-configured or of Java alone.
    """
    known = {**CONNECTION, **_SASL, **_SSL, **own}
    settings: dict[str, str] = {}
    for key, value in properties.items():
        if key in without_effect or _has_no_effect(key) or key in {"ssl.keystore.type", "sasl.jaas.config"}:
            continue
        if key in _STORES:
            raise InvalidProgramError(
                f"{owner}: property {key} belongs to Java's clients, and no Java is used. Set {_STORES[key]}"
            )
        if key not in known:
            near = difflib.get_close_matches(key, [*known, *sorted(without_effect), *_WITHOUT_EFFECT], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidProgramError(f"{owner}: property {key} is not known{hint}")
        settings[known[key]] = value
    if not settings.get("bootstrap.servers", "").strip():
        raise InvalidProgramError(f"{owner}: set bootstrap.servers, for example 'broker-1:9092'")
    settings |= _of_jaas(owner, properties)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    _check_security(owner, properties, settings)
    return settings


def consumer_settings(owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a consumer that reads assigned partitions from positions of the engine.

    Records of open and aborted transactions are left out unless isolation.level says otherwise. An offset that is not
    on the broker is an error unless auto.offset.reset asks for a reset. Raises InvalidProgramError.
    """
    settings = connection_settings(owner, properties, CONSUMER, _without_effect(CONSUMER, PRODUCER))
    settings.setdefault("isolation.level", "read_committed")
    _one_of(owner, settings, "isolation.level", ("read_committed", "read_uncommitted"))
    reset = settings.get("auto.offset.reset", "none")
    settings["auto.offset.reset"] = "error" if reset in {"none", "error"} else reset
    _one_of(owner, settings, "auto.offset.reset", ("earliest", "latest", "error"), "earliest, latest or none")
    settings.setdefault("allow.auto.create.topics", "false")
    settings |= {"enable.auto.commit": "false", "enable.auto.offset.store": "false"}
    return settings


def producer_settings(owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer. Raises InvalidProgramError.

    The defaults are those of Java's clients. A record is written once although it is sent again
    (enable.idempotence). It counts when all replicas in sync have it (acks=all). A key chooses the same partition.
    """
    for key, instead in (
        ("transactional.id", "set_transactional_id_prefix: each transaction has a name of its own"),
        ("partitioner.class", "set_partitioner of the record serializer, a Python function"),
    ):
        if key in properties:
            raise InvalidProgramError(f"{owner}: property {key} is not for programs. Use {instead}")
    settings = connection_settings(owner, properties, PRODUCER, _without_effect(PRODUCER, CONSUMER))
    if "buffer.memory" in properties:
        size = properties["buffer.memory"]
        if not size.isdecimal():
            raise InvalidProgramError(f"{owner}: property buffer.memory must be bytes, not {size!r}")
        settings["queue.buffering.max.kbytes"] = str(max(1, int(size) // 1024))
    for key, value in (("enable.idempotence", "true"), ("acks", "all"), ("partitioner", _PARTITIONERS[0])):
        settings.setdefault(key, value)
    _one_of(owner, settings, "enable.idempotence", ("true", "false"))
    _one_of(owner, settings, "partitioner", _PARTITIONERS)
    _one_of(owner, settings, "acks", ("all", "-1", "0", "1"))
    if settings["enable.idempotence"] == "true" and settings["acks"] in {"0", "1"}:
        if "enable.idempotence" in properties:
            raise InvalidProgramError(
                f"{owner}: acks={settings['acks']} does not go with enable.idempotence=true: set acks to all"
            )
        settings["enable.idempotence"] = "false"
    return settings


def admin_settings(settings: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a client of administration, which does not understand those named `own`."""
    names = set(own.values()) | {"enable.auto.commit", "enable.auto.offset.store"}
    return {key: value for key, value in settings.items() if key not in names}


def _jaas_options(text: str) -> list[tuple[str, str]]:
    """The options of a login module, with their values unquoted as Java's parser does it."""
    return [
        (name, bare or re.sub(r"\\(.)", r"\1", double or single))
        for name, double, single, bare in _JAAS_OPTION.findall(text)
    ]


def _of_jaas(owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The options of sasl.jaas.config; those of the properties themselves win."""
    text = properties.get("sasl.jaas.config")
    if text is None:
        return {}
    found = {_JAAS[name]: value for name, value in _jaas_options(text) if name in _JAAS}
    if not found and "useTicketCache" not in text:
        # The text itself is a secret.
        raise InvalidProgramError(
            f"{owner}: sasl.jaas.config has no username and password that can be read. Expected is a text like"
            ' \'...PlainLoginModule required username="u" password="p";\'. Or set sasl.username and sasl.password'
        )
    return {key: value for key, value in found.items() if key not in properties}


def _without_effect(own: Mapping[str, str], others: Mapping[str, str]) -> frozenset[str]:
    """Names that a client passes over. Those of the other kind are among them: sources and sinks share properties."""
    return (CONSUMER_WITHOUT_EFFECT | PRODUCER_WITHOUT_EFFECT | others.keys()) - own.keys()


def _has_no_effect(key: str) -> bool:
    return key in _WITHOUT_EFFECT or key.startswith(_PREFIXES_WITHOUT_EFFECT)


def _one_of(
    owner: str, settings: Mapping[str, str], key: str, allowed: tuple[str, ...], shown: str = ""
) -> None:
    if settings[key] not in allowed:
        raise InvalidProgramError(
            f"{owner}: property {key} must be {shown or ' or '.join(allowed)}, not {settings[key]!r}"
        )


def _check_security(owner: str, properties: Mapping[str, str], settings: dict[str, str]) -> None:
    """Raise InvalidProgramError for a protocol, SASL or TLS that is configured by half."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidProgramError(
            f"{owner}: security.protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol!r}"
        )
    for prefix, needed, kind in (("ssl.", "SSL", "TLS"), ("sasl.", "SASL", "SASL")):
        given = next((key for key in properties if key.startswith(prefix) and not _has_no_effect(key)), None)
        if given is not None and needed not in protocol:
            raise InvalidProgramError(
                f"{owner}: {given} is set, but security.protocol is {protocol}, which uses no {kind}."
                f" Set security.protocol to {'SSL or SASL_SSL' if kind == 'TLS' else 'SASL_SSL or SASL_PLAINTEXT'}"
            )
    if "SSL" in protocol:
        _check_tls(owner, properties, settings)
    if "SASL" in protocol:
        _check_sasl(owner, settings)


def _check_tls(owner: str, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
    certificate = next(
        (key for key in ("ssl.certificate.location", "ssl.certificate.pem") if key in settings), None
    )
    key = next((key for key in ("ssl.key.location", "ssl.key.pem") if key in settings), None)
    if (certificate is None) is not (key is None):
        given, missing = (
            (certificate, "ssl.key.location") if key is None else (key, "ssl.certificate.location")
        )
        raise InvalidProgramError(
            f"{owner}: {given} is set without {missing}. A client's certificate needs both certificate and key"
        )
    if "ssl.key.password" in settings and key is None:
        raise InvalidProgramError(f"{owner}: ssl.key.password is set without ssl.key.location")
    store = properties.get("ssl.keystore.type", "PKCS12" if _is_pkcs12(properties) else "JKS").upper()
    if "ssl.keystore.location" in settings and store not in _READABLE_STORES:
        raise InvalidProgramError(
            f"{owner}: ssl.keystore.location is a keystore of type {store}, which Java alone reads. Set"
            " ssl.certificate.location and ssl.key.location (PEM), or a keystore of type PKCS12"
        )


def _is_pkcs12(properties: Mapping[str, str]) -> bool:
    return properties.get("ssl.keystore.location", "").lower().endswith((".p12", ".pfx"))


def _check_sasl(owner: str, settings: dict[str, str]) -> None:
    mechanism = settings.setdefault("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise InvalidProgramError(
            f"{owner}: sasl.mechanism must be one of {', '.join(_MECHANISMS)}, not {mechanism!r}"
        )
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        _require(owner, settings, mechanism, "sasl.username", "sasl.password")
    elif mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.method"] = "oidc"
        names = ("client.id", "client.secret", "token.endpoint.url")
        _require(owner, settings, mechanism, *(f"sasl.oauthbearer.{name}" for name in names))


def _require(owner: str, settings: Mapping[str, str], mechanism: str, *keys: str) -> None:
    for key in keys:
        if not settings.get(key):
            raise InvalidProgramError(
                f"{owner}: sasl.mechanism {mechanism} needs {' and '.join(keys)}, and {key} is missing. Set it, or"
                " give sasl.jaas.config"
            )

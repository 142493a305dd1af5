"""Properties of Kafka's Java clients as settings of librdkafka, checked before anything connects.

Owner: none (pure functions). A property that librdkafka calls otherwise is translated. An unknown one is refused with
its remedy. `property_names` has the tables, and `security_settings` treats TLS and SASL. Must not import the client
library.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.property_names import (
    CONNECTION,
    CONSUMER,
    CONSUMER_WITHOUT_EFFECT,
    PARTITIONERS,
    PRODUCER,
    PRODUCER_WITHOUT_EFFECT,
    WITHOUT_EFFECT,
    has_no_effect,
)
from yarrow.datastream.connectors.kafka.cluster.security_settings import (
    OF_JAVA,
    READ_HERE,
    SECURITY,
    complete_security,
)
from yarrow.runtime.common.errors import InvalidProgramError

#: The client fetches again so soon after its queue was full. Its own default is a second: a reader that empties the
#: queue of small records faster than that would stand still for the rest of it.
_FETCH_BACKOFF_MS: Final = "10"

#: A broker that is asked first: a host or an address, perhaps with a protocol before it and a port behind it.
_SERVER: Final = re.compile(r"(?:\w+://)?(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?")


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
    known = {**CONNECTION, **SECURITY, **own}
    settings: dict[str, str] = {}
    for key, value in properties.items():
        if key in without_effect or has_no_effect(key) or key in READ_HERE:
            continue
        if key in OF_JAVA:
            raise InvalidProgramError(
                f"{owner}: property {key} belongs to Java's clients, and no Java is used. Set {OF_JAVA[key]}"
            )
        if key not in known:
            near = difflib.get_close_matches(
                key, [*known, *sorted(READ_HERE), *sorted(without_effect), *sorted(WITHOUT_EFFECT)], 1
            )
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidProgramError(f"{owner}: property {key} is not known{hint}")
        settings[known[key]] = value
    if not settings.get("bootstrap.servers", "").strip():
        raise InvalidProgramError(f"{owner}: set bootstrap.servers, for example 'broker-1:9092'")
    for server in settings["bootstrap.servers"].split(","):
        if not _SERVER.fullmatch(server.strip()):
            shown = repr(server.strip()) if server.strip() else "an empty entry"
            raise InvalidProgramError(
                f"{owner}: bootstrap.servers has {shown} instead of host:port. Write for example"
                " 'broker-1:9092,broker-2:9092'"
            )
    complete_security(owner, properties, settings)
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
    settings["fetch.queue.backoff.ms"] = _FETCH_BACKOFF_MS
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
    for key, value in (("enable.idempotence", "true"), ("acks", "all"), ("partitioner", PARTITIONERS[0])):
        settings.setdefault(key, value)
    _one_of(owner, settings, "enable.idempotence", ("true", "false"))
    _one_of(owner, settings, "partitioner", PARTITIONERS)
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
    names = set(own.values()) | {"enable.auto.commit", "enable.auto.offset.store", "fetch.queue.backoff.ms"}
    return {key: value for key, value in settings.items() if key not in names}


def _without_effect(own: Mapping[str, str], others: Mapping[str, str]) -> frozenset[str]:
    """Names that a client passes over. Those of the other kind are among them: sources and sinks share properties."""
    return (CONSUMER_WITHOUT_EFFECT | PRODUCER_WITHOUT_EFFECT | others.keys()) - own.keys()


def _one_of(
    owner: str, settings: Mapping[str, str], key: str, allowed: tuple[str, ...], shown: str = ""
) -> None:
    if settings[key] not in allowed:
        raise InvalidProgramError(
            f"{owner}: property {key} must be {shown or ' or '.join(allowed)}, not {settings[key]!r}"
        )

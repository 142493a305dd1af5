"""The one module that imports confluent_kafka: clients made of settings, and what the enumerator asks a cluster.

Owner: the calling thread; a client belongs to one thread. It is imported only where readers and enumerators run, in
workers, after the fork. A program and the master never import it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import cycle
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from yarrow.datastream.connectors.kafka.cluster.access_token import endpoint_is_away
from yarrow.datastream.connectors.kafka.cluster.client_metrics import STATISTICS_MS
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import admin_settings
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaCredentialsError,
    KafkaLoginRefusedError,
    KafkaPropertyRefusedError,
    KafkaTopicMissingError,
    KafkaUnreachableError,
)
from yarrow.datastream.connectors.kafka.cluster.property_names import CONSUMER
from yarrow.datastream.connectors.kafka.cluster.tls_context import check_client_certificate
from yarrow.datastream.connectors.kafka.cluster.tls_diagnosis import tls_failure
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.cluster.unreachable import refused_text, unreachable_text
from yarrow.runtime.common.retry_pauses import RetryPauses

__all__ = [
    "FATAL_ERRORS",
    "OFFSET_BEGINNING",
    "ClusterClient",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "TopicPartition",
    "is_transient",
    "is_unreachable",
    "make_consumer",
    "make_producer",
    "of_client",
]

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
#: In the client's words about a property that it does not take.
_OF_PROPERTY = "configuration property"

#: Errors of a client that mean: no broker answers now. The client tries again by itself.
_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
#: How the client begins its text if the endpoint of OAUTHBEARER has given no token.
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
#: Errors of a partition whose leader changes or was just chosen, as that of a new topic: another question is answered.
_NO_LEADER_YET = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
#: Further answers behind which the same question may be answered.
_TRANSIENT = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
#: Seconds of the pauses between two questions, and the least time for one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_LEAST_SECONDS = 0.1
#: Seconds in which a broker may make a topic that it did not know.
_NEW_TOPIC_SECONDS = 5.0
#: Seconds after which a question looks whether brokers have refused the client meanwhile.
_LOOK_SECONDS = 1.0
#: The same for a setting, before another broker is asked.
_SETTING_SECONDS = 3.0
#: Errors behind which TLS may stand: brokers close a connection whose certificate they refuse.
_TLS_ERRORS = frozenset({KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
#: The id of topics that older brokers have made: 16 bytes of 0.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_UNKNOWN_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

#: The client's log line of a transaction that has failed: description, and Kafka's name of the error.
_TRANSACTION_ERROR = re.compile(r"TXNERR .*?failed in state \w+: (.*) \(([A-Z_]+)\)$", re.DOTALL)
#: What the client raises where it is polled, after an error for which it stops; SystemError when it was calling back.
FATAL_ERRORS = (KafkaException, SystemError)


def is_unreachable(error: KafkaError) -> bool:
    """Whether the error says that brokers cannot be reached."""
    return error.code() in _UNREACHABLE


def is_transient(error: KafkaError) -> bool:
    """Whether the same question may be answered later: the client says so, or brokers are not ready now."""
    code = error.code()
    return error.retriable() or code in _UNREACHABLE or code in _NO_LEADER_YET or code in _TRANSIENT


def make_consumer(
    settings: Mapping[str, str],
    properties: ClientProperties,
    *,
    on_error: Callable[[KafkaError], None],
    on_statistics: Callable[[str], None],
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None],
) -> Consumer:
    """A consumer to which partitions are assigned. Its callbacks run where it is polled.

    Raises KafkaConnectorError for settings that the client refuses, such as a missing file of certificates.
    """
    callbacks = {"error_cb": on_error, "stats_cb": on_statistics, "on_commit": on_commit}
    # The client wants a group, and forms none: nobody subscribes.
    consumer: Consumer = _made(Consumer, {"group.id": "yarrow", **settings, **callbacks}, properties)
    return consumer


def make_producer(
    settings: Mapping[str, str],
    properties: ClientProperties,
    *,
    on_delivery: Callable[[KafkaError, Message], None],
    on_statistics: Callable[[str], None],
    on_transaction_error: Callable[[str, str], None],
) -> Producer:
    """A producer that reports records that could not be written, and no others, where it is polled.

    A transaction that fails drops its records. Only the client's log tells why: `on_transaction_error` gets Kafka's
    name of the error and its description.

    Polling raises what `FATAL_ERRORS` has when the client cannot go on, for example since its transaction was ended.
    Raises KafkaConnectorError for settings that the client refuses.
    """
    reports = {"delivery.report.only.error": True, "on_delivery": on_delivery, "error_cb": _ignore}
    statistics = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": on_statistics}
    log = _ClientLog(on_transaction_error)
    producer: Producer = _made(Producer, {**settings, **reports, **statistics}, properties, log)
    return producer


def _ignore(error: KafkaError) -> None:
    """Errors of connections: the client tries again by itself, and logs them."""


def _made(
    client: Callable[..., Any],
    configuration: dict[str, Any],
    properties: ClientProperties,
    log: logging.Logger | None = None,
) -> Any:
    for key, value in configuration.items():
        # The client does not name a file that it misses.
        if key.startswith("ssl.") and key.endswith(".location") and not os.path.exists(value):
            raise KafkaCredentialsError(
                f"{key}: the file {value} does not exist on the machine where the source or sink runs. Put it there on"
                " every machine, or give its text by the property that ends with .pem"
            )
    check_client_certificate(configuration)
    try:
        return client(configuration, logger=log or _ClientLog())
    except (KafkaException, ValueError, TypeError) as error:
        text = properties.with_secrets_hidden(_text(error))
        # The client also raises these if the system gives it no thread, or while a certificate is being replaced.
        # Both pass by themselves.
        is_property = _OF_PROPERTY in text.lower()
        raise (KafkaPropertyRefusedError if is_property else KafkaConnectorError)(
            f"Kafka's client refuses its properties: {text}"
        ) from None


class _ClientLog(logging.Logger):
    """Takes the log lines of librdkafka. Its warnings repeat with each attempt to connect, so none is above INFO."""

    def __init__(self, on_transaction_error: Callable[[str, str], None] | None = None) -> None:
        super().__init__(_LOG.name)
        self._on_transaction_error = on_transaction_error

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        if self._on_transaction_error is not None:
            text = str(msg) % args if args else str(msg)
            if (found := _TRANSACTION_ERROR.search(text)) is not None:
                self._on_transaction_error(found[2], found[1])
        _LOG.log(min(level, logging.INFO), msg, *args)


def _text(error: BaseException) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


def of_client(partitions: Collection[KafkaTopicPartition]) -> list[TopicPartition]:
    """Partitions in the client's form."""
    return [TopicPartition(entry.topic, entry.partition) for entry in partitions]


def _by_place(partitions: Collection[KafkaTopicPartition]) -> dict[tuple[str, int], KafkaTopicPartition]:
    """Partitions of one cluster by what its client names: topic and number."""
    return {(entry.topic, entry.partition): entry for entry in partitions}


class ClusterClient:
    """Questions to a cluster about topics, offsets and settings; an OffsetFinder.

    `own` has the names of the kind of client whose `settings` are given. `label` names the cluster in errors, by
    default its servers. The first question fails as soon as brokers refuse the login or the certificate: they would
    refuse it again.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        properties: ClientProperties,
        timeout_seconds: float,
        own: Mapping[str, str] = CONSUMER,
        label: str | None = None,
    ) -> None:
        self._settings = settings
        self._properties = properties
        self._servers = label or settings["bootstrap.servers"]
        self._group = settings.get("group.id")
        self._timeout = timeout_seconds
        shows_all = settings.get("isolation.level") == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if shows_all else IsolationLevel.READ_COMMITTED
        #: Errors that the client has reported since the last question.
        self._said: list[KafkaError] = []
        configuration = {**admin_settings(settings, own), "error_cb": self._note}
        self._admin: AdminClient = _made(AdminClient, configuration, properties)

    def _note(self, error: KafkaError) -> None:
        self._said.append(error)

    def _metadata(self, question: str, topic: str | None = None) -> Any:
        """What the cluster says of its topics, or of one. Raises KafkaUnreachableError if no broker answers."""
        return self._asked(
            question, lambda seconds: self._admin.list_topics(topic, timeout=min(seconds, _LOOK_SECONDS))
        )

    def _asked(self, question: str, ask: Callable[[float], T]) -> T:
        """The answer to a question, which is asked again as long as it fails for a time. Raises KafkaConnectorError.

        `ask` gets the seconds that are left. Brokers that refuse the client for good are not asked again.
        """
        self._said.clear()
        pauses = RetryPauses(self._timeout, _FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                return ask(max(_LEAST_SECONDS, pauses.left_seconds))
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                refusal = self._refusal(cause, pauses.left_seconds) if is_unreachable(cause) else None
                pause = pauses.next_seconds() if refusal is None and is_transient(cause) else None
                if pause is None:
                    raise self._failed(error, question, refusal) from error
            time.sleep(pause)
            if cause.code() in _NO_LEADER_YET:
                # The client asks the former leader until it has asked for the topics again.
                with suppress(KafkaException):
                    self._admin.list_topics(None, timeout=_LOOK_SECONDS)

    def _refusal(self, error: KafkaError, left_seconds: float) -> str | None:
        """Why brokers refuse this client for good; None if they may answer later.

        `left_seconds`: what is left of the time for the question.
        """
        # Errors of connections wait until somebody polls.
        self._admin.poll(0)
        codes = {error.code(), *(said.code() for said in self._said)}
        if codes & _TLS_ERRORS and (why := tls_failure(self._settings)) is not None:
            return why
        logins = [said.str() for said in self._said if said.code() == KafkaError._AUTHENTICATION]
        refused = next((text for text in logins if not text.startswith(_NO_TOKEN)), None)
        if refused is None and logins:
            # The client's text is the same for an endpoint that refuses it and for one that is away.
            seconds = max(_LEAST_SECONDS, left_seconds)
            return None if endpoint_is_away(self._settings, seconds) else logins[0]
        return refused

    def topics(self, awaited: Collection[str] = ()) -> dict[str, int]:
        """The number of partitions of each topic. Raises KafkaUnreachableError if no broker answers.

        `awaited`: topics that may be so new that not all brokers know them. The answer waits a few seconds for them.
        """
        pauses = RetryPauses(_NEW_TOPIC_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            found = self._topics()
            if found.keys() >= set(awaited) or (pause := pauses.next_seconds()) is None:
                return found
            time.sleep(pause)

    def _topics(self) -> dict[str, int]:
        found = self._metadata("the list of topics")
        # A topic with another error, for example without a leader, exists.
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if topic.error is None or (topic.partitions and topic.error.code() not in _UNKNOWN_TOPIC)
        }

    def require_topic(self, topic: str | None) -> None:
        """Wait until brokers answer and have the topic, which they may make when they are asked; None = any topic.

        Raises KafkaUnreachableError, or KafkaTopicMissingError for a topic that they do not make.
        """
        pauses = RetryPauses(_NEW_TOPIC_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            found = self._metadata("its topics" if topic is None else f"topic {topic}", topic)
            error = None if topic is None else found.topics[topic].error
            if error is None or error.code() not in _UNKNOWN_TOPIC:
                return
            if (pause := pauses.next_seconds()) is None:
                raise KafkaTopicMissingError(
                    f"KafkaSink: Kafka at {self._servers} has no topic {topic}. Make the topic first: the broker does"
                    " not (auto.create.topics.enable)"
                )
            time.sleep(pause)

    def broker_setting(self, name: str) -> str | None:
        """A setting of the first broker that answers; None where this user may not see it.

        Raises KafkaUnreachableError if no broker answers.
        """
        question = f"its setting {name}"
        # A broker that has just died is still among them, so another one is asked next.
        brokers = cycle(self._metadata(question).brokers)

        def ask(seconds: float) -> str | None:
            resource = ConfigResource(ResourceType.BROKER, str(next(brokers)))
            answers = self._admin.describe_configs([resource], request_timeout=min(seconds, _SETTING_SECONDS))
            try:
                found = answers[resource].result()[name].value
            except KafkaException as error:
                if is_transient(error.args[0]):
                    raise
                _LOG.warning("Setting %s of the brokers cannot be read: %s", name, _text(error))
                return None
            return None if found is None else str(found)

        try:
            return self._asked(question, ask)
        except (KeyError, StopIteration):
            return None

    def unknown(self, topics: Collection[str]) -> set[str]:
        """Return the topics that the cluster does not have, by its own answer.

        A topic that this user may not see is not among them. Raises KafkaConnectorError if no broker answers.
        """
        return self._described(topics)[1]

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each topic, which a topic that is made again does not keep; topics without one are left out.

        Raises KafkaConnectorError if no broker answers.
        """
        return self._described(topics)[0]

    def _described(self, topics: Collection[str]) -> tuple[dict[str, str], set[str]]:
        """Ids of topics, and those that the cluster does not have."""
        if not topics:
            return {}, set()
        names = sorted(topics)

        def ask(seconds: float) -> tuple[dict[str, str], set[str]]:
            ids: dict[str, str] = {}
            missing: set[str] = set()
            answers = self._admin.describe_topics(TopicCollection(names), request_timeout=seconds)
            for topic, answer in answers.items():
                try:
                    found = str(answer.result().topic_id)
                except KafkaException as error:
                    if is_transient(error.args[0]):
                        raise
                    if error.args[0].code() in _UNKNOWN_TOPIC:
                        missing.add(topic)
                    else:
                        _LOG.warning("Kafka: topic %s cannot be described: %s", topic, _text(error))
                    continue
                if found != _NO_ID:
                    ids[topic] = found
            return ids, missing

        return self._asked(f"topics {', '.join(names)}", ask)

    def beginnings(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The first offset that each partition has."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The offset behind the last record that the isolation level shows."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at_time(
        self, partitions: Collection[KafkaTopicPartition], timestamp_ms: int
    ) -> dict[KafkaTopicPartition, int]:
        """The first offset with that timestamp (ms) or a later one; the end where there is none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        without = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.ends(without) if without else {})

    def _offsets(
        self, partitions: Collection[KafkaTopicPartition], spec: OffsetSpec
    ) -> dict[KafkaTopicPartition, int]:
        asked, named = dict.fromkeys(of_client(partitions), spec), _by_place(partitions)

        def ask(seconds: float) -> dict[KafkaTopicPartition, int]:
            answers = self._admin.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=seconds
            )
            return {
                named[place.topic, place.partition]: answer.result().offset
                for place, answer in answers.items()
            }

        return self._asked(f"offsets of {', '.join(map(str, partitions))}", ask)

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The offsets that the group has committed; partitions without one are left out."""
        group = self._group
        if group is None:
            return {}
        named = _by_place(partitions)

        def ask(seconds: float) -> dict[KafkaTopicPartition, int]:
            asked = ConsumerGroupTopicPartitions(group, of_client(partitions))
            answers = self._admin.list_consumer_group_offsets([asked], request_timeout=seconds)
            found = answers[group].result().topic_partitions
            for place in found:
                if place.error is not None:
                    # An offset that is not told now must not count as one that was never committed.
                    raise KafkaException(place.error)
            return {named[place.topic, place.partition]: place.offset for place in found if place.offset >= 0}

        return self._asked(f"committed offsets of group {group}", ask)

    def _failed(self, error: KafkaException, question: str, refusal: str | None) -> KafkaConnectorError:
        cause: KafkaError = error.args[0]
        if not is_unreachable(cause):
            text = self._properties.with_secrets_hidden(cause.str())
            refused = KafkaConnectorError(f"Kafka at {self._servers} refused {question}: {text}")
            # For example a missing right.
            refused.needs_user = not is_transient(cause)
            return refused
        if refusal is not None:
            text = self._properties.with_secrets_hidden(refusal)
            return KafkaLoginRefusedError(refused_text(self._servers, text, self._settings))
        told = "; ".join(dict.fromkeys([cause.str(), *(said.str() for said in self._said)]))
        text = self._properties.with_secrets_hidden(told)
        return KafkaUnreachableError(unreachable_text(self._servers, question, self._timeout, text))

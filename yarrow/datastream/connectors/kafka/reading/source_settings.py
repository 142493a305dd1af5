"""KafkaSourceSettings: everything that a program has said of a Kafka source, checked.

Owner: none (plain values, which travel to enumerator and readers). Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from yarrow.common.serialization import DeserializationSchema
from yarrow.common.values.error_handling import FAILING, ErrorHandling
from yarrow.datastream.connectors.kafka.cluster.client_properties import (
    CLIENT_ID_PREFIX,
    CONSUMER_METRICS,
    PRODUCER_METRICS,
    ClientProperties,
)
from yarrow.datastream.connectors.kafka.cluster.client_settings import consumer_settings
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.reading.record_deserialization import KafkaRecordDeserializationSchema
from yarrow.datastream.connectors.kafka.reading.subscription import Subscription
from yarrow.runtime.common.errors import InvalidProgramError

OWNER: Final = "KafkaSource"

#: Properties of the source itself, which the client does not know.
DISCOVERY_INTERVAL: Final = "partition.discovery.interval.ms"
COMMIT_ON_CHECKPOINT: Final = "commit.offsets.on.checkpoint"
OFFSET_RESET: Final = "auto.offset.reset"
REQUEST_TIMEOUT: Final = "default.api.timeout.ms"
UNREACHABLE_TIMEOUT: Final = "broker.unreachable.timeout.ms"
_OWN: Final = frozenset(
    {
        DISCOVERY_INTERVAL,
        COMMIT_ON_CHECKPOINT,
        CLIENT_ID_PREFIX,
        REQUEST_TIMEOUT,
        UNREACHABLE_TIMEOUT,
        CONSUMER_METRICS,
        PRODUCER_METRICS,
    }
)

_DISCOVERY_MS: Final = 5 * 60 * 1000
_REQUEST_MS: Final = 30_000
_UNREACHABLE_MS: Final = 120_000


@dataclass(frozen=True)
class KafkaSourceSettings:
    """The description of a source."""

    subscription: Subscription
    schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any]
    starting: KafkaOffsetsInitializer
    #: Where partitions end; None = nowhere.
    stopping: KafkaOffsetsInitializer | None
    properties: ClientProperties
    is_bounded: bool = False
    #: The treatment of records that cannot be read.
    errors: ErrorHandling = FAILING
    #: Partitions that have come to their end are left to a stream that reads on.
    goes_on: bool = False
    #: The id of the cluster that these settings reach; "" = the source reads one cluster alone.
    cluster: str = ""

    def check(self) -> None:
        """Raise InvalidProgramError for the first property that is wrong."""
        _ = self.consumer
        self.check_own()

    def check_own(self) -> None:
        """Raise InvalidProgramError for the first property of the source itself that is wrong."""
        for key, least in ((REQUEST_TIMEOUT, 1), (UNREACHABLE_TIMEOUT, 1), (DISCOVERY_INTERVAL, None)):
            self._milliseconds(key, 1, least)
        for key in (COMMIT_ON_CHECKPOINT, CONSUMER_METRICS):
            if self.properties.get(key, "true").lower() not in {"true", "false"}:
                raise InvalidProgramError(f"{self.owner}: property {key} must be true or false")
        for initializer in (self.starting, self.stopping):
            if initializer is not None and initializer.needs_group and self.group_id is None:
                raise InvalidProgramError(
                    f"{self.owner}: committed offsets are those of a consumer group; name it by set_group_id"
                )

    @property
    def owner(self) -> str:
        """Who is named in errors about properties."""
        return f"cluster {self.cluster}" if self.cluster else OWNER

    @property
    def label(self) -> str:
        """The brokers that are asked first, and the cluster's id, for messages."""
        servers = self.properties["bootstrap.servers"]
        return f"{servers} (cluster {self.cluster})" if self.cluster else servers

    @cached_property
    def consumer(self) -> dict[str, str]:
        """The settings of the client. Raises InvalidProgramError."""
        settings = consumer_settings(self.owner, of_client(self.properties))
        if (prefix := self.client_id_prefix) is not None:
            settings["client.id"] = prefix
        return settings

    @property
    def client_id_prefix(self) -> str | None:
        """How the ids of clients begin, with the cluster's id; None = the program does not say."""
        prefix = self.properties.get(CLIENT_ID_PREFIX)
        return f"{prefix}-{self.cluster}" if prefix is not None and self.cluster else prefix

    @property
    def group_id(self) -> str | None:
        """The consumer group; None = no offsets are committed."""
        return self.properties.get("group.id") or None

    @property
    def commits(self) -> bool:
        """Whether offsets are committed to the group when a checkpoint is complete."""
        wanted = self.properties.get(COMMIT_ON_CHECKPOINT, "true").lower() == "true"
        return wanted and self.group_id is not None

    @property
    def has_client_metrics(self) -> bool:
        """Whether the metrics of Kafka's consumer are shown, too."""
        return self.properties.get(CONSUMER_METRICS, "true").lower() == "true"

    @property
    def skips_removed_records(self) -> bool:
        """Whether reading goes on elsewhere, if the offset to be read next is not on the broker."""
        return self.properties.get(OFFSET_RESET, "none") not in {"none", "error"}

    @property
    def discovery_seconds(self) -> float | None:
        """Seconds between two looks for partitions; None = one look."""
        if self.is_bounded:
            return None
        interval = self._milliseconds(DISCOVERY_INTERVAL, _DISCOVERY_MS)
        return interval / 1000 if interval > 0 else None

    @property
    def request_seconds(self) -> float:
        """Seconds within which the cluster must answer the enumerator."""
        return self._milliseconds(REQUEST_TIMEOUT, _REQUEST_MS) / 1000

    @property
    def unreachable_seconds(self) -> float:
        """Seconds after which a partition whose broker cannot be reached fails the job."""
        return self._milliseconds(UNREACHABLE_TIMEOUT, _UNREACHABLE_MS) / 1000

    def _milliseconds(self, key: str, default: int, least: int | None = None) -> int:
        return milliseconds(self.owner, self.properties, key, default, least)


def of_client(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are not those of the source itself."""
    return {key: value for key, value in properties.items() if key not in _OWN}


def milliseconds(
    owner: str, properties: Mapping[str, str], key: str, default: int, least: int | None = None
) -> int:
    """A property in milliseconds. Raises InvalidProgramError if it is no number or less than `least`."""
    text = properties.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or (least is not None and value < least):
        bound = "" if least is None else f" of {least} or more"
        raise InvalidProgramError(f"{owner}: property {key} must be milliseconds{bound}, not {text!r}")
    return value

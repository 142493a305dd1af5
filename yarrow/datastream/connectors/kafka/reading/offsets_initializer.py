"""KafkaOffsetsInitializer: where reading begins or ends; the enumerator turns it into offsets.

Owner: none for the descriptions, the enumerator's thread for `resolve`. The names and meanings are PyFlink's. Every
offset is found once, by the enumerator, so that a restart does not move it. The beginning of a partition is the one
exception: it stays EARLIEST until the first record is read. Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaConnectorError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST
from yarrow.runtime.common.errors import InvalidProgramError

Offsets = dict[KafkaTopicPartition, int]


class KafkaOffsetResetStrategy(Enum):
    """What stands for an offset that is not known: the end, the beginning, or an error."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class OffsetFinder(Protocol):
    """The cluster, as far as offsets are asked of it. Each method may block, and raises KafkaConnectorError."""

    def ends(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """The offset behind the last record that the isolation level shows."""
        ...

    def at_time(self, partitions: Collection[KafkaTopicPartition], timestamp_ms: int) -> Offsets:
        """The first offset with that timestamp or a later one; the end where there is none."""
        ...

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """The offsets that the group has committed; partitions without one are left out."""
        ...


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    COMMITTED = "committed offsets"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class KafkaOffsetsInitializer:
    """An offset for each partition; made by the static methods."""

    kind: _Kind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Return the beginning of each partition."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Return the end that each partition has when the job starts."""
        return KafkaOffsetsInitializer(_Kind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Return the first record with that timestamp (ms since 1970) or a later one, else the end."""
        if not isinstance(timestamp, int) or timestamp < 0:
            raise InvalidProgramError(
                f"KafkaOffsetsInitializer.timestamp: milliseconds since 1970 are expected, not {timestamp!r}"
            )
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Return what the group has committed, else what the strategy says; NONE fails."""
        return KafkaOffsetsInitializer(_Kind.COMMITTED, _strategy(offset_reset_strategy))

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Return the given offsets; other partitions begin at the group's committed ones, else by the strategy."""
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or not isinstance(offset, int) or offset < 0:
                raise InvalidProgramError(
                    "KafkaOffsetsInitializer.offsets: offsets of 0 or more by KafkaTopicPartition are expected, not"
                    f" {partition!r}: {offset!r}"
                )
        return KafkaOffsetsInitializer(
            _Kind.OFFSETS, _strategy(offset_reset_strategy), given=tuple(sorted(offsets.items()))
        )

    @property
    def needs_group(self) -> bool:
        """Whether offsets of a group are read, without anything that could stand for them."""
        return self.kind is _Kind.COMMITTED

    @property
    def is_earliest(self) -> bool:
        """Whether this is the beginning of partitions."""
        return self.kind is _Kind.EARLIEST

    def __str__(self) -> str:
        return self.kind.value


def _strategy(strategy: object) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise InvalidProgramError(
            f"offset_reset_strategy must be a KafkaOffsetResetStrategy, not {strategy!r}"
        )
    return strategy


def resolve(
    initializer: KafkaOffsetsInitializer,
    partitions: Collection[KafkaTopicPartition],
    finder: OffsetFinder,
    *,
    has_group: bool,
) -> Offsets:
    """The offset of each partition. Raises KafkaConnectorError naming partitions for which there is none.

    The beginning of a partition is EARLIEST.
    """
    if not partitions:
        return {}
    match initializer.kind:
        case _Kind.EARLIEST:
            return dict.fromkeys(partitions, EARLIEST)
        case _Kind.LATEST:
            return finder.ends(partitions)
        case _Kind.TIMESTAMP:
            return finder.at_time(partitions, initializer.timestamp_ms)
    given = dict(initializer.given)
    # An offset that is given without a cluster holds for the partition of each cluster.
    asked = {place: given.get(place, given.get(replace(place, cluster=""))) for place in partitions}
    found = {place: offset for place, offset in asked.items() if offset is not None}
    if has_group and (rest := _without(partitions, found)):
        found |= finder.committed(rest)
    if rest := _without(partitions, found):
        found |= _reset(initializer, rest, finder)
    return found


def _without(
    partitions: Iterable[KafkaTopicPartition], found: Mapping[KafkaTopicPartition, int]
) -> list[KafkaTopicPartition]:
    return sorted(partition for partition in partitions if partition not in found)


def _reset(
    initializer: KafkaOffsetsInitializer, rest: Collection[KafkaTopicPartition], finder: OffsetFinder
) -> Offsets:
    if initializer.reset is KafkaOffsetResetStrategy.EARLIEST:
        return dict.fromkeys(rest, EARLIEST)
    if initializer.reset is KafkaOffsetResetStrategy.LATEST:
        return finder.ends(rest)
    raise KafkaConnectorError(
        f"the group has committed no offset for {', '.join(map(str, rest))}. Begin with a KafkaOffsetResetStrategy of"
        " EARLIEST or LATEST, or with KafkaOffsetsInitializer.earliest()"
    )

"""What a consumer's statistics tell of its partitions: where each ends, and whether its broker can be reached.

Owner: none (pure). Source: STATISTICS.md of librdkafka. Only the fields that are needed are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition


class _Broker(msgspec.Struct):
    nodeid: int
    state: str


class _Partition(msgspec.Struct):
    leader: int = -1
    hi_offset: int = -1
    ls_offset: int = -1


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct):
    ts: int = 0
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


_DECODER = msgspec.json.Decoder(_Statistics)
#: States of a connection that can carry a request.
_CONNECTED = frozenset({"UP", "UPDATE"})


class PartitionFacts(NamedTuple):
    """What is known of the partitions of one consumer."""

    #: The offset behind the last record, by partition; partitions whose end is not known are left out.
    ends: dict[KafkaTopicPartition, int]
    #: Partitions whose leader is not known or not connected, with what is known of that leader.
    unreachable: dict[KafkaTopicPartition, str]
    #: When the client made the statistics, on its own clock, which never goes back. They may be taken much later.
    seconds: float


def partition_facts(
    text: str | bytes, partitions: Iterable[KafkaTopicPartition], *, committed_only: bool
) -> PartitionFacts:
    """The facts of `partitions`. `committed_only`: the end lies before the first open transaction."""
    found = _DECODER.decode(text)
    brokers = {
        broker.nodeid: (name, broker.state) for name, broker in found.brokers.items() if broker.nodeid >= 0
    }
    facts = PartitionFacts({}, {}, found.ts / 1_000_000)
    for place in partitions:
        topic = found.topics.get(place.topic)
        partition = None if topic is None else topic.partitions.get(str(place.partition))
        if partition is None:
            continue  # Assigned a moment ago.
        end = partition.ls_offset if committed_only else partition.hi_offset
        if end >= 0:
            facts.ends[place] = end
        name, state = brokers.get(partition.leader, ("", ""))
        if state not in _CONNECTED:
            facts.unreachable[place] = f"broker {name} is in state {state}" if name else "it has no leader"
    return facts

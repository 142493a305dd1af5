"""Statistics of a consumer tell ends of partitions, and which leaders are connected."""

from __future__ import annotations

import json

from yarrow.datastream.connectors.kafka.cluster.client_statistics import partition_facts
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition

STATISTICS = json.dumps(
    {
        "name": "c",
        "ts": 2_500_000,
        "brokers": {
            "a:1/1": {"nodeid": 1, "state": "UP", "rtt": {}},
            "b:1/2": {"nodeid": 2, "state": "TRY_CONNECT"},
            "a:1/bootstrap": {"nodeid": -1, "state": "UP"},
        },
        "topics": {
            "t": {
                "partitions": {
                    "0": {"leader": 1, "hi_offset": 9, "ls_offset": 7, "txbytes": 1},
                    "1": {"leader": 2, "hi_offset": 5, "ls_offset": 5},
                    "2": {"leader": -1, "hi_offset": -1001, "ls_offset": -1001},
                    "-1": {"leader": -1},
                }
            }
        },
    }
)
ZERO, ONE, TWO = (KafkaTopicPartition("t", index) for index in range(3))


def test_ends_follow_the_isolation_level() -> None:
    assert partition_facts(STATISTICS, [ZERO, ONE, TWO], committed_only=True).ends == {ZERO: 7, ONE: 5}
    assert partition_facts(STATISTICS, [ZERO], committed_only=False).ends == {ZERO: 9}


def test_partitions_without_a_connected_leader_are_unreachable() -> None:
    facts = partition_facts(STATISTICS, [ZERO, ONE, TWO], committed_only=True)
    assert facts.unreachable == {ONE: "broker b:1/2 is in state TRY_CONNECT", TWO: "it has no leader"}


def test_nothing_is_known_of_a_partition_that_is_not_in_the_statistics() -> None:
    facts = partition_facts(STATISTICS, [KafkaTopicPartition("u", 0)], committed_only=True)
    assert (facts.ends, facts.unreachable) == ({}, {})


def test_statistics_tell_when_they_were_made() -> None:
    assert partition_facts(STATISTICS, [], committed_only=True).seconds == 2.5

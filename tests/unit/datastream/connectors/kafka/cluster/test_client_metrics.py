"""Statistics of a client become metrics by Java's names: counts, rates between two statistics, means over brokers."""

from __future__ import annotations

import json
from typing import Any

from yarrow.datastream.connectors.kafka.cluster.client_metrics import OF_CONSUMER, ClientMetrics


def statistics(second: int, received: int, **brokers: dict[str, Any]) -> str:
    return json.dumps(
        {
            "ts": second * 1_000_000,
            "rxmsgs": received,
            "rxmsg_bytes": received * 10,
            "tx": second,
            "name": "left out",
            "brokers": brokers,
        }
    )


def test_counts_and_rates() -> None:
    metrics = ClientMetrics(OF_CONSUMER)
    assert metrics.values == {}
    metrics.take(statistics(10, 100))
    assert metrics.values["records-consumed-total"] == 100
    assert "records-consumed-rate" not in metrics.values, "one reading has no rate"
    metrics.take(statistics(12, 160))
    assert metrics.values["records-consumed-total"] == 160
    assert metrics.values["records-consumed-rate"] == 30
    assert metrics.values["bytes-consumed-rate"] == 300
    assert metrics.values["request-total"] == 12 and metrics.values["request-rate"] == 1


def test_brokers_are_taken_together() -> None:
    metrics = ClientMetrics({})
    first = {
        "state": "UP",
        "waitresp_cnt": 2,
        "rtt": {"avg": 1000, "cnt": 3},
        "int_latency": {"avg": 9, "cnt": 0},
    }
    second = {"state": "UPDATE", "waitresp_cnt": 1, "rtt": {"avg": 5000, "cnt": 1}}
    metrics.take(statistics(1, 0, a=first, b=second, c={"state": "DOWN"}))
    assert metrics.values["connection-count"] == 2
    assert metrics.values["requests-in-flight"] == 3
    assert metrics.values["request-latency-avg"] == 2.0
    assert "record-queue-time-avg" not in metrics.values
    assert "records-consumed-total" not in metrics.values


def test_counts_of_clients_that_follow_each_other_are_added() -> None:
    metrics = ClientMetrics(OF_CONSUMER)
    metrics.next_client()
    metrics.take(statistics(1, 100))
    metrics.next_client()
    metrics.take(statistics(2, 5))
    assert metrics.values["records-consumed-total"] == 105
    assert "records-consumed-rate" not in metrics.values, "the counts are those of another client"

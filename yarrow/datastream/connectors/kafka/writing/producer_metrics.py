"""ProducerMetrics: metrics of the producers of one writer, which follow each other, by the names of Java's producer.

Owner: the task's thread counts; the reporting thread reads, about once a second. A transaction has a client of its
own, which may live shorter than a second and then makes no statistics. So records are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.client_metrics import ClientMetrics
from yarrow.runtime.metrics.rate import RateBetweenReadings

_PREFIX: Final = "KafkaProducer."


class ProducerMetrics:
    """The metrics of one writer."""

    def __init__(self) -> None:
        self.clients = ClientMetrics({})
        #: Records that clients have taken, and those that could not be written.
        self.records = 0
        self.errors = 0
        self._rate = RateBetweenReadings(lambda: self.records)

    def values(self) -> Mapping[str, float]:
        """The metrics by name."""
        own = {
            "record-send-total": self.records,
            "record-send-rate": self._rate(),
            "record-error-total": self.errors,
        }
        return {f"{_PREFIX}{name}": value for name, value in {**self.clients.values, **own}.items()}

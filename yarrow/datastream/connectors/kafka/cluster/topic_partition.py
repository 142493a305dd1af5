"""KafkaTopicPartition: a partition of a topic, as programs, readers and clients name it.

Owner: none; a plain value. Must not import the client library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic, counted from 0."""

    topic: str
    partition: int
    #: The id of the cluster; "" = the source reads one cluster alone.
    cluster: str = ""

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        return f"{self.cluster}/{place}" if self.cluster else place

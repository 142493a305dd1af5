"""Metrics of a Kafka reader by Flink's names: offsets of partitions, commits, and those of its clients.

Owner: the reporting thread, which only looks. Source of the names: Flink's pages on Kafka, and its metrics by cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yarrow.datastream.connectors.kafka.reading.partition_fetcher import PartitionFetcher
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit

#: What stands for an offset that is not known.
_NO_OFFSET = -1


def reader_metrics(
    splits: Iterable[KafkaPartitionSplit],
    fetchers: Mapping[str, PartitionFetcher],
    *,
    has_client_metrics: bool,
) -> dict[str, float]:
    """The metrics of splits and of the fetchers that read them, by name."""
    found: dict[str, float] = {}
    lags: dict[str, int] = {}
    for split in splits:
        fetcher = fetchers.get(split.cluster)
        if fetcher is None:
            continue  # It begins a moment later.
        place = split.topic_partition
        prefix = f"{_prefix(split.cluster)}topic.{split.topic}.partition.{split.partition}."
        found[f"{prefix}currentOffset"] = split.position - 1 if split.position >= 0 else _NO_OFFSET
        found[f"{prefix}committedOffset"] = fetcher.committed.get(place, _NO_OFFSET)
        end = fetcher.ends.get(place)
        if end is not None and split.position >= 0:
            lags[split.cluster] = max(lags.get(split.cluster, 0), end - split.position)
    for cluster, fetcher in fetchers.items():
        prefix = _prefix(cluster)
        found[f"{prefix}commitsSucceeded"] = fetcher.commits_succeeded
        found[f"{prefix}commitsFailed"] = fetcher.commits_failed
        if has_client_metrics:
            found |= {f"{prefix}KafkaConsumer.{name}": at for name, at in fetcher.metrics.values.items()}
            if cluster in lags:
                found[f"{prefix}KafkaConsumer.records-lag-max"] = lags[cluster]
    return found


def _prefix(cluster: str) -> str:
    return (
        f"DynamicKafkaSource.kafkaCluster.{cluster}.KafkaSourceReader." if cluster else "KafkaSourceReader."
    )

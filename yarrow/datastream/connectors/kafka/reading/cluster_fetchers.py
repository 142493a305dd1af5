"""ClusterFetchers: the fetch threads of one reader, one for each cluster, with one queue of what they have fetched.

Owner: the task's thread, which gives commands; the fetch threads fill the queue. A source of one cluster has one
thread. Otherwise the thread of a cluster begins with the first partition, and ends when the cluster has gone. Must not
know rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import AssignedPartition, HandOver
from yarrow.datastream.connectors.kafka.reading.partition_fetcher import LookUp, PartitionFetcher
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings


class _Cluster:
    """One cluster that is read."""

    def __init__(self, fetcher: PartitionFetcher) -> None:
        self.fetcher = fetcher
        self.partitions: set[KafkaTopicPartition] = set()


class ClusterFetchers:
    """The fetch threads of one reader."""

    def __init__(
        self,
        settings: KafkaSourceSettings,
        subtask: int,
        wake_reader: Callable[[], None],
        *,
        takes_records: bool,
        look_up: LookUp | None = None,
    ) -> None:
        """`look_up` tells how clusters are reached; None = `settings` say it of the only one."""
        self._settings = settings
        self._subtask = subtask
        self._takes_records = takes_records
        self._look_up = look_up
        self.items = HandOver(wake_reader)
        self._is_started = False
        self._clusters: dict[str, _Cluster] = {}
        if look_up is None:
            self._clusters[settings.cluster] = self._made(settings.cluster)

    def _made(self, cluster: str) -> _Cluster:
        settings = replace(self._settings, cluster=cluster)
        fetcher = PartitionFetcher(
            settings, self._subtask, self.items, takes_records=self._takes_records, look_up=self._look_up
        )
        if self._is_started:
            fetcher.start()
        return _Cluster(fetcher)

    def start(self) -> None:
        """Start the threads."""
        self._is_started = True
        for cluster in self._clusters.values():
            cluster.fetcher.start()

    def assign(self, assignments: Iterable[AssignedPartition]) -> None:
        """Fetch these partitions, too."""
        by_cluster: dict[str, list[AssignedPartition]] = defaultdict(list)
        for assignment in assignments:
            by_cluster[assignment.partition.cluster].append(assignment)
        for name, added in by_cluster.items():
            if (cluster := self._clusters.get(name)) is None:
                cluster = self._clusters[name] = self._made(name)
            cluster.partitions.update(assignment.partition for assignment in added)
            cluster.fetcher.assign(added)

    def release(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Fetch these partitions no more."""
        for cluster, chosen in self._chosen(partitions):
            cluster.fetcher.release(chosen)
            cluster.partitions.difference_update(chosen)

    def leave(self, cluster: str) -> None:
        """End the thread of a cluster, after the commits that it was told. It begins anew with the next partition."""
        if self._look_up is not None and (found := self._clusters.pop(cluster, None)) is not None:
            found.fetcher.stop()

    def pause(self, partitions: Iterable[KafkaTopicPartition], *, paused: bool) -> None:
        """Stop fetching partitions, or fetch them again."""
        for cluster, chosen in self._chosen(partitions):
            cluster.fetcher.pause(chosen, paused=paused)

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit offsets to the group of each cluster, without waiting. Clusters that have gone are left out."""
        for cluster, chosen in self._chosen(offsets):
            cluster.fetcher.commit({place: offsets[place] for place in chosen})

    def _chosen(
        self, partitions: Iterable[KafkaTopicPartition]
    ) -> list[tuple[_Cluster, list[KafkaTopicPartition]]]:
        """Partitions by their cluster, as far as it is read."""
        by_cluster: dict[str, list[KafkaTopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_cluster[partition.cluster].append(partition)
        return [
            (self._clusters[name], chosen) for name, chosen in by_cluster.items() if name in self._clusters
        ]

    @property
    def ends(self) -> Mapping[KafkaTopicPartition, int]:
        """The offset behind the last record of each partition, as far as it is known. Any thread."""
        found: dict[KafkaTopicPartition, int] = {}
        for cluster in list(self._clusters.values()):
            found |= cluster.fetcher.ends
        return found

    @property
    def by_cluster(self) -> Mapping[str, PartitionFetcher]:
        """The fetcher of each cluster. Any thread may look at what fetchers show to any thread."""
        return {name: cluster.fetcher for name, cluster in list(self._clusters.items())}

    @property
    def unreachable(self) -> frozenset[KafkaTopicPartition]:
        """The partitions whose broker, or whose cluster, cannot be reached."""
        found: frozenset[KafkaTopicPartition] = frozenset()
        for cluster in self._clusters.values():
            fetcher = cluster.fetcher
            gone = fetcher.unreachable if fetcher.is_reachable else frozenset(cluster.partitions)
            if gone:
                found |= gone
        return found

    def close(self) -> None:
        """End the threads and close the clients."""
        for cluster in self._clusters.values():
            cluster.fetcher.stop()
        for cluster in self._clusters.values():
            cluster.fetcher.join()

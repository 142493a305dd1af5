"""DynamicKafkaEnumerator: finds clusters by a metadata service, with a KafkaSourceEnumerator for each of them.

Owner: the enumerator's thread. It decides which clusters are read; the enumerators of clusters find and assign their
partitions. Neither events nor states hold properties of clusters: readers ask the service themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yarrow.datastream.connectors.base import SplitEnumerator, SplitEnumeratorContext
from yarrow.datastream.connectors.discovery import DiscoveryTimer, gone
from yarrow.datastream.connectors.dynamic_kafka.dynamic_settings import (
    Clusters,
    DynamicSourceSettings,
    KafkaMetadataError,
)
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaTopicMissingError,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.kafka_enumerator import KafkaSourceEnumerator
from yarrow.datastream.connectors.kafka.reading.partition_assignment import (
    KafkaEnumeratorState,
    PartitionAssignment,
)
from yarrow.datastream.connectors.kafka.reading.partition_events import (
    ClusterMoved,
    PartitionMissing,
    SplitsRemoved,
)
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings

_LOG = logging.getLogger(__name__)

#: Seconds for which a cluster that is not active rests, where no discovery ends its rest.
_REST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DynamicKafkaEnumeratorState:
    """The enumerator's part of a checkpoint: the state of each cluster's enumerator by the cluster's id."""

    clusters: tuple[tuple[str, KafkaEnumeratorState], ...]


class _ClusterContext(SplitEnumeratorContext[KafkaPartitionSplit]):
    """The engine as the enumerator of one cluster sees it."""

    def __init__(
        self,
        context: SplitEnumeratorContext[KafkaPartitionSplit],
        guarded: Callable[[Callable[[], None]], None],
        tell_if_complete: Callable[[int], None],
    ) -> None:
        self._context = context
        self._guarded = guarded
        self._tell_if_complete = tell_if_complete

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def registered_readers(self) -> Mapping[int, str]:
        return self._context.registered_readers

    def assign_split(self, split: KafkaPartitionSplit, subtask: int) -> None:
        self._context.assign_split(split, subtask)

    def signal_no_more_splits(self, subtask: int) -> None:
        self._tell_if_complete(subtask)

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        self._context.send_event_to_reader(subtask, event)

    def call_later(self, seconds: float, action: Any) -> None:
        self._context.call_later(seconds, lambda: self._guarded(action))


class _Cluster:
    """A cluster that is read."""

    def __init__(self, settings: KafkaSourceSettings, enumerator: KafkaSourceEnumerator) -> None:
        self.settings = settings
        self.enumerator = enumerator


class DynamicKafkaEnumerator(SplitEnumerator[KafkaPartitionSplit]):
    """Assigns the partitions of the topics of streams."""

    def __init__(
        self,
        context: SplitEnumeratorContext[KafkaPartitionSplit],
        settings: DynamicSourceSettings,
        restored: DynamicKafkaEnumeratorState | None,
    ) -> None:
        if restored is not None and not isinstance(restored, DynamicKafkaEnumeratorState):
            raise KafkaConnectorError(
                f"DynamicKafkaSource: the checkpoint has the state of another source ({type(restored).__name__})."
                " Give the source another uid"
            )
        self._context = context
        self._settings = settings
        self._is_restored = restored is not None
        #: States of clusters that the service has not told of since the restore.
        self._waiting = {} if restored is None else dict(restored.clusters)
        self._clusters: dict[str, _Cluster] = {}
        #: Partitions of clusters that have gone: a reader that goes back to an older checkpoint may still hold them.
        self._removed: set[KafkaTopicPartition] = set()
        self._has_asked = False
        self._failures = 0
        self._timer = DiscoveryTimer(context, settings.discovery_seconds, self._discover)

    def start(self) -> None:
        """Ask the service, and the clusters. Raises KafkaConnectorError if that fails for a job that begins."""
        self._discover()
        self._timer.begin()

    # ------------------------------------------------------------------ clusters

    def _discover(self) -> None:
        """Ask the service. Raises KafkaMetadataError where it fails once too often."""
        try:
            found = self._settings.clusters()
            self._require_named(found)
        except KafkaMetadataError as error:
            self._failures += 1
            if self._failures >= self._settings.most_failures or self._settings.discovery_seconds is None:
                raise
            _LOG.warning(
                "Kafka: %s. Failure %d; the job fails with %d",
                error,
                self._failures,
                self._settings.most_failures,
            )
            return
        self._failures = 0
        self._take(found.settings)
        self._has_asked = True
        for subtask in sorted(self._context.registered_readers):
            self._tell_if_complete(subtask)

    def _require_named(self, found: Clusters) -> None:
        """Raise KafkaTopicMissingError for a stream that the service does not know, where the job begins.

        Raises KafkaMetadataError behind that. Partitions that are released for one such answer would begin anew at the
        next.
        """
        if not found.missing:
            return
        text = (
            f"stream {', '.join(found.missing)} is not known to metadata service {self._settings.service_name}."
            " Correct the id of the stream, or what the service reads"
        )
        if self._has_asked or self._is_restored:
            raise KafkaMetadataError(text)
        raise KafkaTopicMissingError(text)

    def _take(self, found: Mapping[str, KafkaSourceSettings]) -> None:
        """Read these clusters, and no others."""
        for name in gone(self._waiting.keys(), found.keys()):
            self._release_waiting(name)
        for name in gone(self._clusters.keys(), found.keys()):
            self._removed.update(self._clusters.pop(name).enumerator.release())
        for name, settings in found.items():
            known = self._clusters.get(name)
            if known is None:
                self._add(name, settings)
            elif known.settings != settings:
                self._change(known, settings)

    def _release_waiting(self, name: str) -> None:
        """Release the partitions of a cluster that has gone since the checkpoint."""
        partitions = self._waiting.pop(name).known
        if partitions and self._settings.common.is_bounded:
            raise KafkaTopicMissingError(
                f"the metadata service does not tell of cluster {name} any more. Whether the job had read"
                f" {', '.join(map(str, partitions))} to the end is not known, so records may be missing. Read what is"
                " left with a new job"
            )
        if partitions:
            _LOG.warning(
                "Kafka: cluster %s is not read any more; the splits of %s are released",
                name,
                ", ".join(map(str, partitions)),
            )
        self._removed.update(partitions)
        for subtask in sorted(self._context.registered_readers):
            self._context.send_event_to_reader(subtask, SplitsRemoved(partitions))

    def _add(self, name: str, settings: KafkaSourceSettings) -> None:
        def guarded(action: Callable[[], None]) -> None:
            self._guard(name, action)

        state = self._waiting.pop(name, None)
        context = _ClusterContext(self._context, guarded, self._tell_if_complete)
        # Only the cluster itself tells which of its former partitions it still has.
        removed = {place for place in self._removed if place.cluster == name}
        self._removed -= removed
        enumerator = KafkaSourceEnumerator(context, settings, state, removed)
        if self._has_asked:
            _LOG.info("Kafka: cluster %s is read from now on", name)
        self._clusters[name] = _Cluster(settings, enumerator)
        is_running = self._has_asked or self._is_restored
        guarded(enumerator.start_in_running_job if is_running else enumerator.start)

    def _change(self, known: _Cluster, settings: KafkaSourceSettings) -> None:
        if settings.properties != known.settings.properties:
            _LOG.info("Kafka: cluster %s is reached in another way from now on", settings.cluster)
            for subtask in sorted(self._context.registered_readers):
                self._context.send_event_to_reader(subtask, ClusterMoved(settings.cluster))
        known.settings = settings
        self._guard(settings.cluster, lambda: known.enumerator.change(settings))

    def _guard(self, name: str, action: Callable[[], None]) -> None:
        """Run an action of a cluster's enumerator. A cluster that is not active rests after an error."""
        try:
            action()
        except KafkaConnectorError as error:
            if self._settings.is_active(name):
                raise
            _LOG.warning("Kafka: cluster %s is not active, and rests for a time: %s", name, error)
            if (cluster := self._clusters.pop(name, None)) is not None:
                self._waiting[name] = cluster.enumerator.snapshot_state(0)
                self._removed.update(cluster.enumerator.removed)
                cluster.enumerator.close()
                if self._settings.discovery_seconds is None:
                    self._context.call_later(_REST_SECONDS, lambda: self._end_rest(name, cluster.settings))

    def _end_rest(self, name: str, settings: KafkaSourceSettings) -> None:
        """Read a cluster again, where the service is not asked again."""
        if not self._timer.is_closed:
            self._add(name, settings)

    # ------------------------------------------------------------------ readers

    def add_reader(self, subtask: int) -> None:
        """Give a reader its partitions, and tell it which have gone."""
        if self._removed:
            self._context.send_event_to_reader(subtask, SplitsRemoved(tuple(sorted(self._removed))))
        for cluster in self._clusters.values():
            cluster.enumerator.add_reader(subtask)
        self._tell_if_complete(subtask)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Answer a reader of batch mode; others ask for nothing."""
        for cluster in self._clusters.values():
            cluster.enumerator.handle_split_request(subtask, host)
        self._tell_if_complete(subtask)

    def add_splits_back(self, splits: Sequence[KafkaPartitionSplit], subtask: int) -> None:
        """Take back the partitions of a reader that failed; those of clusters that have gone are dropped."""
        for name, cluster in self._clusters.items():
            if chosen := [split for split in splits if split.cluster == name]:
                cluster.enumerator.add_splits_back(chosen, subtask)
        for name, state in self._waiting.items():
            if chosen := [split for split in splits if split.cluster == name]:
                assignment = PartitionAssignment(state)
                assignment.take_back(chosen)
                self._waiting[name] = assignment.state()

    def handle_source_event(self, subtask: int, event: Any) -> None:
        """Look at the cluster of a partition that a reader misses."""
        if not isinstance(event, PartitionMissing):
            raise TypeError(f"DynamicKafkaEnumerator: an event of a Kafka reader is expected, not {event!r}")
        name = event.partition.cluster
        if (cluster := self._clusters.get(name)) is not None:
            self._guard(name, lambda: cluster.enumerator.handle_source_event(subtask, event))

    def _tell_if_complete(self, subtask: int) -> None:
        """Tell a reader that no more partitions come, if that is so for every cluster."""
        if not self._has_asked or self._waiting or self._settings.discovery_seconds is not None:
            return
        if all(cluster.enumerator.is_complete for cluster in self._clusters.values()):
            self._context.signal_no_more_splits(subtask)

    # ------------------------------------------------------------------ the engine

    def snapshot_state(self, checkpoint_id: int) -> DynamicKafkaEnumeratorState:
        """Return the state of each cluster, also of those that the service has not told of since a restore."""
        states = dict(self._waiting)
        for name, cluster in self._clusters.items():
            states[name] = cluster.enumerator.snapshot_state(checkpoint_id)
        return DynamicKafkaEnumeratorState(tuple(sorted(states.items(), key=lambda entry: entry[0])))

    def close(self) -> None:
        """End discovery."""
        self._timer.close()
        for cluster in self._clusters.values():
            cluster.enumerator.close()
        self._settings.service.close()

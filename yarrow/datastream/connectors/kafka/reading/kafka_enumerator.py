"""KafkaSourceEnumerator: finds partitions of one cluster, gives each to the reader of its hash, looks for new ones.

Owner: the enumerator's thread. It assigns when readers register, so that a topic can be the bounded input of a batch
job. `partition_assignment` decides, `client` asks the cluster. Must not read records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from yarrow.datastream.connectors.base import SplitEnumerator, SplitEnumeratorContext
from yarrow.datastream.connectors.discovery import DiscoveryTimer
from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaTopicMissingError,
    KafkaTopicRemadeError,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import (
    KafkaOffsetsInitializer,
    Offsets,
    resolve,
)
from yarrow.datastream.connectors.kafka.reading.partition_assignment import (
    KafkaEnumeratorState,
    PartitionAssignment,
)
from yarrow.datastream.connectors.kafka.reading.partition_events import PartitionMissing, SplitsRemoved
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST, KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.retry_pauses import RetryPauses

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at the cluster that readers ask for.
_SECONDS_BETWEEN_LOOKS = 5.0
#: Seconds of the first and the longest pause between looks of which none was answered yet.
_FIRST_LOOK_PAUSES = (1.0, 10.0)


class KafkaSourceEnumerator(SplitEnumerator[KafkaPartitionSplit]):
    """Assigns the partitions of a subscription."""

    def __init__(
        self,
        context: SplitEnumeratorContext[KafkaPartitionSplit],
        settings: KafkaSourceSettings,
        restored: KafkaEnumeratorState | None,
        removed: Collection[KafkaTopicPartition] = (),
    ) -> None:
        """`removed` = partitions of the cluster that had gone before, which readers may still hold."""
        self._context = context
        self._settings = settings
        self._assignment = PartitionAssignment(restored)
        self._is_restored = restored is not None
        self._cluster = _client_of(settings)
        self._began_in_running_job = False
        #: Between the looks until the first one that is answered.
        self._pauses: RetryPauses | None = None
        #: perf_counter of the last look at the cluster.
        self._looked_at = float("-inf")
        #: This enumerator has seen the cluster; what the program reads may have changed since the checkpoint.
        self._has_looked = False
        #: Partitions that have gone: a reader that goes back to an older checkpoint may still hold them.
        self._removed = set(removed)
        self._timer = DiscoveryTimer(context, settings.discovery_seconds, self._look_again)

    def start(self) -> None:
        """Look at the cluster. Raises KafkaConnectorError if that fails for a source that has no partitions yet."""
        if self._is_restored:
            self._look_until_answered()
        else:
            self._look()
        self._timer.begin()

    def start_in_running_job(self) -> None:
        """Begin beside others: until the cluster answers it is asked again.

        Raises KafkaUnreachableError, here or later, if it does not answer within `unreachable_seconds`.
        """
        self._began_in_running_job = True
        self._look_until_answered()
        self._timer.begin()

    def change(self, settings: KafkaSourceSettings) -> None:
        """Take other topics of the same cluster, or reach it in another way. Raises as `start_in_running_job`."""
        self._settings = settings
        self._timer.seconds = settings.discovery_seconds
        self._cluster = _client_of(settings)
        self._has_looked, self._pauses, self._began_in_running_job = False, None, True
        self._look_until_answered()

    def release(self) -> tuple[KafkaTopicPartition, ...]:
        """Release all partitions, since the cluster is read no more, and end. Returns all that have gone."""
        partitions = self._assignment.state().known
        if partitions:
            _LOG.warning(
                "Kafka: cluster %s is not read any more; the splits of %s are released",
                self._settings.cluster,
                ", ".join(map(str, partitions)),
            )
            self._tell_removed(partitions)
        self.close()
        return self.removed

    @property
    def removed(self) -> tuple[KafkaTopicPartition, ...]:
        """The partitions that have gone and were not found again."""
        return tuple(sorted(self._removed))

    # ------------------------------------------------------------------ readers

    def add_reader(self, subtask: int) -> None:
        """Give a reader its partitions, and tell it which have gone."""
        if self._removed:
            self._context.send_event_to_reader(subtask, SplitsRemoved(self.removed))
        self._serve(subtask)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Answer a reader of batch mode; others ask for nothing."""
        self._serve(subtask)

    def _serve(self, subtask: int) -> None:
        """Give a reader its partitions, and tell it if no others come."""
        self._give(subtask)
        if self.is_complete:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[KafkaPartitionSplit], subtask: int) -> None:
        """Take back the partitions of a reader that failed."""
        self._assignment.take_back(splits)
        self._give_all()

    def handle_source_event(self, subtask: int, event: Any) -> None:
        """Look at the cluster, because a reader misses a partition."""
        if not isinstance(event, PartitionMissing):
            raise TypeError(f"KafkaSourceEnumerator: an event of a Kafka reader is expected, not {event!r}")
        _LOG.warning("Kafka: %s cannot be found: %s", event.partition, event.reason)
        wait = _SECONDS_BETWEEN_LOOKS - (perf_counter() - self._looked_at)
        if wait > 0:
            self._context.call_later(wait, self._look_again)
        else:
            self._look_again()

    @property
    def is_complete(self) -> bool:
        """True if no partition will be found any more."""
        return self._settings.discovery_seconds is None and self._has_looked

    def _give_all(self) -> None:
        for subtask in sorted(self._context.registered_readers):
            self._give(subtask)

    def _give(self, subtask: int) -> None:
        for split in self._assignment.give(subtask, self._context.parallelism):
            self._context.assign_split(split, subtask)

    # ------------------------------------------------------------------ discovery

    def _look_until_answered(self) -> None:
        """Look at the cluster, and later again as long as this enumerator has seen nothing of it."""
        if self._has_looked or self._timer.is_closed:
            return
        if self._pauses is None:
            self._pauses = RetryPauses(self._settings.unreachable_seconds, *_FIRST_LOOK_PAUSES)
        told = self._look_again()
        if told is None:
            return
        pause = self._pauses.next_seconds() if told.is_transient else None
        if pause is None:
            raise told
        self._context.call_later(pause, self._look_until_answered)

    def _look_again(self) -> KafkaConnectorError | None:
        """Look at the cluster; where it does not answer, the readers go on without. Return why it did not."""
        try:
            self._look()
        except KafkaTopicMissingError:
            raise
        except KafkaConnectorError as error:
            _LOG.warning("Kafka: no look for new partitions of %s: %s", self._described, error)
            return error
        return None

    def _look(self) -> None:
        self._looked_at = perf_counter()
        if self._timer.is_closed:
            return
        subscription = self._settings.subscription
        topics = self._cluster.topics(self._awaited())
        is_first = not self._assignment.initial_discovery_done
        is_whole = True
        if self._assignment.required != str(subscription):
            # A topic that is deleted later does not end the job, so a subscription is checked once.
            is_whole = self._require(topics)
        found = self._choose(topics)
        if is_first and not found:
            self._tell_of_nothing()
        ids = self._cluster.topic_ids({place.topic for place in found})
        self._require_same_topics(ids)
        changes = self._assignment.compare(found)
        if removed := self._truly_removed(changes.removed, topics):
            self._remove(removed, topics)
        if changes.new and not self.is_complete:
            self._add(changes.new, is_first=is_first)
        # Splits of a restored state wait, too, where the enumerator begins beside readers that have registered.
        self._give_all()
        self._assignment.note_ids(ids)
        self._assignment.initial_discovery_done = True
        if is_whole:
            self._assignment.required = str(subscription)
        was_complete, self._has_looked = self.is_complete, True
        if self.is_complete and not was_complete:
            for subtask in sorted(self._context.registered_readers):
                self._context.signal_no_more_splits(subtask)

    def _awaited(self) -> Collection[str]:
        """The named topics that may have been made just before the job."""
        if self._is_restored or self._began_in_running_job or self._has_looked:
            return ()
        return self._settings.subscription.named_topics or ()

    def _require(self, topics: Mapping[str, int]) -> bool:
        """Raise KafkaTopicMissingError for a topic that is named and does not exist. False: it may come later."""
        try:
            self._settings.subscription.require(topics)
        except KafkaTopicMissingError as error:
            if not self._settings.cluster:
                raise
            text = f"cluster {self._settings.cluster}: {error}"
            if not self._began_in_running_job or self._settings.discovery_seconds is None:
                raise KafkaTopicMissingError(text) from error
            # A metadata service may tell of a topic a little before it is made.
            _LOG.warning("Kafka: %s. The job looks again for the topic", text)
            return False
        return True

    def _choose(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        """The partitions of the subscription, with the cluster's id."""
        chosen, cluster = self._settings.subscription.choose(topics), self._settings.cluster
        return {replace(place, cluster=cluster) for place in chosen} if cluster else chosen

    def _require_same_topics(self, ids: Mapping[str, str]) -> None:
        """Raise KafkaTopicRemadeError for a topic that is not the one that was read."""
        for topic, former, present in self._assignment.remade(ids):
            raise KafkaTopicRemadeError(
                f"topic {topic}{self._of_cluster} was deleted and made again: the job has read the topic with id"
                f" {former}, and now it has id {present}. The job's offsets mean other records there. To read the new"
                " topic from set_starting_offsets, give the source another uid, or start without the checkpoint"
            )

    def _truly_removed(
        self, removed: Collection[KafkaTopicPartition], topics: Mapping[str, int]
    ) -> list[KafkaTopicPartition]:
        """Leave out partitions that this look has not shown, although their topic exists and is subscribed to."""
        unknown = self._cluster.unknown({place.topic for place in removed} - topics.keys())
        kept = [
            place
            for place in removed
            if place.topic not in topics
            and place.topic not in unknown
            and place in self._choose({place.topic: place.partition + 1})
        ]
        if kept:
            _LOG.warning("Kafka: %s cannot be seen now; its splits are kept", ", ".join(map(str, kept)))
        return [place for place in removed if place not in kept]

    def _tell_of_nothing(self) -> None:
        text = f"the cluster has none of the {self._described}"
        if self._settings.discovery_seconds is None:
            raise KafkaTopicMissingError(
                f"{text}. Create a topic before the job, or correct the subscription"
            )
        _LOG.warning("Kafka: %s yet", text)

    def _add(self, partitions: Collection[KafkaTopicPartition], *, is_first: bool) -> None:
        if not is_first:
            _LOG.info("Kafka: new partitions %s", ", ".join(map(str, partitions)))
        begun = [place for place in partitions if is_first or self._is_of_added_topic(place)]
        starts = self._offsets(self._settings.starting, begun)
        stopping = self._settings.stopping
        stops: Mapping[KafkaTopicPartition, int] = (
            {} if stopping is None else self._offsets(stopping, partitions)
        )
        self._removed.difference_update(partitions)
        self._assignment.add(
            KafkaPartitionSplit(
                place.topic, place.partition, starts.get(place, EARLIEST), stops.get(place), place.cluster
            )
            for place in partitions
        )

    def _is_of_added_topic(self, place: KafkaTopicPartition) -> bool:
        """True if a metadata service has added the topic, which then begins as it would at the job's start."""
        return bool(self._settings.cluster) and not self._assignment.knows(place.topic)

    def _offsets(
        self, initializer: KafkaOffsetsInitializer, partitions: Collection[KafkaTopicPartition]
    ) -> Offsets:
        has_group = self._settings.group_id is not None
        return resolve(initializer, partitions, self._cluster, has_group=has_group)

    def _remove(self, removed: Collection[KafkaTopicPartition], topics: Mapping[str, int]) -> None:
        """Release partitions that have gone. Raises KafkaTopicMissingError where they have a bounded end."""
        gone = [place for place in removed if place.partition >= topics.get(place.topic, 0)]
        names = ", ".join(map(str, removed))
        if gone and self._settings.is_bounded:
            raise KafkaTopicMissingError(
                f"{', '.join(map(str, gone))} does not exist any more. Whether the job had read it to its end is not"
                " known, so records may be missing. Read what is left with a new job"
            )
        if gone:
            _LOG.warning("Kafka: %s does not exist any more; its splits are released", names)
        else:
            _LOG.warning(
                "Kafka: %s is not among the %s any more; its splits are released",
                names,
                self._described,
            )
        self._assignment.forget(removed)
        self._tell_removed(removed)

    def _tell_removed(self, removed: Collection[KafkaTopicPartition]) -> None:
        self._removed.update(removed)
        for subtask in sorted(self._context.registered_readers):
            self._context.send_event_to_reader(subtask, SplitsRemoved(tuple(removed)))

    # ------------------------------------------------------------------ the engine

    def snapshot_state(self, checkpoint_id: int) -> KafkaEnumeratorState:
        """Return known partitions and those without a reader."""
        return self._assignment.state()

    def close(self) -> None:
        """End discovery."""
        self._timer.close()

    @property
    def _described(self) -> str:
        return f"{self._settings.subscription}{self._of_cluster}"

    @property
    def _of_cluster(self) -> str:
        cluster = self._settings.cluster
        return f" of cluster {cluster}" if cluster else ""


def _client_of(settings: KafkaSourceSettings) -> ClusterClient:
    """The client that asks the cluster of a source."""
    client = dict(settings.consumer)
    if (prefix := settings.client_id_prefix) is not None:
        client["client.id"] = f"{prefix}-enumerator"
    return ClusterClient(client, settings.properties, settings.request_seconds, label=settings.label)

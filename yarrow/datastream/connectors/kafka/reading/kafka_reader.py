"""KafkaSourceReader: rows of the partitions of one subtask, from the chunks of its fetch threads.

Owner: the task's thread. The position of a partition lies right behind the rows that `poll` has returned. A poll gives
rows of one partition. CommittingKafkaReader tells the consumer group of positions when a checkpoint is complete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
)
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.cluster_fetchers import ClusterFetchers
from yarrow.datastream.connectors.kafka.reading.fetched_items import (
    AssignedPartition,
    EndOfPartition,
    Fetched,
    FetchedMessages,
    FetchFailure,
)
from yarrow.datastream.connectors.kafka.reading.partition_events import (
    ClusterMoved,
    PartitionMissing,
    SplitsRemoved,
)
from yarrow.datastream.connectors.kafka.reading.partition_fetcher import LookUp
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.reader_metrics import reader_metrics
from yarrow.datastream.connectors.kafka.reading.record_deserialization import row_maker
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings


class _OpenPartition:
    """A partition that is read."""

    __slots__ = ("assignment", "is_paused", "split", "waiting")

    def __init__(self, split: KafkaPartitionSplit) -> None:
        #: At the position behind the last returned row.
        self.split = split
        self.assignment = AssignedPartition(split.topic_partition, split.position)
        self.is_paused = False
        #: Items that were fetched while it is paused.
        self.waiting: deque[Fetched] = deque()

    def begin_again(self) -> AssignedPartition:
        """Return a new assignment at the position; what was fetched for the former one is dropped."""
        self.assignment = AssignedPartition(self.split.topic_partition, self.split.position)
        self.waiting.clear()
        return self.assignment


class KafkaSourceReader(SourceReader[Any, KafkaPartitionSplit]):
    """Reads the partitions of one subtask."""

    def __init__(
        self, context: SourceReaderContext, settings: KafkaSourceSettings, look_up: LookUp | None = None
    ) -> None:
        """`look_up` tells how clusters are reached; None = `settings` say it of the only one."""
        self._context = context
        self._settings = settings
        self._rows = row_maker(settings.schema, settings.errors.policy)
        self._fetchers = ClusterFetchers(
            settings,
            context.subtask_index,
            context.wake_up,
            takes_records=self._rows.takes_records,
            look_up=look_up,
        )
        self._look_up = look_up
        self._is_started = False
        self._open: dict[str, _OpenPartition] = {}
        #: Partitions that ended, for the stream that reads on behind a history.
        self._left: list[KafkaPartitionSplit] = []
        #: Splits that have ended since records were last handed over.
        self._finished: list[str] = []
        #: Items of partitions that were paused and are read again.
        self._resumed: deque[Fetched] = deque()
        #: The rest of a chunk that was too long for a poll.
        self._rest: FetchedMessages | None = None
        self._no_more_splits = False
        #: Bytes of the keys and values of all messages that were taken.
        self._bytes_read = 0

    # ------------------------------------------------------------------ rows

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return rows of one partition."""
        while (item := self._next()) is not None:
            records = self._take(item, max_rows)
            if records is not None:
                return self._with_ends(records)
        if self._finished:
            return self._with_ends(SourceRecords(()))
        if self._no_more_splits and not self._open:
            return None
        return NothingAvailable()

    def _with_ends(self, records: SourceRecords) -> SourceRecords:
        if self._finished:
            # A split that ends with these rows is told with the next ones.
            ended = tuple(split_id for split_id in self._finished if split_id != records.split_id)
            records.finished_before = ended
            self._finished = [split_id for split_id in self._finished if split_id not in ended]
        return records

    def _next(self) -> Fetched | None:
        if self._rest is not None:
            item, self._rest = self._rest, None
            return item
        return self._resumed.popleft() if self._resumed else self._fetchers.items.take()

    def _take(self, item: Fetched, max_rows: int) -> SourceRecords | None:
        """The rows of an item; None = it has none."""
        if isinstance(item, FetchFailure):
            raise item.error
        found = self._open.get(str(item.assignment.partition))
        if found is None or found.assignment is not item.assignment:
            return None  # Of a partition that was released.
        if found.is_paused:
            found.waiting.append(item)
            return None
        if isinstance(item, FetchedMessages):
            return self._rows_of(found, item, max_rows)
        if isinstance(item, EndOfPartition):
            self._reached(found, max(found.split.position, item.offset))
        else:
            self._context.send_event_to_enumerator(PartitionMissing(found.split.topic_partition, item.reason))
        return None

    def _rows_of(self, found: _OpenPartition, item: FetchedMessages, max_rows: int) -> SourceRecords | None:
        split, offsets = found.split, item.offsets
        number = len(offsets)
        if split.stop is not None and offsets[-1] >= split.stop:
            number = bisect_left(offsets, split.stop)
        taken = min(number, max_rows)
        if taken < number:
            self._rest = _behind(item, taken)
        if not taken:
            self._reached(found, offsets[0])
            return None
        self._bytes_read += _share(item.size_bytes, taken, len(item.messages))
        messages, stamps = item.messages, item.timestamps
        if taken < len(messages):
            messages, stamps, offsets = messages[:taken], stamps[:taken], offsets[:taken]
        made = self._rows.make(split.split_id, messages, stamps, offsets)
        position = offsets[-1] + 1
        if taken == number < len(item.offsets):
            position = item.offsets[number]
        self._reached(found, position, is_ended=made.is_ended)
        # Also without a row: the task looks at barriers, mails and timers behind each chunk.
        side = [(DEAD_LETTERS, letter) for letter in made.letters] or None
        # The client gives timestamps as int64.
        return SourceRecords(
            made.rows, made.timestamps, split.split_id, side, made.num_errors, has_checked_timestamps=True
        )

    def _reached(self, found: _OpenPartition, position: int, *, is_ended: bool = False) -> None:
        """Move the position of a partition, which may have come to its end."""
        found.split = replace(found.split, position=position)
        if is_ended:
            self._rest = None
        if is_ended or found.split.is_complete:
            self._end(found.split)

    def _end(self, split: KafkaPartitionSplit) -> None:
        """Let a partition go that is read to its end."""
        self._open.pop(split.split_id, None)
        self._finished.append(split.split_id)
        if self._settings.goes_on:
            self._left.append(replace(split, stop=None))
        self._fetchers.release([split.topic_partition])

    # ------------------------------------------------------------------ splits

    def start(self) -> None:
        """Start the fetch threads."""
        self._is_started = True
        self._fetchers.start()

    def add_splits(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        """Read partitions, too. One that is open begins anew at the position of its new split.

        A partition may have been removed and found again since the reader's checkpoint. It then comes as a new split,
        while the reader still has the former one.
        """
        if former := [split.topic_partition for split in splits if split.split_id in self._open]:
            self._fetchers.release(former)
        added: list[AssignedPartition] = []
        for split in splits:
            if split.split_id in self._finished:
                # Its former end must not be told behind the first rows of the new split.
                self._finished.remove(split.split_id)
            found = self._open[split.split_id] = _OpenPartition(split)
            if split.is_complete:
                self._end(split)
            else:
                added.append(found.assignment)
        if added:
            self._fetchers.assign(added)

    def notify_no_more_splits(self) -> None:
        """End with the last partition."""
        self._no_more_splits = True

    def snapshot_state(self, checkpoint_id: int) -> list[KafkaPartitionSplit]:
        """Return the partitions with their positions."""
        return [found.split for found in self._open.values()] + self._left

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        """Stop or resume partitions; what was fetched of a paused one waits here."""
        for ids, paused in ((splits_to_pause, True), (splits_to_resume, False)):
            chosen = [
                found
                for split_id in ids
                if (found := self._open.get(split_id)) is not None and found.is_paused is not paused
            ]
            for found in chosen:
                found.is_paused = paused
                if not paused:
                    self._resumed.extend(found.waiting)
                    found.waiting.clear()
            if chosen:
                self._fetchers.pause([found.split.topic_partition for found in chosen], paused=paused)

    def unreachable_splits(self) -> Collection[str]:
        """Return the ids of the partitions whose broker cannot be reached."""
        unreachable = self._fetchers.unreachable
        return frozenset(map(str, unreachable)) if unreachable else ()

    def handle_source_event(self, event: Any) -> None:
        """Release partitions that the enumerator has found removed, or reach a cluster in another way."""
        if isinstance(event, ClusterMoved):
            self._reach_again(event.cluster)
            return
        if not isinstance(event, SplitsRemoved):
            raise TypeError(f"KafkaSourceReader: an event of its enumerator is expected, not {event!r}")
        released: list[KafkaTopicPartition] = []
        for partition in event.partitions:
            found = self._open.pop(str(partition), None)
            if found is not None:
                released.append(partition)
                self._finished.append(found.split.split_id)
        if released:
            self._fetchers.release(released)
            in_use = {found.split.cluster for found in self._open.values()}
            for cluster in {partition.cluster for partition in released} - in_use:
                self._fetchers.leave(cluster)
            self._context.wake_up()

    def _reach_again(self, cluster: str) -> None:
        """Read the partitions of a cluster by a new client, from their positions."""
        moved = [found for found in self._open.values() if found.split.cluster == cluster]
        self._fetchers.leave(cluster)
        self._fetchers.assign([found.begin_again() for found in moved])
        paused = [found.split.topic_partition for found in moved if found.is_paused]
        if paused:
            self._fetchers.pause(paused, paused=True)

    # ------------------------------------------------------------------ the engine

    def pending_records(self) -> int | None:
        """Return the records between positions and the ends of partitions, as the client knew them a second ago."""
        ends = self._fetchers.ends
        pending = 0
        for found in list(self._open.values()):
            split = found.split
            end = ends.get(split.topic_partition)
            if end is None or split.position < 0:
                return None
            pending += max(0, (end if split.stop is None else min(end, split.stop)) - split.position)
        return pending

    def own_metrics(self) -> Mapping[str, float]:
        """Return the metrics of partitions, commits and clients."""
        splits = [found.split for found in list(self._open.values())]
        has_client_metrics = self._settings.has_client_metrics
        return reader_metrics(splits, self._fetchers.by_cluster, has_client_metrics=has_client_metrics)

    def bytes_read(self) -> int:
        """Return the bytes of the keys and values of all messages of which `poll` has returned the rows.

        The messages of a chunk that is polled in parts count as equally large.
        """
        return self._bytes_read

    def close(self) -> None:
        """End the fetch threads."""
        if self._is_started:
            self._fetchers.close()
        if self._look_up is not None:
            self._look_up.close()


def _behind(item: FetchedMessages, taken: int) -> FetchedMessages:
    """The messages behind the first `taken`, with the bytes that these leave."""
    left = item.size_bytes - _share(item.size_bytes, taken, len(item.messages))
    return FetchedMessages(
        item.assignment, item.messages[taken:], item.timestamps[taken:], item.offsets[taken:], left
    )


def _share(size_bytes: int, taken: int, number: int) -> int:
    """The bytes of the first messages of a chunk."""
    return size_bytes if taken == number else size_bytes * taken // number


class CommittingKafkaReader(KafkaSourceReader):
    """A reader that commits positions to the consumer group when their checkpoint is complete."""

    def __init__(
        self, context: SourceReaderContext, settings: KafkaSourceSettings, look_up: LookUp | None = None
    ) -> None:
        super().__init__(context, settings, look_up)
        #: Positions by checkpoint.
        self._to_commit: dict[int, dict[KafkaTopicPartition, int]] = {}
        #: Positions of partitions that have ended, until a checkpoint has them.
        self._ended: dict[KafkaTopicPartition, int] = {}

    def _end(self, split: KafkaPartitionSplit) -> None:
        self._ended[split.topic_partition] = split.position
        super()._end(split)

    def snapshot_state(self, checkpoint_id: int) -> list[KafkaPartitionSplit]:
        splits = super().snapshot_state(checkpoint_id)
        positions = self._ended | {split.topic_partition: split.position for split in splits}
        # The beginning of a partition of which nothing was read is no offset.
        self._to_commit[checkpoint_id] = {place: at for place, at in positions.items() if at >= 0}
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the positions of that checkpoint."""
        positions = self._to_commit.get(checkpoint_id)
        self._to_commit = {number: kept for number, kept in self._to_commit.items() if number > checkpoint_id}
        if positions:
            self._fetchers.commit(positions)
            for place, at in positions.items():
                if self._ended.get(place) == at:
                    del self._ended[place]

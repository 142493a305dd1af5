"""PartitionFetcher: a thread that consumes partitions of one cluster by Kafka's client, and hands chunks to the reader.

Owner: its thread owns the client and all that is not marked; the task's thread gives commands. Messages of the client
become lists of values within the chunk, so that no message object lives longer. Groups are off: partitions are
assigned by hand, and offsets are committed only when the reader says so. Must not know rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

from yarrow.datastream.connectors.kafka.cluster.client import (
    OFFSET_BEGINNING,
    ClusterClient,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    is_unreachable,
    make_consumer,
)
from yarrow.datastream.connectors.kafka.cluster.client_metrics import (
    OF_CONSUMER,
    STATISTICS_MS,
    ClientMetrics,
)
from yarrow.datastream.connectors.kafka.cluster.client_statistics import partition_facts
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaUnreachableError,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import (
    AssignedPartition,
    EndOfPartition,
    FetchedMessages,
    FetchFailure,
    HandOver,
    MissingPartition,
)
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST
from yarrow.datastream.connectors.kafka.reading.record_deserialization import ConsumerRecord
from yarrow.datastream.connectors.kafka.reading.refused_offsets import RefusedOffsets
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.retry_pauses import RetryPauses

_LOG = logging.getLogger(__name__)

#: The most messages that the client gives at once. Each call leaves the interpreter to the task's thread, and gets it
#: back up to 5 ms later.
_GIVEN_MESSAGES: Final = 8192
#: The most messages of a chunk: a task polls no more rows at once, and a longer chunk would be cut.
_CHUNK_MESSAGES: Final = 2048
#: Seconds for which the client waits for a message; commands wait as long.
_POLL_SECONDS: Final = 0.1
#: Seconds between two looks for callbacks while nothing is fetched.
_IDLE_SECONDS: Final = 0.5
#: Seconds without room after which the client holds the partitions, so that its callbacks have the way free. The client
#: then fetches again what it had fetched ahead.
_HOLD_SECONDS: Final = 5.0
#: Seconds after which a partition that cannot be reached is logged.
_UNREACHABLE_LOG_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0
#: Seconds until a partition is read again whose offset a broker has refused.
_ASK_AGAIN_SECONDS: Final = 0.1
#: Seconds of the first and the longest pause between questions about a cluster that the metadata service does not tell.
_LOOK_UP_PAUSES: Final = (0.5, 5.0)

_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_NOT_THERE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class LookUp(Protocol):
    """Tells the fetch threads of one reader how clusters are reached. Any thread may call it."""

    def __call__(self, cluster: str) -> KafkaSourceSettings | str:
        """Return the settings of a cluster by its id, or why they are not known now."""
        ...

    def close(self) -> None:
        """Release what it holds. The reader ends."""
        ...


class PartitionFetcher:
    """The fetch thread of one reader and cluster."""

    def __init__(
        self,
        settings: KafkaSourceSettings,
        subtask: int,
        items: HandOver,
        *,
        takes_records: bool,
        look_up: LookUp | None = None,
    ) -> None:
        """`look_up` completes `settings` on the thread, where the program does not say how the cluster is reached."""
        self._settings = settings
        self._look_up = look_up
        self._subtask = subtask
        self._takes_records = takes_records
        self.items = items
        #: Orders for the thread, under the lock of `items`.
        self._commands: list[Callable[[Consumer], None]] = []
        self._closed = False
        self._assigned: dict[tuple[str, int], AssignedPartition] = {}
        #: Replaced as a whole; any thread may read them.
        self.ends: Mapping[KafkaTopicPartition, int] = {}
        self.unreachable: frozenset[KafkaTopicPartition] = frozenset()
        #: Seconds of the client's clock since which a partition cannot be reached, and whether that was logged.
        self._unreachable_since: dict[KafkaTopicPartition, float] = {}
        self._logged: set[KafkaTopicPartition] = set()
        #: Offsets that brokers refuse; made on the thread.
        self._refused: RefusedOffsets
        #: False until it is known how the cluster is reached. Any thread may read it.
        self.is_reachable = look_up is None
        self.metrics = ClientMetrics(OF_CONSUMER)
        #: What the group has of each partition; commits that were confirmed, and that failed. Any thread may read them.
        self.committed: dict[KafkaTopicPartition, int] = {}
        self.commits_succeeded = 0
        self.commits_failed = 0
        self._last_error = ""
        #: Partitions that the reader has paused.
        self._paused: set[tuple[str, int]] = set()
        #: perf_counter since which there is no room; whether all partitions are held for that.
        self._full_since: float | None = None
        self._is_held = False
        self._thread = threading.Thread(target=self._run, name="kafka fetch", daemon=True)

    # ------------------------------------------------------------- the task's thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def assign(self, assignments: Iterable[AssignedPartition]) -> None:
        """Fetch these partitions, too."""
        added = list(assignments)

        def act(consumer: Consumer) -> None:
            self._assigned |= {(a.partition.topic, a.partition.partition): a for a in added}
            consumer.incremental_assign([_place(a.partition, a.position) for a in added])
            if self._is_held:
                consumer.pause([_place(a.partition) for a in added])

        self._command(act)

    def release(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Fetch these partitions no more."""
        ended = list(partitions)

        def act(consumer: Consumer) -> None:
            held = [entry for entry in ended if self._assigned.pop((entry.topic, entry.partition), None)]
            for entry in held:
                self._unreachable_since.pop(entry, None)
                self.committed.pop(entry, None)
                self._paused.discard((entry.topic, entry.partition))
            if held:
                consumer.incremental_unassign([_place(entry) for entry in held])

        self._command(act)

    def pause(self, partitions: Iterable[KafkaTopicPartition], *, paused: bool) -> None:
        """Stop fetching partitions, or fetch them again."""
        chosen = list(partitions)

        def act(consumer: Consumer) -> None:
            places = [_place(entry) for entry in chosen if (entry.topic, entry.partition) in self._assigned]
            keys = {(place.topic, place.partition) for place in places}
            self._paused = self._paused | keys if paused else self._paused - keys
            if places and not self._is_held:
                (consumer.pause if paused else consumer.resume)(places)

        self._command(act)

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit offsets to the group, without waiting. They are for others to look at."""
        places = [_place(entry, offset) for entry, offset in offsets.items()]

        def act(consumer: Consumer) -> None:
            if self._settings.commits:
                consumer.commit(offsets=places, asynchronous=True)

        if places:
            self._command(act)

    def stop(self) -> None:
        """Let the thread end and close the client; commits that are under way are sent before."""
        with self.items.changed:
            self._closed = True
            self.items.changed.notify_all()

    def join(self) -> None:
        """Wait a while for the end of the thread."""
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _command(self, act: Callable[[Consumer], None]) -> None:
        with self.items.changed:
            self._commands.append(act)
            self.items.changed.notify_all()

    # ------------------------------------------------------------- the fetch thread

    def _run(self) -> None:
        consumer = None
        try:
            if not self._know_settings():
                return
            consumer = self._make_consumer()
            while self._obey(consumer):
                if self.items.is_full or not self._assigned:
                    self._wait(consumer)
                else:
                    self._let_go(consumer)
                    self._fetch(consumer)
        except BaseException as error:  # The reader raises it on its own thread.
            if not self._closed:
                ours = self._as_ours(error) if isinstance(error, KafkaException) else error
                self.items.put(FetchFailure(ours))
        finally:
            if consumer is not None:
                consumer.close()

    def _know_settings(self) -> bool:
        """Find how the cluster is reached; False = the fetcher was closed. Raises KafkaUnreachableError."""
        look_up = self._look_up
        pauses = RetryPauses(self._settings.unreachable_seconds, *_LOOK_UP_PAUSES)
        while look_up is not None and not self._closed:
            found = look_up(self._settings.cluster)
            if isinstance(found, KafkaSourceSettings):
                self._settings, look_up = found, None
            elif (pause := pauses.next_seconds()) is None:
                raise KafkaUnreachableError(f"cluster {self._settings.cluster} cannot be read: {found}")
            else:
                _LOG.warning("Kafka: cluster %s cannot be read now: %s", self._settings.cluster, found)
                with self.items.changed:
                    self.items.changed.wait_for(lambda: self._closed, pause)
        if self._closed:
            return False
        reset, seconds = self._settings.consumer["auto.offset.reset"], self._settings.unreachable_seconds
        self._refused = RefusedOffsets(reset, seconds, perf_counter)
        self.is_reachable = True
        return True

    def _make_consumer(self) -> Consumer:
        settings = dict(self._settings.consumer)
        if (prefix := self._settings.client_id_prefix) is not None:
            settings["client.id"] = f"{prefix}-{self._subtask}"
        settings["statistics.interval.ms"] = STATISTICS_MS
        # The client would go to another offset without a look at whether the partition has this one.
        settings["auto.offset.reset"] = "error"
        # Behind a transaction's last record stand markers, which are no messages. Only the end of the partition
        # tells that an end among them is reached.
        settings["enable.partition.eof"] = "false" if self._settings.stopping is None else "true"
        return make_consumer(
            settings,
            self._settings.properties,
            on_error=self._note_error,
            on_statistics=self._note_statistics,
            on_commit=self._note_commit,
        )

    def _as_ours(self, error: KafkaException) -> KafkaConnectorError:
        text = error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error)
        named = f" for cluster {self._settings.cluster}" if self._settings.cluster else ""
        return KafkaConnectorError(
            f"Kafka's client{named} failed: {self._settings.properties.with_secrets_hidden(text)}"
        )

    def _obey(self, consumer: Consumer) -> bool:
        """Carry out the commands; False = the fetcher was closed."""
        if self._commands or self._closed:
            with self.items.changed:
                commands, self._commands = self._commands, []
            for act in commands:
                act(consumer)
        return not self._closed

    def _wait(self, consumer: Consumer) -> None:
        """Wait for room or for commands; callbacks run meanwhile where no message is in their way."""
        with self.items.changed:
            if not (self._commands or self._closed) and (self.items.is_full or not self._assigned):
                self.items.changed.wait(_IDLE_SECONDS)
        if not self._assigned:
            consumer.poll(0)
        elif self.items.is_full:
            self._hold(consumer)

    def _hold(self, consumer: Consumer) -> None:
        """Let callbacks run although there is no room: behind a while, and with all partitions paused."""
        now = perf_counter()
        if self._full_since is None:
            self._full_since = now
        if not self._is_held and now - self._full_since >= _HOLD_SECONDS:
            self._is_held = True
            consumer.pause([_place(entry.partition) for entry in self._assigned.values()])
        if self._is_held:
            # Paused partitions give no message. One that comes all the same is not lost.
            self._take(consumer, consumer.consume(1, 0))

    def _let_go(self, consumer: Consumer) -> None:
        """Fetch again what was held for want of room, without what the reader has paused."""
        self._full_since = None
        if self._is_held:
            self._is_held = False
            places = [_place(a.partition) for key, a in self._assigned.items() if key not in self._paused]
            if places:
                consumer.resume(places)

    def _fetch(self, consumer: Consumer) -> None:
        # The client waits for as many messages as it is asked for. So it is asked for those that are there, and for
        # one if there is none.
        messages = consumer.consume(_GIVEN_MESSAGES, 0)
        if not messages:
            messages = consumer.consume(1, _POLL_SECONDS)
            if messages:
                messages += consumer.consume(_GIVEN_MESSAGES - 1, 0)
        for start in range(0, len(messages), _CHUNK_MESSAGES):
            self._take(consumer, messages[start : start + _CHUNK_MESSAGES])

    def _take(self, consumer: Consumer, messages: list[Message]) -> None:
        if not messages:
            return
        stamps: list[int] = [stamp for _, stamp in map(Message.timestamp, messages)]
        # An error has no timestamp, so the client says -1: chunks whose messages all have one need no other look.
        if min(stamps) < 0 and any(map(Message.error, messages)):
            self._hand_over_with_errors(consumer, messages)
        else:
            self._hand_over(messages, stamps)

    def _hand_over_with_errors(self, consumer: Consumer, messages: list[Message]) -> None:
        good: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
                continue
            if good:
                self._hand_over(good, [stamp for _, stamp in map(Message.timestamp, good)])
                good = []
            self._take_error(consumer, message, error)
        if good:
            self._hand_over(good, [stamp for _, stamp in map(Message.timestamp, good)])

    def _hand_over(self, messages: list[Message], all_stamps: list[int]) -> None:
        for start, end in _runs(messages, several_topics=self._has_several_topics):
            is_whole = end - start == len(messages)
            run = messages if is_whole else messages[start:end]
            first, last = run[0], run[-1]
            assignment = self._assigned.get((first.topic(), first.partition()))  # type: ignore[arg-type]
            if assignment is None:
                continue  # It was released a moment ago.
            low, high = _offset(first), _offset(last)
            is_dense = high - low + 1 == len(run)
            offsets = range(low, high + 1) if is_dense else list(map(_offset, run))
            known = all_stamps if is_whole else all_stamps[start:end]
            stamps: Sequence[int | None] = known
            if min(known) < 0:
                stamps = [None if stamp < 0 else stamp for stamp in known]
            made: list[Any] = (
                [_record(message, stamp) for message, stamp in zip(run, stamps, strict=True)]
                if self._takes_records
                else list(map(Message.value, run))
            )
            self.items.put(FetchedMessages(assignment, made, stamps, offsets, sum(map(len, run))))

    @property
    def _has_several_topics(self) -> bool:
        return len({topic for topic, _ in self._assigned}) > 1

    def _take_error(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        """Take an error that the client has put among the messages. Raises what ends the fetching."""
        code = error.code()
        assignment = self._assigned.get((message.topic() or "", message.partition() or 0))
        if is_unreachable(error):
            self._note_error(error)
        elif assignment is None:
            if error.fatal():
                raise KafkaException(error)
            _LOG.warning("Kafka's client: %s", error.str())
        elif code == KafkaError._PARTITION_EOF:
            self.items.put(EndOfPartition(assignment, _offset(message)))
        elif code in _MISSING:
            self.items.put(MissingPartition(assignment, error.str()))
        elif code in _NOT_THERE:
            # The client names no offset where it looked for the beginning of the partition.
            self._go_on(consumer, assignment, _offset(message), error.str())
        else:
            raise KafkaConnectorError(
                f"{assignment.partition} cannot be read: {error.str()}. Check the topic, the rights of this user on it,"
                " and the broker's log"
            )

    def _go_on(self, consumer: Consumer, assignment: AssignedPartition, asked: int, reason: str) -> None:
        """Read on where the broker has refused an offset. Raises KafkaOffsetOutOfRangeError."""
        place = assignment.partition
        settings = self._settings
        cluster = ClusterClient(
            settings.consumer, settings.properties, settings.request_seconds, label=settings.label
        )
        first, end = cluster.beginnings([place])[place], cluster.ends([place])[place]
        offset = self._refused.next_offset(place, asked, first, end, reason)
        time.sleep(_ASK_AGAIN_SECONDS)
        consumer.incremental_unassign([_place(place)])
        consumer.incremental_assign([_place(place, offset)])
        if self._is_held or (place.topic, place.partition) in self._paused:
            consumer.pause([_place(place)])

    # ------------------------------------------------------------- callbacks, on the fetch thread

    def _note_error(self, error: KafkaError) -> None:
        self._last_error = self._settings.properties.with_secrets_hidden(error.str())
        _LOG.info("Kafka's client: %s", self._last_error)

    def _note_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        failed = error or next((place.error for place in places if place.error is not None), None)
        if failed is None:
            self.commits_succeeded += 1
            for place in places:
                found = self._assigned.get((place.topic, place.partition))
                if found is not None:
                    self.committed[found.partition] = place.offset
        else:
            self.commits_failed += 1
            _LOG.warning(
                "offsets of group %s were not committed: %s. The job goes on from its checkpoints in any case",
                self._settings.group_id,
                failed.str(),
            )

    def _note_statistics(self, text: str) -> None:
        self.metrics.take(text)
        committed_only = self._settings.consumer["isolation.level"] == "read_committed"
        partitions = [assignment.partition for assignment in self._assigned.values()]
        facts = partition_facts(text, partitions, committed_only=committed_only)
        self.ends = facts.ends
        for place in list(self._unreachable_since):
            if place not in facts.unreachable:
                del self._unreachable_since[place]
                if place in self._logged:
                    self._logged.discard(place)
                    _LOG.warning("Kafka: %s can be read again", place)
        for place, reason in facts.unreachable.items():
            since = self._unreachable_since.setdefault(place, facts.seconds)
            self._watch(place, reason, facts.seconds - since)
        unreachable = frozenset(self._unreachable_since)
        if unreachable != self.unreachable:
            self.unreachable = unreachable
            self.items.wake_reader()

    def _watch(self, place: KafkaTopicPartition, reason: str, seconds: float) -> None:
        """Log that a partition cannot be reached, and raise KafkaUnreachableError behind the deadline."""
        if self._closed:
            return
        deadline = self._settings.unreachable_seconds
        servers = self._settings.properties["bootstrap.servers"]
        why = f"{reason}{'; ' if self._last_error else ''}{self._last_error}"
        if seconds >= deadline:
            self.items.put(
                FetchFailure(
                    KafkaUnreachableError(
                        f"{place} of Kafka at {servers} could not be reached for {deadline:g} s: {why}. Start the"
                        " broker, or raise broker.unreachable.timeout.ms"
                    )
                )
            )
            self._closed = True
        elif seconds >= min(_UNREACHABLE_LOG_SECONDS, deadline / 2) and place not in self._logged:
            self._logged.add(place)
            _LOG.warning(
                "Kafka: %s of %s cannot be reached: %s. The job waits, and fails in %.0f s",
                place,
                servers,
                why,
                deadline - seconds,
            )


def _place(partition: KafkaTopicPartition, offset: int | None = None) -> TopicPartition:
    if offset is None:
        return TopicPartition(partition.topic, partition.partition)
    first = OFFSET_BEGINNING if offset == EARLIEST else offset
    return TopicPartition(partition.topic, partition.partition, first)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _record(message: Message, stamp: int | None) -> ConsumerRecord:
    headers: Any = message.headers()
    return ConsumerRecord(
        message.topic() or "",
        message.partition() or 0,
        _offset(message),
        stamp,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
    )


def _runs(messages: list[Message], *, several_topics: bool) -> list[tuple[int, int]]:
    """Where the messages of one partition follow each other: (first, behind the last) of each run."""
    partitions = list(map(Message.partition, messages))
    first = partitions[0]
    if not several_topics and partitions.count(first) == len(partitions):
        return [(0, len(messages))]
    topics = list(map(Message.topic, messages)) if several_topics else [messages[0].topic()] * len(messages)
    places = list(zip(topics, partitions, strict=True))
    bounds = [0, *(i for i in range(1, len(places)) if places[i] != places[i - 1]), len(places)]
    return list(pairwise(bounds))

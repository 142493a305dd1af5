"""An enumerator of several clusters, and what a service and the clusters tell: added, taken away, refused, at rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import as_stored
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    KafkaMetadataService,
    KafkaStream,
)
from yarrow.datastream.connectors.dynamic_kafka.dynamic_enumerator import DynamicKafkaEnumerator
from yarrow.datastream.connectors.dynamic_kafka.dynamic_settings import KafkaMetadataError
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaTopicMissingError,
    KafkaUnreachableError,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading import kafka_enumerator
from yarrow.datastream.connectors.kafka.reading.partition_assignment import KafkaEnumeratorState
from yarrow.datastream.connectors.kafka.reading.partition_events import ClusterMoved, SplitsRemoved
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST, KafkaPartitionSplit

#: The topics of each cluster with their partitions, by the cluster's servers.
Topics = dict[str, dict[str, int] | KafkaConnectorError]
END = 10


class Told(KafkaMetadataService):
    """One stream: the topics of each cluster, and its servers."""

    def __init__(self, **clusters: Sequence[str]) -> None:
        self.clusters: dict[str, Sequence[str]] = dict(clusters)
        self.servers: dict[str, str] = {}
        self.inactive: set[str] = set()
        self.failure: Exception | None = None
        self.stream_id = "s"
        self.is_closed = False

    def get_all_streams(self) -> Collection[KafkaStream]:
        return list(self.describe_streams(["s"]).values())

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        if self.failure is not None:
            raise self.failure
        told = {
            name: ClusterMetadata(topics, {"bootstrap.servers": self.servers.get(name, f"{name}:1")})
            for name, topics in self.clusters.items()
        }
        found = self.stream_id
        return {found: KafkaStream(found, told)} if found in stream_ids else {}

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        return kafka_cluster_id not in self.inactive

    def close(self) -> None:
        self.is_closed = True


class Answers:
    """What one cluster answers."""

    def __init__(self, topics: Topics, servers: str) -> None:
        self._topics = topics
        self._servers = servers

    def topics(self, awaited: Collection[str] = ()) -> dict[str, int]:
        found = self._topics[self._servers]
        if isinstance(found, KafkaConnectorError):
            raise found
        return dict(found)

    def unknown(self, topics: Collection[str]) -> set[str]:
        return set(topics) - self.topics().keys()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {}

    def ends(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        return dict.fromkeys(partitions, END)


class Context:
    """Keeps what the enumerator asks of the engine. One reader is registered."""

    def __init__(self) -> None:
        self.parallelism = 1
        self.registered_readers: dict[int, str] = {}
        self.assigned: list[KafkaPartitionSplit] = []
        self.removed: list[str] = []
        self.moved: list[str] = []
        self.ended: list[int] = []
        self.later: list[Any] = []

    def assign_split(self, split: KafkaPartitionSplit, subtask: int) -> None:
        self.assigned.append(split)

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.append(subtask)

    def send_event_to_reader(self, subtask: int, event: SplitsRemoved | ClusterMoved) -> None:
        if isinstance(event, ClusterMoved):
            self.moved.append(event.cluster)
        else:
            self.removed.extend(map(str, event.partitions))

    def call_later(self, seconds: float, action: Any) -> None:
        self.later.append(action)

    def pass_time(self) -> None:
        later, self.later = self.later, []
        for action in later:
            action()


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    known: Topics = {"east:1": {"t": 1, "u": 1}, "west:1": {"t": 1}}
    monkeypatch.setattr(
        kafka_enumerator,
        "ClusterClient",
        lambda client, *_, **__: Answers(known, client["bootstrap.servers"]),
    )
    return known


def started(
    told: Told, state: Any = None, *, bounded: bool = False, **properties: Any
) -> tuple[DynamicKafkaEnumerator, Context]:
    """An enumerator that starts at the end of topics, with a reader."""
    builder = DynamicKafkaSource.builder().set_stream_ids({"s"}).set_kafka_metadata_service(told)
    builder.set_value_only_deserializer(SimpleStringSchema())
    builder.set_starting_offsets(KafkaOffsetsInitializer.latest())
    builder.set_properties({"partition.discovery.interval.ms": -1, "default.api.timeout.ms": 1})
    builder.set_properties({key.replace("_", "."): value for key, value in properties.items()})
    if bounded:
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    context: Any = Context()
    enumerator: Any = builder.build().create_enumerator(context, state)
    enumerator.start()
    context.registered_readers[0] = "host"
    enumerator.add_reader(0)
    return enumerator, context


DISCOVERING: dict[str, Any] = {"stream-metadata-discovery-interval-ms": 1000}
FAILING_ONCE: dict[str, Any] = DISCOVERING | {"stream-metadata-discovery-failure-threshold": 2}


def ids(context: Context) -> list[str]:
    return [split.split_id for split in context.assigned]


def test_splits_have_their_cluster_and_none_come_without_discovery(topics: Topics) -> None:
    _, context = started(Told(east=["t", "u"], west=["t"]))
    assert ids(context) == ["east/t-0", "east/u-0", "west/t-0"]
    assert {split.position for split in context.assigned} == {END}
    assert context.ended and context.later == []


def test_an_added_topic_begins_as_the_source_and_an_added_partition_at_its_beginning(topics: Topics) -> None:
    told = Told(east=["t"])
    enumerator, context = started(told, **DISCOVERING, partition_discovery_interval_ms=1000)
    assert context.ended == []
    told.clusters = {"east": ["t", "u"], "west": ["t"]}
    topics["east:1"] = {"t": 2, "u": 1}
    context.pass_time()
    assert {split.split_id: split.position for split in context.assigned} == {
        "east/t-0": END,
        "east/t-1": EARLIEST,
        "east/u-0": END,
        "west/t-0": END,
    }
    state = as_stored(enumerator.snapshot_state(1))
    assert [name for name, _ in state.clusters] == ["east", "west"]


def test_a_cluster_that_is_told_no_more_is_released_also_behind_a_restore(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(east=["t"], west=["t"])
    enumerator, context = started(told, **DISCOVERING)
    state = as_stored(enumerator.snapshot_state(1))
    told.clusters.pop("west")
    topics["west:1"] = KafkaUnreachableError("it is switched off")
    context.pass_time()
    assert context.removed == ["west/t-0"]
    assert "cluster west is not read any more; the splits of west/t-0 are released" in caplog.text
    enumerator.add_reader(0)
    assert context.removed == ["west/t-0"] * 2, "a reader that goes back to a checkpoint hears it"
    _, context = started(told, state)
    assert context.removed == ["west/t-0"] and context.assigned == []
    with pytest.raises(KafkaTopicMissingError, match="does not tell of cluster west any more"):
        started(told, state, bounded=True)


def test_a_reader_hears_what_a_cluster_lacks_that_has_gone_and_come_back(topics: Topics) -> None:
    told = Told(east=["t", "u"], west=["t"])
    enumerator, context = started(told, **DISCOVERING)
    told.clusters = {"east": ["t"], "west": ["t"]}
    context.pass_time()
    told.clusters = {"west": ["t"]}
    context.pass_time()
    told.clusters = {"east": ["u"], "west": ["t"]}
    context.pass_time()
    assert ids(context) == ["east/t-0", "east/u-0", "west/t-0", "east/u-0"]
    context.removed = []
    enumerator.add_reader(0)
    assert context.removed == ["east/t-0"]


def test_readers_hear_that_a_cluster_is_reached_in_another_way(topics: Topics) -> None:
    told = Told(east=["t"], west=["t"])
    _, context = started(told, **DISCOVERING)
    told.servers["west"] = "north:1"
    topics["north:1"] = topics.pop("west:1")
    context.pass_time()
    assert context.moved == ["west"] and context.removed == []
    assert ids(context) == ["east/t-0", "west/t-0"]


def test_a_service_may_fail_so_often_behind_each_other(topics: Topics) -> None:
    told = Told(east=["t"])
    _, context = started(told, **FAILING_ONCE)
    for _ in range(2):
        told.failure = ValueError("no answer")
        context.pass_time()
        told.failure = None
        context.pass_time()
    told.failure = ValueError("no answer")
    context.pass_time()
    with pytest.raises(KafkaMetadataError, match="service Told failed with ValueError: no answer"):
        context.pass_time()
    with pytest.raises(KafkaMetadataError):
        started(told)


def test_the_errors_of_a_cluster_that_is_not_active_let_it_rest(topics: Topics) -> None:
    told = Told(east=["t"], west=["t"])
    told.inactive.add("west")
    topics["west:1"] = KafkaUnreachableError("it is switched off")
    enumerator, context = started(told, **DISCOVERING)
    assert ids(context) == ["east/t-0"]
    assert [name for name, _ in as_stored(enumerator.snapshot_state(1)).clusters] == ["east", "west"]
    topics["west:1"] = {"t": 1}
    context.pass_time()
    assert ids(context) == ["east/t-0", "west/t-0"]


def test_a_reader_hears_what_a_resting_cluster_had_lost_before(topics: Topics) -> None:
    told = Told(east=["t", "u"])
    enumerator, context = started(told, **DISCOVERING, partition_discovery_interval_ms=1000)
    topics["east:1"] = {"t": 1}
    told.clusters = {"east": ["t"]}
    context.pass_time()
    told.inactive.add("east")
    topics["east:1"] = KafkaTopicMissingError("its topics are moved away")
    context.pass_time()
    for heard in (["east/u-0"], ["east/u-0"] * 2):
        enumerator.add_reader(0)
        assert context.removed == ["east/u-0", *heard]
        topics["east:1"] = {"t": 1}
        context.pass_time()


def test_a_bounded_job_waits_for_a_cluster_that_is_not_active(topics: Topics) -> None:
    told = Told(east=["t"], west=["t"])
    told.inactive.add("west")
    topics["west:1"] = KafkaTopicMissingError("its topics are moved away")
    _, context = started(told, bounded=True)
    context.pass_time()
    assert ids(context) == ["east/t-0"] and context.ended == []
    topics["west:1"] = {"t": 1}
    context.pass_time()
    assert ids(context) == ["east/t-0", "west/t-0"] and context.ended
    assert context.later == []


def test_a_resting_cluster_stays_at_rest_when_the_enumerator_ends(topics: Topics) -> None:
    told = Told(east=["t"])
    told.inactive.add("east")
    topics["east:1"] = KafkaTopicMissingError("its topics are moved away")
    enumerator, context = started(told)
    topics["east:1"] = {"t": 1}
    enumerator.close()
    context.pass_time()
    assert context.assigned == [] and context.later == []


def test_splits_that_come_back_while_their_cluster_rests_are_read_again(topics: Topics) -> None:
    told = Told(east=["t"], west=["t"])
    enumerator, context = started(told, **DISCOVERING, partition_discovery_interval_ms=1000)
    given, context.assigned = context.assigned, []
    told.inactive.add("west")
    topics["west:1"] = KafkaTopicMissingError("its topics are moved away")
    context.pass_time()
    enumerator.add_splits_back(given, 0)
    assert ids(context) == ["east/t-0"]
    topics["west:1"] = {"t": 1}
    context.pass_time()
    assert context.assigned == given


def test_splits_that_come_back_before_the_service_answers_are_read_again(topics: Topics) -> None:
    told = Told(east=["t"])
    first, context = started(told)
    given, state = context.assigned, as_stored(first.snapshot_state(1))
    told.failure = ValueError("no answer")
    enumerator, context = started(told, state, **FAILING_ONCE)
    enumerator.add_splits_back(given, 0)
    told.failure = None
    context.pass_time()
    assert context.assigned == given


def test_what_the_job_names_must_exist_at_its_start(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaTopicMissingError, match="cluster east: topic later does not exist"):
        started(Told(east=["later"]))
    told = Told(east=["t"])
    _, context = started(told, **DISCOVERING, partition_discovery_interval_ms=1000)
    told.clusters = {"east": ["later", "t"]}
    context.pass_time()
    assert "topic later does not exist" in caplog.text
    topics["east:1"] = {"t": 1, "later": 1}
    context.pass_time()
    assert ids(context) == ["east/t-0", "east/later-0"]


def test_a_named_stream_that_the_service_does_not_know_is_refused_at_the_start(topics: Topics) -> None:
    told = Told(east=["t"])
    told.stream_id = "other"
    with pytest.raises(KafkaTopicMissingError, match="stream s is not known to metadata service Told"):
        started(told)


def test_a_named_stream_that_the_service_does_not_know_is_its_failure_later(topics: Topics) -> None:
    told = Told(east=["t"])
    enumerator, context = started(told, **FAILING_ONCE)
    state = as_stored(enumerator.snapshot_state(1))
    told.stream_id = "other"
    context.pass_time()
    assert context.removed == []
    told.stream_id = "s"
    context.pass_time()
    assert ids(context) == ["east/t-0"], "it is read on"
    told.stream_id = "other"
    context.pass_time()
    with pytest.raises(KafkaMetadataError, match="stream s is not known to metadata service Told"):
        context.pass_time()
    _, context = started(told, state, **FAILING_ONCE)
    assert context.removed == []
    with pytest.raises(KafkaMetadataError, match="stream s is not known"):
        started(told, state)


def test_a_checkpoint_of_another_source_is_refused(topics: Topics) -> None:
    state = KafkaEnumeratorState((), (), True)
    with pytest.raises(KafkaConnectorError, match="the checkpoint has the state of another source"):
        started(Told(east=["t"]), state)


def test_closing_ends_discovery_and_the_service(topics: Topics) -> None:
    told = Told(east=["t"])
    enumerator, context = started(told, **DISCOVERING)
    enumerator.close()
    context.pass_time()
    assert told.is_closed and context.later == []

"""An enumerator and the answers of a cluster, one a look: what it assigns, releases, refuses and asks again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import as_stored
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaLoginRefusedError,
    KafkaTopicMissingError,
    KafkaTopicRemadeError,
    KafkaUnreachableError,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading import kafka_enumerator
from yarrow.datastream.connectors.kafka.reading.kafka_enumerator import KafkaSourceEnumerator
from yarrow.datastream.connectors.kafka.reading.partition_assignment import KafkaEnumeratorState
from yarrow.datastream.connectors.kafka.reading.partition_events import SplitsRemoved
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST, KafkaPartitionSplit

Answer = dict[str, int] | KafkaConnectorError


class Answers:
    """What the cluster answers. `hidden` topics exist, and this user's list of topics lacks them."""

    def __init__(self) -> None:
        self.topics_now: Answer = {}
        self.hidden: set[str] = set()
        self.ids: dict[str, str] = {}

    def topics(self, awaited: Collection[str] = ()) -> dict[str, int]:
        if isinstance(self.topics_now, KafkaConnectorError):
            raise self.topics_now
        return dict(self.topics_now)

    def unknown(self, topics: Collection[str]) -> set[str]:
        return set(topics) - set(self.topics()) - self.hidden

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: found for topic, found in self.ids.items() if topic in topics}

    def ends(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        return dict.fromkeys(partitions, 10)


class Context:
    """Keeps what the enumerator asks of the engine. One reader is registered on `register`."""

    def __init__(self) -> None:
        self.parallelism = 1
        self.registered_readers: dict[int, str] = {}
        self.assigned: list[KafkaPartitionSplit] = []
        self.removed: list[KafkaTopicPartition] = []
        self.ended: list[int] = []
        self.later: list[Callable[[], None]] = []

    def assign_split(self, split: KafkaPartitionSplit, subtask: int) -> None:
        self.assigned.append(split)

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.append(subtask)

    def send_event_to_reader(self, subtask: int, event: SplitsRemoved) -> None:
        self.removed.extend(event.partitions)

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self.later.append(action)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    monkeypatch.setattr(kafka_enumerator, "ClusterClient", lambda *_, **__: answers)
    return answers


def started(
    topics: str, state: KafkaEnumeratorState | None = None, *, bounded: bool = False, **properties: str
) -> tuple[KafkaSourceEnumerator, Context]:
    """An enumerator without discovery, and with a reader."""
    builder: Any = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics(*topics.split())
    named: Mapping[str, str] = {"partition_discovery_interval_ms": "-1"} | properties
    builder.set_properties({key.replace("_", "."): value for key, value in named.items()})
    if bounded:
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    context: Any = Context()
    enumerator = source.create_enumerator(context, state)
    enumerator.start()
    context.registered_readers[0] = "host"
    enumerator.add_reader(0)
    return enumerator, context


def state_of(answers: Answers, topics: str, **options: Any) -> KafkaEnumeratorState:
    """The state of an enumerator whose reader has all partitions."""
    answers.topics_now = dict.fromkeys(topics.split(), 1)
    enumerator, _ = started(topics, **options)
    stored: KafkaEnumeratorState = as_stored(enumerator.snapshot_state(1))
    return stored


def place(topic: str) -> KafkaTopicPartition:
    return KafkaTopicPartition(topic, 0)


def test_a_restored_program_reads_a_new_topic_from_its_beginning_also_without_discovery(
    answers: Answers,
) -> None:
    state = state_of(answers, "a b")
    answers.topics_now = {"a": 1, "b": 1, "c": 1}
    _, context = started("a c", state)
    assert context.assigned == [KafkaPartitionSplit("c", 0, EARLIEST)]
    assert context.removed == [place("b")]
    assert context.ended and context.later == []


def test_a_restored_program_that_names_an_absent_topic_is_refused(answers: Answers) -> None:
    state = state_of(answers, "a")
    with pytest.raises(KafkaTopicMissingError, match="topic typo does not exist"):
        started("a typo", state)


def test_a_job_goes_on_without_a_topic_that_was_deleted_since_its_first_start(answers: Answers) -> None:
    state = state_of(answers, "a b")
    answers.topics_now = {"a": 1}
    enumerator, context = started("a b", state)
    assert context.removed == [place("b")]
    _, context = started("a b", as_stored(enumerator.snapshot_state(2)))
    assert context.assigned == [] and context.ended


def test_the_first_look_behind_a_restore_is_repeated_until_the_cluster_answers(answers: Answers) -> None:
    state = state_of(answers, "a b")
    answers.topics_now = KafkaUnreachableError("down")
    _, context = started("a c", state)
    assert context.ended == []
    context.later.pop()()
    assert len(context.later) == 1 and context.removed == []
    answers.topics_now = {"a": 1, "b": 1, "c": 1}
    context.later.pop()()
    assert context.removed == [place("b")]
    assert context.assigned == [KafkaPartitionSplit("c", 0, EARLIEST)]
    assert context.ended and context.later == []


def test_an_ended_topic_that_is_deleted_is_not_said_to_be_unread(answers: Answers) -> None:
    state = state_of(answers, "a b", bounded=True)
    answers.topics_now = {"b": 1}
    with pytest.raises(KafkaTopicMissingError, match=r"a-0 does not exist any more. Whether .* is not known"):
        started("a b", state, bounded=True)


def test_a_topic_that_exists_and_is_not_listed_keeps_its_reader(answers: Answers) -> None:
    """Otherwise it would be read from its beginning again when it is back in the list."""
    answers.topics_now = {"a": 1, "b": 1}
    _, context = started("a b", partition_discovery_interval_ms="1000")
    answers.topics_now, answers.hidden = {}, {"a"}
    context.later.pop()()
    assert context.removed == [place("b")]
    answers.topics_now = {"a": 1}
    context.later.pop()()
    assert [split.topic for split in context.assigned] == ["a", "b"]


def test_a_topic_that_was_made_again_is_told_by_both_ids(answers: Answers) -> None:
    answers.ids = {"a": "first", "b": "other"}
    state = state_of(answers, "a b")
    started("a b", state)
    answers.ids["a"] = "second"
    with pytest.raises(KafkaTopicRemadeError, match=r"topic a .* with id first, and now it has id second"):
        started("a b", state)
    # Without the state, or where brokers tell no ids, nothing is compared.
    started("a b")
    answers.ids = {}
    started("a b", state)


def test_a_running_job_fails_when_its_topic_is_made_again(answers: Answers) -> None:
    answers.ids, answers.topics_now = {"a": "first"}, {"a": 1}
    _, context = started("a", partition_discovery_interval_ms="1000")
    answers.ids = {"a": "second"}
    with pytest.raises(KafkaTopicRemadeError):
        context.later.pop()()


def test_a_deletion_that_was_seen_is_not_compared_with_what_comes_later(answers: Answers) -> None:
    answers.ids, answers.topics_now = {"a": "first", "b": "other"}, {"a": 1, "b": 1}
    _, context = started("a b", partition_discovery_interval_ms="1000")
    answers.topics_now = {"b": 1}
    context.later.pop()()
    answers.ids["a"], answers.topics_now = "second", {"a": 1, "b": 1}
    context.later.pop()()
    assert [split.topic for split in context.assigned] == ["a", "b", "a"]


def test_a_restored_program_that_drops_a_topic_releases_it_also_if_it_cannot_be_seen(
    answers: Answers,
) -> None:
    state = state_of(answers, "a b")
    answers.topics_now, answers.hidden = {"a": 1}, {"b"}
    _, context = started("a", state)
    assert context.removed == [place("b")]


def test_a_cluster_that_refuses_the_first_look_behind_a_restore_is_not_asked_again(answers: Answers) -> None:
    state = state_of(answers, "a")
    for refusal in (KafkaConnectorError("no right"), KafkaLoginRefusedError("wrong password")):
        answers.topics_now = refusal
        with pytest.raises(type(refusal), match=str(refusal)):
            started("a", state)


def test_the_looks_behind_a_restore_end_with_their_deadline(answers: Answers) -> None:
    state = state_of(answers, "a")
    answers.topics_now = KafkaUnreachableError("down")
    with pytest.raises(KafkaUnreachableError, match="down"):
        started("a", state, broker_unreachable_timeout_ms="1")

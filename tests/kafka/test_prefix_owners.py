"""A transactional id prefix belongs to one living job: a second one is refused, and nobody else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.kafka_under_test import PARTITIONS, KafkaTopics, NewTopic
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.kafka import FlinkKafkaProducer, Semantic
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaPrefixInUseError
from yarrow.datastream.connectors.kafka.writing import prefix_claims, prefix_owner
from yarrow.datastream.connectors.kafka.writing.prefix_claims import Holder, Mark, Sign, owner_name
from yarrow.datastream.connectors.kafka.writing.prefix_owner import PrefixOwner
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options.execution import SAVEPOINT_PATH
from yarrow.testing.connectors import ConnectorCheckError
from yarrow.testing.connectors.connector_job import MiniClusterJob, graph_of, wait_until

pytestmark = pytest.mark.kafka

ROWS = [f"row {number:03}" for number in range(40)]
FIRST, SECOND, THIRD = JobID("f" * 32), JobID("0" * 32), JobID("8" * 32)


@pytest.fixture
def target(kafka: KafkaCluster, new_topic: Callable[..., str]) -> TopicUnderTest:
    return TopicUnderTest(kafka, new_topic())


@pytest.fixture
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Living jobs beat fast. A job is watched for so long that a slow machine's beats are seen."""
    monkeypatch.setattr(prefix_owner, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(prefix_owner, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(prefix_claims, "WATCH_SECONDS", 60.0)


@pytest.fixture
def no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches another job finds that time is over."""
    monkeypatch.setattr(prefix_claims, "WATCH_SECONDS", 0.0)


@pytest.mark.usefixtures("quick_beats")
def test_a_second_job_is_refused_while_the_first_lives(target: TopicUnderTest) -> None:
    first = target.job(job=FIRST)
    first.write(ROWS[:20])
    for _ in range(2):
        with pytest.raises(KafkaPrefixInUseError) as told:
            target.job(2, job=SECOND)
        for part in (
            target.prefix,
            target.topic,
            str(FIRST),
            str(SECOND),
            "set_transactional_id_prefix",
            "TaskExecutors",
        ):
            assert part in str(told.value)
    first.checkpoint()
    first.write(ROWS)
    first.end()
    target.require_exactly_once(ROWS)
    # The first one has ended in order, and the second one has never had the prefix.
    second = target.job(2, job=SECOND)
    second.write(ROWS)
    second.end()
    target.require_exactly_once(ROWS + ROWS)


@pytest.mark.usefixtures("quick_beats")
@pytest.mark.parametrize("ends_first", [0, 1])
def test_the_prefix_stays_while_another_subtask_writes(
    target: TopicUnderTest, caplog: pytest.LogCaptureFixture, ends_first: int
) -> None:
    first = target.job(2, job=FIRST)
    first.write(ROWS)
    late = 1 - ends_first
    with target.client() as client:
        name = owner_name(target.prefix, Holder(str(FIRST), late))
        wait_until(
            lambda: (sign := Sign.of(client.find(name))) is not None and sign.mark is Mark.OWNS,
            f"the beats of subtask {late}",
        )
    early = first.subtasks[ends_first]
    early.finish()
    first.checkpoint()
    early.close()
    with pytest.raises(KafkaPrefixInUseError, match=f"with which job {FIRST} writes now"):
        target.job(2, job=SECOND)
    first.subtasks[late].finish()
    first.subtasks.remove(early)
    first.checkpoint()
    first.cancel()
    # Each subtask has told of its end, so the next job waits for nothing.
    caplog.clear()
    target.job(2, job=SECOND).cancel()
    assert "still runs" not in caplog.text
    target.require_exactly_once(ROWS)


@pytest.mark.usefixtures("no_watch")
def test_a_killed_job_is_watched_once_and_may_begin_again(
    target: TopicUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    first = target.job(2, job=FIRST)
    first.write(ROWS)
    first.checkpoint()
    first.kill()
    second = target.job(job=SECOND)
    assert f"job {FIRST} with its transactional id prefix {target.prefix!r} still runs" in caplog.text
    second.cancel()
    caplog.clear()
    third = target.job(job=THIRD)
    assert "still runs" not in caplog.text
    # It comes back behind a long pause, and others have the prefix: its rows are kept apart from theirs.
    first.start()
    first.end()
    third.write(ROWS)
    third.end()
    target.require_exactly_once(ROWS + ROWS)


def test_an_attempt_of_the_same_job_looks_at_no_other(
    target: TopicUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(owner: PrefixOwner, client: object) -> None:
        raise AssertionError("the job has had the prefix before")

    job = target.job(2)
    job.write(ROWS[:20])
    job.checkpoint()
    monkeypatch.setattr(PrefixOwner, "_watch_others", refuse)
    job.kill()
    # Rescaled, too.
    job.start(3)
    job.cancel()
    job.start(1)
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)


@pytest.mark.usefixtures("quick_beats")
def test_beats_outlive_the_broker(target: TopicUnderTest) -> None:
    first = target.job(job=FIRST)
    target.cluster.kill()
    target.cluster.start()
    target.cluster.wait_until_ready()
    with pytest.raises(KafkaPrefixInUseError):
        target.job(job=SECOND)
    first.cancel()
    target.job(job=SECOND).cancel()


def test_the_older_form_shares_its_prefix(target: TopicUnderTest) -> None:
    def job(job_id: JobID) -> Any:
        producer = FlinkKafkaProducer(
            target.topic,
            SimpleStringSchema(),
            {"bootstrap.servers": target.servers},
            semantic=Semantic.EXACTLY_ONCE,
        )
        return target.job(sink=producer.sink(), job=job_id)

    jobs = [job(FIRST), job(SECOND)]
    for one in jobs:
        one.write(ROWS)
        one.end()
    target.require_exactly_once(ROWS + ROWS)


class OnePrefix(KafkaTopics):
    """All jobs write with one prefix."""

    def sink(self) -> Sink[str]:
        return self.target.sink(self.asked_for)


def test_jobs_of_a_cluster(kafka: KafkaCluster, new_topic: NewTopic, tmp_path: Path) -> None:
    rows = ROWS[:]
    with (
        kafka.relay() as relay,
        mini_cluster(task_executors=2, slots=2) as cluster,
    ):
        topics = OnePrefix(kafka, relay, [new_topic(PARTITIONS), new_topic(PARTITIONS)])

        def submit(number: int, settings: dict[str, str]) -> MiniClusterJob:
            folder = tmp_path / f"checkpoints-{number}"
            return MiniClusterJob(cluster, graph_of(cluster, topics, folder, settings))

        topics.fill(rows[:10])
        first = submit(1, {})
        first.until_completed()
        # Refused for good, although a thousand restarts are allowed.
        second = submit(2, {})
        wait_until(lambda: second.has_ended, "the refusal", [first])
        with pytest.raises(
            ConnectorCheckError, match=f"{topics.target.prefix!r}, with which job [0-9a-f]+ writes"
        ):
            second.require_running("its end")
        topics.fill(rows[10:20])
        first.until_completed()
        path = first.stop(tmp_path / "savepoints")
        topics.fill(rows[20:])
        third = submit(3, {SAVEPOINT_PATH.key: path})
        wait_until(lambda: len(topics.read_all()) >= len(rows), "the rows behind the savepoint", [third])
        third.end()
        assert sorted(topics.read_all()) == rows

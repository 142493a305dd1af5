"""A KafkaSink is killed wherever it can be, and the broker too: each row is visible once, and nothing stays open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.unit.container.operators.sinks.sink_harness import KillAt, Killed, SinkJob, faults
from yarrow.container.operators.sinks.sink_committing import CommitFailedError
from yarrow.datastream.connectors.kafka.writing import prefix_claims
from yarrow.runtime.common.ids import JobID

pytestmark = pytest.mark.kafka

ROWS = [f"row {number:03}" for number in range(40)]
OTHER_JOB = JobID("f" * 32)


@pytest.fixture
def target(kafka: KafkaCluster, new_topic: Callable[..., str]) -> TopicUnderTest:
    """A topic of two partitions."""
    return TopicUnderTest(kafka, new_topic(partitions=2))


def finish(job: SinkJob) -> None:
    job.start()
    job.write(ROWS[:30])
    job.checkpoint()
    job.write(ROWS)
    job.end()


@pytest.mark.parametrize("completed", [False, True])
def test_killed_between_acknowledgement_and_commit(target: TopicUnderTest, completed: bool) -> None:
    job = target.job(2)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.write(ROWS[:25])
    if completed:
        job.complete(taken)
    job.kill()
    job.start()
    # The restore commits what the checkpoint holds, and aborts what it does not hold.
    assert sorted(target.rows()) == ROWS[: 20 if completed else 10]
    assert target.leftovers() == []
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)


def test_a_commit_that_comes_twice_shows_rows_once(target: TopicUnderTest) -> None:
    job = target.job()
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.complete(taken)
    job.notify(taken)
    job.kill()
    # The checkpoint is restored although its transactions are committed.
    job.start()
    assert sorted(target.rows()) == ROWS[:20]
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)


def test_the_broker_is_killed_between_prepare_and_commit(target: TopicUnderTest) -> None:
    job = target.job(2)
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.complete(taken)
    job.kill()
    target.cluster.kill()
    target.cluster.start()
    target.cluster.wait_until_ready()
    job.start()
    assert sorted(target.rows()) == ROWS[:20]
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)


def test_the_broker_is_killed_under_an_open_transaction(target: TopicUnderTest) -> None:
    job = target.job(2)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    target.cluster.kill()
    target.cluster.start()
    target.cluster.wait_until_ready()
    # Whether the client takes its transaction up again or fails: no row is lost, and none is doubled.
    with suppress(Exception):
        job.checkpoint()
    job.kill()
    finish(job)
    target.require_exactly_once(ROWS)


def test_leftovers_of_a_killed_job_with_the_same_prefix_stay(
    target: TopicUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody waits to see that the other job is dead.
    monkeypatch.setattr(prefix_claims, "WATCH_SECONDS", 0.0)
    other = target.job(job=OTHER_JOB)
    other.write(["other"])
    with pytest.raises(Killed), faults(KillAt("sink.after-prepare")):
        other.checkpoint()
    other.kill()
    before = target.leftovers()
    assert len(before) == 1
    job = target.job()
    job.write(ROWS)
    job.end()
    assert target.leftovers() == before
    other.start()
    assert target.leftovers() == []
    other.cancel()
    target.require_exactly_once(ROWS)


def test_a_transaction_that_kafka_has_aborted_is_a_loss_that_is_told(target: TopicUnderTest) -> None:
    job = target.job()
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    job.complete(job.take_checkpoint())
    job.kill()
    (name,) = target.leftovers()
    with target.client() as client:
        client.fence(name)
    with pytest.raises(CommitFailedError, match="another attempt cannot help") as told:
        job.start()
    assert name in str(told.value) and "accept-loss to 1" in str(told.value)
    job.kill()
    accepting = target.job(sink=target.sink(properties={"accept-loss": "1"}))
    accepting.cancel()
    accepting.completed, accepting.last_id = job.completed, job.last_id
    accepting.start()
    accepting.write(ROWS)
    accepting.end()
    target.require_exactly_once(ROWS[:10] + ROWS[20:])


def test_a_transaction_whose_time_is_over_is_a_loss_that_is_told(target: TopicUnderTest) -> None:
    # Without checkpoints nothing is compared with the time-out.
    sink = target.sink(properties={"transaction.timeout.ms": 2000})
    job = target.job(sink=sink, configuration={})
    job.write(ROWS[:10])
    job.complete(job.take_checkpoint())
    job.kill()
    with target.client() as client:
        while client.listed(target.prefix, "Ongoing", "PrepareAbort"):
            pass
    with pytest.raises(CommitFailedError, match="PRODUCER_FENCED"):
        job.start()
    job.kill()
    assert target.rows() == []

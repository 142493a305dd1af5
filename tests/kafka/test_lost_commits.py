"""A job whose rows Kafka has given up: it stops, keeps its checkpoint, and goes on from there when it is told to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import DEADLINE
from tests.kafka.counting_job import Run, Words, counting, source_of
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.base import Committer
from yarrow.datastream.connectors.kafka import KafkaSink
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.writing.kafka_committer import KafkaCommitter
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import KafkaTransaction
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobExecutionError

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]


class AbortingCommitter(Committer):
    """Has the broker abort a transaction just before its commit, as a time-out does."""

    def __init__(self, committer: KafkaCommitter, client: TransactionClient, aborted: Path) -> None:
        self._committer = committer
        self._client = client
        self._aborted = aborted

    def commit(self, committables: Sequence[KafkaTransaction]) -> None:
        # The first is committed, so that a checkpoint with rows is complete before.
        if self._aborted.with_suffix(".first").exists() and not self._aborted.exists():
            self._client.fence(committables[0].name)
            self._aborted.write_text(committables[0].name)
        self._committer.commit(committables)
        self._aborted.with_suffix(".first").touch()

    def abort(self, committables: Sequence[KafkaTransaction]) -> None:
        self._committer.abort(committables)

    def close(self) -> None:
        self._committer.close()


class AbortedOnce(KafkaSink[Any]):
    """A KafkaSink of which the broker aborts one prepared transaction."""

    def __init__(self, sink: KafkaSink[Any], aborted: Path) -> None:
        super().__init__(sink.settings)
        self._aborted = aborted

    def create_committer(self) -> Committer | None:
        with self._aborted.with_suffix(".attempts").open("a") as attempts:
            attempts.write("x")
        committer = super().create_committer()
        assert isinstance(committer, KafkaCommitter) and self._client is not None
        return AbortingCommitter(committer, self._client, self._aborted)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=1) as running:
        yield running


def test_a_job_whose_rows_kafka_gave_up_stops_and_goes_on_from_its_checkpoint_when_the_loss_is_accepted(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    words = Words(kafka.bootstrap_servers, new_topic(1), 1)
    target = TopicUnderTest(kafka, new_topic(1))
    aborted = tmp_path / "aborted"
    settings = {"parallelism.default": "1", "restart-strategy.type": "exponential-delay"}

    def job(sink: KafkaSink[Any]) -> Run:
        builder = source_of(kafka.bootstrap_servers, words.topic)
        env = counting(cluster, tmp_path, builder, settings, AbortedOnce(sink, aborted))
        return Run(cluster, cluster.submit(env.get_job_graph("counts")))

    run = job(target.sink())
    result = run.client.get_job_execution_result()
    while not result.done():
        words.send(10)
    with pytest.raises(JobExecutionError) as failed:
        result.result(DEADLINE)
    told = str(failed.value)
    assert aborted.read_text() in told
    assert aborted.with_suffix(".attempts").read_text() == "x", "no restart"
    loss = re.search(r"set the sink's property accept-loss to (\d+)", told)
    place = re.search(r"yarrow run -s (\S+/chk-\d+)\b", told)
    assert loss is not None and place is not None, told
    assert (Path(place[1]) / "_metadata").exists(), "kept under the default retention"

    words.end()
    settings["execution.state-recovery.path"] = place[1]
    # Without a word of the loss the job stops again, and leaves the checkpoint alone.
    with pytest.raises(JobExecutionError, match="accept-loss"):
        job(target.sink()).ends()
    assert (Path(place[1]) / "_metadata").exists()
    job(target.sink(properties={"accept-loss": loss[1]})).ends()
    written, expected = Counter(target.rows()), words.counts()
    lost = expected - written
    assert written <= expected and lost, "rows of one transaction are lost, and no other comes twice"
    assert target.leftovers() == []

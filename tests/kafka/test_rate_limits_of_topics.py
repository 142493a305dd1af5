"""Rate limits of KafkaSource and KafkaSink: rows wait until REST raises the limit, and checkpoints do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.failover.test_rate_limits import Rates
from tests.kafka.kafka_under_test import KafkaTopics, NewTopic, kafka_topics
from tests.support.kafka.cluster import KafkaCluster
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.connectors.connector_job import SETTINGS, MiniClusterJob, wait_until

pytestmark = pytest.mark.kafka

ROWS = [f"row {number:03}" for number in range(60)]
#: So little a second that no test would see the first row.
NOTHING = 0.0001
LIMIT = dict[str, float | None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=2) as running:
        yield running


@pytest.fixture
def topics(kafka: KafkaCluster, new_topic: NewTopic) -> Iterator[KafkaTopics]:
    with kafka_topics(kafka, new_topic) as topics:
        yield topics


def submit(cluster: MiniCluster, topics: KafkaTopics, folder: Path) -> tuple[MiniClusterJob, Rates]:
    """Topic to topic. Neither end has a limit that matters."""
    env = cluster.get_execution_environment(SETTINGS | {"execution.checkpointing.dir": str(folder)})
    rows = env.from_source(topics.source(), WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.rate_limit(rows_per_second=1e6, bytes_per_second=1e9)
    rows.sink_to(topics.sink()).uid("copies").rate_limit(rows_per_second=1e6)
    job = MiniClusterJob(cluster, env.get_job_graph("limited topics"))
    return job, Rates(cluster, job._client)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uid", "limit"),
    [
        ("rows", {"rows-per-second": NOTHING}),
        ("rows", {"bytes-per-second": NOTHING}),
        ("copies", {"rows-per-second": NOTHING}),
    ],
)
def test_rows_wait_for_the_limit_of_source_or_sink(
    uid: str, limit: LIMIT, cluster: MiniCluster, topics: KafkaTopics, tmp_path: Path
) -> None:
    job, rates = submit(cluster, topics, tmp_path)
    topics.fill(ROWS[:20])
    wait_until(lambda: len(topics.read_all()) == 20, "rows without a limit that matters", [job])
    rates.set(**{uid: limit})
    # Permits that were saved before are lost, up to the one that each subtask may keep.
    job.until_completed()
    topics.fill(ROWS[20:])
    job.until_completed(4)
    assert len(topics.read_all()) <= 20 + rates.of(uid)["subtasks"]
    raised: LIMIT = {"rows-per-second": 1e6}
    rates.set(**{uid: raised})
    wait_until(lambda: len(topics.read_all()) >= len(ROWS), "rows behind the limit", [job])
    job.end()
    assert sorted(topics.read_all()) == ROWS
    assert topics.leftovers() == []


def test_a_changed_limit_outlives_a_rescale_which_shares_it_anew(
    cluster: MiniCluster, topics: KafkaTopics, tmp_path: Path
) -> None:
    job, rates = submit(cluster, topics, tmp_path)
    job.until_completed()
    rates.set(rows={"rows-per-second": NOTHING})
    assert rates.of("rows")["subtasks"] == 2
    for parallelism in (1, 2):
        job.rescale(parallelism)
        job.until_completed()
        told = rates.of("rows")
        assert (told["subtasks"], told["rows-per-second"]) == (parallelism, NOTHING)
    topics.fill(ROWS)
    job.until_completed(4)
    # Each of the new subtasks begins without permits.
    assert len(topics.read_all()) <= 2
    rates.set(rows={"rows-per-second": None})
    wait_until(lambda: len(topics.read_all()) >= len(ROWS), "rows behind the limit", [job])
    job.end()
    assert sorted(topics.read_all()) == ROWS

"""Jobs on a cluster of processes and on one of threads: the same bodies, the same results."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.support.largest import Largest
from yarrow.common import JobStatus
from yarrow.common.accumulators import IntCounter
from yarrow.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobAlreadyEndedError, JobCancelledError, JobExecutionError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=[True, False], ids=["processes", "threads"])
def cluster(request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2, processes=request.param) as running:
        yield running


@pytest.fixture
def env(cluster: MiniCluster) -> StreamExecutionEnvironment:
    return cluster.get_execution_environment().set_parallelism(2)


def run_here(cluster: MiniCluster, env: StreamExecutionEnvironment) -> Any:
    """Fixtures do not share the context that the cluster is in place in: submits straight to it."""
    return cluster.submit(env.get_job_graph())


def test_keyed_sums_across_workers(cluster: MiniCluster, env: StreamExecutionEnvironment) -> None:
    numbers = env.from_sequence(1, 1000).map(lambda x: (x % 3, x))
    sums = numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    last: dict[int, int] = {}
    for key, total in sums.execute_and_collect():
        last[key] = max(total, last.get(key, 0))
    assert last == {rest: sum(x for x in range(1, 1001) if x % 3 == rest) for rest in range(3)}


def test_more_rows_than_the_buffers_hold_are_collected(env: StreamExecutionEnvironment) -> None:
    with env.from_sequence(1, 250_000).map(lambda x: x).execute_and_collect() as rows:
        assert sum(rows) == 250_000 * 250_001 // 2


def test_closing_the_iterator_cancels_the_job(env: StreamExecutionEnvironment) -> None:
    with env.from_sequence(1, 10**15).map(lambda x: x).execute_and_collect() as rows:
        assert next(rows) >= 1
        client = rows.get_job_client()
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelledError, match="was cancelled"):
        client.get_job_execution_result().result()


def test_a_failure_names_operator_and_record(cluster: MiniCluster, env: StreamExecutionEnvironment) -> None:
    env.from_collection([4, 2, 0]).map(lambda x: 8 // x).name("divide").print()
    client = run_here(cluster, env)
    with pytest.raises(JobExecutionError) as raised:
        client.get_job_execution_result().result()
    assert str(raised.value).startswith("Traceback (most recent call last):")
    assert "ZeroDivisionError" in str(raised.value)
    assert "failed in divide, at the record 0." in str(raised.value)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert isinstance(client.cancel().exception(), JobAlreadyEndedError)


class Gate(MapFunction[int, int]):
    """Waits for a file before it lets a record pass."""

    def __init__(self, path: str) -> None:
        self._path = path

    def map(self, value: int) -> int:
        pause = threading.Event()
        while not os.path.exists(self._path):
            pause.wait(0.01)
        return value


class Counting(MapFunction[int, int]):
    """Counts what it sees."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = IntCounter()
        runtime_context.add_accumulator("seen", self._seen)
        self._largest = Largest()
        runtime_context.add_accumulator("largest", self._largest)

    def map(self, value: int) -> int:
        self._seen.add(1)
        self._largest.add(value)
        return value


def test_status_details_and_result_of_a_running_job(
    cluster: MiniCluster, env: StreamExecutionEnvironment, tmp_path: Any
) -> None:
    gate = tmp_path / "open"
    env.from_collection([1, 2, 3]).map(Gate(str(gate))).map(lambda x: x).print()
    client = run_here(cluster, env)
    wait_until(lambda: client.get_job_status().result() is JobStatus.RUNNING)
    assert client.get_job_details().result().job_id == str(client.get_job_id())
    assert not client.get_job_execution_result().done()
    gate.touch()
    assert client.get_job_execution_result().result().get_job_id() == client.get_job_id()
    assert client.get_job_status().result() is JobStatus.FINISHED
    # The cluster lives on.
    details = client.get_job_details().result()
    assert details.job_id == str(client.get_job_id())
    assert [subtask.state.value for vertex in details.vertices for subtask in vertex.subtasks][:1] == [
        "FINISHED"
    ]


def test_a_cluster_that_has_ended_tells_no_details() -> None:
    with mini_cluster() as cluster:
        env = cluster.get_execution_environment({})
        env.from_collection([1]).print()
        client = cluster.submit(env.get_job_graph("a job"))
        client.get_job_execution_result().result()
    with pytest.raises(JobExecutionError, match=f"the cluster of job {client.get_job_id()} has ended"):
        client.get_job_details().result()


def test_accumulators_of_all_subtasks_are_merged(
    cluster: MiniCluster, env: StreamExecutionEnvironment
) -> None:
    env.from_sequence(1, 1000).map(Counting()).filter(lambda x: False).print()
    client = run_here(cluster, env)
    expected = {"seen": 1000, "largest": 1000}
    assert client.get_job_execution_result().result().get_all_accumulator_results() == expected
    assert client.get_accumulators().result() == expected


def test_two_jobs_at_once(cluster: MiniCluster) -> None:
    results: dict[int, int] = {}

    def job(number: int) -> None:
        env = cluster.get_execution_environment().set_parallelism(1)
        env.from_sequence(1, 1000).map(lambda x: x * number).filter(lambda x: False).print()
        results[number] = run_here(cluster, env).get_job_execution_result().result().get_net_runtime()

    threads = [threading.Thread(target=job, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {1, 2}


def test_output_goes_to_the_present_standard_output(
    cluster: MiniCluster, env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    env.set_parallelism(1)
    env.from_collection(["a", "b"]).map(lambda x: x * 2).print("out")
    run_here(cluster, env).get_job_execution_result().result()
    assert capsys.readouterr().out.splitlines() == ["out> aa", "out> bb"]

"""Workers and TaskExecutors killed under running jobs without state: what restarts, what stays, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import (
    Trace,
    endless,
    environment,
    executor_of,
    two_regions,
    until_attempts,
    until_running,
)
from yarrow.am.resourcemanager.local_process_driver import LocalProcessDriver
from yarrow.common import JobStatus
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.common.ids import JobID, ResourceID
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, ResourceProfile

pytestmark = pytest.mark.cluster
_log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2) as running:
        yield running


def ended(cluster: MiniCluster, client: LocalJobClient) -> ExecutionGraphDetails:
    """What the cluster remembers of an ended job."""
    job_id = JobID(str(client.get_job_id()))
    return LoopThread.shared().call(cluster.cluster.dispatcher.request_job_details(job_id))


def test_a_killed_worker_restarts_its_region_and_no_other(cluster: MiniCluster, tmp_path: Path) -> None:
    client, trace = two_regions(cluster, tmp_path)
    other = trace.pid("right", 0)
    clock = SystemClock()
    killed = clock.monotonic()
    trace.kill("left", 0)
    until_attempts(client, left=[1], right=[0])
    _log.warning("all running again %.3f s after kill -9 of a worker", clock.monotonic() - killed)
    assert trace.pid("left", 0, 1) != trace.pid("left", 0)
    os.kill(other, 0)
    details = client.get_job_details().result()
    (entry,) = details.exceptions
    assert entry.cause.exception_name == "yarrow.container.protocol.errors.WorkerLostError"
    assert "SIGKILL" in entry.cause.message and entry.resource_id and entry.task_name
    assert details.restarts == 1
    client.cancel().result()
    wait_until(lambda: client.get_job_status().result() is JobStatus.CANCELED)


def test_two_regions_in_one_slot_die_and_restart_together(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster)
    endless(env, tmp_path, "left")
    endless(env, tmp_path, "right")
    client = cluster.submit(env.get_job_graph("one slot"))
    trace = Trace(tmp_path)
    until_running(client)
    wait_until(lambda: trace.pid("left", 0) == trace.pid("right", 0) > 0)
    trace.kill("left", 0)
    until_attempts(client, left=[1], right=[1])
    details = client.get_job_details().result()
    assert details.restarts == 1 and len(details.exceptions) == 1
    client.cancel().result()


@contextmanager
def no_new_task_executors() -> Iterator[None]:
    """No TaskExecutor starts in the block; those that are asked for start behind it."""
    begin = threading.Event()
    start = LocalProcessDriver.request_task_executor

    async def held(driver: LocalProcessDriver, profile: ResourceProfile) -> ResourceID:
        await asyncio.to_thread(begin.wait)
        return await start(driver, profile)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalProcessDriver, "request_task_executor", held)
        try:
            yield
        finally:
            begin.set()


def kill_and_see_the_shortage(cluster: MiniCluster, client: LocalJobClient, victim: int) -> None:
    """Kills a TaskExecutor whose slot the job needs, and looks at what the job waits for before there is another."""
    with no_new_task_executors():
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: "needs 2 slots and has 1" in client.get_job_details().result().waiting_for)
        (listed,) = LoopThread.shared().call(cluster.cluster.dispatcher.list_jobs())
        assert "needs 2 slots" in listed.waiting_for


@pytest.mark.parametrize("spares", [0, 1])
def test_a_killed_task_executor_is_replaced(spares: int, tmp_path: Path) -> None:
    configuration = {"slotmanager.redundant-taskmanager-num": spares}
    with mini_cluster(task_executors=2, slots=1, configuration=configuration) as cluster:
        env = environment(cluster, parallelism=2)
        endless(env, tmp_path, "all")
        client = cluster.submit(env.get_job_graph("all slots"))
        until_running(client)
        trace = Trace(tmp_path)
        manager = cluster.cluster.control_plane.resource_manager_gateway()
        wait_until(lambda: len(LoopThread.shared().call(manager.request_task_executors())) == 2 + spares)
        wait_until(lambda: trace.pid("all", 0) > 0)
        before = set(cluster.processes)
        # The TaskExecutor of subtask 0: the parent of its template, which is the worker's.
        clock = SystemClock()
        killed = clock.monotonic()
        victim = executor_of(trace.pid("all", 0))
        if spares:
            os.kill(victim, signal.SIGKILL)
        else:
            kill_and_see_the_shortage(cluster, client, victim)
        wait_until(lambda: trace.pid("all", 0, 1) > 0)
        until_running(client)
        _log.warning("%d spares: running again %.3f s after kill -9", spares, clock.monotonic() - killed)
        if spares:
            assert executor_of(trace.pid("all", 0, 1)) in before, "the spare took over, no new one"
        wait_until(lambda: bool(set(cluster.processes) - before))
        wait_until(lambda: len(cluster.processes) == 2 + spares)
        until_running(client)
        client.cancel().result()
        wait_until(lambda: client.get_job_status().result() is JobStatus.CANCELED)


def test_a_failing_function_fails_the_job_when_its_restarts_are_used_up(cluster: MiniCluster) -> None:
    env = environment(cluster, attempts=2)
    env.from_collection([4, 2, 0]).map(lambda value: 8 // value).name("divide").print()
    client = cluster.submit(env.get_job_graph("poison"))
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        client.get_job_execution_result().result()
    details = ended(cluster, client)
    assert details.restarts == 2
    assert [entry.cause.exception_name for entry in details.exceptions] == ["builtins.ZeroDivisionError"] * 3
    (former,) = {len(vertex.former_attempts) for vertex in details.vertices}
    assert former == 2


def test_without_a_strategy_the_first_failure_is_the_last(cluster: MiniCluster) -> None:
    env = cluster.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_collection([0]).map(lambda value: 8 // value).print()
    client = cluster.submit(env.get_job_graph("once"))
    with pytest.raises(JobExecutionError):
        client.get_job_execution_result().result()
    assert ended(cluster, client).restarts == 0


def test_cancelled_during_its_pause_it_never_runs_again(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, delay=600_000)
    endless(env, tmp_path, "paused")
    client = cluster.submit(env.get_job_graph("paused"))
    trace = Trace(tmp_path)
    until_running(client)
    wait_until(lambda: trace.pid("paused", 0) > 0)
    trace.kill("paused", 0)
    wait_until(lambda: client.get_job_status().result() is JobStatus.RESTARTING)
    wait_until(lambda: client.get_job_details().result().waiting_for.startswith("restarts in "))
    client.cancel().result()
    wait_until(lambda: client.get_job_status().result() is JobStatus.CANCELED)
    assert trace.pid("paused", 0, 1) == 0


def test_a_worker_killed_again_and_again_goes_on(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster)
    endless(env, tmp_path, "often")
    client = cluster.submit(env.get_job_graph("often"))
    trace = Trace(tmp_path)
    for attempt in range(4):
        until_attempts(client, often=[attempt])
        wait_until(lambda attempt=attempt: trace.pid("often", 0, attempt) > 0)  # type: ignore[misc]
        trace.kill("often", 0, attempt)
    until_attempts(client, often=[4])
    client.cancel().result()

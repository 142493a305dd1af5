"""TaskExecutors that die, or say nothing more: who restarts, who does not, and how many others are started."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import (
    Trace,
    all_running,
    attempts,
    endless,
    environment,
    executor_of,
    two_regions,
    until_attempts,
    until_running,
)
from tests.fault.test_named_faults import (
    GatedTotals,
    kill_if_there,
    slot_workers,
    until_each_restart_is_an_attempt,
)
from tests.unit.container.supervisor.conftest import process_runs
from yarrow.common.job_status import JobStatus
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock

pytestmark = pytest.mark.fault
_log = logging.getLogger(__name__)


def registered(cluster: MiniCluster) -> int:
    """TaskExecutors that the ResourceManager knows."""
    manager = cluster.cluster.control_plane.resource_manager_gateway()
    return len(LoopThread.shared().call(manager.request_task_executors()))


# ---------------------------------------------------------------------- 1: killed


def test_a_killed_task_executor_costs_the_regions_that_it_had_and_no_other(tmp_path: Path) -> None:
    clock = SystemClock()
    with mini_cluster(task_executors=2, slots=1) as cluster:
        client, trace = two_regions(cluster, tmp_path)
        other = trace.pid("right", 0)
        assert executor_of(other) != executor_of(trace.pid("left", 0))
        began = clock.monotonic()
        os.kill(executor_of(trace.pid("left", 0)), signal.SIGKILL)
        until_attempts(client, left=[1], right=[0])
        _log.warning("all running again %.3f s after kill -9 of a TaskExecutor", clock.monotonic() - began)
        os.kill(other, 0)
        details = client.get_job_details().result()
        assert details.restarts == 1 and len(details.exceptions) == 1
        assert "TaskExecutor" in details.exceptions[0].cause.message
        client.cancel().result()
        wait_until(lambda: client.get_job_status().result() is JobStatus.CANCELED)


def test_an_idle_task_executor_that_is_killed_is_of_no_matter_to_a_job(tmp_path: Path) -> None:
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster)
        endless(env, tmp_path, "only")
        client = cluster.submit(env.get_job_graph("one slot"))
        trace = Trace(tmp_path)
        until_running(client)
        wait_until(lambda: trace.pid("only", 0) > 0)
        (idle,) = set(cluster.processes) - {executor_of(trace.pid("only", 0))}
        os.kill(idle, signal.SIGKILL)
        wait_until(lambda: registered(cluster) == 1)
        details = client.get_job_details().result()
        assert all_running(details) and details.restarts == 0
        assert all(set(numbers) == {0} for numbers in attempts(details).values())
        os.kill(trace.pid("only", 0), 0)
        client.cancel().result()


# ---------------------------------------------------------------------- 2: a burst of kills


@pytest.mark.slow
def test_twenty_task_executors_killed_are_counted_and_replaced_one_for_one(tmp_path: Path) -> None:
    with mini_cluster(1, 2) as cluster:
        job = GatedTotals(cluster, tmp_path)
        job.until_completed()
        killed: set[int] = set()
        seen: set[int] = set()

        def kill_another(kills: int) -> bool:
            seen.update(cluster.processes)
            assert len(cluster.processes) <= 1, "no more TaskExecutors than the job needs"
            # One that has not registered has failed to start, which is another matter.
            for pid in set(cluster.processes) - killed if registered(cluster) else ():
                killed.add(pid)
                seen.add(pid)
                kill_if_there(pid)
            return len(killed) >= kills

        for kills in range(1, 21):
            wait_until(lambda kills=kills: kill_another(kills))  # type: ignore[misc]
        job.until_completed()
        assert until_each_restart_is_an_attempt(job) < len(killed)
        seen.update(cluster.processes)
        assert len(seen) == len(killed) + 1, "one more for each that died"
        job.ends_right()


def test_each_kill_under_a_running_job_counts_once(tmp_path: Path) -> None:
    with mini_cluster(2, 1) as cluster:
        job = GatedTotals(cluster, tmp_path)
        for kills in (1, 2):
            wait_until(lambda: all_running(job.client.get_job_details().result()))
            job.until_completed()
            victim = executor_of(slot_workers()[0])
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda kills=kills: job.client.get_job_details().result().restarts == kills)  # type: ignore[misc]
        wait_until(lambda: all_running(job.client.get_job_details().result()))
        assert job.client.get_job_details().result().restarts == 2
        job.ends_right()


# ---------------------------------------------------------------------- 10: silent, and back


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that stand still, and go on at the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_silent_task_executor_is_replaced_and_writes_nothing_when_it_is_back(tmp_path: Path) -> None:
    # The others are heard within that time, also on a busy machine.
    beats = {"heartbeat.interval": "200 ms", "heartbeat.timeout": "20 s"}
    with mini_cluster(2, 1, configuration=beats) as cluster:
        job = GatedTotals(cluster, tmp_path)
        wait_until(lambda: all_running(job.client.get_job_details().result()))
        job.until_completed()
        worker = slot_workers()[0]
        executor = executor_of(worker)
        everything = [each.pid for each in psutil.Process(executor).children(recursive=True)] + [executor]
        with stopped(everything):
            wait_until(lambda: job.client.get_job_details().result().restarts == 1)
            wait_until(lambda: all_running(job.client.get_job_details().result()))
            (entry,) = job.client.get_job_details().result().exceptions
            assert "heartbeat.timeout" in entry.cause.message or "silent" in entry.cause.message
            job.until_completed()
        # It finds that nobody counts on it: none of what it had runs on beside its successors.
        wait_until(lambda: not process_runs(worker))
        job.until_completed()
        assert job.client.get_job_details().result().restarts == 1
        job.ends_right()

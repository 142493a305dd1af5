"""Runs one bounded job under one FaultPlan, on Spark or in workers, and holds its output against the oracle.

Owner: the test's thread. A kill costs a restart, and the output is exact. A raised error fails the job, and nothing is
committed; from the stored commit on, it costs a repeated commit. A run whose fault did not happen is an error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.fault_jobs import JobShape
from tests.support.fault_runs import KeyBuckets, check_output, committed_parts, sink_of
from tests.support.process_names import name_of
from yarrow.common.job_status import JobStatus
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.testing.fault_plan import (
    RECORD_POINT,
    FaultAction,
    FaultPlan,
    FileFaultPlanner,
    configuration_of,
    install,
)

_KILLS = [FaultAction.KILL, FaultAction.KILL_TASK_EXECUTOR]
_TASK_POINTS = (RECORD_POINT, "batch.task-open", "batch.task-end", "sink.before-finish", "sink.after-finish")
_COMMIT_POINTS = ("sink.before-commit", "sink.mid-commit", "sink.after-commit")
_MASTER_POINTS = ("batch.before-store", "batch.after-store")
#: In workers of a TaskExecutor.
LOCAL_POINTS = [
    *((point, [*_KILLS, FaultAction.RAISE]) for point in (*_TASK_POINTS, *_COMMIT_POINTS)),
    # The TaskExecutor dies with the driver.
    *((point, [FaultAction.KILL_TASK_EXECUTOR]) for point in _MASTER_POINTS),
]
#: On Spark, whose tasks run in the driver's Java: the process above their own parent. The driver itself commits.
SPARK_POINTS = [
    *((point, [*_KILLS, FaultAction.RAISE]) for point in _TASK_POINTS),
    *((point, [FaultAction.KILL, FaultAction.RAISE]) for point in _COMMIT_POINTS),
    *((point, [FaultAction.KILL]) for point in _MASTER_POINTS),
]
#: Who runs the job -> what may happen to it.
POINTS = {"local": LOCAL_POINTS, "spark": SPARK_POINTS}
_MODES = {"local": "AUTOMATIC", "spark": "BATCH"}
SETTINGS = {
    "parallelism.default": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 s",
    "spark.driver.memory": "512m",
}
#: Seconds for a run, and for the end of its processes.
_LIMIT, _GRACE = 600.0, 120.0
_DRIVER = "yarrow-sparkdrv"
_PROCESSES = ("yarrow-batch", _DRIVER, "java")


@dataclass(frozen=True, slots=True)
class BoundedFaultRun:
    """One job, runner and plan."""

    shape: JobShape
    #: A key of POINTS.
    runner: str
    plan: FaultPlan

    def __str__(self) -> str:
        return f"{self.shape.name} in batch mode ({self.runner}), {self.plan}"

    @property
    def fails(self) -> bool:
        """Whether the fault is an error of a function or a sink, with which the job ends."""
        return self.plan.action is FaultAction.RAISE and self.plan.point not in _COMMIT_POINTS

    def execute(self, cluster: MiniCluster, folder: Path) -> None:
        """Runs the job to its end and checks output, plan and processes; raises AssertionError naming the plan."""
        # Other tests of this process may share a Spark driver, which lives on.
        others = _below_this()
        gates, output = folder / "gates", folder / "output"
        for path in (gates, output):
            path.mkdir(parents=True)
        (gates / "armed").touch()
        planner = FileFaultPlanner(self.plan, str(gates), lambda: self._victims(cluster))
        settings = SETTINGS | configuration_of(self.plan, str(gates))
        settings["execution.runtime-mode"] = _MODES[self.runner]
        env = cluster.get_execution_environment(settings)
        self.shape.build(env, "", sink_of(self.shape, output, KeyBuckets()))
        graph = env.get_job_graph(f"{self.shape.name} {self.plan.seed}")
        assert graph.batch_runner.value == self.runner.upper(), graph.batch_runner_reason
        install(planner)
        try:
            status, failure = _outcome(cluster.submit(graph))
        finally:
            install(None)
        assert planner.has_fired, f"{self}: the fault did not happen"
        if self.fails:
            assert status is JobStatus.FAILED and "injected at" in failure, f"{self}: {status}, {failure}"
            assert not any(committed_parts(str(self), self.shape, output)), f"{self}: something is committed"
        else:
            assert status is JobStatus.FINISHED, f"{self}: {status}, {failure}"
            check_output(str(self), self.shape, output, bounded=True)
        self._until_nothing_runs(others)

    def _victims(self, cluster: MiniCluster) -> list[int]:
        """Who dies at a point of the master."""
        if self.runner == "local":
            return cluster.processes[:1]
        return [process.pid for process in _below_this() if name_of(process) == _DRIVER]

    def _until_nothing_runs(self, others: set[psutil.Process]) -> None:
        deadline = time.monotonic() + _GRACE
        while left := _below_this() - others:
            assert time.monotonic() < deadline, f"{self}: processes outlive their job: {left}"
            psutil.wait_procs(left, timeout=0.2)


def _outcome(client: Any) -> tuple[JobStatus, str]:
    """How a job ended, and what it said."""
    try:
        client.get_job_execution_result().result(_LIMIT)
    except JobExecutionError as error:
        return client.get_job_status().result(), str(error)
    return client.get_job_status().result(), ""


def _below_this() -> set[psutil.Process]:
    """Processes of bounded jobs below this one; zombies are gone already."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith(_PROCESSES) and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except psutil.NoSuchProcess:
            continue
    return found

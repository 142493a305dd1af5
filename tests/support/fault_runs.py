"""Runs one job under one FaultPlan on a cluster that serves many, and holds its output against the oracle.

Owner: the test's thread. A run that proves nothing (its fault did not happen, or not between a completed checkpoint and
the end) is an error, not a success.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fault_jobs import FILES, JobShape, check
from yarrow.common.job_status import JobStatus
from yarrow.common.serialization import Encoder
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, BucketContext, RollingPolicy
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.testing.fault_plan import (
    RECORD_POINT,
    FaultAction,
    FaultPlan,
    FileFaultPlanner,
    PlannedMessages,
    configuration_of,
    install,
)
from yarrow.testing.gated_source import key_of
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

_KILLS = [FaultAction.KILL, FaultAction.KILL, FaultAction.KILL_TASK_EXECUTOR]
_WORKER_POINTS = (
    RECORD_POINT,
    "checkpoint.before-snapshot",
    "checkpoint.inside-snapshot",
    "checkpoint.after-snapshot",
    "checkpoint.before-acknowledge",
    "checkpoint.after-acknowledge",
    "checkpoint.before-notify",
    "restore.inside",
    "sink.before-prepare",
    "sink.after-prepare",
    "sink.before-commit",
    "sink.mid-commit",
    "sink.after-commit",
)
_COORDINATOR_POINTS = (
    "coordinator.before-metadata",
    "checkpoint.before-metadata-rename",
    "checkpoint.after-metadata-rename",
    "coordinator.after-metadata",
    "coordinator.before-notify",
)
_MESSAGES = (
    "rpc.trigger_checkpoint",
    "rpc.acknowledge_checkpoint",
    "rpc.notify_checkpoint",
    "rpc.acknowledge_coordinator",
)
#: Barriers overtake records.
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
#: For clusters whose workers are processes.
KILLING_POINTS = [(point, _KILLS) for point in (*_WORKER_POINTS, *_COORDINATOR_POINTS)]
#: For clusters in one process.
RAISING_POINTS = [
    *((point, [FaultAction.RAISE, FaultAction.RAISE, FaultAction.STALL]) for point in _WORKER_POINTS),
    *((point, [FaultAction.RAISE, FaultAction.STALL]) for point in _COORDINATOR_POINTS[:2]),
    *(
        (
            message,
            [FaultAction.DROP_REQUEST, FaultAction.DROP_REPLY, FaultAction.DELAY, FaultAction.DUPLICATE],
        )
        for message in _MESSAGES
    ),
]

SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "40 ms",
    "execution.checkpointing.timeout": "1 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "100",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 s",
    # Tasks of a busy machine end in time: a worker that is killed for its tasks is one more failure.
    "task.cancellation.timeout": "60 s",
}


class KeyBuckets(BucketAssigner):
    """Three folders by key: a checkpoint has several files to commit."""

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return str(int(key_of(element)[1:]) % 3)


@dataclass(frozen=True, slots=True)
class FaultRun:
    """One job, backend and plan."""

    shape: JobShape
    backend: str
    plan: FaultPlan
    #: Of the job, above SETTINGS.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Of FILES.
    buckets: BucketAssigner = field(default_factory=BucketAssigner.base_path_bucket_assigner)

    def __str__(self) -> str:
        return f"{self.shape.name} on {self.backend}, {self.plan}"

    def execute(self, cluster: MiniCluster, folder: Path, messages: PlannedMessages | None = None) -> None:
        """Runs the job to its end and checks output and plan; raises AssertionError naming the plan."""
        gates, output = folder / "gates", folder / "output"
        for path in (gates, output, folder / "checkpoints"):
            path.mkdir(parents=True)
        # TaskExecutors come and go with jobs: there may be none just now.
        victims = (lambda: cluster.processes[:1]) if cluster.cluster.shape.processes else None
        planner = FileFaultPlanner(self.plan, str(gates), victims)
        settings = SETTINGS | configuration_of(self.plan, str(gates)) | dict(self.settings)
        settings["execution.checkpointing.dir"] = str(folder / "checkpoints")
        settings["state.backend.type"] = self.backend
        settings["execution.checkpointing.incremental"] = "true"
        env = cluster.get_execution_environment(settings)
        self.shape.build(env, str(gates), sink_of(self.shape, output, self.buckets))
        install(planner)
        if messages is not None:
            messages.planner = planner
        try:
            # Not by way of the environment: of several clusters that are open it would take the latest.
            client: Any = cluster.submit(env.get_job_graph(f"{self.shape.name} {self.plan.seed}"))
            client.get_job_execution_result().result(180)
            assert client.get_job_status().result() is JobStatus.FINISHED
        finally:
            install(None)
            if messages is not None:
                messages.planner = None
        assert planner.was_armed and planner.has_fired, f"{self}: the fault did not happen"
        assert not (gates / "impatient").exists(), f"{self}: the fault did not happen in time"
        check_output(str(self), self.shape, output)


def sink_of(shape: JobShape, output: Path, buckets: BucketAssigner) -> Sink[Any]:
    """The sink of a shape, which commits into the folder."""
    if shape is not FILES:
        return TransactionalFiles(str(output))
    return (
        FileSink.for_row_format(str(output), Encoder.simple_string_encoder())
        .with_bucket_assigner(buckets)
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )


def check_output(run: str, shape: JobShape, output: Path, *, bounded: bool = False) -> None:
    """Holds what was committed against the oracle; raises AssertionError naming the run."""
    parts = committed_parts(run, shape, output)
    try:
        check(shape, parts, bounded=bounded)
    except AssertionError as error:
        raise AssertionError(f"{run}: {error}") from None


def committed_parts(run: str, shape: JobShape, output: Path) -> list[list[Any]]:
    """What was committed, by files whose rows have one order; nothing else may lie there, else AssertionError."""
    if shape is FILES:
        left = [str(file) for file in output.rglob("*") if file.is_file() and not _is_finished(file)]
        assert not left, f"{run}: left over: {left}"
        return [_rows_of(file) for file in sorted(output.rglob("*")) if _is_finished(file)]
    committed = CommittedFiles(output)
    assert not committed.committed_twice(), f"{run}: committed twice: {committed.committed_twice()}"
    assert not committed.leftovers(), f"{run}: left over: {committed.leftovers()}"
    return [committed.rows()]


def _is_finished(file: Path) -> bool:
    return (
        file.is_file()
        and not file.name.startswith((".", "_"))
        and not re.search("inprogress|pending", file.name)
    )


def _rows_of(file: Path) -> list[Any]:
    return [ast.literal_eval(line) for line in file.read_text("utf-8").splitlines()]


def processes_of(pids: list[int]) -> list[int]:
    """Those of the processes that still exist."""
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

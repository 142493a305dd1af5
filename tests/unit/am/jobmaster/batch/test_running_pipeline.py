"""RunningPipeline: an attempt that is over while its outputs are being stored must not move them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.counting_ids import CountingIdFactory
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.batch_scheduler import (
    BatchJobStarted,
    SparkDriverLost,
    SparkSessionStarted,
)
from yarrow.am.jobmaster.batch.pipeline_scheduler import PipelineAction, PipelineEvent, PipelineScheduler
from yarrow.am.jobmaster.batch.running_pipeline import RunningPipeline
from yarrow.am.jobmaster.batch.spark_driver_link import SparkDriverLink
from yarrow.am.jobmaster.batch.stage_commits import StageCommits
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.batch import Pipeline
from yarrow.batch.pipeline_graph import vertex_id_of
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import FailureCause, StageCommit

LOST = FailureCause(exception_name="SparkDriverLostError", message="silent", stacktrace="")


def nothing(spark: Any) -> None:
    """A stage that is never run."""


class LosesItsDriver:
    """Stores the commits of a stage; meanwhile its SparkDriver is silent for too long."""

    def __init__(self, scheduler: PipelineScheduler) -> None:
        self._scheduler = scheduler
        self.stored: list[StageCommit] = []

    async def store(self, commit: StageCommit) -> None:
        self._scheduler.handle(SparkDriverLost(0.0, commit.run, LOST))
        self.stored.append(commit)


def test_a_driver_that_is_lost_while_its_stage_is_stored_must_not_move_the_outputs() -> None:
    pipeline = Pipeline("one")
    pipeline.stage("a", nothing)
    graph = pipeline.get_job_graph()
    clock = ManualClock()
    backoff = FixedDelayBackoff(FixedDelaySettings(attempts=3, delay=0.0))
    execution_graph = ExecutionGraph(graph, clock, CountingIdFactory(), 8, 8)
    scheduler = PipelineScheduler(execution_graph, backoff, clock)
    scheduler.handle(BatchJobStarted(0.0))
    scheduler.handle(SparkSessionStarted(0.0, 0))
    commits = LosesItsDriver(scheduler)
    decided: list[PipelineEvent] = []

    def follow(event: PipelineEvent, actions: Sequence[PipelineAction]) -> None:
        decided.append(event)

    running = RunningPipeline(
        graph.job_id,
        scheduler,
        cast(SparkDriverLink, None),
        cast(StageCommits, commits),
        cast(JobMasterServices, SimpleNamespace(clock=clock)),
        follow,
    )
    commit = StageCommit(job_id=graph.job_id, run=0, vertex_id=vertex_id_of("a"), attempt=0, moves=())
    with pytest.raises(BatchRunError, match="must not commit"):
        asyncio.run(running.begin_commit(commit))
    assert commits.stored == [commit]
    assert decided == []

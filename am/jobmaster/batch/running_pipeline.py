"""RunningPipeline: what the BatchJobMaster of a pipeline does besides: it starts stages and takes word of their ends.

Owner: the BatchJobMaster's loop. It carries out and reports; the PipelineScheduler decides. Must not know Spark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from yarrow.am.jobmaster.batch.pipeline_scheduler import (
    PipelineAction,
    PipelineEvent,
    PipelineScheduler,
    StageCommitStored,
    StageFailed,
    StageFinished,
    StagesRecovered,
    StartStage,
)
from yarrow.am.jobmaster.batch.spark_driver_link import SparkDriverLink
from yarrow.am.jobmaster.batch.stage_commits import StageCommits
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import JobID, JobVertexID
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import StageCommit, StageEnd, StageSubmission

_log = logging.getLogger(__name__)
#: Seconds between tries to store what a stage leaves.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0


class RunningPipeline:
    """The stages of one running pipeline."""

    def __init__(
        self,
        job_id: JobID,
        scheduler: PipelineScheduler,
        driver: SparkDriverLink,
        commits: StageCommits,
        services: JobMasterServices,
        follow: Callable[[PipelineEvent, Sequence[PipelineAction]], None],
    ) -> None:
        """`follow` keeps an event with what follows from it, and carries that out."""
        self._job_id = job_id
        self._scheduler = scheduler
        self._driver = driver
        self._commits = commits
        self._services = services
        self._follow = follow

    def _decide(self, event: PipelineEvent) -> None:
        self._follow(event, self._scheduler.handle(event))

    async def recover(self) -> None:
        """Takes what a former master has stored of the stages. Raises as CommitRecords."""
        self._decide(StagesRecovered(await self._commits.recover()))

    @property
    def stages_in_place(self) -> tuple[JobVertexID, ...]:
        """The stages that leave nothing more."""
        return self._scheduler.stages_in_place

    async def start(self, action: StartStage) -> None:
        """Gives an attempt of a stage to the SparkDriver of its run."""
        moves = self._commits.moves_of(action.vertex_id) if action.commits else None
        await self._driver.submit_stage(
            StageSubmission(
                job_id=self._job_id,
                run=action.run,
                vertex_id=action.vertex_id,
                attempt=action.attempt,
                moves=moves,
                is_repeated=action.is_repeated,
            )
        )

    async def begin_commit(self, commit: StageCommit) -> None:
        """Returns when the outputs are stored; waits while the store is away.

        Raises BatchRunError if the attempt is over, and LeadershipLostError.
        """
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            self._check_present(commit)
            try:
                await self._commits.store(commit)
                break
            except LeadershipLostError:
                raise
            except (RecordsError, FileSystemError, OSError) as error:
                _log.warning("what a stage of job %s leaves is not stored yet: %s", self._job_id, error)
            passed = asyncio.Event()
            self._services.timers.call_later(backoff.next_seconds(), passed.set)
            await passed.wait()
        # The driver may have been lost meanwhile, though it lives: another one runs the stage again.
        self._check_present(commit)
        now = self._services.clock.monotonic()
        self._decide(StageCommitStored(now, commit.run, commit.vertex_id, commit.attempt))

    def _check_present(self, commit: StageCommit) -> None:
        if not self._scheduler.may_commit(commit.run, commit.vertex_id, commit.attempt):
            raise BatchRunError(f"an attempt of a stage of job {self._job_id} is over: it must not commit")

    def ended(self, end: StageEnd) -> None:
        """Takes the end of an attempt."""
        now = self._services.clock.monotonic()
        if end.cause is None:
            self._decide(StageFinished(now, end.run, end.vertex_id, end.attempt, end.metrics))
        else:
            self._decide(
                StageFailed(
                    now,
                    end.run,
                    end.vertex_id,
                    end.attempt,
                    cause=end.cause,
                    lost_inputs=end.lost_inputs,
                )
            )

    async def remove_temporary(self) -> None:
        """Removes temporary outputs, since the pipeline has ended."""
        await self._commits.remove_temporary()

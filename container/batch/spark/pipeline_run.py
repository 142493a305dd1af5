"""PipelineRun: the stages of a pipeline that one SparkDriver runs, side by side, as its master submits them.

Owner: the driver's loop; each attempt of a stage has a thread. The run waits for submissions until it is cancelled, or
Java ends: the master decides which stage comes next. Must not decide what the end of a stage means.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.driver_run import RunEnd
from yarrow.container.batch.spark.batch_run import RunServices
from yarrow.container.batch.spark.pipeline.output_folders import OutputLostError
from yarrow.container.batch.spark.pipeline.stage_attempt import (
    LostInputsError,
    StageAttempt,
    StageCancelledError,
    StagePlaces,
    commit,
)
from yarrow.container.batch.spark.pipeline.stage_failures import cause_of, is_of_spark
from yarrow.container.batch.spark.tasks.late_tasks import LATE_SECONDS
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.supervisor.job_files import JobFiles
from yarrow.container.worker.job_code import install_user_code
from yarrow.runtime.common.errors import FencingTokenError, InvalidProgramError, YarrowError
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.config.options import batch, high_availability, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import embedded_folder
from yarrow.runtime.fs.local import plain_path
from yarrow.runtime.graph.batch.pipeline_plan import stage_of
from yarrow.runtime.graph.batch.pipeline_storage import check_storage
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.messages import (
    BatchResult,
    BatchSubmission,
    FailureCause,
    OutputMove,
    StageCommit,
    StageEnd,
    StageSubmission,
)

_log = logging.getLogger(__name__)
#: Seconds between two looks at whether the run has ended.
_CANCEL_SECONDS: Final = 0.2
#: Seconds that a function of a stage may take to return when its run has ended: Spark's tasks need LATE_SECONDS.
_FUNCTION_SECONDS: Final = LATE_SECONDS + 5.0
#: Seconds between a broken connection to Java and its end.
_JAVA_SECONDS: Final = 1.0


class RunCutOffError(YarrowError):
    """The run has lost Java, or its master, under a stage."""


class PipelineRun:
    """One run of a pipeline."""

    def __init__(self, submission: BatchSubmission, services: RunServices, folder: Path) -> None:
        """`folder` is made for the run, and removed at its end."""
        self.submission = submission
        self._services = services
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._graph: JobGraph
        self._places: StagePlaces
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._ending = threading.Event()
        self._cancelled = False
        self._failure: FailureCause | None = None
        self._stages: dict[tuple[JobVertexID, int], asyncio.Task[None]] = {}
        self._finished_one = False
        #: Those that run; each is put in and taken out by its own thread.
        self._attempts: set[StageAttempt] = set()
        #: The folder of temporary outputs, if it is on this host.
        self._made_folder = ""

    # ------------------------------------------------------------------ the driver's loop

    async def execute(self) -> tuple[RunEnd, FailureCause | None]:
        """Takes stages until the run is over; then ends those that still run."""
        try:
            await self._prepare()
            self._ready.set()
            await self._over.wait()
        except Exception as error:
            _log.error("the pipeline cannot run", exc_info=error)
            self._failure = _cause_of(error)
        self._ending.set()
        # Stages that wait for the start of the run never begin.
        running = list(self._stages.values())
        for task in running if not self._ready.is_set() else ():
            task.cancel()
        await self._await_end_of(running)
        await asyncio.to_thread(self._remove_folders)
        if self._failure is not None:
            return RunEnd.FAILED, self._failure
        # The master ends the run of a pipeline that has finished, too.
        return (RunEnd.FINISHED if self._finished_one else RunEnd.CANCELED), None

    async def _await_end_of(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Returns when these stages have ended, or when it is clear that functions of some do not return."""
        if not running:
            return
        _, left = await asyncio.wait(running, timeout=_FUNCTION_SECONDS)
        if not left:
            return
        # Nothing ends a thread. The driver's process ends next, and these functions with it.
        for attempt in list(self._attempts):
            _log.warning(
                "the function of stage %r does not return: it ends with its driver", attempt.stage.name
            )
            await asyncio.to_thread(attempt.abandon)

    def submit_stage(self, submission: StageSubmission) -> None:
        """Begins an attempt of a stage; a second time it has no effect."""
        key = (submission.vertex_id, submission.attempt)
        if key not in self._stages and not self._ending.is_set():
            name = f"stage {submission.vertex_id}"
            self._stages[key] = self._loop.create_task(self._run_stage(submission), name=name)

    def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Has no effect: stages of a pipeline have no sources and sinks."""

    def cancel(self) -> None:
        """Begins to end the run."""
        self._cancelled = True
        self._ending.set()
        self._over.set()

    def java_ended(self, cause: FailureCause) -> None:
        """Ends the run, because Spark is gone."""
        self._failure = self._failure or cause
        self._ending.set()
        self._over.set()

    def orphaned(self) -> None:
        """Has no effect: the next run of the pipeline removes what its stages have left."""

    def result(self) -> BatchResult:
        """The message about a run that has ended without failure."""
        return BatchResult(job_id=self.submission.job_id, run=self.submission.run, stages=())

    async def _prepare(self) -> None:
        submission, services = self.submission, self._services
        self._folder.mkdir(mode=0o700, parents=True)
        files = JobFiles(services.master, self._folder / "files", services.part_bytes, _in_thread)
        encoded = submission.job_graph or await files.read(submission.job_graph_blob_key)
        self._graph = graph = await asyncio.to_thread(decode_job_graph, encoded)
        paths = await files.fetch(file.blob_key for file in graph.user_code.files)
        settings = Settings(services.configuration, "the SparkDriver").overlay(graph.configuration, "the job")
        self._places = StagePlaces(
            job_id=graph.job_id,
            temporary=temporary_folder(settings, graph.job_id, services.host.working_folder),
            producers={
                output.name: vertex.id for vertex in graph.vertices for output in stage_of(vertex).outputs
            },
        )
        await asyncio.to_thread(self._install, paths)
        await asyncio.to_thread(check_storage, graph, submission.finished_stages)

    def _install(self, paths: Mapping[str, str]) -> None:
        """Makes the functions of the job loadable, here and in the processes of Spark's tasks."""
        install_user_code(self._graph, paths, own_main=True)
        context = self._services.host.session.sparkContext
        context.environment["PYTHONPATH"] = os.pathsep.join(folder for folder in sys.path if folder)
        if scheme_of(self._places.temporary) == "file":
            self._made_folder = plain_path(self._places.temporary)
            os.makedirs(self._made_folder, mode=0o700, exist_ok=True)

    def _remove_folders(self) -> None:
        """Removes the run's own folder, and the one of temporary outputs if there are none."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._made_folder:
            # It is not empty before the master has removed outputs.
            with contextlib.suppress(OSError):
                os.rmdir(self._made_folder)

    async def _run_stage(self, submission: StageSubmission) -> None:
        await self._ready.wait()
        if self._ending.is_set():
            return
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"stage {submission.vertex_id[:8]}")
        group = f"{submission.job_id}-{submission.run}-{submission.vertex_id}-{submission.attempt}"
        done = threading.Event()
        watch = threading.Thread(target=self._cancel_with_run, args=(group, done), name="cancel", daemon=True)
        watch.start()
        try:
            end = await self._loop.run_in_executor(pool, self._attempt, submission, group)
            if not self._ending.is_set():
                self._finished_one = self._finished_one or end.cause is None
                await self._services.master.report_stage_end(end)
        except YarrowError as error:
            # The master may not know what became of the stage: another run finds out.
            self._failure = self._failure or failure_cause(error.with_traceback(None))
            self._ending.set()
            self._over.set()
        finally:
            done.set()
            pool.shutdown(wait=False)

    # ------------------------------------------------------------------ threads of stages

    def _attempt(self, submission: StageSubmission, group: str) -> StageEnd:
        """Runs an attempt to its end. Raises RpcUnavailableError, FencingTokenError and RunCutOffError."""
        vertex = self._graph.vertex(submission.vertex_id)
        end = StageEnd(
            job_id=submission.job_id,
            run=submission.run,
            vertex_id=submission.vertex_id,
            attempt=submission.attempt,
        )
        try:
            return _with(end, metrics=self._execute(submission, group))
        except (RpcUnavailableError, FencingTokenError, RunCutOffError):
            raise
        except LostInputsError as error:
            return _with(end, cause=cause_of(vertex.name, error), lost_inputs=error.stages)
        except OutputLostError as error:
            return _with(end, cause=cause_of(vertex.name, error), lost_inputs=(vertex.id,))
        # Also SystemExit of a function: it ends the stage, and not the driver.
        except BaseException as error:
            _log.error("stage %r has failed", vertex.name, exc_info=error)
            if (is_of_spark(error) or isinstance(error, OSError)) and self._services.host.java.ends_within(
                _JAVA_SECONDS
            ):
                # The end of Java is told by the driver.
                self._ending.wait()
            cause = cause_of(vertex.name, error)
            return _with(end, cause=cause)

    def _execute(self, submission: StageSubmission, group: str) -> dict[str, float]:
        session = self._services.host.session
        vertex = self._graph.vertex(submission.vertex_id)
        stage = stage_of(vertex)
        if submission.moves is not None:
            commit(stage, submission.moves)
            return {}
        session.sparkContext.setJobGroup(group, stage.name, interruptOnCancel=True)
        attempt = StageAttempt(
            stage=stage,
            places=self._places,
            attempt=f"{submission.run}-{submission.attempt}",
            is_repeated=submission.is_repeated,
            own_settings=self._services.configuration,
            begin_commit=lambda moves: self._begin_commit(submission, moves),
            job_group=group,
            disk_of_spark=self._services.host.full_disk,
        )
        self._attempts.add(attempt)
        try:
            return attempt.run(session)
        finally:
            self._attempts.discard(attempt)

    def _begin_commit(self, submission: StageSubmission, moves: Sequence[OutputMove]) -> None:
        message = StageCommit(
            job_id=submission.job_id,
            run=submission.run,
            vertex_id=submission.vertex_id,
            attempt=submission.attempt,
            moves=tuple(moves),
        )
        self._wait_for(self._services.master.begin_stage_commit(message))

    def _wait_for(self, call: Coroutine[Any, Any, Any]) -> None:
        """Runs a call on the driver's loop; gives up with the run."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        while True:
            try:
                future.result(_CANCEL_SECONDS)
                return
            except TimeoutError:
                if future.done():
                    raise
                if self._ending.is_set():
                    future.cancel()
                    kind = StageCancelledError if self._cancelled else RunCutOffError
                    raise kind("the run of the pipeline has ended") from None

    def _cancel_with_run(self, group: str, done: threading.Event) -> None:
        """Ends the Spark jobs of a stage, again and again, when the run ends under it."""
        self._ending_or(done)
        self._services.host.cancel_jobs(group, done)

    def _ending_or(self, done: threading.Event) -> None:
        while not done.is_set() and not self._ending.wait(_CANCEL_SECONDS):
            pass


def temporary_folder(settings: Settings, job_id: str, working_folder: Path) -> str:
    """Where temporary outputs of a pipeline lie; the folder bears the name of the job.

    `working_folder`: of the driver. All that is below the folder of an embedded cluster goes with it, also if its
    client is killed.

    Raises InvalidProgramError for a relative path.
    """
    base = settings.get(batch.PIPELINE_DIRECTORY)
    shared = settings.get(high_availability.STORAGE_DIR)
    if base is None:
        of_cluster = embedded_folder(working_folder)
        own = str(of_cluster or (settings.get(taskmanager.TMP_DIRS) or (tempfile.gettempdir(),))[0])
        base = own if shared is None else join(shared, "pipelines")
    if scheme_of(base) == "file" and not base.startswith(("/", "file:")):
        raise InvalidProgramError(f"{batch.PIPELINE_DIRECTORY.key} is {base!r}: name the whole path")
    return join(base, f"yarrow-pipeline-{job_id}")


def _cause_of(error: Exception) -> FailureCause:
    """The failure of a run that cannot begin; what is wrong with the program stays wrong."""
    cause = failure_cause(error.with_traceback(None) if isinstance(error, YarrowError) else error)
    return msgspec.structs.replace(cause, is_final=isinstance(error, InvalidProgramError))


def _with(end: StageEnd, **fields: Any) -> StageEnd:
    return msgspec.structs.replace(end, **fields)


async def _in_thread(work: Any) -> None:
    await asyncio.to_thread(work)

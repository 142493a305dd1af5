"""BatchDriver: the endpoint of a driver: registers with its BatchJobMaster, takes runs, reports how they end.

Owner: the main thread's event loop. It belongs to one master: it ends when the master is silent, when Java ends, and
when it is told to. Must not start Java: its process does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from yarrow.container.batch.driver.driver_run import DriverRun, MakeRun, RunEnd
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.protocol.errors import RegistrationRefusedError
from yarrow.container.protocol.failure import failure_cause
from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options.batch import SPARK_UI_ENABLED
from yarrow.runtime.fs.token_files import take_tokens, take_tokens_or_tell
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway, BatchRunError, NoSparkPagesError
from yarrow.runtime.rpc.bootstrap import SparkDriverBootstrap
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchSubmission,
    DelegationTokens,
    FailureCause,
    RateLimitRequest,
    RegistrationRejection,
    SparkApplication,
    SparkDriverHeartbeat,
    SparkDriverRegistration,
    SparkPage,
    SparkPageRequest,
    StageSubmission,
)

_log = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
#: Pages of Spark's that are read at a time: fewer than the endpoint has threads.
_PAGE_READS: Final = 2
#: Asks Spark for one of its own pages, and blocks.
ReadPage = Callable[[SparkPageRequest], SparkPage]


@dataclass(frozen=True, slots=True)
class DriverEnd:
    """Why a driver ends."""

    cause: str
    #: False = it could not do its work.
    orderly: bool = True


class BatchDriver(RpcEndpoint):
    """The driver of one job. `finished` says when its process is to end."""

    def __init__(
        self,
        bootstrap: SparkDriverBootstrap,
        master: BatchJobMasterGateway,
        clock: Clock,
        heartbeat_timeout: float,
    ) -> None:
        """`heartbeat_timeout`: seconds after which a silent master counts as gone."""
        super().__init__(f"sparkdriver-{bootstrap.driver_id}", bootstrap.job_master_id)
        self._bootstrap = bootstrap
        #: The BatchJobMaster.
        self.master = master
        self._clock = clock
        self._heartbeat_timeout = heartbeat_timeout
        self._heard = clock.monotonic()
        self._run: DriverRun | None = None
        #: Set while there is no run.
        self._idle = asyncio.Event()
        self._idle.set()
        self._make_run: MakeRun | None = None
        self._read_page: ReadPage | None = None
        #: Java that stands still must not hold all threads: new tokens need one.
        self._page_reads = asyncio.Semaphore(_PAGE_READS)
        #: The newest delegation tokens from the master.
        self.tokens = NewestTokens()
        #: Hands the tokens of this process's file to Spark, and blocks.
        self._hand_on_tokens: Callable[[], None] = lambda: None
        self._disconnected = False
        #: Some run has come to its end.
        self.has_finished_run = False
        self.finished: asyncio.Future[DriverEnd] = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------------ life

    async def register(self, address: str, pid: int) -> None:
        """Registers with the master. Raises RegistrationRefusedError, also if it is silent too long."""
        bootstrap = self._bootstrap
        registration = SparkDriverRegistration(
            driver_id=bootstrap.driver_id,
            job_id=bootstrap.job_id,
            address=address,
            host=bootstrap.host,
            pid=pid,
            task_executor=bootstrap.task_executor,
        )
        answer = await patiently(
            partial(self.master.register_spark_driver, registration), self._clock, self._heartbeat_timeout
        )
        if isinstance(answer, RegistrationRejection):
            raise RegistrationRefusedError(answer.reason)
        if answer.tokens is not None:
            # Java reads their file when Spark starts; what comes later is handed on.
            take_tokens_or_tell(answer.tokens.content)
            self.tokens.put(answer.tokens.content)
        self._heard = self._clock.monotonic()
        self._watch_master(answer.heartbeat_interval_ms / 1000)

    async def spark_started(self, hand_on_tokens: Callable[[], None]) -> None:
        """Hands on what has come while Spark started, and all later tokens by `hand_on_tokens`, which blocks."""
        self._hand_on_tokens = hand_on_tokens
        if self.tokens.newest.number:
            try:
                await self.run_blocking(hand_on_tokens)
            except YarrowError as error:
                _log.warning("tokens that came while Spark started are not handed on: %s", error)

    async def session_started(
        self, application: SparkApplication, make_run: MakeRun, read_page: ReadPage | None = None
    ) -> None:
        """Tells the master, which submits runs from now on. `read_page` asks Spark for a page, and blocks."""
        self._make_run, self._read_page = make_run, read_page
        await self.master.report_spark_application(self._bootstrap.driver_id, application)

    def finish(self, cause: str, *, orderly: bool = True) -> None:
        """Asks the process to end."""
        if not self.finished.done():
            self.finished.set_result(DriverEnd(cause, orderly))

    def finish_by_force(self, cause: str, grace: float) -> None:
        """Asks the process to end, because its container has ended. Whoever calls waits for the grace."""
        self.finish(cause, orderly=False)

    def java_ended(self, error: YarrowError) -> None:
        """Java has ended while it was needed."""
        if self.finished.done():
            return
        cause = failure_cause(error)
        if self._run is not None:
            self._run.java_ended(cause)
        self.spawn(self._give_up(cause), "the end of Java")

    def orphaned(self) -> None:
        """The process that has started this one is dead, and its master with it. Any thread; may block."""
        run = self._run
        if run is not None:
            run.orphaned()

    async def _give_up(self, cause: FailureCause) -> None:
        await self._idle.wait()
        await self.disconnect(cause)
        self.finish(cause.message, orderly=False)

    async def disconnect(self, cause: FailureCause) -> None:
        """The last message to the master."""
        if not self._disconnected:
            self._disconnected = True
            await _quietly(self.master.disconnect_spark_driver(self._bootstrap.driver_id, cause))

    def _watch_master(self, interval: float) -> None:
        """Looks at the time since the last heartbeat, again and again."""
        if self._clock.monotonic() - self._heard < self._heartbeat_timeout:
            self.loop.call_later(interval, self._watch_master, interval)
        else:
            self.finish(
                f"the BatchJobMaster has been silent for {self._heartbeat_timeout:g} s", orderly=False
            )

    # ------------------------------------------------------------------ SparkDriverGateway

    async def submit_batch(self, submission: BatchSubmission) -> Acknowledge:
        running = self._run
        if running is not None:
            if running.submission.run == submission.run and running.submission.job_id == submission.job_id:
                return Acknowledge()
            raise BatchRunError(
                f"the driver {self._bootstrap.driver_id} executes run {running.submission.run}: submit run"
                f" {submission.run} when it has ended"
            )
        if self._make_run is None or self.finished.done():
            state = "is ending" if self.finished.done() else "has no session yet"
            raise BatchRunError(f"the driver {self._bootstrap.driver_id} {state}")
        folder = Path(self._bootstrap.working_directory) / "runs" / str(submission.run)
        self._run = self._make_run(submission, folder)
        self._idle.clear()
        self.spawn(self._execute(self._run), f"run {submission.run}")
        return Acknowledge()

    async def submit_stage(self, submission: StageSubmission) -> Acknowledge:
        running = self._run
        if running is None or (running.submission.job_id, running.submission.run) != (
            submission.job_id,
            submission.run,
        ):
            raise BatchRunError(
                f"the driver {self._bootstrap.driver_id} does not execute run {submission.run} of job"
                f" {submission.job_id}"
            )
        running.submit_stage(submission)
        return Acknowledge()

    async def change_rate_limits(self, job_id: JobID, run: int, request: RateLimitRequest) -> Acknowledge:
        running = self._run
        if running is not None and (running.submission.job_id, running.submission.run) == (job_id, run):
            running.change_rate_limits(request.limits)
        return Acknowledge()

    async def cancel_batch(self, job_id: JobID, run: int) -> Acknowledge:
        running = self._run
        if running is not None and (running.submission.job_id, running.submission.run) == (job_id, run):
            running.cancel()
        return Acknowledge()

    async def heartbeat_from_job_master(self) -> SparkDriverHeartbeat:
        self._heard = self._clock.monotonic()
        return SparkDriverHeartbeat(
            driver_id=self._bootstrap.driver_id,
            run=self._run.submission.run if self._run is not None else -1,
        )

    async def update_delegation_tokens(self, tokens: DelegationTokens) -> Acknowledge:
        await self.run_blocking(take_tokens, tokens.content)
        self.tokens.put(tokens.content)
        await self.run_blocking(self._hand_on_tokens)
        return Acknowledge()

    async def read_spark_page(self, request: SparkPageRequest) -> SparkPage:
        if self._read_page is None:
            raise NoSparkPagesError(
                f"the driver {self._bootstrap.driver_id} shows no pages of Spark's ({SPARK_UI_ENABLED.key})"
            )
        async with self._page_reads:
            return await self.run_blocking(self._read_page, request)

    async def release(self, cause: str) -> Acknowledge:
        self.finish(cause)
        return Acknowledge()

    # ------------------------------------------------------------------ runs

    async def _execute(self, run: DriverRun) -> None:
        submission = run.submission
        end, cause = await run.execute()
        self.has_finished_run = self.has_finished_run or end is RunEnd.FINISHED
        _log.info("run %d of job %s: %s", submission.run, submission.job_id, end.value)
        # Before the master hears of it: it may submit the next one at once.
        self._run = None
        try:
            await self._tell(run, end, cause)
        finally:
            self._idle.set()

    async def _tell(self, run: DriverRun, end: RunEnd, cause: FailureCause | None) -> None:
        submission = run.submission
        if end is RunEnd.FINISHED:
            await self.master.finish_batch(run.result())
        elif end is RunEnd.CANCELED:
            await self.master.confirm_cancelled(submission.job_id, submission.run)
        elif not self.finished.done():
            # Where the driver ends, its session is closed under the run: that is no failure of the job.
            assert cause is not None
            await self.master.fail_batch(submission.job_id, submission.run, cause)

    def on_background_failure(self, error: BaseException) -> None:
        super().on_background_failure(error)
        self._run = None
        self.finish(f"its work failed: {error}", orderly=False)


T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]], clock: Clock, seconds: float) -> T:
    """The answer of the BatchJobMaster, which may be busy. Raises RegistrationRefusedError after so many seconds."""
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return await call()
        except RpcUnavailableError as error:
            _log.info("the BatchJobMaster does not answer: %s", error)
            if clock.monotonic() > deadline:
                raise RegistrationRefusedError(
                    f"the BatchJobMaster has not answered for {seconds:g} s (heartbeat.timeout): {error}"
                ) from error
        await asyncio.sleep(backoff.next_seconds())


async def _quietly(call: Awaitable[Acknowledge]) -> None:
    """A last message: nobody may listen any more."""
    try:
        await call
    except YarrowError as error:
        _log.info("the BatchJobMaster did not take the last message: %s", error)

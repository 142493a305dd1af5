"""LocalJobClient: the handle on a job of an embedded cluster.

Owner: any thread of the user; questions are answered on the cluster's loop. After the job's end the client
itself holds the result and the unfetched rows, because the cluster may be gone by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from yarrow.client.collected_rows import CollectedResults
from yarrow.client.job_results import execution_result, merged_values, public_status
from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.embedded.local_cluster import LocalCluster
from yarrow.embedded.loop_thread import LoopThread
from yarrow.runtime.common.errors import JobAlreadyEndedError, JobExecutionError, YarrowError
from yarrow.runtime.common.ids import JobID as RuntimeJobID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.errors import AnswerTooLargeError, RpcUnavailableError
from yarrow.runtime.rpc.messages import (
    COLLECT_START,
    CollectPosition,
    CollectRows,
    EventTimeDetails,
    ExecutionGraphDetails,
    JobResult,
    SavepointRequest,
)
from yarrow.runtime.security.result_proof import SAME_PROCESS

T = TypeVar("T")

#: Rows of one fetch when the client takes over the rest at the end of a job.
_TAKEN_AT_ONCE = 10_000


class LocalJobClient(JobClient):
    """The handle on one job; follows the job to its end."""

    def __init__(self, loop: LoopThread, cluster: LocalCluster, job_graph: JobGraph) -> None:
        self._loop = loop
        self._cluster = cluster
        self._job_id = RuntimeJobID(job_graph.job_id)
        self._collect_ids = job_graph.collect_ids
        #: Rows that were not fetched when the cluster ended, by collect id.
        self._left: dict[str, deque[CollectRows]] = {}
        self._collected = CollectedResults(job_graph, SAME_PROCESS)
        self._left_lock = threading.Lock()
        #: Set before the first row is taken over: later fetches may lack some.
        self._takes_over = threading.Event()
        self._result: Future[JobResult] = Future()
        #: The job has ended, and its cluster is ending: the cluster may be gone before `_result` is there.
        self._ending = False
        self._details: ExecutionGraphDetails | None = None
        #: The cluster lives on when the job has ended, and tells its details.
        self._is_outlived = False
        #: The program has cancelled the job.
        self.was_cancelled_here = False
        #: Why the program's standard output takes nothing more; the job is then cancelled and ends with this
        #: error.
        self._lost_output: OSError | None = None
        self._watching: asyncio.Task[None] | None = None
        #: Why there are no details.
        self._no_details = f"the cluster of job {self._job_id} has ended"

    @property
    def cluster(self) -> LocalCluster:
        """The cluster it runs on."""
        return self._cluster

    def follow(self, end: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Waits for the job's end, then calls `end`, which ends the cluster; called once, on the loop."""
        self._is_outlived = end is None
        if end is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watch_output())
        self._following = asyncio.get_running_loop().create_task(self._follow(end))

    async def _follow(self, end: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        try:
            result = await self._end_of_job()
            self._ending = True
            await self._cluster.drain_output()
            if end is not None:
                await self._take_over_details()
                await self._take_over_rows()
                await end()
        except BaseException as error:
            self._result.set_exception(
                JobExecutionError(
                    f"The embedded cluster ended while job {self._job_id} was running: {error}", self._job_id
                )
            )
        else:
            if isinstance(result, JobExecutionError):
                self._result.set_exception(result)
            elif self._lost_output is not None and result.status is not JobStatus.FAILED:
                self._result.set_exception(self._lost_output)
            else:
                self._result.set_result(result)
        finally:
            if self._watching is not None:
                self._watching.cancel()

    async def _watch_output(self) -> None:
        """As with `print`: a failed write ends the program, unless it handles the error."""
        self._lost_output = await self._cluster.output_lost()
        # An ended job needs no cancelling.
        with contextlib.suppress(YarrowError):
            await self._cluster.dispatcher.cancel_job(self._job_id)

    async def _end_of_job(self) -> JobResult | JobExecutionError:
        """Waits for the job's end; returns an error if the job has ended and its result does not fit a message."""
        try:
            return await self._cluster.dispatcher.request_job_result(self._job_id)
        except AnswerTooLargeError as error:
            status = await self._cluster.dispatcher.request_job_status(self._job_id)
            return JobExecutionError(
                f"Job {self._job_id} is {status.value}, but its result, accumulators included, cannot be read:"
                f" {error}",
                self._job_id,
            )

    async def _take_over_details(self) -> None:
        try:
            self._details = await self._cluster.dispatcher.request_job_details(self._job_id)
        except AnswerTooLargeError as error:
            self._no_details = f"the details of job {self._job_id} cannot be read: {error}"

    async def _take_over_rows(self) -> None:
        """Takes over at most the content of the JobMaster's bounded buffers: an ended job sends no more."""
        self._takes_over.set()
        for collect_id in self._collect_ids:
            rows: deque[CollectRows] = deque()
            position = COLLECT_START
            while not rows or not rows[-1].last:
                if rows:
                    position = CollectPosition(version=rows[-1].version, delivery=rows[-1].delivery)
                rows.extend(
                    await self._cluster.dispatcher.fetch_collected(
                        self._job_id, collect_id, _TAKEN_AT_ONCE, position
                    )
                )
            self._left[collect_id] = rows

    # JobClient

    def get_job_id(self) -> JobID:
        return JobID(self._job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        async def ask() -> JobStatus:
            return public_status(await self._cluster.dispatcher.request_job_status(self._job_id))

        return self._ask(ask(), lambda result: public_status(result.status))

    def cancel(self) -> CompletableFuture[None]:
        self.was_cancelled_here = True

        async def ask() -> None:
            await self._cluster.dispatcher.cancel_job(self._job_id)

        return self._ask(ask(), self._refuse_cancel)

    def _refuse_cancel(self, result: JobResult) -> None:
        raise JobAlreadyEndedError(
            f"job {self._job_id} cannot be cancelled: it is {result.status.value} already"
        )

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        drain = advance_to_end_of_event_time
        kind = SnapshotKind.SAVEPOINT_TERMINATE if drain else SnapshotKind.SAVEPOINT_SUSPEND
        return self._savepoint(SavepointRequest(kind=kind, target_directory=savepoint_directory))

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._savepoint(
            SavepointRequest(kind=SnapshotKind.SAVEPOINT, target_directory=savepoint_directory)
        )

    def _savepoint(self, request: SavepointRequest) -> CompletableFuture[str]:
        if self._result.done():
            return CompletableFuture(self._result).then_apply(self._refuse_savepoint)

        async def ask() -> str:
            path = await self._cluster.dispatcher.trigger_savepoint(self._job_id, request)
            if request.kind.stops_job:
                # The program may end after this: the client must know the job's end before.
                await asyncio.wait([asyncio.wrap_future(self._result)])
            return path

        return CompletableFuture(self._loop.submit(ask()))

    def _refuse_savepoint(self, result: JobResult) -> str:
        raise JobAlreadyEndedError(
            f"job {self._job_id} takes no savepoint: it is {result.status.value} already"
        )

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        async def ask() -> dict[str, Any]:
            return (await self._cluster.dispatcher.request_job_details(self._job_id)).accumulators

        return self._ask(ask(), lambda result: dict(result.accumulators)).then_apply(merged_values)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        result = CompletableFuture(self._result).then_apply(execution_result)
        return result.explained_by(self.why_it_runs)

    def why_it_runs(self) -> str:
        """Who holds back the event time of the job while it has not ended; "" if that is not known."""

        async def ask() -> EventTimeDetails:
            return await self._cluster.dispatcher.request_event_time(self._job_id)

        if self._result.done():
            return ""
        # Imported late: most programs wait for their jobs without a limit.
        from yarrow.client.stalled_jobs import ANSWER_SECONDS, stalled_text

        asked = self._loop.submit(ask())
        try:
            found = asked.result(ANSWER_SECONDS)
        except Exception:
            # The job may have ended meanwhile: the caller's own error stays what it is.
            asked.cancel()
            return ""
        holders = [(holder.explanation, holder.remedy) for holder in found.holders]
        return stalled_text(self._job_id, holders, found.status.value)

    def get_job_details(self) -> CompletableFuture[ExecutionGraphDetails]:
        """The details of the job: vertices, attempts, metrics, failures."""

        async def ask() -> ExecutionGraphDetails:
            try:
                return await self._cluster.dispatcher.request_job_details(self._job_id)
            except RpcUnavailableError:
                if self._result.done():
                    raise JobExecutionError(self._no_details, self._job_id) from None
                raise

        if self._is_outlived:
            return CompletableFuture(self._loop.submit(ask()))
        return self._ask(ask(), lambda result: self._known_details())

    def _known_details(self) -> ExecutionGraphDetails:
        if self._details is None:
            raise JobExecutionError(self._no_details, self._job_id)
        return self._details

    def get_web_interface_url(self) -> str | None:
        """Address of the web API while the cluster runs."""
        return self._cluster.web_address

    # CollectingJobClient

    def fetch_collected(self, collect_id: str, max_rows: int) -> Sequence[Any] | None:
        """The next rows; waits until there are some; None = the end. Raises the job's error."""
        while True:
            messages = self._next_messages(collect_id, max_rows)
            rows = self._collected.of(collect_id).take(messages)
            if rows is None:
                execution_result(self._result.result())
                return None
            if rows:
                return rows

    def _next_messages(self, collect_id: str, max_rows: int) -> Sequence[CollectRows]:
        with self._left_lock:
            if collect_id in self._left:
                return self._take_left(collect_id)
        messages: Sequence[CollectRows] = ()
        if not self._takes_over.is_set():
            position = self._collected.of(collect_id).position
            try:
                messages = self._loop.call(
                    self._cluster.dispatcher.fetch_collected(self._job_id, collect_id, max_rows, position)
                )
            except Exception:
                # The cluster may have ended meanwhile; the rest is then here.
                self._result.exception()
                if collect_id not in self._left:
                    raise
            else:
                if not self._takes_over.is_set() and not (messages and messages[-1].last):
                    return messages
        # Taking over confirms the rows: earlier messages may not have reached this client.
        failure = self._result.exception()
        with self._left_lock:
            if collect_id in self._left:
                return self._take_left(collect_id)
        if failure is not None:
            raise failure
        return messages

    def _take_left(self, collect_id: str) -> Sequence[CollectRows]:
        left = self._left[collect_id]
        # The end mark stays for later calls.
        return (left[0],) if len(left) == 1 else (left.popleft(),)

    def _ask(
        self, question: Coroutine[Any, Any, T], answer_at_end: Callable[[JobResult], T]
    ) -> CompletableFuture[T]:
        if self._result.done():
            question.close()
            return CompletableFuture(self._result).then_apply(answer_at_end)

        async def ask() -> T:
            try:
                return await question
            except Exception:
                if not self._ending and not self._result.done():
                    raise
                return answer_at_end(await asyncio.shield(asyncio.wrap_future(self._result)))

        return CompletableFuture(self._loop.submit(ask()))

"""The handle on an embedded cluster's job, at the end of which it takes over the rows that were not fetched."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.common.job_status import JobStatus
from yarrow.embedded.local_cluster import LocalCluster
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.errors import AnswerTooLargeError
from yarrow.runtime.rpc.messages import COLLECT_START, CollectPosition, CollectRows, FailureCause, JobResult
from yarrow.runtime.snapshot.result_rows import ResultStream, ResultWriter

JOB = JobID("1" * 32)
#: In messages of a thousand rows; three fetches of the client that takes over.
ROWS = 30_000


class EndedJob:
    """A Dispatcher whose job has ended; the program fetches between two of the fetches that take over."""

    def __init__(self) -> None:
        self.buffer = CollectBuffer(JOB, "c", 1, 1 << 30, version="v")
        self.ends = asyncio.Event()
        self.two_parts_taken = asyncio.Event()
        self.fetches_between = asyncio.Event()
        self.taking_over = 0
        self.of_program = 0

    async def fill(self) -> None:
        for sequence in range(ROWS // 1000):
            first = sequence * 1000
            await self.buffer.push(
                CollectRows(
                    job_id=JOB,
                    collect_id="c",
                    subtask=0,
                    sequence=sequence,
                    payload=ResultWriter(ResultStream(JOB, "c"), b"").dump(list(range(first, first + 1000))),
                    row_count=1000,
                    attempt_id=ExecutionAttemptID("a"),
                    stream="-1-0",
                    first=first,
                )
            )
        await self.buffer.close(complete=True)

    async def request_job_result(self, job_id: JobID) -> JobResult:
        await self.ends.wait()
        return JobResult(
            job_id=JOB,
            name="job",
            status=JobStatus.FINISHED,
            net_runtime_ms=0,
            start_time=0,
            end_time=0,
            accumulators={},
        )

    async def request_job_details(self, job_id: JobID) -> None:
        return None

    async def fetch_collected(
        self, job_id: JobID, collect_id: str, max_rows: int, position: CollectPosition = COLLECT_START
    ) -> tuple[CollectRows, ...]:
        if max_rows == 10_000:
            self.taking_over += 1
            if self.taking_over == 3:
                # The first part is confirmed.
                self.two_parts_taken.set()
                await self.fetches_between.wait()
        else:
            self.of_program += 1
            if self.of_program == 2:
                self.ends.set()
                await self.two_parts_taken.wait()
        messages = await self.buffer.fetch(max_rows, position)
        if max_rows != 10_000 and self.of_program == 2:
            self.fetches_between.set()
        return messages


def test_rows_that_are_fetched_while_the_others_are_taken_over_come_once() -> None:
    loop = LoopThread.shared()

    async def job() -> EndedJob:
        ended = EndedJob()
        await ended.fill()
        return ended

    ended = loop.call(job())
    over = threading.Event()

    async def drained() -> None: ...

    async def end() -> None:
        over.set()

    operator = SimpleNamespace(spec=CollectOperator(collect_id="c"), input_types=())
    graph = SimpleNamespace(job_id=JOB, vertices=[SimpleNamespace(operators=[operator])], collect_ids=("c",))
    cluster = SimpleNamespace(dispatcher=ended, drain_output=drained)
    client = LocalJobClient(loop, cast(LocalCluster, cluster), cast(JobGraph, graph))

    async def follow() -> None:
        client.follow(end)

    loop.call(follow())
    got: list[Any] = []
    while (rows := client.fetch_collected("c", 1000)) is not None:
        got += rows
    assert got == list(range(ROWS))
    assert over.is_set()


class TooLarge:
    """A Dispatcher of a job that has ended, some of whose answers are above the limit of a message."""

    def __init__(self, *methods: str) -> None:
        self._methods = methods

    def _look(self, method: str) -> None:
        if method in self._methods:
            raise AnswerTooLargeError(
                f"{method}: the reply has 16000000 bytes, the limit is less (akka.framesize)"
            )

    async def request_job_result(self, job_id: JobID) -> JobResult:
        self._look("request_job_result")
        return JobResult(
            job_id=JOB,
            name="job",
            status=JobStatus.FAILED,
            net_runtime_ms=0,
            start_time=0,
            end_time=0,
            accumulators={},
            cause=FailureCause(exception_name="builtins.ValueError", message="x", stacktrace="ValueError: x"),
        )

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        return JobStatus.FINISHED

    async def request_job_details(self, job_id: JobID) -> None:
        self._look("request_job_details")


def ended_client(dispatcher: TooLarge) -> LocalJobClient:
    """Of a job without collected rows; its cluster has ended."""
    loop, over = LoopThread.shared(), threading.Event()

    async def drained() -> None: ...

    async def end() -> None:
        over.set()

    graph = SimpleNamespace(job_id=JOB, vertices=[], collect_ids=())
    cluster = SimpleNamespace(dispatcher=dispatcher, drain_output=drained)
    client = LocalJobClient(loop, cast(LocalCluster, cluster), cast(JobGraph, graph))

    async def follow() -> None:
        client.follow(end)

    loop.call(follow())
    client.get_job_execution_result().exception()
    assert over.is_set(), "the cluster was left running"
    return client


def test_details_above_the_limit_hide_no_result() -> None:
    client = ended_client(TooLarge("request_job_details"))
    with pytest.raises(JobExecutionError, match=r"^ValueError: x\n\nJob 'job' .* failed"):
        client.get_job_execution_result().result()
    with pytest.raises(JobExecutionError, match=r"details of job 1+ cannot be read: .*akka.framesize"):
        client.get_job_details().result()


def test_a_result_above_the_limit_is_not_told_as_the_end_of_the_cluster() -> None:
    client = ended_client(TooLarge("request_job_result"))
    with pytest.raises(JobExecutionError, match=r"Job 1+ is FINISHED, but its result, .*akka.framesize"):
        client.get_job_execution_result().result()

"""MiniCluster: an embedded cluster during a `with` block; programs in the block run there.

Owner: the thread that opened it; any thread may `submit` jobs. Tests of programs and of the engine use it;
`python job.py` uses one for each job (embedded.py).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from yarrow.client.client_logging import wanted_levels
from yarrow.common.configuration import Configuration
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.embedded.cluster_shape import ClusterShape
from yarrow.embedded.local_cluster import LocalCluster
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import LocalFile, executor_in_place
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.shipped_files import ship_files

if TYPE_CHECKING:
    from yarrow.runtime.rpc.in_process import InProcessNetwork

#: Clusters of this process, which end with it.
_running: set[MiniCluster] = set()


class MiniCluster:
    """A control plane in this process, TaskExecutors in processes or threads."""

    def __init__(
        self,
        config: Settings | Mapping[str, object] | None = None,
        shape: ClusterShape | None = None,
        network: InProcessNetwork | None = None,
    ) -> None:
        """Raises ConfigError for impossible settings; starts nothing. `network`: see LocalCluster."""
        settings = config if isinstance(config, Settings) else Settings(config or {}, "the MiniCluster")
        self._loop = LoopThread.shared()
        self._pid = os.getpid()
        self.cluster = LocalCluster(settings, shape or ClusterShape(1), self._loop.blocking, network)
        self._closed = False
        self._jobs: list[LocalJobClient] = []

    def start(self) -> MiniCluster:
        """Starts the cluster; Ctrl-C and errors leave nothing behind."""
        _end_with_the_program()
        _running.add(self)
        try:
            self._loop.call(self.cluster.start())
        except BaseException:
            self.close()
            raise
        return self

    def wait_for_task_executors(self) -> None:
        """Starts the shape's number of TaskExecutors, and returns when they have registered."""
        self._loop.call(self._wait_for_task_executors())

    async def _wait_for_task_executors(self) -> None:
        for _ in range(self.cluster.shape.task_executors):
            await self.cluster.add_task_executor()
        gateway = self.cluster.control_plane.resource_manager_gateway()
        # TaskExecutors register by themselves: only their number can be awaited here.
        while len(await gateway.request_task_executors()) < self.cluster.shape.task_executors:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def submit(self, job_graph: JobGraph, files: Sequence[LocalFile] = ()) -> LocalJobClient:
        """Submits a job and returns when the cluster has taken it; raises JobSubmissionError.

        Levels of loggers are those of now: workers send only records of the job that this process wants.
        """
        job_graph = msgspec.structs.replace(job_graph, client_log_levels=wanted_levels())
        blobs = self.cluster.control_plane.blobs
        job_graph = ship_files(job_graph, files, blobs.put)
        client = LocalJobClient(self._loop, self.cluster, job_graph)
        self._loop.call(self._submit(client, job_graph))
        self._jobs.append(client)
        return client

    async def _submit(self, client: LocalJobClient, job_graph: JobGraph) -> None:
        await self.cluster.submit(job_graph)
        client.follow(self._end_with_its_job if self.cluster.shape.one_job else None)

    async def _end_with_its_job(self) -> None:
        await self.cluster.stop()
        _running.discard(self)

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> LocalJobClient:
        """A PipelineExecutor: programs of the `with` block submit here."""
        return self.submit(job_graph, files)

    @property
    def is_of_this_process(self) -> bool:
        """False in a child that was forked from the process that started it."""
        return self._pid == os.getpid()

    @property
    def processes(self) -> list[int]:
        """Process ids of its TaskExecutors."""
        return self.cluster.processes

    @property
    def web_address(self) -> str | None:
        """URL of its web API."""
        return self.cluster.web_address

    def get_execution_environment(
        self, configuration: Mapping[str, Any] | None = None
    ) -> StreamExecutionEnvironment:
        """An environment whose programs run here, from any thread's `execute` inside the `with` block."""
        return StreamExecutionEnvironment(Configuration.from_dict(dict(configuration or {})))

    def close(self) -> None:
        """Ends its jobs and all its parts; may be repeated, also from other threads."""
        _running.discard(self)
        if self._closed or not self.is_of_this_process:
            return
        self._loop.submit(self.cluster.stop()).result()
        self._closed = True

    def running_jobs(self) -> list[LocalJobClient]:
        """The live jobs."""
        return [job for job in self._jobs if not job.get_job_execution_result().done()]

    def __enter__(self) -> MiniCluster:
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            # A test that has waited in vain learns what its jobs wait for.
            for job in self.running_jobs():
                if why := job.why_it_runs():
                    error.add_note(why)
        self.close()


@contextmanager
def mini_cluster(
    task_executors: int = 1,
    slots: int = 1,
    *,
    processes: bool = True,
    configuration: Mapping[str, object] | None = None,
    network: InProcessNetwork | None = None,
) -> Iterator[MiniCluster]:
    """A running cluster with so many TaskExecutors of so many slots; programs of the block run on it.

    `processes` False makes threads of all of it, so that a breakpoint in a user function works.
    """
    shape = ClusterShape(slots, task_executors, processes)
    with MiniCluster(configuration, shape, network) as cluster, executor_in_place(cluster):
        cluster.wait_for_task_executors()
        yield cluster


_registered = False


def _end_with_the_program() -> None:
    """Ends the clusters before the interpreter refuses threads, which that needs."""
    global _registered
    if not _registered:
        _registered = True
        # Private, but the only hook that runs before thread pools are closed; atexit is too late for them.
        register = getattr(threading, "_register_atexit", atexit.register)
        register(_end_clusters)


def _end_clusters() -> None:
    for cluster in list(_running):
        if not cluster.is_of_this_process:
            # A forked child has the object, its parent has the cluster.
            continue
        for job in cluster.running_jobs():
            if job.was_cancelled_here:
                continue
            print(
                f"Job {job.get_job_id()} was still running when the program ended: it was cancelled.",
                file=sys.stderr,
            )
        cluster.close()

"""ConnectorJob: the job of a trial: its program, and what the trial asks it for.

Owner: the test's thread; blocks. Must not know what a plan does.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from yarrow.common.job_client import JobClient
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import JobAlreadyEndedError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.testing.connectors.connector_under_test import ConnectorUnderTest
from yarrow.testing.connectors.errors import ConnectorCheckError

SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.timeout": "10 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0 s",
    # Tasks of a busy machine end in time: a worker that is killed for its tasks is one more failure.
    "task.cancellation.timeout": "60 s",
}
#: Seconds for whatever a trial waits for: long enough for a busy machine.
DEADLINE = 180.0
_LOOK_SECONDS = 0.02
_WORKERS = "yarrow-slot"
_clock = SystemClock()


def wait_until(condition: Callable[[], bool], what: str, jobs: Sequence[ConnectorJob] = ()) -> None:
    """Returns when the condition holds.

    Raises ConnectorCheckError after DEADLINE, and when one of the jobs has ended.
    """
    deadline = _clock.monotonic() + DEADLINE
    pause = threading.Event()
    while not condition():
        for job in jobs:
            job.require_running(what)
        if _clock.monotonic() > deadline:
            raise ConnectorCheckError(f"not within {DEADLINE:g} s: {what}")
        pause.wait(_LOOK_SECONDS)


def key_of(row: str) -> str:
    """Deals rows out, so that sink subtasks get rows of several readers."""
    return row[-1:]


def unchanged(row: str) -> str:
    """The row."""
    return row


def graph_of(
    cluster: MiniCluster,
    connector: ConnectorUnderTest,
    folder: Path,
    settings: Mapping[str, str],
    *,
    second: bool = False,
) -> JobGraph:
    """The program: the source's rows, exchanged by key, go into the sink. Checkpoints lie in the folder.

    `second`: another job runs at the same time.
    """
    options = SETTINGS | {"execution.checkpointing.dir": str(folder)} | dict(settings)
    env = cluster.get_execution_environment(options)
    rows = env.from_source(connector.source(), WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    keyed = rows.key_by(key_of, Types.STRING()).map(unchanged, Types.STRING()).uid("keyed")
    sink = connector.sink_of_second_job() if second else connector.sink()
    keyed.sink_to(sink).uid("sink")
    return env.get_job_graph(type(connector).__name__)


class ConnectorJob(ABC):
    """A job under way."""

    def __init__(self, client: JobClient) -> None:
        self._client = client

    @abstractmethod
    def completed(self) -> int:
        """A number that grows with each completed checkpoint."""

    def until_completed(self, more: int = 2) -> None:
        """Waits for checkpoints that begin after this call."""
        wanted = self.completed() + more
        wait_until(lambda: self.completed() >= wanted, f"{more} more checkpoints", [self])

    def savepoint(self, folder: Path) -> str:
        """The path of a new savepoint; the job goes on."""
        return self._client.trigger_savepoint(str(folder)).result(DEADLINE)

    def stop(self, folder: Path, *, drain: bool = False) -> str:
        """Stops with a savepoint, whose path it returns; with `drain` as at the end of the input."""
        path = self._client.stop_with_savepoint(drain, str(folder)).result(DEADLINE)
        self._client.get_job_execution_result().result(DEADLINE)
        return path

    @property
    def has_ended(self) -> bool:
        """True when nothing of the job runs any more."""
        return self._client.get_job_execution_result().done()

    def require_running(self, what: str) -> None:
        """Raises ConnectorCheckError, with the job's failure, if it has ended while `what` is waited for."""
        result = self._client.get_job_execution_result()
        if not result.done():
            return
        try:
            result.result()
        except YarrowError as error:
            raise ConnectorCheckError(f"the job has failed before {what}: {error}") from error
        raise ConnectorCheckError(f"the job has ended before {what}")

    def end(self) -> None:
        """Cancels the job if it still runs, and waits for its end."""
        if not self.has_ended:
            # It may end meanwhile.
            with suppress(JobAlreadyEndedError):
                self._client.cancel().result(DEADLINE)
        wait_until(lambda: self.has_ended, "the end of the job")


class MiniClusterJob(ConnectorJob):
    """A job on a MiniCluster."""

    def __init__(self, cluster: MiniCluster, graph: JobGraph) -> None:
        """Submits it."""
        super().__init__(cluster.submit(graph))
        self._cluster = cluster
        self._id = JobID(str(self._client.get_job_id()))
        self._dispatcher = cluster.cluster.dispatcher

    def completed(self) -> int:
        """Number of completed checkpoints."""
        asked = self._dispatcher.request_checkpoint_statistics(self._id)
        return LoopThread.shared().call(asked).counts.completed

    def rescale(self, parallelism: int) -> None:
        """Returns when all vertices run at this parallelism."""
        request = RescaleRequest(every=parallelism)
        LoopThread.shared().call(self._dispatcher.rescale_job(self._id, request))

    def workers(self) -> list[int]:
        """Process ids of the cluster's workers."""
        found = []
        for pid in self._cluster.processes:
            try:
                for process in psutil.Process(pid).children(recursive=True):
                    if process.name().startswith(_WORKERS) and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process.pid)
            except psutil.NoSuchProcess:
                continue
        return found

"""A real SparkDriver process under a played BatchJobMaster: real RPC with certificates, and what the driver told.

The master's endpoint lives on an event loop of its own thread; tests call it from theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.support.process_names import name_of
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, JobMasterID, JobVertexID, OperatorID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.batch_gateways import SparkDriverGateway
from yarrow.runtime.rpc.bootstrap import PemIdentity, SparkDriverBootstrap, encode_bootstrap
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER, SPARK_DRIVER, GatewayType
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchCommittables,
    BatchOutput,
    BatchResult,
    BatchStageProgress,
    BatchSubmission,
    BatchSubtaskResult,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    DelegationTokens,
    FailureCause,
    RateLimitRequest,
    RegistrationRejection,
    RegistrationSuccess,
    SparkApplication,
    SparkConfiguration,
    SparkDriverHeartbeat,
    SparkDriverRegistration,
    SparkPage,
    SparkPageRequest,
    StageCommit,
    StageEnd,
    StageSubmission,
)
from yarrow.runtime.rpc.roles import Role
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.certificates import CertificateAuthority
from yarrow.runtime.security.result_proof import ResultProof, result_key
from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream

T = TypeVar("T")
#: Seconds for the start of Spark, and for a run: it ends only a test that hangs.
LIMIT = 600.0
_MASTER = JobMasterID("master-1")
_JOB = JobID("f" * 32)
#: Of the application.
SECRET = b"the secret of the application!!!"
_HEARTBEAT = 1.0
#: The path below which clients see Spark's pages.
PAGES_BASE = f"/jobs/{_JOB}/spark"


@dataclass
class Outcome:
    """What the master has heard of one run."""

    graph: JobGraph
    rows: list[CollectRows] = field(default_factory=list)
    printed: list[BatchOutput] = field(default_factory=list)
    committables: list[BatchCommittables] = field(default_factory=list)
    subtasks: list[BatchSubtaskResult] = field(default_factory=list)
    stages: dict[JobVertexID, BatchStageProgress] = field(default_factory=dict)
    #: States of each stage in the order in which they were told, without repetitions.
    states: dict[JobVertexID, list[str]] = field(default_factory=lambda: defaultdict(list))
    failure: FailureCause | None = None
    cancelled: bool = False
    finished: BatchResult | None = None

    def collected(self) -> list[Any]:
        """Rows of the job's only iterator, in the order of their arrival."""
        (collect_id,) = self.graph.collect_ids
        types = next(
            operator.input_types
            for vertex in self.graph.vertices
            for operator in vertex.operators
            if operator.spec.collects_for == collect_id
        )
        stream = ResultStream(self.graph.job_id, collect_id, types[0] if types else None)
        reader = ResultReader(stream, ResultProof(key=result_key(SECRET)))
        found: list[Any] = []
        parts: dict[int, bytes] = defaultdict(bytes)
        for message in self.rows:
            parts[message.subtask] += message.payload
            if message.row_count:
                found += reader.load(parts.pop(message.subtask))
        return found


class PlayedMaster(RpcEndpoint):
    """A BatchJobMaster that notes everything."""

    def __init__(self, service: RpcService, kind: GatewayType[SparkDriverGateway] = SPARK_DRIVER) -> None:
        """`kind`: how its driver is reached."""
        super().__init__("jobmaster", _MASTER)
        self._service = service
        self._kind = kind
        self.registration: SparkDriverRegistration | None = None
        self.application: Future[SparkApplication] = Future()
        self.disconnected: Future[FailureCause] = Future()
        self.outcomes: dict[int, Outcome] = {}
        self.ended: dict[int, Future[Outcome]] = {}
        self.blobs: dict[str, bytes] = {}
        #: Of the present run of a pipeline.
        self.stage_commits: list[StageCommit] = []
        self.stage_ends: dict[tuple[JobVertexID, int], Future[StageEnd]] = defaultdict(Future)
        #: Called on the loop before rows are taken: a test can hold them up.
        self.on_rows: Callable[[CollectRows], Coroutine[Any, Any, None]] | None = None
        #: Called on the loop before a commit may begin.
        self.on_commit: Callable[[int], Coroutine[Any, Any, None]] | None = None
        self.driver: SparkDriverGateway

    def begin(self, run: int, graph: JobGraph) -> Future[Outcome]:
        self.outcomes[run] = Outcome(graph)
        self.ended[run] = Future()
        return self.ended[run]

    async def beat(self) -> None:
        """Heartbeats for ever, so that the driver stays."""
        while True:
            with contextlib.suppress(Exception):
                await self.driver.heartbeat_from_job_master()
            await asyncio.sleep(_HEARTBEAT)

    # ------------------------------------------------------------------ BatchJobMasterGateway

    async def register_spark_driver(
        self, registration: SparkDriverRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        self.registration = registration
        self.driver = self._service.connect(registration.address, self._kind, _MASTER)
        self.spawn(self.beat(), "heartbeats")
        return RegistrationSuccess(leader_id=_MASTER, heartbeat_interval_ms=int(_HEARTBEAT * 1000))

    async def report_spark_application(
        self, driver_id: ResourceID, application: SparkApplication
    ) -> Acknowledge:
        self.application.set_result(application)
        return Acknowledge()

    async def notify_not_enough_resources(self, driver_id: ResourceID, explanation: str) -> Acknowledge:
        raise AssertionError("there is no ResourceManager")

    async def check_run(self, job_id: JobID, run: int) -> Acknowledge:
        return Acknowledge()

    async def report_stages(
        self, job_id: JobID, run: int, stages: tuple[BatchStageProgress, ...]
    ) -> Acknowledge:
        self._note(run, stages)
        return Acknowledge()

    def _note(self, run: int, stages: tuple[BatchStageProgress, ...]) -> None:
        outcome = self.outcomes[run]
        for stage in stages:
            outcome.stages[stage.vertex_id] = stage
            states = outcome.states[stage.vertex_id]
            if not states or states[-1] != stage.state.value:
                states.append(stage.state.value)

    async def report_subtasks(
        self, job_id: JobID, run: int, subtasks: tuple[BatchSubtaskResult, ...]
    ) -> Acknowledge:
        self.outcomes[run].subtasks += subtasks
        return Acknowledge()

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        if self.on_rows is not None:
            await self.on_rows(rows)
        self.outcomes[max(self.outcomes)].rows.append(rows)
        return CollectConfirmation()

    async def push_output(self, output: BatchOutput) -> Acknowledge:
        self.outcomes[output.run].printed.append(output)
        return Acknowledge()

    async def store_committables(self, committables: BatchCommittables) -> Acknowledge:
        self.outcomes[committables.run].committables.append(committables)
        return Acknowledge()

    async def begin_commit(self, job_id: JobID, run: int) -> Acknowledge:
        if self.on_commit is not None:
            await self.on_commit(run)
        return Acknowledge()

    async def begin_stage_commit(self, commit: StageCommit) -> Acknowledge:
        self.stage_commits.append(commit)
        return Acknowledge()

    async def report_stage_end(self, end: StageEnd) -> Acknowledge:
        self.stage_ends[end.vertex_id, end.attempt].set_result(end)
        return Acknowledge()

    async def fail_batch(self, job_id: JobID, run: int, cause: FailureCause) -> Acknowledge:
        self.outcomes[run].failure = cause
        self.ended[run].set_result(self.outcomes[run])
        return Acknowledge()

    async def finish_batch(self, result: BatchResult) -> Acknowledge:
        self._note(result.run, result.stages)
        self.outcomes[result.run].finished = result
        self.ended[result.run].set_result(self.outcomes[result.run])
        return Acknowledge()

    async def confirm_cancelled(self, job_id: JobID, run: int) -> Acknowledge:
        self.outcomes[run].cancelled = True
        self.ended[run].set_result(self.outcomes[run])
        return Acknowledge()

    async def read_spark_configuration(self, driver_id: ResourceID) -> SparkConfiguration:
        return SparkConfiguration(configuration={})

    async def delay_spark_driver(self, driver_id: ResourceID, explanation: str) -> Acknowledge:
        raise AssertionError("drivers do not tell of delays")

    async def disconnect_spark_driver(self, driver_id: ResourceID, cause: FailureCause) -> Acknowledge:
        self.disconnected.set_result(cause)
        return Acknowledge()

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        data = self.blobs[key]
        return BlobPart(data=data[offset : offset + length], total_size=len(data))


class DriverUnderTest:
    """A driver process and its master."""

    def __init__(
        self,
        folder: Path,
        configuration: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        module: str = "yarrow.container.batch.spark.driver_main",
    ) -> None:
        """Starts both; Spark starts meanwhile. `module` is run as the driver."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="played master", daemon=True)
        self._thread.start()
        authority = CertificateAuthority("app", SystemClock())
        self.folder = folder
        for name in ("logs", "work"):
            (folder / name).mkdir(mode=0o700)
        self.master = self.call(self._start_master(authority.issue("master", Role.JOB_MANAGER)))
        bootstrap = SparkDriverBootstrap(
            application_id="app",
            driver_id=ResourceID("driver-1"),
            job_id=_JOB,
            job_master_address=self._address,
            job_master_id=_MASTER,
            host="127.0.0.1",
            bind_host="127.0.0.1",
            identity=authority.issue("driver", Role.SPARK_DRIVER),
            data_secret=SECRET,
            configuration={"heartbeat.interval": "1 s", "heartbeat.timeout": "60 s", **(configuration or {})},
            log_directory=str(folder / "logs"),
            working_directory=str(folder / "work"),
            slots=2,
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(encode_bootstrap(bootstrap))
        self.process.stdin.flush()
        self._runs = 0

    async def _start_master(self, identity: PemIdentity) -> PlayedMaster:
        settings = GrpcSettings(application_id="app", bind_host="127.0.0.1", identity=identity)
        self._service = RpcService([GrpcTransport(settings)])
        await self._service.start()
        master = PlayedMaster(self._service)
        await master.start()
        self._address = self._service.serve(BATCH_JOB_MASTER, master)
        return master

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the master's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def application(self) -> SparkApplication:
        """The Spark application, when it has started."""
        return self.master.application.result(LIMIT)

    def submit(self, graph: JobGraph, blob_key: str = "") -> tuple[int, Future[Outcome]]:
        """Begins a run: its number and its end. With a key, the graph lies in the blob store."""
        self.application()
        run, self._runs = self._runs, self._runs + 1
        ended = self.master.begin(run, graph)
        encoded = encode_job_graph(graph)
        if blob_key:
            self.master.blobs[blob_key], encoded = encoded, b""
        submission = BatchSubmission(
            job_id=graph.job_id, run=run, job_graph=encoded, job_graph_blob_key=blob_key
        )
        self.call(self._submit(submission))
        return run, ended

    async def _submit(self, submission: BatchSubmission) -> None:
        await self.master.driver.submit_batch(submission)

    def begin_pipeline(
        self, graph: JobGraph, finished: Iterable[JobVertexID] = ()
    ) -> tuple[int, Future[Outcome]]:
        """Begins a run of a pipeline, which waits for stages: its number and its end."""
        self.application()
        run, self._runs = self._runs, self._runs + 1
        self.master.stage_commits, self.master.stage_ends = [], defaultdict(Future)
        ended = self.master.begin(run, graph)
        submission = BatchSubmission(
            job_id=graph.job_id,
            run=run,
            job_graph=encode_job_graph(graph),
            is_pipeline=True,
            finished_stages=tuple(finished),
        )
        self.call(self._submit(submission))
        return run, ended

    def begin_stage(self, submission: StageSubmission) -> Future[StageEnd]:
        """Begins an attempt of a stage of the present run, and returns its end."""
        self.call(self._submit_stage(submission))
        return self.master.stage_ends[submission.vertex_id, submission.attempt]

    async def _submit_stage(self, submission: StageSubmission) -> None:
        await self.master.driver.submit_stage(submission)

    def run(self, graph: JobGraph) -> Outcome:
        """Runs a job to its end."""
        return self.submit(graph)[1].result(LIMIT)

    def heartbeat(self) -> SparkDriverHeartbeat:
        """The driver's answer."""
        return self.call(self._heartbeat())

    async def _heartbeat(self) -> SparkDriverHeartbeat:
        return await self.master.driver.heartbeat_from_job_master()

    def update_tokens(self, tokens: DelegationTokens) -> None:
        """Gives the driver newer delegation tokens."""
        self.call(self._update_tokens(tokens))

    async def _update_tokens(self, tokens: DelegationTokens) -> None:
        await self.master.driver.update_delegation_tokens(tokens)

    def page(self, path: str, query: str = "") -> SparkPage:
        """One of Spark's own pages."""
        return self.call(self._page(SparkPageRequest(path=path, query=query, base=PAGES_BASE)))

    async def _page(self, request: SparkPageRequest) -> SparkPage:
        return await self.master.driver.read_spark_page(request)

    def change_rate_limits(self, graph: JobGraph, run: int, limits: dict[OperatorID, RateLimit]) -> None:
        """Gives a run other rate limits."""
        self.call(self._change_rate_limits(graph, run, RateLimitRequest(limits=limits)))

    async def _change_rate_limits(self, graph: JobGraph, run: int, request: RateLimitRequest) -> None:
        await self.master.driver.change_rate_limits(graph.job_id, run, request)

    def cancel(self, graph: JobGraph, run: int) -> None:
        self.call(self._cancel(graph, run))

    async def _cancel(self, graph: JobGraph, run: int) -> None:
        await self.master.driver.cancel_batch(graph.job_id, run)

    def release(self) -> None:
        self.call(self._release())

    async def _release(self) -> None:
        await self.master.driver.release("the test is over")

    def processes(self) -> list[psutil.Process]:
        """The driver, Java and Spark's Python processes."""
        try:
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def java(self) -> psutil.Process:
        (java,) = [process for process in self.processes() if name_of(process) == "java"]
        return java

    def close(self) -> None:
        """Ends the driver, by force if need be, and the master."""
        below = self.processes()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        for process in psutil.wait_procs(below, 30)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        self.call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    async def _stop(self) -> None:
        await self.master.stop()
        await self._service.stop()


@contextlib.contextmanager
def spark_driver(folder: Path, **options: Any) -> Iterator[DriverUnderTest]:
    """A driver that is ended with the block."""
    driver = DriverUnderTest(folder, **options)
    try:
        yield driver
    finally:
        driver.close()

"""FakeSparkDriver: a SparkDriver without Spark, which does what a test says; its messages are the real ones.

Owner: the loop of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from yarrow.am.execution.errors import SparkDriverStartError
from yarrow.am.resourcemanager.spark_drivers import NoSparkDrivers, OnDriverDelayed, OnDriverEnded
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import JobID, OperatorID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.states import BatchRunner, ExecutionState
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import RpcTimeoutError
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER, LOCAL_DRIVER, SPARK_DRIVER
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchResult,
    BatchStageProgress,
    BatchSubmission,
    BatchSubtaskProgress,
    DelegationTokens,
    RateLimitRequest,
    RegistrationRejection,
    RegistrationSuccess,
    SparkApplication,
    SparkDriverHeartbeat,
    SparkDriverRegistration,
    SparkDriverRequest,
    SparkPage,
    SparkPageRequest,
    StageSubmission,
)
from yarrow.runtime.rpc.service import RpcService

APPLICATION = SparkApplication(
    application_id="local-1", has_pages=True, spark_master="local[2]", spark_version="4.1.0"
)


class FakeSparkDriver(RpcEndpoint):
    """The driver of one run."""

    def __init__(
        self,
        driver_id: ResourceID,
        request: SparkDriverRequest,
        service: RpcService,
        task_executor: str = "",
        place: str = "",
    ) -> None:
        """`place` tells two processes of one driver apart."""
        super().__init__(f"sparkdriver_{driver_id}{place}", request.job_master_id)
        self._task_executor = task_executor
        self.driver_id = driver_id
        self.request = request
        self._service = service
        self.master: BatchJobMasterGateway = service.connect(
            request.job_master_address, BATCH_JOB_MASTER, request.job_master_id
        )
        self.submissions: list[BatchSubmission] = []
        #: Attempts of stages that it was asked to begin.
        self.stage_submissions: list[StageSubmission] = []
        self.answers_heartbeats = True
        #: Rate limits that it was told.
        self.rate_limits: list[dict[OperatorID, RateLimit]] = []
        #: Delegation tokens that it has received.
        self.tokens: list[DelegationTokens] = []
        #: Its master has told it to end.
        self.is_released = False
        #: Runs that it was asked to cancel.
        self.cancelled: list[int] = []

    async def register(self) -> RegistrationSuccess | RegistrationRejection:
        return await self.master.register_spark_driver(
            SparkDriverRegistration(
                driver_id=self.driver_id,
                job_id=self.request.job_id,
                address=self._service.serve(
                    SPARK_DRIVER if self.request.runner is BatchRunner.SPARK else LOCAL_DRIVER, self
                ),
                host="here",
                pid=1,
                task_executor=self._task_executor,
            )
        )

    async def begin(self) -> None:
        """Registers and says that the session has started."""
        assert isinstance(await self.register(), RegistrationSuccess)
        await self.master.report_spark_application(self.driver_id, APPLICATION)

    async def configuration(self) -> dict[str, str]:
        """Asks the master for the configuration, as a driver in a container of YARN does."""
        return (await self.master.read_spark_configuration(self.driver_id)).configuration

    @property
    def graph(self) -> JobGraph:
        return decode_job_graph(self.submissions[-1].job_graph)

    @property
    def run(self) -> int:
        return self.submissions[-1].run

    def stages(self, state: ExecutionState) -> tuple[BatchStageProgress, ...]:
        """All stages of the job in that state."""
        return tuple(
            BatchStageProgress(
                vertex_id=vertex.id,
                state=state,
                tasks_total=vertex.parallelism,
                tasks_running=0,
                tasks_done=vertex.parallelism,
                subtasks=tuple(
                    BatchSubtaskProgress(subtask=number, is_done=False, records_in=number, records_out=1)
                    for number in range(vertex.parallelism)
                ),
            )
            for vertex in self.graph.vertices
        )

    async def report(self, state: ExecutionState) -> None:
        await self.master.report_stages(self.request.job_id, self.run, self.stages(state))

    async def finish(self) -> None:
        await self.master.finish_batch(
            BatchResult(job_id=self.request.job_id, run=self.run, stages=self.stages(ExecutionState.FINISHED))
        )

    # SparkDriverGateway

    async def submit_batch(self, submission: BatchSubmission) -> Acknowledge:
        self.submissions.append(submission)
        return Acknowledge()

    async def submit_stage(self, submission: StageSubmission) -> Acknowledge:
        self.stage_submissions.append(submission)
        return Acknowledge()

    async def change_rate_limits(self, job_id: JobID, run: int, request: RateLimitRequest) -> Acknowledge:
        if not self.answers_heartbeats:
            raise RpcTimeoutError("it hangs")
        self.rate_limits.append(request.limits)
        return Acknowledge()

    async def cancel_batch(self, job_id: JobID, run: int) -> Acknowledge:
        self.cancelled.append(run)
        return await self.master.confirm_cancelled(job_id, run)

    async def heartbeat_from_job_master(self) -> SparkDriverHeartbeat:
        if not self.answers_heartbeats:
            raise ConnectionError("it hangs")
        return SparkDriverHeartbeat(driver_id=self.driver_id, run=self.run if self.submissions else -1)

    async def update_delegation_tokens(self, tokens: DelegationTokens) -> Acknowledge:
        self.tokens.append(tokens)
        return Acknowledge()

    async def read_spark_page(self, request: SparkPageRequest) -> SparkPage:
        text = f"{self.driver_id}: {request.path}?{request.query} below {request.base}"
        return SparkPage(status=200, media_type="text/plain", body=text.encode())

    async def release(self, cause: str) -> Acknowledge:
        self.is_released = True
        return Acknowledge()


@dataclass
class FakeSparkDrivers:
    """A SparkDriverLauncher of FakeSparkDrivers; a test makes them register."""

    service: Callable[[], RpcService]
    drivers: list[FakeSparkDriver] = field(default_factory=list)
    ended: list[ResourceID] = field(default_factory=list)
    #: Why there are none at all; "" = there are.
    refusal: str = ""
    #: What the next starts fail with.
    failures: list[str] = field(default_factory=list)
    _on_ended: dict[ResourceID, OnDriverEnded] = field(default_factory=dict)

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        if self.refusal:
            await NoSparkDrivers(self.refusal).start_spark_driver(request, on_ended, on_delayed)
        if self.failures:
            raise SparkDriverStartError(self.failures.pop(0))
        driver = FakeSparkDriver(request.driver_id, request, self.service())
        await driver.start()
        self.drivers.append(driver)
        self._on_ended[driver.driver_id] = on_ended

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        if driver_id in self._on_ended:
            await self._end(driver_id, "released")

    async def crash(self, driver: FakeSparkDriver, cause: str = "killed by SIGKILL") -> None:
        """Its process ends without a word."""
        await self._end(driver.driver_id, cause)

    async def _end(self, driver_id: ResourceID, cause: str) -> None:
        self.ended.append(driver_id)
        for driver in self.drivers:
            if driver.driver_id == driver_id:
                await driver.stop()
        self._on_ended.pop(driver_id)(driver_id, cause)

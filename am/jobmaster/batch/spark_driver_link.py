"""SparkDriverLink: the driver of one bounded job: asked for, submitted to, watched, and ended.

It is a SparkDriver, or one in a TaskExecutor whose workers run the tasks.

Owner: the BatchJobMaster's loop. Each run has a driver of its own; messages of former drivers are refused. Must not
decide what the end of a driver means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from yarrow.am.execution.errors import (
    NoResourceAvailableError,
    NoSparkDriversError,
    SparkDriverLostError,
    failure_of,
)
from yarrow.am.jobmaster.links.deployment import EncodedGraph
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.jobmaster.services import JobMasterServices
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobMasterID, JobVertexID, OperatorID, ResourceID
from yarrow.runtime.config.options.batch import SPARK_START_TIMEOUT, SPARK_UI_ENABLED
from yarrow.runtime.config.options.resourcemanager import SLOT_REQUEST_TIMEOUT
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline, tasks_at_a_time
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError, SparkDriverGateway
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import LOCAL_DRIVER, RESOURCE_MANAGER, SPARK_DRIVER
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import (
    BatchSubmission,
    FailureCause,
    RateLimitRequest,
    RegistrationRejection,
    RegistrationSuccess,
    SparkApplication,
    SparkDriverRegistration,
    SparkDriverRequest,
    SparkPage,
    SparkPageRequest,
    StageSubmission,
)

_log = logging.getLogger(__name__)

#: Names of its timers.
_START, _HEARTBEAT = "start of the SparkDriver", "heartbeat of the SparkDriver"


class SparkDriverLink:
    """The present SparkDriver of a job."""

    def __init__(
        self,
        owner: RpcEndpoint,
        job: JobGraph,
        job_master_id: JobMasterID,
        services: JobMasterServices,
        settings: JobMasterSettings,
        on_lost: Callable[[int, FailureCause], None],
    ) -> None:
        """`on_lost` gets the run whose driver could not start, has died, or is silent; once a run."""
        self._owner = owner
        self._job = job
        self._job_master_id = job_master_id
        self._services = services
        self._settings = settings
        self._on_lost = on_lost
        #: The tasks run in workers of a TaskExecutor, which also has the driver.
        self._is_local = job.batch_runner is BatchRunner.LOCAL
        #: What people call the driver.
        self._noun = job.batch_runner.driver_noun
        self._timers = NamedTimers(services.timers)
        self._beats: HeartbeatMonitor[ResourceID] = HeartbeatMonitor(settings.heartbeat, services.clock)
        self._resource_manager: ResourceManagerGateway | None = None
        self._address = ""
        self._run = -1
        self._driver_id: ResourceID | None = None
        self._gateway: SparkDriverGateway | None = None
        #: The present driver has taken the job.
        self._taken = asyncio.Event()
        #: The driver that was asked for is still needed.
        self._is_wanted = False
        #: The TaskExecutor in whose slot the present driver runs; "" = it needs none, or has not registered.
        self.task_executor = ""
        #: Address of the process that has registered as the present driver; "" = none has.
        self._driver_address = ""
        #: Why the ResourceManager has not started the driver yet; "" = it has, or has said nothing.
        self._lacks = ""
        #: Rate limits that were changed since the present driver was asked for, and those that it was told last.
        self._rate_limits: dict[OperatorID, RateLimit] | None = None
        self._told_rate_limits: dict[OperatorID, RateLimit] | None = None
        self._telling = asyncio.Lock()
        #: The driver that has certainly taken delegation tokens into use, and their number.
        self._tokens_taken: tuple[ResourceID, int] | None = None
        #: The Spark application of the present driver; None until its session has started.
        self.application: SparkApplication | None = None

    def start(self, address: str) -> None:
        """`address` is the BatchJobMaster's own, for drivers."""
        self._address = address
        self._services.resource_manager.start(self._leader_changed)
        self._timers.every(_HEARTBEAT, self._settings.heartbeat.interval, self._beat)

    def stop(self) -> None:
        """Stops watching; the ResourceManager ends the driver with this leadership."""
        self._timers.cancel_all()
        self._services.resource_manager.stop(self._leader_changed)

    @property
    def waiting_for(self) -> str:
        """What the driver still needs; "" once its session has started, or while there is none."""
        if self._run < 0 or self.application is not None or not self._timers.is_set(_START):
            return ""
        return f"lacks {self._still_needed()}"

    def _still_needed(self) -> str:
        if self._gateway is not None:
            return f"room for Spark: {self._lacks}" if self._lacks else f"a {self._noun}: its session starts"
        return f"room for its {self._noun}: {self._lacks}" if self._lacks else f"a {self._noun}"

    def lacks_resources(self, driver_id: ResourceID, explanation: str) -> None:
        """Notes why the present driver has not started yet; "" = it has enough."""
        if driver_id == self._driver_id:
            self._lacks = explanation

    def _leader_changed(self, leader: LeaderInformation | None) -> None:
        connect = self._services.rpc.connect
        self._resource_manager = (
            None if leader is None else connect(leader.address, RESOURCE_MANAGER, leader.leader_id)
        )

    async def request(self, run: int, configuration: Mapping[str, str]) -> None:
        """Asks for the driver of a run, with its configuration."""
        driver_id = ResourceID(f"{self._noun.replace(' ', '').lower()}-{self._services.ids.hex_id()[-12:]}")
        self._run, self._driver_id, self._gateway, self.application = run, driver_id, None, None
        self._driver_address = self._lacks = self.task_executor = ""
        # The run begins with the limits of the present graph.
        self._rate_limits = self._told_rate_limits = None
        # Whoever waits for the former run goes on, and finds that it is over.
        self._taken.set()
        self._taken = asyncio.Event()
        self._is_wanted = True
        self._wait_at_most(run, self._settings.slot_request_timeout, SLOT_REQUEST_TIMEOUT.key)
        try:
            if self._resource_manager is None:
                raise SparkDriverLostError(f"no ResourceManager leads that could start a {self._noun}")
            await self._resource_manager.request_spark_driver(self._request(driver_id, configuration))
        except NoSparkDriversError as error:
            # No later try would find one.
            cause = failure_of(type(error), str(error))
            self._lose(run, msgspec.structs.replace(cause, is_final=True))
        except YarrowError as error:
            self._lose(run, failure_of(type(error), str(error)))

    def _request(self, driver_id: ResourceID, configuration: Mapping[str, str]) -> SparkDriverRequest:
        return SparkDriverRequest(
            driver_id=driver_id,
            job_id=self._job.job_id,
            job_master_id=self._job_master_id,
            job_master_address=self._address,
            configuration=dict(configuration),
            slots=tasks_at_a_time(self._job),
            runner=self._job.batch_runner,
        )

    def register(self, registration: SparkDriverRegistration) -> RegistrationSuccess | RegistrationRejection:
        """Takes the driver that was asked for; refuses every other one, and a second process of that driver."""
        known = registration.driver_id == self._driver_id and registration.job_id == self._job.job_id
        if not known or not self._is_wanted:
            return RegistrationRejection(
                reason=f"job {self._job.job_id} does not need {self._noun} {registration.driver_id}"
            )
        if self._driver_address not in ("", registration.address):
            return RegistrationRejection(
                reason=f"{self._noun} {registration.driver_id} of job {self._job.job_id} runs at"
                f" {self._driver_address} already"
            )
        if not self._driver_address and not self._is_local:
            # Spark starts now, which has its own time. Then it may wait for room for its executors.
            start = Settings(self._job.configuration, "the job").get(SPARK_START_TIMEOUT).seconds
            keys = f"{SPARK_START_TIMEOUT.key} and {SLOT_REQUEST_TIMEOUT.key}"
            self._wait_at_most(self._run, start + self._settings.slot_request_timeout, keys)
        self._driver_address, self._lacks = registration.address, ""
        self.task_executor = registration.task_executor
        kind = LOCAL_DRIVER if self._is_local else SPARK_DRIVER
        self._gateway = self._services.rpc.connect(registration.address, kind, self._job_master_id)
        self._beats.monitor(registration.driver_id)
        interval = int(self._settings.heartbeat.interval * 1000)
        # A driver without Spark is in the container of a TaskExecutor, which gets them itself.
        tokens = None if self._is_local else self._services.newest_tokens()
        return RegistrationSuccess(
            leader_id=self._job_master_id, heartbeat_interval_ms=interval, tokens=tokens
        )

    def session_started(self, driver_id: ResourceID, application: SparkApplication) -> int | None:
        """Notes the session of the present driver, and returns its run; None for a former driver."""
        if driver_id != self._driver_id or self._gateway is None:
            return None
        self._timers.cancel(_START)
        self.application = application
        self._beats.heard(driver_id)
        return self._run

    def disconnected(self, driver_id: ResourceID, cause: FailureCause) -> None:
        """Notes the end of a driver, told by itself or by the ResourceManager."""
        if driver_id == self._driver_id:
            self._lose(self._run, cause)

    async def submit(
        self, run: int, graph: EncodedGraph, committables: str, stages_in_place: tuple[JobVertexID, ...] = ()
    ) -> None:
        """Gives the graph to the driver of that run.

        `committables` is the blob of what a former run has left to commit; "" = the plan is to be executed.
        `stages_in_place`: stages of a pipeline that leave nothing more.
        """
        gateway = self._gateway
        if gateway is None or run != self._run:
            return
        submission = BatchSubmission(
            job_id=self._job.job_id,
            run=run,
            job_graph=graph.data,
            job_graph_blob_key=graph.blob_key,
            committables_blob_key=committables,
            is_pipeline=is_pipeline(self._job),
            finished_stages=stages_in_place,
        )
        try:
            await gateway.submit_batch(submission)
        except YarrowError as error:
            self._lose(run, failure_of(type(error), f"the {self._noun} did not take the job: {error}"))
        else:
            if run == self._run:
                self._taken.set()
                await self._tell_rate_limits()

    async def change_rate_limits(self, limits: dict[OperatorID, RateLimit]) -> None:
        """Gives the present run these limits, as soon as its driver has the job and answers."""
        self._rate_limits = limits
        await self._tell_rate_limits()

    async def _tell_rate_limits(self) -> None:
        """Tells the driver the latest limits. A driver that does not answer hears of them behind a heartbeat."""
        async with self._telling:
            gateway, run, limits = self._gateway, self._run, self._rate_limits
            if limits is self._told_rate_limits or gateway is None or not self._taken.is_set():
                return
            assert limits is not None, "limits that differ from the told ones are set"
            try:
                await gateway.change_rate_limits(self._job.job_id, run, RateLimitRequest(limits=limits))
            except YarrowError as error:
                _log.info("the %s was not told the rate limits, and will be: %s", self._noun, error)
            else:
                if run == self._run:
                    self._told_rate_limits = limits

    async def submit_stage(self, submission: StageSubmission) -> None:
        """Gives a stage of a pipeline to the driver of its run, once that has taken the pipeline."""
        gateway, run = self._gateway, submission.run
        if gateway is None or run != self._run:
            return
        await self._taken.wait()
        if run != self._run:
            return
        try:
            await gateway.submit_stage(submission)
        except YarrowError as error:
            self._lose(run, failure_of(type(error), f"the SparkDriver did not take a stage: {error}"))

    @property
    def has_pages(self) -> bool:
        """Whether the present driver shows Spark's own pages now."""
        return self._gateway is not None and self.application is not None and self.application.has_pages

    async def read_page(self, request: SparkPageRequest) -> SparkPage:
        """One of Spark's own pages, from the present driver. Raises NoSparkPagesError and RpcError."""
        gateway, application = self._gateway, self.application
        if self._is_local:
            raise NoSparkPagesError(f"job {self._job.job_id} runs without Spark, which alone has such pages")
        if gateway is None or application is None:
            raise NoSparkPagesError(
                f"Spark does not run for job {self._job.job_id} now: ask again when it does"
            )
        if not application.has_pages:
            raise NoSparkPagesError(
                f"Spark's pages about job {self._job.job_id} are off: run it with {SPARK_UI_ENABLED.key} true"
            )
        return await gateway.read_spark_page(request)

    async def cancel(self, run: int) -> bool:
        """Asks the driver to end its run in order; False if it cannot be asked."""
        gateway = self._gateway
        if gateway is None or run != self._run:
            return False
        try:
            await gateway.cancel_batch(self._job.job_id, run)
        except YarrowError as error:
            _log.info("the SparkDriver was not asked to cancel: %s", error)
            return False
        return True

    @property
    def driver_id(self) -> str:
        """The name of the present driver, with which its log files begin; "" = none was asked for."""
        return self._driver_id or ""

    async def release(self) -> None:
        """Ends the present driver; returns when nothing of it is left, or nobody can be asked."""
        self._forget()
        if self._driver_id is not None:
            await self._end(self._driver_id)

    async def _end(self, driver_id: ResourceID) -> None:
        if self._resource_manager is None:
            return
        try:
            await self._resource_manager.release_spark_driver(self._job_master_id, driver_id)
        except YarrowError as error:
            _log.warning("SparkDriver %s was not ended: %s", driver_id, error)

    def _forget(self) -> None:
        self._is_wanted = False
        self._timers.cancel(_START)
        if self._driver_id is not None:
            self._beats.unmonitor(self._driver_id)
        if self._gateway is not None:
            # It may live though its TaskExecutor is lost. Nobody waits for the answer.
            self._owner.spawn(_tell_to_end(self._gateway), "release SparkDriver")
        self._gateway = None

    def _wait_at_most(self, run: int, seconds: float, keys: str) -> None:
        """Loses the run's driver if it has not started by then; `keys` are the options that say so."""
        self._timers.after(_START, seconds, lambda: self._timed_out(run, seconds, keys))

    def _timed_out(self, run: int, seconds: float, keys: str) -> None:
        kind = NoResourceAvailableError if self._lacks else SparkDriverLostError
        what = "driver" if self._is_local else "Spark session"
        text = f"no {what} within {seconds:g} s ({keys}): the job waits for {self._still_needed()}"
        self._lose(run, failure_of(kind, text))

    def _lose(self, run: int, cause: FailureCause) -> None:
        if run == self._run:
            self._forget()
            self._on_lost(run, cause)

    def _beat(self) -> None:
        round_ = self._beats.tick()
        for driver_id in round_.silent:
            seconds = self._settings.heartbeat.timeout
            text = f"{self._noun} {driver_id} has been silent for {seconds:g} s (heartbeat.timeout)"
            self.disconnected(driver_id, failure_of(SparkDriverLostError, text))
        for driver_id in round_.ask:
            if self._gateway is not None:
                self._owner.spawn(self._ask(driver_id, self._gateway), "heartbeat SparkDriver")

    async def _ask(self, driver_id: ResourceID, gateway: SparkDriverGateway) -> None:
        try:
            await gateway.heartbeat_from_job_master()
        except YarrowError as error:
            _log.debug("SparkDriver %s does not answer: %s", driver_id, error)
        else:
            self._beats.heard(driver_id)
            if driver_id == self._driver_id:
                await self._tell_rate_limits()
            await self._hand_over_tokens(driver_id, gateway)

    async def _hand_over_tokens(self, driver_id: ResourceID, gateway: SparkDriverGateway) -> None:
        """Gives newer delegation tokens to the driver. Where that fails, the next heartbeat tries it again."""
        tokens = None if self._is_local else self._services.newest_tokens()
        if tokens is None or self._tokens_taken == (driver_id, tokens.number):
            return
        try:
            await gateway.update_delegation_tokens(tokens)
        except YarrowError as error:
            _log.warning("SparkDriver %s has not taken new delegation tokens: %s", driver_id, error)
        else:
            self._tokens_taken = (driver_id, tokens.number)


async def _tell_to_end(gateway: SparkDriverGateway) -> None:
    try:
        await gateway.release("its job does not need it any more")
    except YarrowError as error:
        _log.debug("a SparkDriver did not answer its release: %s", error)

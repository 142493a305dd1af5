"""ControlPlane: joins the election of one cluster, and runs Dispatcher and ResourceManager while it leads.

Owner: the loop on which `start` ran. No signal handlers, threads or process exits here: standalone masters,
the embedded cluster and the ApplicationMaster each wrap it in their own way. Each leadership has its own
Dispatcher and ResourceManager, whose fencing tokens begin with its epoch. Without high availability there is
one leadership, from start to stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.dispatcher.dispatcher import Dispatcher
from yarrow.am.dispatcher.job_graph_store import JobGraphStore
from yarrow.am.dispatcher.schedule_store import ScheduleStore
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.jobmaster.services import JobMasterServices, log_printed
from yarrow.am.leader_gateway import LeaderCaller, NoLeaderError
from yarrow.am.resourcemanager.driver import ResourceManagerDriver
from yarrow.am.resourcemanager.lent_driver import LentDriver
from yarrow.am.resourcemanager.resource_manager import ResourceManager
from yarrow.am.resourcemanager.settings import ResourceManagerSettings
from yarrow.am.resourcemanager.slot_spark_drivers import DriversInSlots
from yarrow.am.resourcemanager.spark_drivers import NO_SPARK_DRIVERS, SparkDriverLauncher
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.common.timers import LoopTimers, Timers
from yarrow.runtime.ha import services as components
from yarrow.runtime.ha.none import NoHighAvailability
from yarrow.runtime.ha.records import LeaderRecords, LeadershipLostError, RecordsError
from yarrow.runtime.ha.services import HighAvailabilityServices
from yarrow.runtime.rpc.gateway_type import DISPATCHER, RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import DispatcherGateway, ResourceManagerGateway
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.service import RpcService

#: Seconds between two attempts to begin a leadership.
_PAUSE = 1.0
_log = logging.getLogger(__name__)


class WebEndpoint(Protocol):
    """The REST server as the control plane sees it."""

    async def stop(self) -> None:
        """Accepts no more requests, and closes its port."""
        ...


#: Starts the REST server for a running control plane.
StartWebEndpoint = Callable[["ControlPlane"], Awaitable[WebEndpoint]]


class ControlPlaneSettings(msgspec.Struct, frozen=True):
    """Settings of the control plane's components."""

    #: Folder of the blob store; made when needed, removed by whoever chose it.
    blob_directory: str
    dispatcher: DispatcherSettings = msgspec.field(default_factory=DispatcherSettings)
    resource_manager: ResourceManagerSettings = msgspec.field(default_factory=ResourceManagerSettings)
    #: rest.await-leader-timeout: seconds that a request waits while nobody leads.
    leader_timeout: float = 30.0


class ControlPlaneServices(msgspec.Struct, frozen=True):
    """Clock, ids and stores that the control plane gets from its process."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    timers: Timers = msgspec.field(default_factory=LoopTimers)
    ids: IdFactory = msgspec.field(default_factory=RandomIdFactory)
    #: Connected; the control plane closes it.
    high_availability: HighAvailabilityServices = msgspec.field(default_factory=NoHighAvailability)
    #: Folder for the dumps of failing JobMasters; None = they write none.
    log_directory: Path | None = None
    #: Starts the drivers of bounded jobs.
    spark_drivers: SparkDriverLauncher | DriversInSlots = NO_SPARK_DRIVERS
    #: Takes what user functions of bounded jobs print.
    print_output: Callable[[str], None] = log_printed
    #: Hears of the epoch of each leadership of this process, and of None when it does not lead any more.
    on_leadership: Callable[[int | None], None] = lambda epoch: None


class _Leadership(msgspec.Struct, frozen=True):
    """The components that run while this process leads."""

    epoch: int
    resource_manager: ResourceManager
    dispatcher: Dispatcher


class ControlPlane:
    """The control plane of one master; implements LeaderContender."""

    def __init__(
        self,
        rpc: RpcService,
        driver: ResourceManagerDriver,
        settings: ControlPlaneSettings,
        services: ControlPlaneServices | None = None,
        start_web: StartWebEndpoint | None = None,
    ) -> None:
        """The control plane starts and stops `rpc`, ends the driver and closes the high availability services."""
        self._services = services or ControlPlaneServices()
        self._ha = self._services.high_availability
        self._settings = settings
        self._driver = driver
        self.rpc = rpc
        shared = self._ha.storage_directory
        self.blobs = BlobStore(
            settings.blob_directory, join(shared, "blobs") if shared else "", self._services.ids
        )
        self._start_web = start_web
        self._web: WebEndpoint | None = None
        self._web_address = ""
        #: The leading ResourceManager of this process, for the components beside it.
        self.resource_manager_retrieval = AnnouncedLeader()
        self._leading: _Leadership | None = None
        #: Granted epochs and causes of revocation, in order.
        self._changes: asyncio.Queue[int | str] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._callers: dict[str, LeaderCaller] = {}
        self._shut_down = asyncio.Event()
        self._stopped = self._closed = False
        #: Delete the stored data of the cluster on close.
        self._removes = False

    # Life cycle.

    async def start(self) -> None:
        """Returns when jobs can be submitted: to this process or, with high availability, to the leader.

        After an error nothing is left running. AddressError, for a port in use, comes before any change.
        """
        await self.rpc.start()
        try:
            await self._ha.election.start(self)
            if not self._ha.is_highly_available:
                # The election is won. The caller hears of a component that cannot be started.
                await self._lead(int(await self._changes.get()))
            self._following = asyncio.get_running_loop().create_task(self._follow(), name="leadership")
            if self._start_web is not None:
                self._web = await self._start_web(self)
        except BaseException:
            await self.stop()
            raise

    async def stop(self, clean_up: bool = False) -> None:
        """Ends REST, jobs, the driver's TaskExecutors and RPC, in this order. A second call does nothing.

        Running jobs are suspended, and their stored data stay. `clean_up`: the cluster id is never used
        again. Its data are then removed, unless unfinished jobs are stored.
        """
        await self.stop_work(clean_up)
        await self.close()

    async def stop_work(self, clean_up: bool = False, even_unfinished: bool = False) -> None:
        """Does everything that `stop` does except for stored data and the session that guards it; call `close` next.

        `even_unfinished`: nobody will lead under this cluster id again and continue unfinished jobs.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._web is not None:
            web, self._web = self._web, None
            await web.stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._removes = clean_up and await self._may_clean_up(even_unfinished)
        await self._step_down()
        for caller in self._callers.values():
            caller.close()
        await self._ha.election.stop()
        await self._driver.terminate()
        await self.rpc.stop()

    async def remove_all_but(self, *kept: str) -> None:
        """After `stop_work`: removes the data to be removed, except these records, which `close` removes."""
        if self._removes:
            await self._ha.remove_all_but(kept)

    async def close(self, keep: bool = False) -> None:
        """Ends the session after `stop_work`, and removes stored data unless `keep`.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        await (self._ha.close_and_clean_up() if self._removes and not keep else self._ha.close())

    async def _may_clean_up(self, even_unfinished: bool) -> bool:
        leading = self._leading
        if leading is None:
            _log.warning("the data of the cluster in storage is kept: this master does not lead")
            return False
        try:
            unfinished = await leading.dispatcher.has_unfinished_jobs()
            # An empty write succeeds for the newest leadership alone, so that another leadership's data stay.
            await asyncio.to_thread(self._ha.records(leading.epoch).write)
        except YarrowError as error:
            _log.warning("the data of the cluster in storage is kept: %s", error)
            return False
        # A job that could not be taken over was reported as FAILED, but has not ended: its user may save its
        # state.
        if unfinished and (not even_unfinished or leading.dispatcher.keeps_jobs):
            _log.warning(
                "the data of the cluster in storage is kept: some of its jobs have not reached a final status"
            )
            return False
        return True

    async def wait_for_shut_down(self) -> None:
        """Returns when a client has asked to end the cluster; the caller then stops it."""
        await self._shut_down.wait()

    # LeaderContender.

    def grant_leadership(self, epoch: int) -> None:
        """See LeaderContender."""
        self._changes.put_nowait(epoch)

    def revoke_leadership(self, cause: str) -> None:
        """See LeaderContender."""
        # At once, whatever is being started or waited for: nothing may serve under the old epoch any more.
        if self._leading is not None:
            self._stop_serving(self._leading)
        self._changes.put_nowait(cause)

    def _stop_serving(self, leading: _Leadership) -> None:
        self.resource_manager_retrieval.announce(None)
        for endpoint in (leading.dispatcher, leading.resource_manager):
            self.rpc.stop_serving(endpoint.name)

    async def _follow(self) -> None:
        while True:
            change = await self._changes.get()
            await self._step_down()
            # A leadership that was revoked meanwhile does not begin.
            if isinstance(change, int) and self._changes.empty():
                await self._take_up(change)

    async def _take_up(self, epoch: int) -> None:
        """Begins a leadership; retries while the leadership lasts."""
        failures = Counter[type[Exception]]()
        while self._changes.empty():
            # A doubtful lease may still be renewed; its end would arrive as a change.
            if self._ha.election.leads():
                try:
                    await self._lead(epoch)
                    return
                except LeadershipLostError as error:
                    _log.warning(
                        "this master cannot lead under epoch %d, which seems to be over: %s", epoch, error
                    )
                except Exception as error:
                    failures[type(error)] += 1
                    _say_it_cannot_lead(error, failures[type(error)])
            await asyncio.sleep(_PAUSE)

    async def _lead(self, epoch: int) -> None:
        services, settings = self._services, self._settings
        records = self._ha.records(epoch)
        recovery = RecordedCheckpointRecovery(records)
        self.resource_manager_retrieval = AnnouncedLeader()
        leads = self._ha.election.leads
        resource_manager = ResourceManager(
            self.rpc,
            LentDriver(self._driver, leads),
            settings.resource_manager,
            services.clock,
            services.timers,
            services.ids,
            epoch,
            services.spark_drivers,
        )
        store = JobGraphStore(records, self._ha.storage_directory, services.ids)
        job_services = JobMasterServices(
            rpc=self.rpc,
            resource_manager=self.resource_manager_retrieval,
            blobs=self.blobs,
            clock=services.clock,
            timers=services.timers,
            ids=services.ids,
            epoch=epoch,
            checkpoint_recovery=recovery,
            commit_records=store,
            log_directory=services.log_directory,
            print_output=services.print_output,
            newest_tokens=lambda: self._driver.tokens,
        )
        dispatcher = Dispatcher(
            job_services,
            store,
            ScheduleStore(records),
            recovery,
            settings.dispatcher,
            on_shut_down=self._shut_down.set,
        )
        self._leading = _Leadership(epoch, resource_manager, dispatcher)
        try:
            await resource_manager.start()
            self.resource_manager_retrieval.announce(resource_manager.leader)
            await dispatcher.start()
            await self._publish(self._leading)
        except BaseException:
            await self._step_down()
            raise
        self._services.on_leadership(epoch)

    async def _publish(self, leading: _Leadership) -> None:
        publish = self._ha.election.publish
        await publish(components.RESOURCE_MANAGER, leading.resource_manager.leader)
        await publish(components.DISPATCHER, leading.dispatcher.leader)
        if self._web_address:
            await publish(components.REST_SERVER, self._web_leader(leading))

    async def _step_down(self) -> None:
        """Ends a leadership: suspends jobs, and changes no stored data."""
        leading, self._leading = self._leading, None
        if leading is None:
            return
        self._stop_serving(leading)
        for endpoint in (leading.dispatcher, leading.resource_manager):
            try:
                await endpoint.stop()
            except Exception:
                # Whatever went wrong: this master must be able to lead again.
                _log.exception("the %s of epoch %d failed while it stopped", endpoint.name, leading.epoch)
        self._services.on_leadership(None)

    # Answers for others in this process.

    async def announce_web(self, address: str) -> None:
        """Sets the REST URL of this process, which is published whenever it leads."""
        self._web_address = address
        while (leading := self._leading) is not None:
            try:
                await self._ha.election.publish(components.REST_SERVER, self._web_leader(leading))
                return
            except LeadershipLostError:
                # Published with everything else when this process leads again.
                return
            except RecordsError as error:
                _log.warning(
                    "the address of the REST server is not published yet, the control plane tries again: %s",
                    error,
                )
            await asyncio.sleep(_PAUSE)

    def _web_leader(self, leading: _Leadership) -> LeaderInformation:
        return LeaderInformation(address=self._web_address, leader_id=leading.dispatcher.leader_id)

    async def store_blob(self, data: bytes) -> str:
        """Stores a payload for a job that is about to be submitted, and returns its key."""
        return await asyncio.to_thread(partial(self.blobs.put, data))

    @property
    def records(self) -> LeaderRecords:
        """The stored records of this leadership. Raises NoLeaderError while this process does not lead."""
        return self._ha.records(self._present().epoch)

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self._leading is not None

    @property
    def dispatcher(self) -> Dispatcher:
        """The Dispatcher of this process. Raises NoLeaderError while this process does not lead."""
        return self._present().dispatcher

    @property
    def resource_manager(self) -> ResourceManager:
        """The ResourceManager of this process. Raises NoLeaderError while this process does not lead."""
        return self._present().resource_manager

    def _present(self) -> _Leadership:
        if self._leading is None:
            raise NoLeaderError(
                "this master does not lead at present: ask again, since another master may lead"
            )
        return self._leading

    @property
    def dispatcher_leader(self) -> LeaderInformation:
        """The address for submissions. Raises NoLeaderError while this process does not lead."""
        return self.dispatcher.leader

    @property
    def resource_manager_leader(self) -> LeaderInformation:
        """The address for TaskExecutors' registrations. Raises NoLeaderError while this process does not lead."""
        return self.resource_manager.leader

    def dispatcher_gateway(self) -> DispatcherGateway:
        """A client of the leading Dispatcher, in this process or another."""
        return self._caller(components.DISPATCHER).client(DISPATCHER)

    def resource_manager_gateway(self) -> ResourceManagerGateway:
        """A client of the leading ResourceManager, in this process or another."""
        return self._caller(components.RESOURCE_MANAGER).client(RESOURCE_MANAGER)

    def _caller(self, component: str) -> LeaderCaller:
        if component not in self._callers:
            self._callers[component] = LeaderCaller(
                self.rpc,
                self._ha.leader(component),
                component,
                self._settings.leader_timeout if self._ha.is_highly_available else 0.0,
                self._services.timers,
            )
        return self._callers[component]


def _say_it_cannot_lead(error: Exception, times: int) -> None:
    """Logs the first, second, fourth, ...

    error of a kind. Only an unexpected one gets a stack trace, and only once.
    """
    if times & (times - 1):
        return
    is_sentence = isinstance(error, YarrowError | OSError)
    _log.error(
        ("this master was elected and cannot lead yet, it tries again every %g s (%d failures so far): %s"),
        _PAUSE,
        times,
        error if str(error) else repr(error),
        exc_info=error if times == 1 and not is_sentence else None,
    )

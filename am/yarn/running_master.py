"""RunningMaster: control plane, web servers and deployment mode of one attempt of an application.

Owner: the event loop on which `run` was called. It publishes addresses and never a secret. It raises the
error that makes an attempt fail, and the process decides about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Protocol

from yarrow.am.control_plane import ControlPlane, ControlPlaneServices
from yarrow.am.dispatcher.job_graph_store import RESULTS
from yarrow.am.leader_gateway import NoLeaderError
from yarrow.am.rest.activity import ClientActivity
from yarrow.am.rest.server.server import RestServer
from yarrow.am.rest.services import RestServices
from yarrow.am.rest.views.application import WholeApplication
from yarrow.am.yarn.application_master_settings import PAGE_ROUTE, ApplicationMasterSettings
from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.am.yarn.modes.cluster import LOOK, RunningCluster, until_led
from yarrow.am.yarn.modes.end_file import EndFile
from yarrow.am.yarn.modes.recorded_end import record_end, recorded_end
from yarrow.am.yarn.service_containers import ExplainWaiting, PublishedDelays
from yarrow.am.yarn.spark_applications import SparkApplications
from yarrow.am.yarn.token_renewal import renewal_of
from yarrow.am.yarn.yarn_driver import YarnDriver
from yarrow.am.yarn.yarn_spark_drivers import YarnSparkDrivers
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.memory import SKEIN_MEMORY
from yarrow.runtime.config.options import jobmanager
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.ha.none import NoHighAvailability
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.ha.services import HighAvailabilityServices
from yarrow.runtime.ha.settings import cluster_id, is_highly_available, storage_directory
from yarrow.runtime.rpc.gateway_type import TASK_EXECUTOR
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.loopback import LOOPBACK
from yarrow.runtime.rpc.messages import DelegationTokens
from yarrow.runtime.rpc.service import AddressError, RpcService
from yarrow.runtime.security.result_proof import result_key
from yarrow.runtime.yarn.application import ApplicationDescription, DeploymentMode, MasterSecrets
from yarrow.runtime.yarn.container_files import ContainerFolder
from yarrow.runtime.yarn.container_output import ContainerOutput
from yarrow.runtime.yarn.delegation_tokens import tokens_end
from yarrow.runtime.yarn.environment_use import USE_NOTED_MS, note_uses
from yarrow.runtime.yarn.gateways import YarnError, YarnMasterGateway
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.layout import KV_ATTEMPT, KV_REST_ADDRESS, SPARK_DRIVER_SERVICE
from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWeb
from yarrow.runtime.yarn.waiting_containers import SPARK_DRIVER_KEYS, ContainerExplainer

#: The page's name on Skein's own page.
_PAGE_NAME = "Yarrow"
_LOG_FILE = "jobmanager.log"
#: Seconds for the orderly end of the cluster; YARN ends the rest.
_STOP_LIMIT = 10.0
#: Seconds for each read or change of stored data at the end; leftovers then stay.
_RECORDS_LIMIT = 10.0
_log = logging.getLogger(__name__)


class Children(Protocol):
    """Registers the sessions of processes that must not outlive this one."""

    def add(self, session: int) -> None: ...

    def remove(self, session: int) -> None: ...


class RunningMaster:
    """The master of one attempt."""

    def __init__(
        self,
        description: ApplicationDescription,
        secrets: MasterSecrets,
        folder: ContainerFolder,
        temporary_directory: Path,
        gateway: YarnMasterGateway,
        children: Children,
        clock: Clock | None = None,
        explain_waiting: ExplainWaiting | None = None,
    ) -> None:
        self._description = description
        self._folder = folder
        self._secret = secrets.data_secret
        self._gateway = gateway
        self._children = children
        self._clock = clock or SystemClock()
        self._settings = ApplicationMasterSettings.of(description, secrets, folder, temporary_directory)
        use_hdfs_settings(HdfsSettings.of(self._settings.config))
        config = self._settings.config
        explain = explain_waiting or ContainerExplainer(config, folder.application_id)
        explain_drivers = ContainerExplainer(config, folder.application_id, SPARK_DRIVER_KEYS)
        read_output = ContainerOutput(config)
        delays = PublishedDelays(gateway)
        self._driver = YarnDriver(gateway, self._settings.driver, self._clock, explain, read_output, delays)
        self._spark_drivers = YarnSparkDrivers(
            gateway,
            self._settings.spark_driver,
            config,
            self._clock,
            delays,
            explain_waiting or explain_drivers,
            None if explain_waiting else explain_drivers.refusal,
            ContainerOutput(config, service=SPARK_DRIVER_SERVICE),
        )
        self._spark_applications = SparkApplications(
            self._spark_drivers,
            lambda: ResourceManagerWeb.of(HadoopConfiguration.load(config)),
            config,
            self._clock,
        )
        self._renewal = renewal_of(
            config, secrets.keytab, temporary_directory, self._take_tokens, self._clock
        )
        self._activity = ClientActivity(self._clock)
        self._application = application_for_rest(description, folder.application_id, self._clock.epoch_ms())
        self._plane: ControlPlane | None = None
        self._servers: list[RestServer] = []

    async def run(self) -> ApplicationEnd | None:
        """Runs until the application ends; returns None if only this attempt was told to end (SIGTERM).

        Raises the error that makes the attempt fail. Nothing of the cluster runs afterwards. The end of the
        application stays stored until `forget`, which comes after the report to YARN.
        """
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
        end: ApplicationEnd | None = None
        try:
            cluster = await self._start()
            end = await self._until_end(cluster, told)
            if end is not None:
                await self._record(end)
            return end
        finally:
            # Stored data serve the application's next attempt; there is none after its end.
            await self._stop(clean_up=end is not None)

    async def forget(self, told: bool = True) -> None:
        """Removes stored data once YARN knows the end, unless `told` is False. Never raises."""
        if self._plane is not None:
            await self._limited(self._plane.close(keep=not told), self._not_removed)

    async def _record(self, end: ApplicationEnd) -> None:
        """Records the end before any removal and before the report to YARN: an attempt in between repeats no job."""
        plane, file = self._plane, self._end_file
        if plane is not None and is_highly_available(self._settings.config):
            noted = asyncio.to_thread(lambda: record_end(plane.records, end))
        elif file is not None:
            noted = asyncio.to_thread(file.write, end)
        else:
            return
        await self._limited(noted, "the end of the application was not recorded")

    async def _limited(self, work: Awaitable[None], otherwise: str) -> None:
        try:
            async with asyncio.timeout(_RECORDS_LIMIT):
                await work
        except TimeoutError:
            _log.warning("%s within %g s", otherwise, _RECORDS_LIMIT)
        except Exception:
            # The application's end is known, and is reported nevertheless.
            _log.exception("%s", otherwise)

    @property
    def _not_removed(self) -> str:
        config = self._settings.config
        where = f" in ZooKeeper, and in {storage_directory(config)}," if is_highly_available(config) else ""
        return f"the data of the cluster{where} was not removed"

    async def _until_end(self, cluster: RunningCluster, told: asyncio.Event) -> ApplicationEnd | None:
        mode = asyncio.create_task(self._run_mode(cluster), name="deployment mode")
        asked = asyncio.create_task(cluster.plane.wait_for_shut_down(), name="asked by a client to end")
        ending = asyncio.create_task(told.wait(), name="told to end")
        noting = asyncio.create_task(self._note_environment(), name="use of the environment")
        renewing = asyncio.create_task(self._renew_tokens(), name="renewal of delegation tokens")
        # A session ends in its own way when a client asks for it.
        is_session = self._description.mode is DeploymentMode.SESSION
        try:
            awaited = {mode, ending} if is_session else {mode, ending, asked}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if mode.done():
                return mode.result()
            return None if ending.done() else await cluster.stopped_by_a_client()
        finally:
            tasks = (mode, asked, ending, noting, renewing)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew_tokens(self) -> None:
        if self._renewal is not None:
            await self._renewal.run()

    def _take_tokens(self, tokens: DelegationTokens) -> None:
        self._driver.tokens = tokens

    async def _note_environment(self) -> None:
        """Marks the environment as used twice a day, so that no client removes it as unused."""
        while self._description.environment:
            await asyncio.sleep(USE_NOTED_MS / 1000 / 2)
            await asyncio.to_thread(note_uses, self._description.environment, self._clock)

    @property
    def _end_file(self) -> EndFile | None:
        """The file of the end without high availability; None if no attempt can follow, or there is no place for it."""
        folders = self._description.applications_folder
        if is_highly_available(self._settings.config) or self._description.max_attempts == 1 or not folders:
            return None
        return EndFile(join(folders, self._folder.application_id))

    async def _end_of_former_attempt(self, plane: ControlPlane) -> ApplicationEnd | None:
        """The end of the application, if a former attempt recorded it and could not report it to YARN."""
        if self._folder.attempt == 1:
            return None
        if not is_highly_available(self._settings.config):
            return await self._end_in_file()
        while True:
            await until_led(plane.dispatcher_gateway())
            try:
                return await asyncio.to_thread(lambda: recorded_end(plane.records))
            except (NoLeaderError, RecordsError) as error:
                _log.info(
                    ("it is unknown yet how an earlier attempt ended, the ApplicationMaster asks again: %s"),
                    error,
                )
            await asyncio.sleep(LOOK)

    async def _end_in_file(self) -> ApplicationEnd | None:
        file = self._end_file
        try:
            return None if file is None else await asyncio.to_thread(file.read)
        except (OSError, FileSystemError) as error:
            _log.warning(
                "it is unknown whether an earlier attempt has ended the application, and this attempt "
                "runs it: %s",
                error,
            )
            return None

    async def _run_mode(self, cluster: RunningCluster) -> ApplicationEnd:
        if (end := await self._end_of_former_attempt(cluster.plane)) is not None:
            _log.info(
                "an earlier attempt has ended the application: the ApplicationMaster reports that end to YARN"
            )
            return end
        match self._description.mode:
            case DeploymentMode.SESSION:
                from yarrow.am.yarn.modes.session import run_session

                return await run_session(cluster)
            case DeploymentMode.PER_JOB:
                from yarrow.am.yarn.modes.per_job import run_per_job

                return await run_per_job(cluster)
            case DeploymentMode.APPLICATION:
                from yarrow.am.yarn.modes.application import run_application

                return await run_application(
                    cluster, self._program_services(), self._settings.rest, self._children
                )

    # Start and end.

    async def _start(self) -> RunningCluster:
        if self._renewal is not None:
            # A later attempt of an old application may have got tokens that have ended.
            await self._renewal.start()
        rpc = await self._free_rpc()
        if self._folder.attempt > 1:
            # Drivers of a former attempt are gone; what they have asked YARN for may not be.
            await self._spark_applications.end_tagged(self._folder.application_id)
        services = ControlPlaneServices(
            clock=self._clock,
            high_availability=await self._high_availability(),
            log_directory=self._folder.log_directory,
            spark_drivers=self._spark_applications,
        )
        self._plane = plane = ControlPlane(rpc, self._driver, self._settings.control_plane, services)
        await plane.start()
        server = RestServer(self._services(self._activity), self._settings.rest)
        self._servers.append(server)
        # Clients can learn the address at once: the kernel holds their connections while the web framework
        # loads.
        address = await server.start(self._settings.rest_host, self._settings.rest_ports, lazily=True)
        server.load_soon()
        await plane.announce_web(address)
        await self._publish(KV_ATTEMPT, f"{self._folder.attempt}/{self._description.max_attempts}")
        await self._publish(KV_REST_ADDRESS, address)
        _log.info("JobManager Web Interface: %s", address)
        proxied = RestServer(self._services(ClientActivity(self._clock)), self._settings.proxy)
        self._servers.append(proxied)
        # YARN's proxy asks through Skein's ApplicationMaster in this container: no other process needs this address.
        await self._add_page(await proxied.start(LOOPBACK, (0,), lazily=True))
        return RunningCluster(
            plane=plane,
            config=self._settings.config,
            description=self._description,
            folder=self._folder,
            activity=self._activity,
            clock=self._clock,
            result_key=result_key(self._secret),
            report_progress=self._report_progress,
        )

    async def _stop(self, clean_up: bool) -> None:
        try:
            async with asyncio.timeout(_STOP_LIMIT):
                for server in self._servers:
                    await server.stop()
                if self._plane is not None:
                    # YARN never reuses an application id: nobody could continue the jobs of a session.
                    await self._plane.stop_work(clean_up, even_unfinished=self._is_own_cluster)
                    await self._spark_drivers.terminate()
        except TimeoutError:
            _log.warning(
                "the cluster has not ended within %g s: YARN kills the remaining processes", _STOP_LIMIT
            )
        except Exception:
            # The application's end is known, and is reported nevertheless.
            _log.exception("the cluster failed while it ended")
        if self._plane is None:
            return
        if clean_up:
            await self._limited(self._plane.remove_all_but(RESULTS), self._not_removed)
        else:
            await self._limited(self._plane.close(), "the ZooKeeper session was not closed")

    @property
    def _is_own_cluster(self) -> bool:
        config = self._settings.config
        return is_highly_available(config) and cluster_id(config) == self._folder.application_id

    async def _high_availability(self) -> HighAvailabilityServices:
        if not is_highly_available(self._settings.config):
            return NoHighAvailability()
        from yarrow.runtime.ha.zookeeper_services import open_services

        return await asyncio.to_thread(open_services, self._settings.config, self._secret)

    async def _free_rpc(self) -> RpcService:
        """A service for the first free port; its own `start` binds it."""
        candidates = self._settings.rpc
        for settings in candidates[:-1]:
            if await _is_free(settings):
                return _service(settings)
        return _service(candidates[-1])

    # Published facts.

    def _services(self, activity: ClientActivity) -> RestServices:
        plane = self._plane
        assert plane is not None

        return RestServices(
            dispatcher=plane.dispatcher_gateway(),
            resource_manager=plane.resource_manager_gateway(),
            connect_task_executor=lambda address: plane.rpc.connect(address, TASK_EXECUTOR),
            settings=self._settings.config,
            store_blob=plane.store_blob,
            log_directory=self._folder.log_directory,
            log_file_name=_LOG_FILE,
            container_of=self._driver.container_of,
            attempt=self._folder.attempt,
            max_attempts=self._description.max_attempts,
            tokens_end_ms=self._tokens_end_ms,
            application=self._application,
            memory_limit=max(
                0, self._settings.config.get(jobmanager.PROCESS_SIZE).bytes - SKEIN_MEMORY.bytes
            ),
            activity=activity,
        )

    def _tokens_end_ms(self) -> int:
        return tokens_end(os.environ) if self._renewal is None else self._renewal.ends_ms

    def _program_services(self) -> RestServices:
        """REST services for the application's own program, whose questions keep nobody waiting."""
        return self._services(ClientActivity(self._clock))

    async def _publish(self, key: str, value: str) -> None:
        await asyncio.to_thread(self._gateway.publish, key, value)

    async def _add_page(self, address: str) -> None:
        try:
            await asyncio.to_thread(self._gateway.add_page, PAGE_ROUTE, address, _PAGE_NAME)
        except YarnError as error:
            _log.warning("YARN's proxy does not show the REST server: %s", error)

    def _report_progress(self, progress: float) -> None:
        work = asyncio.get_running_loop().run_in_executor(None, partial(self._gateway.set_progress, progress))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())


def application_for_rest(
    description: ApplicationDescription, application_id: str, start_time: int
) -> WholeApplication | None:
    """The application under which REST shows all jobs; None for a session, where each job is an application."""
    if description.mode is DeploymentMode.SESSION:
        return None
    return WholeApplication.on_yarn(
        application_id,
        description.name,
        start_time,
        ends_with_job=description.mode is DeploymentMode.PER_JOB,
    )


def _service(settings: GrpcSettings) -> RpcService:
    return RpcService(
        [GrpcTransport(settings), InProcessTransport(max_message_bytes=settings.max_message_bytes)]
    )


async def _is_free(settings: GrpcSettings) -> bool:
    transport = GrpcTransport(settings)
    with contextlib.suppress(AddressError):
        await transport.start()
        await transport.stop()
        return True
    return False

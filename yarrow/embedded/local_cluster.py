"""LocalCluster: a control plane in this process with TaskExecutors beside it, from start to the last file.

Owner: the shared loop; every method is a coroutine of it unless it says otherwise. No signal handlers, no
waiting on the user's thread. Heavy modules are imported after the first TaskExecutor process was started,
which loads its own at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.am.dispatcher.submission import submit_job_graph
from yarrow.am.resourcemanager.local_process_driver import LocalProcessDriver, LocalProcessSettings
from yarrow.embedded.cluster_shape import ClusterShape, embedded_settings
from yarrow.embedded.control_plane_log import ControlPlaneLog
from yarrow.embedded.loop_thread import BlockingPool
from yarrow.embedded.output_relay import ClientOutput, OutputRelay
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.options import cluster, execution, rest, rpc
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import ClientFolder, parent_folder, remove_abandoned
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.messages import ResourceProfile

if TYPE_CHECKING:
    from yarrow.am.control_plane import ControlPlane
    from yarrow.am.rest.server.server import RestServer
    from yarrow.embedded.in_process_driver import InProcessDriver
    from yarrow.runtime.rpc.gateways import DispatcherGateway
    from yarrow.runtime.rpc.in_process import InProcessNetwork

_HOST = "127.0.0.1"
#: In the cluster's folder, if REST requires a token.
TOKEN_FILE = "rest.token"
#: Seconds in which the output of ended TaskExecutors is read to its end.
_OUTPUT_GRACE = 5.0
_log = logging.getLogger(__name__)


class LocalCluster:
    """One embedded cluster."""

    def __init__(
        self,
        config: Settings,
        shape: ClusterShape,
        pool: BlockingPool,
        network: InProcessNetwork | None = None,
    ) -> None:
        """Raises ConfigError for impossible memory or slots; starts nothing.

        `network` carries the calls inside this process; tests pass one that loses messages.
        """
        self._network = network
        self.config = embedded_settings(config, shape.slots_per_task_executor)
        self.shape = shape
        self.application_id = RandomIdFactory().hex_id()
        #: Done with the error when this process's standard output cannot take tasks' output any more.
        self._lost_output: Future[OSError] = Future()
        self._output = ClientOutput(self._lost_output.set_result)
        self.relay = OutputRelay(self._output.take)
        self._pool = pool
        self._folder: ClientFolder | None = None
        self._driver: LocalProcessDriver | InProcessDriver | None = None
        self._plane: ControlPlane | None = None
        self._web: RestServer | None = None
        self._log: ControlPlaneLog | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._issue: Callable[[str], PemIdentity] = lambda name: PemIdentity()

    @property
    def folder(self) -> str:
        """The cluster's temporary folder, mode 0700; gone after `stop`."""
        return "" if self._folder is None else self._folder.path

    @property
    def web_address(self) -> str | None:
        """URL of the web API; None if it is not served."""
        return None if self._web is None else self._web.address

    @property
    def control_plane(self) -> ControlPlane:
        """The running control plane."""
        assert self._plane is not None, "start must be called before any other method"
        return self._plane

    @property
    def dispatcher(self) -> DispatcherGateway:
        """The gateway for submissions."""
        return self.control_plane.dispatcher_gateway()

    async def submit(self, job_graph: JobGraph) -> None:
        """Submits a job; a large graph goes through the blob store."""
        plane = self.control_plane
        await submit_job_graph(self.dispatcher, plane.store_blob, job_graph)

    @property
    def processes(self) -> list[int]:
        """Process ids of the TaskExecutors."""
        return [] if self._driver is None else list(self._driver.processes.values())

    async def start(self) -> None:
        """Returns when jobs can be submitted; after an error nothing is left."""
        self._pool.acquire()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        parent = parent_folder(self.config)
        self._folder = ClientFolder(parent)
        settings = self._driver_settings()
        self._log = ControlPlaneLog(Path(settings.log_directory))
        if self.shape.processes:
            # It needs certificates for its bootstrap, and these are made below.
            self._driver = LocalProcessDriver(
                settings, lambda name: self._issue(name), RandomIdFactory(), self.relay
            )
            await self._driver.warm_up(self.shape.task_executors)
        self._plane = await asyncio.to_thread(self._assemble, settings)
        await self._plane.start()
        from yarrow.am.rest.server.web_api import start_web_api

        token = secrets.token_urlsafe(32)
        self._web = await start_web_api(
            self._plane,
            self.config,
            log_directory=Path(settings.log_directory),
            token=token,
            temporary_directory=Path(self._folder.path),
        )
        if self._web.asks_for_token:
            await asyncio.to_thread(self._keep_token, token)
        await asyncio.to_thread(remove_abandoned, parent)

    def _keep_token(self, token: str) -> None:
        """Stores the token of a cluster that ends with its program for the user."""
        path = os.path.join(self.folder, TOKEN_FILE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(token)
        _log.warning(
            "%s is set: other hosts reach REST of this program, and every request has to bear the token in %s",
            rest.BIND_ADDRESS.key,
            path,
        )

    async def add_task_executor(self) -> None:
        """Starts one more TaskExecutor, besides those that jobs need."""
        assert self._driver is not None, "start must be called before any other method"
        await self._driver.request_task_executor(ResourceProfile())

    async def stop(self) -> None:
        """Ends jobs, TaskExecutors and servers, and removes the folder. Returns when everything is gone."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        # A caller that gives up waiting must not leave half of it behind.
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            if self._web is not None:
                await self._web.stop()
            if self._plane is not None:
                await self._plane.stop()
            if self._driver is not None:
                await self._driver.terminate()
            await asyncio.to_thread(self.relay.join, _OUTPUT_GRACE)
        finally:
            if self._log is not None:
                self._log.end()
            if self._folder is not None:
                await asyncio.to_thread(self._folder.remove)
            self._pool.release()

    async def drain_output(self) -> None:
        """Returns when all tasks' output so far is in the client's output."""
        if self.shape.processes:
            await asyncio.gather(*(asyncio.wrap_future(ticket) for ticket in self.relay.drain()))

    async def output_lost(self) -> OSError:
        """Return why this process's standard output takes tasks' output no more, as soon as that is so."""
        return await asyncio.shield(asyncio.wrap_future(self._lost_output))

    def _driver_settings(self) -> LocalProcessSettings:
        log_directory = self.config.get(cluster.LOG_DIR) or os.path.join(self.folder, "log")
        os.makedirs(log_directory, exist_ok=True)
        return LocalProcessSettings(
            application_id=self.application_id,
            log_directory=log_directory,
            tmp_directory=self.folder,
            configuration=self.config.to_dict(redact=False),
            data_secret=os.urandom(32),
            host=_HOST,
            bind_host=_HOST,
            slots_per_task_executor=self.shape.slots_per_task_executor,
            max_message_bytes=self.config.get(rpc.MESSAGE_MAX_SIZE).bytes,
        )

    def _assemble(self, settings: LocalProcessSettings) -> ControlPlane:
        """The imports take longer than everything else, so they run in a thread, and other clusters go on."""
        from yarrow.am.control_plane import ControlPlane, ControlPlaneServices
        from yarrow.am.control_plane_settings import control_plane_settings
        from yarrow.am.resourcemanager.local_spark_drivers import LocalSparkDrivers
        from yarrow.am.resourcemanager.spark_drivers import NoSparkDrivers, SparkDriverLauncher
        from yarrow.runtime.rpc.in_process import InProcessTransport
        from yarrow.runtime.rpc.service import RpcService, Transport

        local = InProcessTransport(self._network, max_message_bytes=settings.max_message_bytes)
        transports: list[Transport] = [local]
        spark_drivers: SparkDriverLauncher = NoSparkDrivers(
            f"with {execution.IN_PROCESS.key} there are no processes, and Spark needs one: remove that option, or run"
            " the job in STREAMING mode. In AUTOMATIC mode a bounded job with little input runs without Spark"
        )
        if self.shape.processes:
            from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
            from yarrow.runtime.rpc.roles import Role
            from yarrow.runtime.security.certificates import CertificateAuthority

            authority = CertificateAuthority(self.application_id, SystemClock())
            self._issue = partial(authority.issue, role=Role.TASK_EXECUTOR)
            spark_drivers = LocalSparkDrivers(settings, partial(authority.issue, role=Role.SPARK_DRIVER))
            grpc_settings = GrpcSettings(
                application_id=self.application_id,
                bind_host=_HOST,
                host=_HOST,
                identity=authority.issue("jobmanager", Role.JOB_MANAGER),
                max_message_bytes=settings.max_message_bytes,
                ask_timeout=self.config.get(rpc.ASK_TIMEOUT).seconds,
                connect_timeout=self.config.get(rpc.CONNECT_TIMEOUT).seconds,
            )
            transports.insert(0, GrpcTransport(grpc_settings))
        service = RpcService(transports)
        use_hdfs_settings(HdfsSettings.of(self.config))
        if self._driver is None:
            from yarrow.embedded.in_process_driver import InProcessDriver

            self._driver = InProcessDriver(settings, service, RandomIdFactory(), self._output)
        return ControlPlane(
            service,
            self._driver,
            control_plane_settings(
                self.config,
                blob_directory=os.path.join(self.folder, "blobs"),
                slots_per_task_executor=self.shape.slots_per_task_executor,
                can_request=True,
            ),
            ControlPlaneServices(
                log_directory=Path(settings.log_directory),
                spark_drivers=spark_drivers,
                print_output=partial(self._output.write, "stdout"),
            ),
        )

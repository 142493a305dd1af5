"""InProcessDriver: TaskExecutors in this very process, whose workers are threads (`execution.in-process`).

Owner: the ResourceManager's loop, which the TaskExecutors share. Must not be used if user code may crash.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from yarrow.am.resourcemanager.driver import ResourceEventHandler
from yarrow.am.resourcemanager.local_process_driver import LocalProcessSettings
from yarrow.container.launch.in_process_workers import InProcessLauncher
from yarrow.container.supervisor.hosted_spark_drivers import DriverProcess
from yarrow.container.supervisor.output_files import OutputFiles, OutputSink
from yarrow.container.supervisor.task_executor import TaskExecutor, TaskExecutorServices
from yarrow.container.supervisor.task_executor_settings import settings_of
from yarrow.container.worker.worker import WorkerThread
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import IdFactory, ResourceID
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import DelegationTokens, ResourceProfile, SparkDriverStart
from yarrow.runtime.rpc.service import RpcService


class InProcessDriver:
    """Makes TaskExecutor endpoints on the running loop."""

    def __init__(
        self, settings: LocalProcessSettings, rpc: RpcService, ids: IdFactory, output: OutputSink
    ) -> None:
        """`rpc` is the control plane's own service; commands and certificates of `settings` are not used."""
        self._output = output
        self._settings = settings
        self._rpc = rpc
        self._ids = ids
        self._handler: ResourceEventHandler | None = None
        self._leader: LeaderInformation | None = None
        self._executors: dict[ResourceID, TaskExecutor] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._started = 0

    @property
    def can_request(self) -> bool:
        return True

    @property
    def living(self) -> tuple[ResourceID, ...]:
        return tuple(self._executors)

    @property
    def tokens(self) -> DelegationTokens | None:
        """Returns none: processes of this host log in by themselves."""
        return None

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Returns none: threads have no process of their own."""
        return {}

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler
        self._leader = leader

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        self._started += 1
        resource_id = ResourceID(f"{self._settings.host}:{self._started}-{self._ids.hex_id()[-6:]}")
        executor = self._make(resource_id)
        self._executors[resource_id] = executor
        await executor.start()
        watcher = asyncio.get_running_loop().create_task(self._watch(executor))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return resource_id

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        executor = self._executors.get(resource_id)
        if executor is not None:
            executor.finish("the TaskExecutor was released")

    def refusal(self, resource_id: ResourceID) -> str:
        """Accepts every TaskExecutor."""
        return ""

    async def await_end(self, resource_id: ResourceID) -> None:
        """Returns at once: the TaskExecutor itself knows most."""

    async def terminate(self) -> None:
        for executor in list(self._executors.values()):
            executor.finish("the cluster ends")
        await asyncio.gather(*self._watchers)

    def _make(self, resource_id: ResourceID) -> TaskExecutor:
        settings = self._settings
        assert self._leader is not None, "initialize must be called before any other method"
        # Removed with the cluster's own folder, in which it lies.
        working_directory = tempfile.mkdtemp(prefix="taskexecutor-", dir=settings.tmp_directory)
        bootstrap = settings.bootstrap(resource_id, self._leader, PemIdentity(), working_directory)
        files = OutputFiles(Path(settings.log_directory), resource_id, self._output)
        own, launcher = settings_of(bootstrap), InProcessLauncher(WorkerThread)

        async def start_driver(start: SparkDriverStart) -> DriverProcess:
            # Loaded for bounded jobs alone. Others do not come here: there are no processes for Spark.
            from yarrow.container.batch.local.local_drivers import LocalDrivers

            drivers = LocalDrivers(bootstrap, own.slots, self._rpc, launcher, files, SystemClock())
            return await drivers.start(start)

        return TaskExecutor(
            own,
            TaskExecutorServices(
                rpc=self._rpc,
                resource_manager=AnnouncedLeader(self._leader),
                launcher=launcher,
                files=files,
                start_spark_driver=start_driver,
            ),
        )

    async def _watch(self, executor: TaskExecutor) -> None:
        _, cause = await executor.finished
        await executor.stop()
        self._executors.pop(executor.resource_id, None)
        if self._handler is not None:
            self._handler.on_task_executor_terminated(executor.resource_id, cause)

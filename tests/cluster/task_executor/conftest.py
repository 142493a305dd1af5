"""A TaskExecutor with real worker processes between a fake ResourceManager and a fake JobMaster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.cluster.task_executor.fake_worker import ENTRY, PlayedThread
from tests.cluster.task_executor.fakes import FakeJobMaster, FakeResourceManager
from tests.support.faulty_network import FaultyNetwork
from tests.support.scripted_fault import ScriptedFault
from tests.unit.container.supervisor.conftest import ROOT, eventually
from yarrow.container.launch.in_process_workers import InProcessLauncher
from yarrow.container.launch.process_start import LaunchSettings
from yarrow.container.launch.template_client import TemplateLauncher
from yarrow.container.launch.worker_launcher import SpawnLauncher, WorkerLauncher
from yarrow.container.supervisor.hosted_spark_drivers import StartProcess, start_no_process
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.supervisor.slot_table import TaskExecutorSlotState
from yarrow.container.supervisor.task_executor import TaskExecutor, TaskExecutorServices
from yarrow.container.supervisor.task_executor_settings import TaskExecutorSettings, settings_of
from yarrow.container.worker.worker import WorkerThread
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceID,
    ResourceManagerID,
    execution_attempt_id,
)
from yarrow.runtime.graph.connector_spec import PrintOperator
from yarrow.runtime.graph.job_graph import (
    JobGraph,
    JobVertex,
    OperatorDescriptor,
    ShippedFile,
    UserCode,
    encode_job_graph,
)
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import Deployment, SlotID, SlotRequest, TaskDeploymentDescriptor
from yarrow.runtime.rpc.output_stream import LoggedRecord
from yarrow.runtime.rpc.registration import RegistrationSettings
from yarrow.runtime.rpc.service import RpcService

JOB = JobID("1" * 32)
RESOURCE = ResourceID("te-1")


def allocation(number: int) -> AllocationID:
    return AllocationID(f"{number:032x}")


def graph_of(*names: str, files: tuple[ShippedFile, ...] = ()) -> JobGraph:
    """One vertex a name, of parallelism 2, with one operator of the same name."""
    vertices = tuple(
        JobVertex(
            id=JobVertexID(f"v{number}"),
            name=name,
            operators=(
                OperatorDescriptor(id=OperatorID(f"o{number}"), name=f"the {name}", spec=PrintOperator()),
            ),
            chained_edges=(),
            parallelism=2,
            max_parallelism=128,
            slot_sharing_group="default",
            buffer_timeout_ms=100,
        )
        for number, name in enumerate(names)
    )
    return JobGraph(job_id=JOB, name="job", vertices=vertices, edges=(), user_code=UserCode(files=files))


def attempt(vertex: int = 0, subtask: int = 0) -> ExecutionAttemptID:
    return execution_attempt_id("g", JobVertexID(f"v{vertex}"), subtask, 0)


def task(vertex: int, subtask: int, slot: AllocationID) -> TaskDeploymentDescriptor:
    return TaskDeploymentDescriptor(
        attempt_id=attempt(vertex, subtask),
        vertex_id=JobVertexID(f"v{vertex}"),
        subtask=subtask,
        attempt_number=0,
        allocation_id=slot,
    )


@dataclass
class Cluster:
    """What a test talks to."""

    executor: TaskExecutor
    gateway: TaskExecutorGateway
    resource_manager: FakeResourceManager
    leader: AnnouncedLeader
    job_master: FakeJobMaster
    job_master_address: str
    service: RpcService
    fault: ScriptedFault
    files: OutputFiles
    settings: TaskExecutorSettings
    output: list[tuple[str, str]] = field(default_factory=list)

    def state_of(self, index: int) -> TaskExecutorSlotState:
        return self.executor.slots.slot_at(index).state

    async def request_slot(self, index: int, number: int, job_master_id: str | None = None) -> AllocationID:
        """Requests a slot as the ResourceManager would, for the JobMaster that serves here or for another."""
        await self.gateway.request_slot(
            SlotRequest(
                slot_id=SlotID(resource_id=RESOURCE, index=index),
                job_id=JOB,
                allocation_id=allocation(number),
                profile=self.settings.profile,
                job_master_address=self.job_master_address,
                job_master_id=JobMasterID(job_master_id or str(self.job_master.fencing_token)),
                resource_manager_id=ResourceManagerID(str(self.resource_manager.fencing_token)),
            )
        )
        return allocation(number)

    async def active_slot(self, index: int = 0, number: int = 1) -> AllocationID:
        """A slot that the JobMaster has accepted."""
        found = await self.request_slot(index, number)
        await eventually(
            lambda: self.state_of(index) is TaskExecutorSlotState.ACTIVE, f"slot {index} was accepted"
        )
        return found

    async def submit(self, graph: JobGraph, *tasks: TaskDeploymentDescriptor) -> None:
        """Submits as the JobMaster would."""
        await self.gateway.submit_tasks(
            Deployment(
                job_id=JOB,
                job_master_id=JobMasterID(str(self.job_master.fencing_token)),
                job_graph=encode_job_graph(graph),
                workers=(),
                placements=(),
                tasks=tasks,
            )
        )


@pytest.fixture(params=["fork", "spawn", "in-process"])
def start_mode(request: pytest.FixtureRequest) -> str:
    """All ways to get a worker."""
    return str(request.param)


def make_bootstrap(folder: Path, **changes: object) -> TaskExecutorBootstrap:
    """A bootstrap whose folders lie in `folder`."""
    for name in ("logs", "work"):
        (folder / name).mkdir(exist_ok=True)
    fields: dict[str, object] = {
        "application_id": "app",
        "resource_id": RESOURCE,
        "resource_manager_address": "inproc://rm",
        "resource_manager_id": ResourceManagerID("rm-1"),
        "host": "127.0.0.1",
        "bind_host": "127.0.0.1",
        "identity": PemIdentity(),
        "data_secret": b"s" * 32,
        "configuration": {"taskmanager.cpu.cores": "2"},
        "log_directory": str(folder / "logs"),
        "working_directory": str(folder / "work"),
        "slots": 2,
    }
    return TaskExecutorBootstrap(**{**fields, **changes})  # type: ignore[arg-type]


def make_launcher(mode: str, raw_output: int, entry: str) -> WorkerLauncher:
    """The launcher of `start_mode`; workers in threads are played ones unless the entry is the real one."""
    settings = LaunchSettings(entry=entry, environment={"PYTHONPATH": str(ROOT)})
    if mode == "fork":
        return TemplateLauncher(settings, raw_output)
    return (
        SpawnLauncher(settings)
        if mode == "spawn"
        else InProcessLauncher(PlayedThread if entry == ENTRY else WorkerThread)
    )


class WatchedTaskExecutor(TaskExecutor):
    """Keeps errors that are otherwise only logged."""

    def __init__(self, settings: TaskExecutorSettings, services: TaskExecutorServices) -> None:
        super().__init__(settings, services)
        self.failures: list[BaseException] = []

    def on_background_failure(self, error: BaseException) -> None:
        self.failures.append(error)


class KeptOutput:
    """A sink that keeps what tasks print."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines

    def write(self, stream: str, text: str) -> None:
        self._lines.append((stream, text))

    def write_record(self, record: LoggedRecord) -> None:
        """Nobody logs here."""


@asynccontextmanager
async def cluster(mode: str, folder: Path, entry: str = ENTRY, **changes: object) -> AsyncIterator[Cluster]:
    """A started cluster; `changes` replace fields of the TaskExecutorSettings.

    `start_spark_driver` plays processes of SparkDrivers. Silence is measured by `clock`.
    """
    clock = cast(Clock, changes.pop("clock", SystemClock()))
    start_spark_driver = cast(StartProcess, changes.pop("start_spark_driver", start_no_process))
    configuration = changes.pop("configuration", {})
    assert isinstance(configuration, dict)
    bootstrap = make_bootstrap(folder, configuration={"taskmanager.cpu.cores": "2", **configuration})
    settings = msgspec.structs.replace(
        settings_of(bootstrap),
        registration=RegistrationSettings(initial_pause=0.01, max_pause=0.05),
        **changes,
    )
    fault = ScriptedFault()
    service = RpcService([InProcessTransport(FaultyNetwork(fault))])
    await service.start()
    resource_manager, job_master = FakeResourceManager(), FakeJobMaster(JOB)
    await resource_manager.start()
    await job_master.start()
    address = service.serve(RESOURCE_MANAGER, resource_manager)
    job_master_address = service.serve(JOB_MASTER, job_master)
    output: list[tuple[str, str]] = []
    files = OutputFiles(folder / "logs", RESOURCE, KeptOutput(output))
    raw_output = files.open_raw(files.raw_path(0))
    leader = AnnouncedLeader(LeaderInformation(address=address, leader_id="rm-1"))
    executor = WatchedTaskExecutor(
        settings,
        TaskExecutorServices(
            rpc=service,
            resource_manager=leader,
            launcher=make_launcher(mode, raw_output, entry),
            files=files,
            start_spark_driver=start_spark_driver,
            clock=clock,
        ),
    )
    try:
        await executor.start()
        await eventually(lambda: bool(resource_manager.registrations), "the TaskExecutor has registered")
        yield Cluster(
            executor=executor,
            gateway=service.connect(executor.address, TASK_EXECUTOR),
            resource_manager=resource_manager,
            leader=leader,
            job_master=job_master,
            job_master_address=job_master_address,
            service=service,
            fault=fault,
            files=files,
            settings=settings,
            output=output,
        )
        assert executor.failures == [], "background work of the TaskExecutor failed"
    finally:
        await executor.stop()
        os.close(raw_output)
        await resource_manager.stop()
        await job_master.stop()
        await service.stop()
    assert list((folder / "work").iterdir()) == [], "folders of workers and jobs are removed"

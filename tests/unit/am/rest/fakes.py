"""A small cluster in memory behind the gateways' protocols, for tests of the REST API."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from tests.support.counting_ids import CountingIdFactory
from tests.unit.am.checkpoint.simulation import Simulation
from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.rest.server.app import create_app
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import (
    DuplicateJobError,
    JobAlreadyEndedError,
    JobNotFoundError,
    ScheduleNotFoundError,
    YarrowError,
)
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceID,
    ResourceManagerID,
    ScheduleID,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointType, SnapshotKind
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.job_graph import decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc import messages as m
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord, CheckpointStatistics

NOW = 1_700_000_100_000
STARTED = NOW - 60_000
JOB = JobID("1" * 32)
ENDED_JOB = JobID("2" * 32)
SOURCE = JobVertexID("a" * 32)
REDUCE = JobVertexID("b" * 32)
UNKNOWN = "f" * 32
TASK_EXECUTOR = ResourceID("host-1:41000-abcdef")
LOG_TEXT = b"a line of the log\n" * 10


def attempt(
    vertex: JobVertexID,
    subtask: int,
    state: ExecutionState = ExecutionState.RUNNING,
    number: int = 0,
    metrics: dict[str, float] | None = None,
    accumulators: dict[str, object] | None = None,
) -> m.AttemptDetails:
    """An attempt that was deployed a second after the job began and ran from the second second on."""
    timestamps = {"CREATED": STARTED, "SCHEDULED": STARTED + 500, "DEPLOYING": STARTED + 1000}
    timestamps |= {"INITIALIZING": STARTED + 1500, "RUNNING": STARTED + 2000}
    if state.is_terminal:
        timestamps[state.value] = STARTED + 10_000
    return m.AttemptDetails(
        attempt_id=ExecutionAttemptID(f"graph_{vertex}_{subtask}_{number}"),
        subtask=subtask,
        attempt_number=number,
        state=state,
        timestamps=timestamps,
        host="host-1",
        endpoint="host-1:41001",
        resource_id=TASK_EXECUTOR,
        metrics=metrics or {},
        accumulators=accumulators or {},
    )


def task_metrics(records: int, pressured: float) -> dict[str, float]:
    """What a worker reports of a task."""
    return {
        "numRecordsIn": records,
        "numRecordsOut": records * 2,
        "numBytesIn": records * 10,
        "numBytesOut": records * 20,
        "accumulateBusyTimeMs": 1000.5,
        "accumulateIdleTimeMs": 500,
        "accumulateBackPressuredTimeMs": 250,
        "busyTimeMsPerSecond": 1000 - pressured,
        "idleTimeMsPerSecond": 0,
        "backPressuredTimeMsPerSecond": pressured,
        "currentInputWatermark": -(2.0**63),
        "Shuffle.Netty.Input.Buffers.inputQueueLength": 3,
        "Source__gen.numRecordsOut": records,
        "my_map.numRecordsIn": records,
        "my_map.group.hits": 7,
    }


CAUSE = m.FailureCause(
    exception_name="builtins.ValueError",
    message="no number",
    stacktrace="Traceback (most recent call last):\nValueError: no number",
    operator_name="my map",
)


def job_details(job_id: JobID, status: JobStatus) -> m.ExecutionGraphDetails:
    """A job of two vertices."""
    ended = status.is_globally_terminal_state()
    state = ExecutionState.FINISHED if ended else ExecutionState.RUNNING
    timestamps = {"INITIALIZING": STARTED, "CREATED": STARTED + 1, "RUNNING": STARTED + 2}
    if ended:
        timestamps[status.value] = STARTED + 20_000
    source = m.VertexDetails(
        vertex_id=SOURCE,
        name="Source: gen -> my map",
        parallelism=2,
        max_parallelism=128,
        slot_sharing_group="default",
        operators=((OperatorID("c" * 32), "Source: gen"), (OperatorID("d" * 32), "my map")),
        subtasks=(
            attempt(
                SOURCE, 0, state, metrics=task_metrics(100, 800), accumulators={"rows": 1, "words": ["a"]}
            ),
            attempt(SOURCE, 1, state, number=1, metrics=task_metrics(300, 50), accumulators={"rows": 2}),
        ),
        former_attempts=(attempt(SOURCE, 1, ExecutionState.FAILED),),
    )
    reduce = m.VertexDetails(
        vertex_id=REDUCE,
        name="reduce",
        parallelism=1,
        max_parallelism=128,
        slot_sharing_group="default",
        operators=((OperatorID("e" * 32), "reduce"),),
        subtasks=(attempt(REDUCE, 0, state),),
    )
    plan = {
        "jid": job_id,
        "name": "words",
        "type": "STREAMING",
        "nodes": [
            {"id": REDUCE, "parallelism": 1, "description": "reduce", "inputs": [_plan_input()]},
            {
                "id": SOURCE,
                "parallelism": 2,
                "description": "Source: gen -&gt; my map",
                "claims": [{"operator": "Source: gen", "claim": "replay: exact positions"}],
            },
        ],
    }
    return m.ExecutionGraphDetails(
        job_id=job_id,
        name="words",
        status=status,
        timestamps=timestamps,
        end_time=STARTED + 20_000 if ended else -1,
        max_parallelism=128,
        plan=plan,
        stream_graph=_stream_graph(),
        configuration={"parallelism.default": "2", "my.secret.token": "hunter2"},
        vertices=(source, reduce),
        exceptions=(
            m.ExceptionEntry(
                cause=CAUSE,
                timestamp_ms=STARTED + 5000,
                task_name="Source: gen -> my map (2/2)",
                endpoint="host-1:41001",
                resource_id=TASK_EXECUTOR,
            ),
        ),
        accumulators={"rows": 3, "words": ["a"]},
        restarts=1,
        restarting_ms=250,
    )


def _stream_graph() -> dict[str, object]:
    read = {"num": 0, "id": "1", "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
    return {
        "nodes": [
            {"id": "1", "parallelism": 2, "operator": "Source: gen", "job_vertex_id": SOURCE, "inputs": []},
            {"id": "2", "parallelism": 1, "operator": "reduce", "job_vertex_id": REDUCE, "inputs": [read]},
        ]
    }


def _plan_input() -> dict[str, object]:
    return {
        "num": 0,
        "id": SOURCE,
        "ship_strategy": "HASH",
        "exchange": "pipelined_bounded",
        "stream_kind": "row",
    }


class UnknownCollectError(YarrowError):
    """As the JobMaster's."""


def taken_checkpoints() -> CheckpointStatisticsTracker:
    """Checkpoint 1 is complete, 2 failed, 3 is a savepoint, 4 goes on."""
    simulation = Simulation(interval=5.0, tolerable_failures=3)
    simulation.after(5)
    simulation.complete(1)
    simulation.after(5)
    simulation.located(2)
    simulation.decline(2, 1, "no space left")
    simulation.request(SnapshotKind.SAVEPOINT)
    simulation.complete(3)
    simulation.after(5)
    simulation.located(4)
    simulation.acknowledge(4, 0)
    return simulation.coordinator.statistics


#: A job whose event time a silent split holds back.
EVENT_TIME = m.EventTimeDetails(
    job_id=JOB,
    status=JobStatus.RUNNING,
    now_ms=NOW,
    operators=(
        m.OperatorEventTime(name="Source: clicks", least=1_000, subtask=1, greatest=60_000, idle=False),
        m.OperatorEventTime(name="Window", least=MIN_TIMESTAMP, subtask=0, greatest=1_000, idle=False),
    ),
    holders=(
        m.EventTimeHolder(
            operator="Source: clicks",
            subtask=1,
            split_id="7",
            watermark=1_000,
            last_timestamp=1_001,
            age_ms=42_000,
            idle=False,
            reason=m.HolderReason.NO_IDLENESS_SET,
            explanation="split '7' of 'Source: clicks' (subtask 2) had its last row 42.0 s ago",
            remedy="Give its strategy with_idleness(...)",
            path=("Window", "Source: clicks"),
        ),
    ),
)


class FakeDispatcher:
    """Implements DispatcherGateway over a dictionary of jobs."""

    def __init__(self) -> None:
        self.checkpoints = taken_checkpoints()
        self.requests: list[tuple[str, str, m.SavepointRequest | None]] = []
        self.asked_pages: list[m.SparkPageRequest] = []
        #: The page that Spark gives for each request.
        self.spark_page = m.SparkPage(status=200, media_type="text/html", body=b"<html>")
        self.checkpoint_types: list[CheckpointType] = []
        self.rescales: list[m.RescaleRequest] = []
        #: Sources and sinks that take a rate limit.
        self.rates: dict[OperatorID, m.OperatorRate] = {}
        #: Of each job.
        self.decisions: tuple[bytes, ...] = ()
        #: Until it is set checkpoints and savepoints go on.
        self.may_complete = asyncio.Event()
        self.savepoint_error: YarrowError | None = None
        self.jobs = {
            JOB: job_details(JOB, JobStatus.RUNNING),
            ENDED_JOB: job_details(ENDED_JOB, JobStatus.FINISHED),
        }
        self.submitted: list[bytes] = []
        self.cancelled: list[JobID] = []
        self.schedules: dict[ScheduleID, m.ScheduleOverview] = {}
        self.blobs: dict[str, bytes] = {}
        self.positions: list[m.CollectPosition] = []
        self.rows: asyncio.Queue[tuple[m.CollectRows, ...]] = asyncio.Queue()
        self.asked_for_result = asyncio.Event()
        self.ended = asyncio.Event()
        self.shut_down = False

    def _job(self, job_id: JobID) -> m.ExecutionGraphDetails:
        if job_id not in self.jobs:
            raise JobNotFoundError(f"no job {job_id} on this cluster")
        return self.jobs[job_id]

    async def submit_job(self, job_graph: bytes) -> JobID:
        graph = decode_job_graph(job_graph)
        if graph.job_id in self.jobs:
            raise DuplicateJobError(f"a job of the id {graph.job_id} is running already")
        self.submitted.append(job_graph)
        return graph.job_id

    async def submit_stored_job(self, blob_key: str) -> JobID:
        return await self.submit_job(self.blobs[blob_key])

    async def list_jobs(self) -> tuple[m.JobOverview, ...]:
        return tuple(
            m.JobOverview(
                job_id=job.job_id,
                name=job.name,
                status=job.status,
                start_time=STARTED,
                end_time=job.end_time,
                last_modification=STARTED + 3000,
                tasks={"total": 3, "running": 3},
            )
            for job in self.jobs.values()
        )

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        return self._job(job_id).status

    async def request_job_details(self, job_id: JobID) -> m.ExecutionGraphDetails:
        return self._job(job_id)

    async def request_job_result(self, job_id: JobID) -> m.JobResult:
        self.asked_for_result.set()
        if not self._job(job_id).status.is_globally_terminal_state():
            await self.ended.wait()
        job = self._job(job_id)
        return m.JobResult(
            job_id=job_id,
            name=job.name,
            status=job.status,
            net_runtime_ms=20_000,
            start_time=STARTED,
            end_time=job.end_time,
            accumulators=job.accumulators,
            cause=CAUSE if job.status is JobStatus.FAILED else None,
        )

    async def cancel_job(self, job_id: JobID) -> m.Acknowledge:
        if self._job(job_id).status.is_globally_terminal_state():
            raise JobAlreadyEndedError(f"job {job_id} cannot be cancelled: it has ended")
        self.cancelled.append(job_id)
        return m.Acknowledge()

    async def create_schedule(self, blob_key: str, schedule: Schedule) -> m.ScheduleOverview:
        graph = decode_job_graph(self.blobs[blob_key])
        overview = m.ScheduleOverview(
            schedule_id=ScheduleID(graph.job_id),
            name=graph.name,
            schedule=schedule,
            start_time=STARTED,
            next_time=STARTED + 60_000,
            runs=0,
            missed=0,
        )
        self.schedules[overview.schedule_id] = overview
        return overview

    async def list_schedules(self) -> tuple[m.ScheduleOverview, ...]:
        return tuple(self.schedules.values())

    async def request_schedule(self, schedule_id: ScheduleID) -> m.ScheduleOverview:
        if schedule_id not in self.schedules:
            raise ScheduleNotFoundError(f"no schedule {schedule_id}")
        return self.schedules[schedule_id]

    async def cancel_schedule(self, schedule_id: ScheduleID) -> JobID | None:
        await self.request_schedule(schedule_id)
        del self.schedules[schedule_id]
        return JOB

    async def request_overview(self) -> m.ClusterOverview:
        return m.ClusterOverview(
            task_executors=1,
            slots_total=2,
            slots_available=1,
            jobs_running=1,
            jobs_finished=1,
            jobs_cancelled=0,
            jobs_failed=0,
        )

    async def fetch_collected(
        self, job_id: JobID, collect_id: str, max_rows: int, position: m.CollectPosition = m.COLLECT_START
    ) -> tuple[m.CollectRows, ...]:
        self._job(job_id)
        if collect_id != "results":
            raise UnknownCollectError(f"job {job_id} has no collect operator {collect_id!r}")
        self.positions.append(position)
        return await self.rows.get()

    async def trigger_checkpoint(
        self, job_id: JobID, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    ) -> int:
        self.requests.append(("checkpoint", job_id, None))
        self.checkpoint_types.append(checkpoint_type)
        await self.may_complete.wait()
        return 4

    async def trigger_savepoint(self, job_id: JobID, request: m.SavepointRequest) -> str:
        self.requests.append(("savepoint", job_id, request))
        await self.may_complete.wait()
        if self.savepoint_error is not None:
            raise self.savepoint_error
        return f"{request.target_directory}/savepoint-1"

    async def report_job_client_heartbeat(self, job_id: JobID) -> m.Acknowledge:
        self._job(job_id)
        self.requests.append(("heartbeat", job_id, None))
        return m.Acknowledge()

    async def rescale_job(self, job_id: JobID, request: m.RescaleRequest) -> m.Acknowledge:
        self.rescales.append(request)
        if request.every > 100:
            raise ValueError("above the max parallelism")
        return m.Acknowledge()

    async def request_rate_limits(self, job_id: JobID) -> m.RateLimitDetails:
        self._job(job_id)
        return m.RateLimitDetails(job_id=job_id, operators=tuple(self.rates.values()))

    async def change_rate_limits(self, job_id: JobID, request: m.RateLimitRequest) -> m.RateLimitDetails:
        for operator_id, limit in request.limits.items():
            self.rates[operator_id] = msgspec.structs.replace(self.rates[operator_id], limit=limit)
        return await self.request_rate_limits(job_id)

    async def dispose_savepoint(self, path: str) -> m.Acknowledge:
        self.requests.append(("dispose", path, None))
        return m.Acknowledge()

    async def request_checkpoint_statistics(self, job_id: JobID) -> CheckpointStatistics:
        self._job(job_id)
        return self.checkpoints.statistics()

    async def request_scheduler_decisions(self, job_id: JobID, last: int) -> tuple[bytes, ...]:
        status = self._job(job_id).status
        if status.is_globally_terminal_state():
            raise JobAlreadyEndedError(f"it is {status.value} already")
        return self.decisions[-last:]

    async def request_event_time(self, job_id: JobID) -> m.EventTimeDetails:
        status = self._job(job_id).status
        if status.is_globally_terminal_state():
            raise JobAlreadyEndedError(f"it is {status.value} already")
        return EVENT_TIME

    async def request_spark_page(self, job_id: JobID, request: m.SparkPageRequest) -> m.SparkPage:
        self._job(job_id)
        self.asked_pages.append(request)
        return self.spark_page

    async def request_checkpoint(self, job_id: JobID, checkpoint_id: int) -> CheckpointRecord | None:
        self._job(job_id)
        return self.checkpoints.record(checkpoint_id)

    async def put_blob(self, data: bytes) -> str:
        key = hashlib.sha256(data).hexdigest()
        self.blobs[key] = data
        return key

    async def shut_down_cluster(self) -> m.Acknowledge:
        self.shut_down = True
        return m.Acknowledge()


def task_executor_info() -> m.TaskExecutorInfo:
    """A TaskExecutor of two slots, one of which the running job has."""
    profile = m.ResourceProfile(cpu_cores=1.0, memory_bytes=512 << 20)
    slots = [
        m.SlotStatus(slot_id=m.SlotID(resource_id=TASK_EXECUTOR, index=i), profile=profile) for i in (0, 1)
    ]
    taken = m.SlotStatus(
        slot_id=slots[0].slot_id, profile=profile, allocation_id=AllocationID("9" * 32), job_id=JOB
    )
    return m.TaskExecutorInfo(
        registration=m.TaskExecutorRegistration(
            resource_id=TASK_EXECUTOR,
            address="inproc://taskexecutor",
            host="host-1",
            hardware=m.HardwareDescription(cpu_cores=2, physical_memory=8 << 30, free_memory=4 << 30),
            process_memory=1 << 30,
            supervisor_memory=128 << 20,
            slot_report=m.SlotReport(slots=tuple(slots)),
        ),
        milliseconds_since_heartbeat=250,
        free_slots=1,
        allocated=(taken,),
        data_port=41001,
        metrics={"Status.JVM.Memory.Heap.Used": 1000.0, "Status.JVM.GarbageCollector.All.Count": 4.0},
    )


class FakeResourceManager:
    """Implements what REST asks of the ResourceManagerGateway; the rest is not for REST."""

    def __init__(self) -> None:
        self.executors = (task_executor_info(),)

    async def request_task_executors(self) -> tuple[m.TaskExecutorInfo, ...]:
        return self.executors

    async def register_task_executor(
        self, registration: m.TaskExecutorRegistration
    ) -> m.RegistrationSuccess | m.RegistrationRejection:
        raise AssertionError("REST registers nothing")

    async def register_job_master(
        self, registration: m.JobMasterRegistration
    ) -> m.RegistrationSuccess | m.RegistrationRejection:
        raise AssertionError("REST registers nothing")

    async def declare_required_resources(
        self, job_master_id: JobMasterID, requirements: m.ResourceRequirements
    ) -> m.Acknowledge:
        raise AssertionError("REST declares nothing")

    async def notify_slot_available(
        self, resource_id: ResourceID, slot_index: int, allocation_id: AllocationID, cause: str = ""
    ) -> m.Acknowledge:
        raise AssertionError("REST has no slots")

    async def heartbeat_from_job_master(self, job_id: JobID, job_master_id: JobMasterID) -> m.Acknowledge:
        raise AssertionError("REST sends no heartbeats")

    async def heartbeat_from_task_executor(
        self, payload: m.TaskExecutorToResourceManagerHeartbeat
    ) -> m.Acknowledge:
        raise AssertionError("REST sends no heartbeats")

    async def disconnect_task_executor(
        self, resource_id: ResourceID, cause: str, by_force: bool = False
    ) -> m.Acknowledge:
        raise AssertionError("REST disconnects nothing")

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, status: JobStatus
    ) -> m.Acknowledge:
        raise AssertionError("REST disconnects nothing")

    async def request_spark_driver(self, request: m.SparkDriverRequest) -> m.Acknowledge:
        raise AssertionError("REST starts nothing")

    async def release_spark_driver(self, job_master_id: JobMasterID, driver_id: ResourceID) -> m.Acknowledge:
        raise AssertionError("REST ends nothing")


class FakeTaskExecutor:
    """Implements what REST asks of the TaskExecutorGateway; the rest is not for REST."""

    files = (
        m.FileInfo(name="te.log", size=len(LOG_TEXT), mtime=NOW),
        m.FileInfo(name="te.out", size=3, mtime=NOW),
    )

    async def request_log_list(self) -> tuple[m.FileInfo, ...]:
        return self.files

    async def request_log(self, name: str, offset: int, length: int) -> bytes:
        assert name in {file.name for file in self.files}
        return (LOG_TEXT if name == "te.log" else b"hi\n")[offset : offset + length]

    async def request_thread_dump(self) -> tuple[tuple[str, str], ...]:
        return (("MainThread", "File x, line 1"),)

    async def request_slot(self, request: m.SlotRequest) -> m.Acknowledge:
        raise AssertionError("REST requests no slots")

    async def start_spark_driver(self, start: m.SparkDriverStart) -> m.Acknowledge:
        raise AssertionError("REST starts no drivers")

    async def submit_tasks(self, deployment: m.Deployment) -> m.Acknowledge:
        raise AssertionError("REST deploys nothing")

    async def cancel_tasks(
        self, job_id: JobID, job_master_id: JobMasterID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> m.Acknowledge:
        raise AssertionError("REST cancels no tasks")

    async def free_slot(self, allocation_id: AllocationID, cause: str) -> m.Acknowledge:
        raise AssertionError("REST frees no slots")

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterID, slots: m.AllocatedSlotReport
    ) -> m.TaskExecutorToJobMasterHeartbeat:
        raise AssertionError("REST sends no heartbeats")

    async def heartbeat_from_resource_manager(
        self, resource_manager_id: ResourceManagerID
    ) -> m.TaskExecutorToResourceManagerHeartbeat:
        raise AssertionError("REST sends no heartbeats")

    async def update_delegation_tokens(
        self, resource_manager_id: ResourceManagerID, tokens: m.DelegationTokens
    ) -> m.Acknowledge:
        raise AssertionError("REST sends no tokens")

    async def send_operator_event(self, job_master_id: JobMasterID, event: m.OperatorEvent) -> m.Acknowledge:
        raise AssertionError("REST sends no events")

    async def send_watermark_bounds(
        self, job_master_id: JobMasterID, bounds: m.WatermarkBounds
    ) -> m.Acknowledge:
        raise AssertionError("REST sends no bounds")

    async def trigger_checkpoint(
        self, job_master_id: JobMasterID, trigger: m.TriggerCheckpoint
    ) -> m.Acknowledge:
        raise AssertionError("REST asks no TaskExecutor for trigger_checkpoint")

    async def notify_checkpoint(
        self, job_master_id: JobMasterID, notification: m.NotifyCheckpoint
    ) -> m.Acknowledge:
        raise AssertionError("REST asks no TaskExecutor for notify_checkpoint")

    async def reset_subtask(self, job_master_id: JobMasterID, reset: m.ResetSubtask) -> m.Acknowledge:
        raise AssertionError("REST asks no TaskExecutor for reset_subtask")

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, cause: str
    ) -> m.Acknowledge:
        raise AssertionError("REST disconnects nothing")

    async def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerID, cause: str
    ) -> m.Acknowledge:
        raise AssertionError("REST disconnects nothing")

    async def request_event_times(self, job_id: JobID) -> tuple[m.TaskTimeReport, ...]:
        raise AssertionError("REST asks the JobMaster for event times")

    async def request_slot_report(self) -> m.SlotReport:
        raise AssertionError("REST asks for no slot reports")

    async def release(self, resource_manager_id: ResourceManagerID, cause: str) -> m.Acknowledge:
        raise AssertionError("REST releases nothing")


class FakeCluster:
    """The fakes together with the folders of one test."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.dispatcher = FakeDispatcher()
        self.resource_manager = FakeResourceManager()
        self.logs = folder / "logs"
        self.logs.mkdir()
        (self.logs / "master.log").write_bytes(LOG_TEXT)
        (self.logs / "master.out").write_bytes(b"printed\n")
        (folder / "secret.txt").write_text("not for you")
        (self.logs / "link.log").symlink_to(folder / "secret.txt")
        temporary = folder / "tmp"
        temporary.mkdir()
        values = {"web.tmpdir": str(temporary), "my.password": "hunter2", "parallelism.default": "2"}
        connect: Callable[[str], FakeTaskExecutor] = lambda address: FakeTaskExecutor()  # noqa: E731
        self.services = RestServices(
            dispatcher=self.dispatcher,
            resource_manager=self.resource_manager,
            connect_task_executor=connect,
            settings=Settings({**values, **(settings or {})}),
            log_directory=self.logs,
            log_file_name="master.log",
            clock=ManualClock(NOW),
            ids=CountingIdFactory(),
        )

    def app(self, settings: RestSettings | None = None) -> FastAPI:
        """The application over this cluster."""
        return create_app(self.services, settings)


def client_of(app: FastAPI) -> AsyncClient:
    """A client that calls the application without a network."""
    return AsyncClient(transport=ASGITransport(app), base_url="http://localhost")

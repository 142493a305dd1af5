"""SparkDrivers in slots of a TaskExecutor, as processes that a test plays: slots, repeats, fencing, ends."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tests.unit.container.supervisor.conftest import eventually
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.container.protocol.errors import SlotNotAvailableError
from yarrow.container.supervisor.hosted_spark_drivers import DriverProcess, HostedSparkDrivers
from yarrow.container.supervisor.slot_table import SlotTable, TaskExecutorSlotState
from yarrow.container.supervisor.spark_driver_processes import SparkDriverProcesses
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import AllocationID, JobID, JobMasterID, ResourceID, ResourceManagerID
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc import spark_driver_process
from yarrow.runtime.rpc.bootstrap import PemIdentity, ProcessBootstrap
from yarrow.runtime.rpc.messages import ResourceProfile, SlotID, SlotRequest, SparkDriverStart
from yarrow.runtime.rpc.roles import Role

HERE = ResourceID("host:1")
SECRET = b"-----BEGIN PRIVATE KEY----- of the driver"
IDENTITY = PemIdentity(certificate=b"c", private_key=SECRET, role=Role.SPARK_DRIVER)


def master(epoch: int = 1, name: str = "0") -> JobMasterID:
    return JobMasterID(token_of_epoch(epoch, name * 32))


def start_of(
    allocation: str = "a", index: int = 0, job: str = "job", job_master_id: JobMasterID | None = None
) -> SparkDriverStart:
    return SparkDriverStart(
        slot=SlotRequest(
            slot_id=SlotID(resource_id=HERE, index=index),
            job_id=JobID(job),
            allocation_id=AllocationID(allocation),
            profile=ResourceProfile(),
            job_master_address="grpc://master:1/jobmanager_1",
            job_master_id=job_master_id or master(),
            resource_manager_id=ResourceManagerID("rm"),
        ),
        driver_id=ResourceID(f"sparkdriver-{allocation}"),
        configuration={"spark.driver.memory": "2 gb", "a": "job's"},
        identity=msgspec.msgpack.encode(IDENTITY),
    )


class PlayedProcess:
    """A process that ends when the test or its owner says so."""

    def __init__(self) -> None:
        self.pid = 7
        self.graces: list[float | None] = []
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        #: Not set = it resists its end.
        self.obeys = asyncio.Event()
        self.obeys.set()

    def workers(self) -> list[tuple[str, int]]:
        return [("batch worker of slot 0", 8)]

    def dies(self, cause: str) -> None:
        if not self._end.done():
            self._end.set_result(cause)

    async def wait(self) -> str:
        return await asyncio.shield(self._end)

    async def end(self, grace: float | None = None) -> None:
        self.graces.append(grace)
        await self.obeys.wait()
        self.dies("released (exit status 0)")
        await self._end


@dataclass
class Host:
    """The drivers of a TaskExecutor with two slots."""

    table: SlotTable = field(default_factory=lambda: SlotTable(HERE, 2, ResourceProfile(), ManualClock(1)))
    processes: list[PlayedProcess] = field(default_factory=list)
    gone: list[tuple[int, str, str]] = field(default_factory=list)
    #: Not set = processes take long to start.
    may_start: asyncio.Event = field(default_factory=asyncio.Event)
    failure: OSError | None = None

    def __post_init__(self) -> None:
        self.may_start.set()
        self.drivers = HostedSparkDrivers(self.table, self._start, self._gone)

    async def _start(self, start: SparkDriverStart) -> DriverProcess:
        await self.may_start.wait()
        if self.failure is not None:
            raise self.failure
        self.processes.append(PlayedProcess())
        return self.processes[-1]

    def _gone(self, index: int, allocation_id: AllocationID, cause: str) -> None:
        self.gone.append((index, allocation_id, cause))

    def states(self) -> list[TaskExecutorSlotState]:
        return [slot.state for slot in self.table]


FREE, ALLOCATED, ACTIVE, RELEASING = TaskExecutorSlotState


def test_a_driver_has_its_slot_from_its_request_until_nothing_of_it_is_left() -> None:
    async def body() -> None:
        host = Host()
        host.may_start.clear()
        host.drivers.start(start_of())
        await settled()
        assert host.states() == [ALLOCATED, FREE]
        host.may_start.set()
        await settled()
        assert host.states() == [ACTIVE, FREE]
        assert host.drivers.processes == {"sparkdriver-a": 7}
        assert host.drivers.workers() == [("batch worker of slot 0", 8)]
        [process] = host.processes
        process.obeys.clear()
        assert host.drivers.free(AllocationID("a"), "its job has ended")
        await settled()
        assert host.states() == [RELEASING, FREE], "its process still ends"
        assert host.table.report().slots[0].allocation_id == "a"
        process.obeys.set()
        await settled()
        assert host.states() == [FREE, FREE]
        assert host.gone == [(0, "a", "its job has ended")]
        assert not host.drivers.free(AllocationID("a"), "again")

    run(body())


def test_a_repeated_request_starts_one_process_and_a_late_one_none() -> None:
    async def body() -> None:
        host = Host()
        for _ in range(3):
            host.drivers.start(start_of())
        await settled()
        assert len(host.processes) == 1
        host.processes[0].dies("killed by SIGKILL")
        await settled()
        assert host.gone == [(0, "a", "killed by SIGKILL")]
        with pytest.raises(SlotNotAvailableError, match="has ended here: request another slot"):
            host.drivers.start(start_of())
        with pytest.raises(SlotNotAvailableError, match="has ended here"):
            host.drivers.start(start_of(index=1))
        assert host.states() == [FREE, FREE]

    run(body())


def test_a_taken_slot_is_refused() -> None:
    async def body() -> None:
        host = Host()
        host.table.allocate(0, JobID("stream"), AllocationID("s"))
        with pytest.raises(SlotNotAvailableError, match="slot 0"):
            host.drivers.start(start_of())
        await settled()
        assert host.processes == []
        assert not host.drivers.free(AllocationID("s"), "it is no driver's")

    run(body())


def test_a_driver_that_does_not_start_frees_its_slot_with_the_cause() -> None:
    async def body() -> None:
        host = Host(failure=OSError("no space left on device"))
        host.drivers.start(start_of())
        await settled()
        assert host.gone == [(0, "a", "it could not be started: no space left on device")]
        assert host.states() == [FREE, FREE]

    run(body())


def test_a_driver_that_is_freed_while_it_starts_ends_at_once() -> None:
    async def body() -> None:
        host = Host()
        host.may_start.clear()
        host.drivers.start(start_of())
        await settled()
        host.drivers.free(AllocationID("a"), "not needed")
        await settled()
        assert host.states() == [RELEASING, FREE]
        host.may_start.set()
        await settled()
        assert len(host.processes[0].graces) == 1
        assert host.gone == [(0, "a", "not needed")]

    run(body())


def test_a_new_master_ends_the_drivers_of_the_former_one() -> None:
    async def body() -> None:
        host = Host()
        host.drivers.start(start_of("a", 0, "first", master(1)))
        host.drivers.start(start_of("b", 1, "second", master(2)))
        await settled()
        host.drivers.end_older_than(2)
        await settled()
        assert host.gone == [(0, "a", "its JobMaster does not lead any more: epoch 2 has begun")]
        assert host.states() == [FREE, ACTIVE]
        await host.drivers.close("the test ends", 1)

    run(body())


def test_a_driver_of_the_jobs_next_master_replaces_the_former_ones_and_never_the_other_way() -> None:
    async def body() -> None:
        host = Host()
        host.drivers.start(start_of("b", 1, "job", master(2)))
        await settled()
        with pytest.raises(FencingTokenError, match="does not lead any more"):
            host.drivers.start(start_of("a", 0, "job", master(1)))
        assert host.states() == [FREE, ACTIVE]
        host.drivers.start(start_of("c", 0, "job", master(3)))
        await settled()
        assert [one[:2] for one in host.gone] == [(1, "b")]
        assert host.states() == [ACTIVE, FREE]
        await host.drivers.close("the test ends", 1)

    run(body())


def test_the_end_of_the_task_executor_is_the_end_of_its_drivers() -> None:
    async def body() -> None:
        host = Host()
        host.drivers.start(start_of("a", 0, "first"))
        host.drivers.start(start_of("b", 1, "second"))
        await settled()
        await host.drivers.close("the TaskExecutor ends", 2.5)
        assert [process.graces for process in host.processes] == [[2.5], [2.5]]
        assert host.states() == [FREE, FREE]
        assert len(host.gone) == 2

    run(body())


def test_the_end_of_the_task_executor_leaves_less_time_to_drivers_that_end_already() -> None:
    async def body() -> None:
        host = Host()
        host.drivers.start(start_of("a", 0, "first"))
        await settled()
        [process] = host.processes
        process.obeys.clear()
        host.drivers.free(AllocationID("a"), "its job has ended")
        await settled()
        assert process.graces == [None]
        closing = asyncio.get_running_loop().create_task(host.drivers.close("the TaskExecutor ends", 2.5))
        await settled()
        assert process.graces == [None, 2.5]
        process.obeys.set()
        await closing
        assert host.states() == [FREE, FREE]

    run(body())


_TELLS_ITS_BOOTSTRAP = """
import os, sys
from pathlib import Path
from yarrow.runtime.rpc.bootstrap import read_spark_driver_bootstrap
bootstrap = read_spark_driver_bootstrap(sys.stdin.buffer)
folder = Path(bootstrap.log_directory)
(folder / "arguments").write_bytes(Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes())
(folder / "new").write_text(repr({
    "log_name": bootstrap.log_name, "slots": bootstrap.slots, "task_executor": bootstrap.task_executor,
    "configuration": bootstrap.configuration, "key": bootstrap.identity.private_key,
    "secret": bootstrap.data_secret, "master": bootstrap.job_master_address,
    "folder": bootstrap.working_directory,
}))
(folder / "new").rename(folder / "told")
while os.read(0, 100):
    pass
"""


def test_a_process_gets_its_secrets_by_its_pipe_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_driver_process, "_COMMAND", ("-c", _TELLS_ITS_BOOTSTRAP))
    log, work = tmp_path / "log", tmp_path / "work"
    work.mkdir()
    own = ProcessBootstrap(
        application_id="app",
        host="127.0.0.1",
        bind_host="127.0.0.1",
        identity=PemIdentity(certificate=b"te", private_key=b"the key of the TaskExecutor"),
        data_secret=b"what proves data",
        configuration={"a": "cluster's", "b": "cluster's"},
        log_directory=str(log),
        working_directory=str(work),
    )

    async def body() -> dict[str, object]:
        processes = SparkDriverProcesses(own, HERE, 2, "taskexecutor-host_1")
        process = await processes.start(start_of("../../up"))
        await eventually((log / "told").exists, "the process has told its bootstrap")
        told = (log / "told").read_text()
        [folder] = work.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        await process.end(60)
        assert await process.wait() == "released (exit status 0)"
        assert list(work.iterdir()) == []
        found: dict[str, object] = eval(told)
        assert found.pop("folder") == str(folder)
        return found

    told = run(body())
    assert told == {
        "log_name": "taskexecutor-host_1-sparkdriver-.._.._up",
        "slots": 2,
        "task_executor": HERE,
        "configuration": {"a": "job's", "b": "cluster's", "spark.driver.memory": "2 gb"},
        "key": SECRET,
        "secret": b"what proves data",
        "master": "grpc://master:1/jobmanager_1",
    }
    seen = (log / "arguments").read_bytes()
    assert SECRET not in seen and b"what proves" not in seen
    assert repr(SECRET)[2:-1] not in repr(start_of()), "no log shows it"
    assert {path.name for path in log.iterdir()} == {
        "arguments",
        "told",
        "taskexecutor-host_1-sparkdriver-.._.._up.err",
    }


def test_a_driver_needs_an_interpreter_that_workers_could_use(tmp_path: Path) -> None:
    own = ProcessBootstrap(
        application_id="app",
        host="127.0.0.1",
        bind_host="127.0.0.1",
        identity=PemIdentity(),
        data_secret=b"",
        configuration={"python.executable": "/no/such/python"},
        log_directory=str(tmp_path),
        working_directory=str(tmp_path),
    )

    async def body() -> None:
        with pytest.raises(InvalidOptionValue, match="there is no such program"):
            await SparkDriverProcesses(own, HERE, 1, "taskexecutor").start(start_of())

    run(body())
    assert list(tmp_path.iterdir()) == []

"""A TaskExecutor gives slots, runs tasks in workers, reports, and heals what was lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.task_executor.conftest import (
    JOB,
    RESOURCE,
    Cluster,
    allocation,
    attempt,
    cluster,
    graph_of,
    make_bootstrap,
    task,
)
from tests.cluster.task_executor.fake_worker import DATA_PORT
from tests.cluster.task_executor.fakes import FakeResourceManager
from tests.unit.container.supervisor.conftest import eventually, process_runs, run, within
from yarrow.container.protocol.errors import (
    SlotNotAvailableError,
    SlotNotFoundError,
    TaskNotFoundError,
    TaskSubmissionError,
    UnknownLogFileError,
)
from yarrow.container.supervisor.job_slots import DEATHS_UNTIL_FREED
from yarrow.container.supervisor.process_watch import ProcessWatch
from yarrow.container.supervisor.slot_table import TaskExecutorSlotState
from yarrow.container.supervisor.task_executor_settings import settings_of
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import (
    AllocationID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceManagerID,
)
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, TOKEN_FILE_VARIABLE, HadoopToken, read_tokens
from yarrow.runtime.fs.token_files import written_tokens
from yarrow.runtime.graph.job_graph import ShippedFile, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.gateway_type import RESOURCE_MANAGER
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import AllocatedSlotReport, DelegationTokens, Deployment, OperatorEvent
from yarrow.runtime.rpc.restored_tasks import restored_bytes, without_restored
from yarrow.runtime.snapshot.handles import InlineStateHandle

pytestmark = pytest.mark.cluster
JOB_MASTER_ID = JobMasterID("jm-1")


def report_of(*allocations: AllocationID) -> AllocatedSlotReport:
    return AllocatedSlotReport(job_id=JOB, allocations=tuple((0, each) for each in allocations))


async def free_again(c: Cluster, index: int = 0) -> None:
    await eventually(lambda: c.state_of(index) is TaskExecutorSlotState.FREE, f"slot {index} is free")


def test_from_request_to_finished_task_and_back(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            (registration,) = c.resource_manager.registrations
            assert registration.resource_id == RESOURCE
            assert len(registration.slot_report.slots) == 2
            slot = await c.active_slot(1)
            offer = c.job_master.offers[slot]
            assert (offer.slot_index, offer.worker.resource_id) == (1, RESOURCE)
            await c.submit(graph_of("finish", "hold"), task(0, 0, slot), task(1, 0, slot))
            await eventually(
                lambda: c.job_master.state_of(attempt(0)) is ExecutionState.FINISHED, "the task finished"
            )
            held = (await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of(slot))).running
            assert held == (attempt(1),)
            await c.gateway.cancel_tasks(JOB, JOB_MASTER_ID, (attempt(1),))
            await eventually(
                lambda: c.job_master.state_of(attempt(1)) is ExecutionState.CANCELED, "it was cancelled"
            )
            assert c.state_of(1) is TaskExecutorSlotState.ACTIVE, (
                "a slot is kept until its JobMaster gives it back"
            )
            await c.gateway.free_slot(slot, "done")
            await eventually(lambda: c.resource_manager.freed == [(1, slot)], "the ResourceManager knows")
            await free_again(c, 1)
            assert not c.job_master.failed_slots

    run(body())


def test_each_job_gets_a_fresh_worker(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            ids = []
            for number in (1, 2):
                slot = await c.active_slot(0, number)
                ids.append(c.job_master.offers[slot].worker.worker_id)
                await c.gateway.free_slot(slot, "done")
                await free_again(c)
            assert ids == [f"{RESOURCE}/1", f"{RESOURCE}/2"]

    run(body())


@pytest.mark.parametrize("mode", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("name", "how"),
    [("segfault", "was ended by signal 11 (SIGSEGV)"), ("sys.exit", "ended with exit status 5")],
)
def test_a_crash_is_the_operators_failure_and_of_no_other_slot(
    mode: str, name: str, how: str, tmp_path: Path
) -> None:
    async def body() -> None:
        async with cluster(mode, tmp_path) as c:
            slot, other = await c.active_slot(0, 1), await c.active_slot(1, 2)
            first = c.job_master.offers[slot].worker.worker_id
            await c.submit(graph_of(name, "hold"), task(0, 1, slot), task(1, 0, other))
            await eventually(lambda: slot in c.job_master.failed_slots, "the slot was reported failed")
            cause = c.job_master.failed_slots[slot]
            assert cause.exception_name == "yarrow.container.protocol.errors.WorkerLostError"
            assert cause.message.startswith(
                f"the worker of slot 0 {how} while it ran operator 'the {name}' (subtask 2/2)"
            )
            assert cause.operator_name == f"the {name}"
            if name == "segfault":
                assert "Segmentation fault" in cause.stacktrace
                assert "fake_worker.py" in cause.stacktrace, "the stack of the crash is kept"
            await eventually(
                lambda: c.job_master.offers[slot].worker.worker_id != first, "the slot has another worker"
            )
            await eventually(
                lambda: c.state_of(0) is TaskExecutorSlotState.ACTIVE, "the slot was taken again"
            )
            assert c.resource_manager.freed == []
            assert c.state_of(1) is TaskExecutorSlotState.ACTIVE
            await eventually(
                lambda: c.job_master.state_of(attempt(1)) is ExecutionState.RUNNING, "the other task runs"
            )

    run(body())


def test_a_slot_that_keeps_killing_its_workers_is_given_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path) as c:
            slot = await c.active_slot()
            graph = graph_of("sys.exit")
            for number in range(DEATHS_UNTIL_FREED):
                worker = c.job_master.offers[slot].worker.worker_id
                await c.submit(graph, task(0, 0, slot))
                await eventually(lambda: slot in c.job_master.failed_slots, "the slot was reported failed")
                del c.job_master.failed_slots[slot]
                if number < DEATHS_UNTIL_FREED - 1:
                    await eventually(
                        lambda worker=worker: c.job_master.offers[slot].worker.worker_id != worker,  # type: ignore[misc]
                        "the slot has another worker",
                    )
            await eventually(lambda: c.resource_manager.freed == [(0, slot)], "the slot is free")

    run(body())


def test_a_task_that_does_not_end_when_cancelled_costs_its_worker(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path, cancellation_timeout=0.05) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("stuck"), task(0, 0, slot))
            await c.gateway.cancel_tasks(JOB, JOB_MASTER_ID, (attempt(),))
            await eventually(lambda: slot in c.job_master.failed_slots, "the worker was killed")
            cause = c.job_master.failed_slots[slot].message
            assert "SIGKILL" in cause
            assert "'stuck' (subtask 1/2) did not end within 0.05 s" in cause

    run(body())


def test_cancelling_what_never_came_is_answered(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            await c.active_slot()
            await c.gateway.cancel_tasks(JOB, JOB_MASTER_ID, (attempt(),))
            await eventually(
                lambda: c.job_master.state_of(attempt()) is ExecutionState.CANCELED, "it counts as cancelled"
            )

    run(body())


def test_a_task_cancelled_while_its_files_are_fetched_does_not_start(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            key = c.job_master.add_blob(encode_job_graph(graph_of("hold")))
            release = c.fault.hold("read_blob")
            submitted = c.executor.spawn(
                c.gateway.submit_tasks(
                    Deployment(
                        job_id=JOB,
                        job_master_id=JOB_MASTER_ID,
                        job_graph=b"",
                        job_graph_blob_key=key,
                        workers=(),
                        placements=(),
                        tasks=(task(0, 0, slot), task(0, 1, slot)),
                    )
                ),
                "submit",
            )
            await eventually(lambda: ("jm", "read_blob") in c.fault.seen, "the graph is being fetched")
            await c.gateway.cancel_tasks(JOB, JOB_MASTER_ID, (attempt(0, 0),))
            release()
            await within(submitted)
            await eventually(
                lambda: c.job_master.state_of(attempt(0, 1)) is ExecutionState.RUNNING, "the other one runs"
            )
            await eventually(
                lambda: c.job_master.state_of(attempt(0, 0)) is ExecutionState.CANCELED, "it was cancelled"
            )
            assert ExecutionState.RUNNING not in [
                update.state for update in c.job_master.updates if update.attempt_id == attempt(0, 0)
            ]

    run(body())


@pytest.mark.parametrize("damaged", [False, True])
def test_what_tasks_restore_is_fetched_where_it_is_too_long_for_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            restored = msgspec.structs.replace(
                task(0, 0, slot), restore_coordinator=InlineStateHandle(data=b"state of the enumerator")
            )
            whole = Deployment(
                job_id=JOB,
                job_master_id=JOB_MASTER_ID,
                job_graph=encode_job_graph(graph_of("hold")),
                workers=(),
                placements=(),
                tasks=(restored, task(0, 1, slot)),
            )
            sent: list[Any] = []
            for worker in c.executor.workers:
                monkeypatch.setattr(worker.handle, "send", noting(sent, worker.handle.send))
            data = b"nothing of the kind" if damaged else restored_bytes(whole)
            apart = without_restored(whole, c.job_master.add_blob(data))
            if damaged:
                with pytest.raises(TaskSubmissionError, match="restore cannot be read"):
                    await c.gateway.submit_tasks(apart)
                assert not sent
            else:
                await c.gateway.submit_tasks(apart)
                assert [message.deployment for message in sent] == [whole]

    run(body())


def noting(sent: list[Any], send: Callable[[Any], None]) -> Callable[[Any], None]:
    def note(message: Any) -> None:
        sent.append(message)
        send(message)

    return note


def test_shipped_files_arrive_under_names_of_ours(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path) as c:
            slot = await c.active_slot()
            key = c.job_master.add_blob(b"content of the file")
            files = (ShippedFile(name="../../evil", kind="python_file", blob_key=key),)
            await c.submit(graph_of("finish", files=files), task(0, 0, slot))
            await eventually(lambda: bool(c.output), "the worker printed the file")
            assert c.output == [("stdout", "file content of the file\n")]
            folder = tmp_path / "work" / f"job-{JOB}"
            assert [path.name for path in folder.iterdir()] == ["0"]
            await c.gateway.disconnect_job_master(JOB, JOB_MASTER_ID, "done")
            await eventually(lambda: not folder.exists(), "files of a job go with it")

    run(body())


def test_a_damaged_file_fails_the_deployment(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            key = c.job_master.add_blob(b"right")
            c.job_master.blobs[key] = b"wrong"
            files = (ShippedFile(name="f", kind="python_file", blob_key=key),)
            with pytest.raises(Exception, match="damaged in the blob store"):
                await c.submit(graph_of("finish", files=files), task(0, 0, slot))
            c.job_master.blobs[key] = b"right"
            await c.submit(graph_of("finish", files=files), task(0, 0, slot))

    run(body())


def test_refused_slots_and_taken_slots(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path) as c:
            c.job_master.refuse = True
            slot = await c.request_slot(0, 1)
            await eventually(lambda: c.resource_manager.freed == [(0, slot)], "a refused slot is free")
            c.job_master.refuse = False
            await c.active_slot(0, 2)
            with pytest.raises(SlotNotAvailableError, match=r"slot 0 .* ACTIVE"):
                await c.request_slot(0, 3)
            await c.request_slot(0, 2)

    run(body())


def test_a_slot_that_nobody_accepts_is_freed(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path, slot_timeout=0.05) as c:
            c.fault.drop_requests("offer_slots", 1_000_000)
            slot = await c.request_slot(0, 1)
            await eventually(lambda: c.resource_manager.freed == [(0, slot)], "the slot timed out")

    run(body())


def test_lost_messages_are_sent_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            c.fault.drop_requests("offer_slots", 2)
            c.fault.drop_replies("register_task_executor", 1)
            slot = await c.active_slot()
            c.fault.drop_requests("update_task_execution_states", 2)
            await c.submit(graph_of("finish"), task(0, 0, slot))
            await eventually(
                lambda: c.job_master.state_of(attempt()) is ExecutionState.FINISHED, "the end was reported"
            )
            states = [update.state for update in c.job_master.updates]
            assert states == [ExecutionState.RUNNING, ExecutionState.FINISHED]

    run(body())


def test_a_job_master_that_forgot_us_is_registered_with_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            await c.active_slot(0, 1)
            c.job_master.forget()
            await c.active_slot(1, 2)
            assert c.job_master.registered == [RESOURCE]

    run(body())


@pytest.mark.parametrize("start", ["fail", "die"])
def test_a_worker_that_does_not_start_frees_its_slot_and_says_why(start: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path, configuration={"test.start": start}) as c:
            slot = await c.request_slot(0, 1)
            await eventually(lambda: slot in c.job_master.failed_slots, "the failure was told")
            await eventually(lambda: c.resource_manager.freed == [(0, slot)], "the slot is free")
            expected = {"fail": "no module named 'x'", "die": "ended with exit status 9"}[start]
            assert expected in c.job_master.failed_slots[slot].message

    run(body())


def test_without_the_folder_of_its_workers_it_wants_to_end(tmp_path: Path) -> None:
    """A node that comes back removes the folders of containers that it does not know, and leaves their processes."""

    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            work = tmp_path / "work"
            work.rmdir()
            slot = await c.request_slot(0, 1)
            orderly, cause = await within(c.executor.finished)
            assert not orderly
            assert "was removed" in cause and str(work) in cause
            await eventually(lambda: slot in c.job_master.failed_slots, "the failure was told")
            await eventually(lambda: c.resource_manager.freed == [(0, slot)], "the slot is free")
            work.mkdir()

    run(body())


def test_a_slot_freed_before_its_worker_is_ready_is_free_again(start_mode: str, tmp_path: Path) -> None:
    """At whatever moment of the start: before the launch, between launch and StartWorker, before WorkerReady."""

    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            for number in range(1, 12):
                slot = await c.request_slot(0, number)
                for _ in range(number - 1):
                    await asyncio.sleep(0)
                c.executor.slots.free(slot, "not needed")
                await free_again(c)
            assert not c.job_master.failed_slots
            await c.active_slot(0, 100)

    run(body())


def test_slot_report_of_the_job_master_heals(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            lost = allocation(77)
            await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of(slot, lost))
            await eventually(lambda: lost in c.job_master.failed_slots, "a slot we lack was told")
            await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of())
            assert c.state_of(0) is TaskExecutorSlotState.ACTIVE, "one report may have crossed the offer"
            await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of())
            await free_again(c)

    run(body())


def test_metrics_and_accumulators_travel_with_heartbeats(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("metrics"), task(0, 0, slot))
            await eventually(lambda: bool(c.executor.slots.reports.process_metrics()), "metrics arrived")
            beat = await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of(slot))
            assert [(each.attempt_id, each.values) for each in beat.metrics] == [
                (attempt(), {"numRecordsIn": 3.0})
            ]
            assert [each.values for each in beat.accumulators] == [{"count": 1}]

            async def used() -> float:
                answer = await c.gateway.heartbeat_from_resource_manager(ResourceManagerID("rm-1"))
                assert answer.metrics["arrow"] == 5.0
                assert answer.slot_report.slots[0].allocation_id == slot
                return answer.metrics["Status.JVM.Memory.Heap.Used"]

            c.executor.sample_memory()
            while await used() == 0:
                pass
            names = [name for name, _ in c.executor.workers.processes()]
            assert names == ["supervisor", "template", "worker of slot 0"]

    run(body())


def test_new_delegation_tokens_are_put_into_the_file_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "container_tokens"
    path.write_bytes(written_tokens([HadoopToken(HDFS_KIND, "one:8020", b"identifier", b"old")]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    fresh = written_tokens([HadoopToken(HDFS_KIND, "one:8020", b"identifier", b"fresh")])

    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            with pytest.raises(FencingTokenError):
                await c.gateway.update_delegation_tokens(
                    ResourceManagerID("rm-0"), DelegationTokens(number=1, content=fresh)
                )
            assert read_tokens(path)[0].password == b"old"
            with pytest.raises(YarrowError, match="begin with HDTS"):
                await c.gateway.update_delegation_tokens(
                    ResourceManagerID("rm-1"), DelegationTokens(number=1, content=b"no tokens")
                )
            await c.gateway.update_delegation_tokens(
                ResourceManagerID("rm-1"), DelegationTokens(number=1, content=fresh)
            )
            assert path.read_bytes() == fresh

    run(body())


def test_the_data_port_is_told_while_a_worker_takes_data_from_other_hosts(tmp_path: Path) -> None:
    async def body() -> None:
        workers = settings_of(make_bootstrap(tmp_path, listen_tcp=True)).workers
        async with cluster("in-process", tmp_path, workers=workers) as c:

            async def data_port() -> int:
                answer = await c.gateway.heartbeat_from_resource_manager(ResourceManagerID("rm-1"))
                return answer.data_port

            assert await data_port() == -1
            await c.active_slot()
            assert await data_port() == DATA_PORT

    run(body())


def test_operator_events_reach_the_worker_and_come_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("finish"), task(0, 0, slot))
            await eventually(
                lambda: c.job_master.state_of(attempt()) is ExecutionState.FINISHED, "the task finished"
            )
            event = OperatorEvent(
                job_id=JOB,
                vertex_id=JobVertexID("v0"),
                operator_id=OperatorID("o0"),
                target_subtask=-1,
                source_subtask=1,
                payload=b"split please",
            )
            # The coordinator beside a finished reader still serves the others.
            await c.gateway.send_operator_event(JOB_MASTER_ID, event)
            await eventually(lambda: c.job_master.events == [event], "the event made its round")
            with pytest.raises(TaskNotFoundError, match="subtask 1 of the vertex v0"):
                await c.gateway.send_operator_event(
                    JOB_MASTER_ID, msgspec.structs.replace(event, target_subtask=1)
                )

    run(body())


def test_collected_rows_wait_for_room(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("fork", tmp_path) as c:
            slot = await c.active_slot()
            c.job_master.room.clear()
            await c.submit(graph_of("collect"), task(0, 0, slot))
            await eventually(lambda: ("jm", "push_collected") in c.fault.seen, "rows are on their way")
            assert c.job_master.state_of(attempt()) is not ExecutionState.FINISHED
            c.job_master.room.set()
            await eventually(
                lambda: c.job_master.state_of(attempt()) is ExecutionState.FINISHED, "credit came back"
            )
            assert [rows.payload for rows in c.job_master.collected] == [b"rows"]

    run(body())


def test_stale_senders_are_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            stale = JobMasterID("jm-0")
            with pytest.raises(FencingTokenError, match="refuses a message of jm-0"):
                await c.gateway.cancel_tasks(JOB, stale, (attempt(),))
            with pytest.raises(FencingTokenError):
                await c.gateway.heartbeat_from_job_master(stale, report_of(slot))
            await c.gateway.disconnect_job_master(JOB, stale, "late")
            assert c.state_of(0) is TaskExecutorSlotState.ACTIVE
            with pytest.raises(FencingTokenError, match="has no slot for the job"):
                await c.gateway.cancel_tasks(JobID("f" * 32), stale, (attempt(),))
            with pytest.raises(FencingTokenError, match="the leader is rm-1"):
                await c.gateway.heartbeat_from_resource_manager(ResourceManagerID("rm-0"))
            with pytest.raises(SlotNotFoundError):
                await c.submit(graph_of("finish"), task(0, 0, allocation(9)))

    run(body())


def test_a_job_master_of_an_older_epoch_gets_no_slot(tmp_path: Path) -> None:
    """The newer one of the job keeps its slots, whenever the older one's request arrives."""

    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            await c.request_slot(0, 1, token_of_epoch(2, "a" * 32))
            with pytest.raises(FencingTokenError, match="which does not lead any more"):
                await c.request_slot(1, 2, token_of_epoch(1, "a" * 32))
            assert (c.state_of(0), c.state_of(1)) == (
                TaskExecutorSlotState.ALLOCATED,
                TaskExecutorSlotState.FREE,
            )

    run(body())


def test_memory_is_sampled_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[object] = []
    go_on = threading.Event()

    def slowly(watch: ProcessWatch, processes: object) -> None:
        samples.append(processes)
        go_on.wait()

    monkeypatch.setattr(ProcessWatch, "sample", slowly)

    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            try:
                c.executor.sample_memory()
                await eventually(lambda: len(samples) > 0, "the first sample has begun")
                c.executor.sample_memory()
                await c.executor.run_blocking(lambda: None)
                assert len(samples) == 1

                def sampled_again() -> bool:
                    c.executor.sample_memory()
                    return len(samples) > 1

                go_on.set()
                await eventually(sampled_again, "sampled again")
            finally:
                go_on.set()

    run(body())


class LaterClock(SystemClock):
    """The machine's clock, which a test moves forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_job_master_that_falls_silent_loses_its_slots(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        # No start of a worker takes as long as the silence that is allowed.
        clock, beat = LaterClock(), HeartbeatSettings(interval=0.1, timeout=600.0)
        async with cluster(start_mode, tmp_path, heartbeat=beat, clock=clock) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("hold"), task(0, 0, slot))
            clock.ahead += beat.timeout
            await free_again(c)
            with pytest.raises(FencingTokenError, match="silent for too long"):
                await c.gateway.heartbeat_from_job_master(JOB_MASTER_ID, report_of(slot))
            # The ResourceManager was silent too: it is registered with anew.
            await eventually(lambda: len(c.resource_manager.registrations) > 1, "registered again")

    run(body())


def test_a_new_leader_is_registered_with_and_jobs_go_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            successor = FakeResourceManager("rm-new", "rm-2")
            await successor.start()
            address = c.service.serve(RESOURCE_MANAGER, successor)
            c.leader.announce(LeaderInformation(address=address, leader_id="rm-2"))
            await eventually(lambda: bool(successor.registrations), "registered with the new leader")
            assert successor.registrations[0].slot_report.slots[0].allocation_id == slot
            assert c.state_of(0) is TaskExecutorSlotState.ACTIVE
            with pytest.raises(FencingTokenError):
                await c.request_slot(1, 2)
            await successor.stop()

    run(body())


def test_refused_by_the_resource_manager_it_wants_to_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            c.resource_manager.rejection = "too old"
            c.leader.announce(LeaderInformation(address="inproc://rm", leader_id="rm-1"))
            orderly, cause = await within(c.executor.finished)
            assert not orderly
            assert "too old" in cause

    run(body())


def test_without_a_resource_manager_it_gives_up(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path, registration_timeout=1.0) as c:
            c.leader.announce(None)
            _, cause = await within(c.executor.finished)
            assert "taskmanager.registration.timeout" in cause

    run(body())


def test_release_says_good_bye_and_ends_workers(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("hold"), task(0, 0, slot))
            pids = [pid for name, pid in c.executor.workers.processes() if name != "supervisor"]
            await c.gateway.release(ResourceManagerID("rm-1"), "idle")
            assert (await within(c.executor.finished))[0]
            await c.executor.stop()
            assert not any(map(process_runs, pids))
            assert (
                c.job_master.disconnects
                == c.resource_manager.disconnects
                == ["the TaskExecutor was released: idle"]
            )

    run(body())


def test_logs_and_thread_dump(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path) as c:
            slot = await c.active_slot()
            await c.submit(graph_of("print"), task(0, 0, slot))
            await eventually(
                lambda: c.job_master.state_of(attempt()) is ExecutionState.FINISHED, "the task finished"
            )
            name = f"taskexecutor-{RESOURCE}.out"
            assert name in [info.name for info in await c.gateway.request_log_list()]
            text = (await c.gateway.request_log(name, 0, 10_000_000)).decode()
            assert text.splitlines()[-1] == f"line 1999 of {attempt()}"
            assert text == "".join(lines for _, lines in c.output)
            with pytest.raises(UnknownLogFileError):
                await c.gateway.request_log("../work", 0, 10)
            dump = dict(await c.gateway.request_thread_dump())
            assert dump["slot 0: task thread"] == "at rest"
            assert "supervisor: MainThread" in dump

    run(body())
